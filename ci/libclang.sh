#!/usr/bin/env bash
# Runs a command with libclang where bindgen finds it: ci/libclang.sh COMMAND. Exits with 77 ("skipped") without libclang.
# LIBCLANG_PATH names its directory if that is not a usual one.
set -euo pipefail

if [[ -z "${LIBCLANG_PATH:-}" ]] && ! ldconfig -p | grep -q 'libclang[-.0-9]*\.so'; then
    found=$(find /usr/lib/llvm-*/lib /usr/lib64 -maxdepth 1 -name 'libclang[-.]*so*' 2>/dev/null | sort -V | tail -n 1)
    if [[ -z "$found" ]]; then
        echo "skipped: '$*', without libclang (apt-get install libclang1)"
        exit 77
    fi
    export LIBCLANG_PATH=${found%/*}
fi
exec "$@"
