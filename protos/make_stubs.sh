#!/bin/sh
# Writes the Python stubs of the protos below a folder: PYTHON=.venv/bin/python sh protos/make_stubs.sh OUT
set -eu
out=$1
# protoc finds the mypy plugin on PATH, beside the Python that has it.
PATH="$(dirname "$PYTHON"):$PATH" "$PYTHON" -m grpc_tools.protoc -Iprotos \
    --python_out="$out" --pyi_out="$out" --grpc_python_out="$out" --mypy_grpc_out="quiet:$out" protos/headrace/v1/*.proto
