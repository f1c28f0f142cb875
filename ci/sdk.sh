#!/usr/bin/env bash
# The stand-in SDKs are laid out as the vendors', and serve: C programs build with their pkg-config files, and the backends
# build with the features that need an installed SDK, `linked` and `bindgen`.
# `bindgen` needs libclang: without it that part is skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

arch=$(uname -m)
doca=${CARGO_TARGET_DIR:-$PWD/target}/ci-sdk/doca
mkdir -p "${doca%/*}"
dma-doca/doca-emu/install "$doca" --profile test
libraries=$doca/lib/$arch-linux-gnu
export PKG_CONFIG_PATH=$libraries/pkgconfig LD_LIBRARY_PATH=$libraries
export DMA_DOCA_LIB_DIR=$libraries DOCA_INCLUDE_DIR=$doca/include

echo "--- sonames and symbol versions"
has() { # FILE PATTERN
    local symbols
    symbols=$(readelf -dW --dyn-syms "$1")
    grep -qE "$2" <<<"$symbols" || {
        echo "$1 has nothing like $2" >&2
        exit 1
    }
}
for name in common dma argp comch; do
    has "$libraries/libdoca_$name.so" "soname: \[libdoca_$name\.so\.2\]"
done
has "$libraries/libdoca_common.so" ' doca_dev_close@@DOCA_2$'
has "$libraries/libdoca_common.so" ' doca_log_backend_create_standard@@EXPERIMENTAL$'
has "$libraries/libdoca_dma.so" ' doca_dma_task_memcpy_alloc_init@@DOCA_2$'
has "$libraries/libdoca_argp.so" ' doca_argp_start@@EXPERIMENTAL$'
has "$libraries/libdoca_comch.so" ' doca_comch_server_create@@DOCA_2$'

echo "--- linked"
# Linked, the libraries are there from the start and nothing is looked for.
cargo clippy --locked -p dma-doca --all-targets --features linked -- -D warnings
echo "--- bindgen"
status=0
ci/libclang.sh cargo clippy --locked -p dma-doca-sys --features bindgen,linked -- -D warnings || status=$?
((status == 0 || status == 77)) || exit "$status" # 77: it said what it left out
echo "the stand-in SDKs serve as the vendors' do"
