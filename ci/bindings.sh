#!/usr/bin/env bash
# Proves that the committed declarations of the vendors' C calls are what the headers give.
# Needs libclang; LIBCLANG_PATH says where, if it is in no usual place.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ -z "${LIBCLANG_PATH:-}" ]] && ! ldconfig -p | grep -q 'libclang[-.0-9]*\.so'; then
    found=$(find /usr/lib/llvm-*/lib /usr/lib64 -maxdepth 1 -name 'libclang.so*' -o -maxdepth 1 -name 'libclang-*.so*' 2>/dev/null | grep -v cpp | sort -V | tail -n 1)
    if [[ -z "$found" ]]; then
        echo "skipped: generated declarations are not compared, without libclang (apt-get install libclang1)"
        exit 77
    fi
    export LIBCLANG_PATH=${found%/*}
fi
cargo run --locked --quiet -p bindings -- --check
echo "the generated declarations are what the headers give"
