#!/bin/sh
# Fails where the committed stubs are not those of the protos: PYTHON=.venv/bin/python sh protos/check_stubs.sh
set -eu
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
sh protos/make_stubs.sh "$fresh"
for stub in "$fresh"/headrace/v1/*; do
    cmp -s "$stub" "headrace/v1/$(basename "$stub")" || {
        echo "headrace/v1/$(basename "$stub") is not what the protos say; run make protos" >&2
        exit 1
    }
done
