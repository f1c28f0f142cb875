#!/usr/bin/env bash
# The stand-in SDKs are laid out as the vendors', and serve as those do: by soname and symbol version, to the features that
# need an installed SDK (`linked`, `bindgen`), and to the tests that are for hardware.
# `bindgen` needs libclang: without it that part is skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

arch=$(uname -m)
prefix=${CARGO_TARGET_DIR:-$PWD/target}/ci-sdk
mkdir -p "$prefix"
dma-doca/doca-emu/install "$prefix/doca" --profile test
dma-ioat/spdk-emu/install "$prefix/spdk" --profile test
doca=$prefix/doca/lib/$arch-linux-gnu
spdk=$prefix/spdk/lib
export PKG_CONFIG_PATH=$doca/pkgconfig:$spdk/pkgconfig LD_LIBRARY_PATH=$doca:$spdk
export DOCA_INCLUDE_DIR=$prefix/doca/include SPDK_INCLUDE_DIR=$prefix/spdk/include

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
    has "$doca/libdoca_$name.so" "soname: \[libdoca_$name\.so\.2\]"
done
has "$doca/libdoca_common.so" ' doca_dev_close@@DOCA_2$'
has "$doca/libdoca_common.so" ' doca_log_backend_create_standard@@EXPERIMENTAL$'
has "$doca/libdoca_dma.so" ' doca_dma_task_memcpy_alloc_init@@DOCA_2$'
has "$doca/libdoca_argp.so" ' doca_argp_start@@EXPERIMENTAL$'
has "$doca/libdoca_comch.so" ' doca_comch_server_create@@DOCA_2$'
has "$spdk/libspdk_ioat.so" 'soname: \[libspdk_ioat\.so\.9\]'
has "$spdk/libspdk_env_dpdk.so" 'soname: \[libspdk_env_dpdk\.so\.17\]'

# What is for hardware runs on whatever is installed; linked, nothing is looked for.
for features in "" linked; do
    echo "--- the tests for hardware, on the stand-ins${features:+, $features}"
    DMA_DOCA_LIB_DIR=$doca cargo test --locked -p dma-doca --features "$features" --test conformance_loaded -- --ignored hardware
    DMA_SPDK_LIB_DIR=$spdk cargo test --locked -p dma-ioat --features "$features" --test hardware -- --ignored
done

echo "--- bindgen"
status=0
ci/libclang.sh cargo clippy --locked -p dma-doca-sys -p dma-spdk-sys \
    --features dma-doca-sys/bindgen,dma-doca-sys/linked,dma-spdk-sys/bindgen,dma-spdk-sys/linked -- -D warnings || status=$?
((status == 0 || status == 77)) || exit "$status" # 77: it said what it left out
echo "the stand-in SDKs serve as the vendors' do"
