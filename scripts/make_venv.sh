#!/bin/sh
# Makes a virtual environment with the first Python that works and is one of 3.11 to 3.13: sh scripts/make_venv.sh DIR
set -eu
venv=$1
seen=""

# A name on PATH may be a version manager's shim for a Python that is not there: only running it tells.
usable() {
    version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || return 1
    case $version in
        3.11 | 3.12 | 3.13) ;;
        *) seen="$seen $1 is Python $version;"; return 1 ;;
    esac
    # Debian and Ubuntu ship these two in a package of their own.
    "$1" -c 'import ensurepip, venv' 2>/dev/null || { seen="$seen $1 lacks venv;"; return 1; }
}

for python in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
    if usable "$python"; then
        echo "Making $venv with $python ($version)"
        "$python" -m venv --clear "$venv" && exit 0
        rm -rf "$venv"
        echo "error: $python could not make a virtual environment; the lines above say why" >&2
        exit 1
    fi
done

cat >&2 <<MESSAGE
error: Headrace needs a Python of version 3.11, 3.12 or 3.13 with the venv module.
  Found:${seen:- none that runs.}
  On Debian or Ubuntu: apt install python3 python3-venv. Elsewhere: https://www.python.org/downloads/
  A Python in another place: make PYTHON=/path/to/python3.12 ...
MESSAGE
exit 1
