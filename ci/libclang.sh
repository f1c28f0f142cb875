#!/usr/bin/env bash
# Runs a command for which bindgen finds libclang: ci/libclang.sh COMMAND. Exits with 77 ("skipped")
# without libclang. If libclang is in an unusual directory, set LIBCLANG_PATH to that directory.
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
