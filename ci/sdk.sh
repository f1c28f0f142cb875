#!/usr/bin/env bash
# The stand-in SDKs have the directory layout, sonames and symbol versions of the vendors' SDKs. The
# features that need an installed SDK (`linked`, `bindgen`) and the hardware tests work with them.
# Without libclang, `bindgen` is skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

arch=$(uname -m)
# The path has a space.
prefix="${CARGO_TARGET_DIR:-$PWD/target}/ci sdk"
mkdir -p "$prefix"
standins/doca-emu/install "$prefix/doca" --profile dev
standins/spdk-emu/install "$prefix/spdk" --profile dev
doca=$prefix/doca/lib/$arch-linux-gnu
spdk=$prefix/spdk/lib
# Builds these programs before the variables are set: otherwise crates whose build scripts read the variables would be
# built again.
card=$(ci/built.sh dma-doca example test_card)
hardware=$(ci/built.sh dma-ioat test hardware)
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

# Runs the hardware tests on the installed SDK. With `linked`, the engine does not search for libraries.
echo "--- the tests for hardware, on the stand-ins"
DMA_DOCA_LIB_DIR=$doca "$card" dpu --tests alone
DMA_SPDK_LIB_DIR=$spdk "$hardware" --ignored
echo "--- the same, linked"
# Selects the whole workspace, so that all other crates are those of the README's test command. Other packages with tests
# for hardware do not depend on these features.
built=$(cargo build --locked --workspace --features dma-doca/linked,dma-ioat/linked --example test_card --test hardware \
    --message-format json-render-diagnostics </dev/null)
linked() { # FOLDER NAME: prints the path of a program
    local path
    path=$(sed -nE "s,.*\"manifest_path\":\"$PWD/$1/Cargo.toml\".*\"name\":\"$2\".*\"executable\":\"([^\"]+)\".*,\1,p" <<<"$built")
    [[ -n "$path" && "$path" != *$'\n'* ]] || {
        echo "$1 must have exactly one program $2 with the feature linked, but has: ${path:-none}" >&2
        return 1
    }
    echo "$path"
}
card=$(linked dma-doca test_card)
# Shared libraries of SPDK are loaded at run time also with this feature, from the folder that pkg-config named at the build.
hardware=$(linked dma-ioat hardware)
[[ "$(readelf -dW "$card")" == *NEEDED*"[libdoca_dma.so.2]"* ]] || {
    echo "$card is not linked to libdoca_dma.so.2" >&2
    exit 1
}
"$card" dpu --tests alone
"$hardware" --ignored

bindgen() { # clippy's arguments
    local status=0
    ci/libclang.sh cargo clippy --locked "$@" -- -D warnings || status=$?
    ((status == 0 || status == 77)) || exit "$status" # 77: it said what it left out
}

echo "--- bindgen"
bindgen -p dma-doca-sys -p dma-spdk-sys -p dma-ioat \
    --features dma-doca-sys/bindgen,dma-doca-sys/linked,dma-spdk-sys/bindgen,dma-spdk-sys/linked

echo "--- all features, without an SDK"
(
    unset PKG_CONFIG_PATH DOCA_INCLUDE_DIR SPDK_INCLUDE_DIR
    bindgen -p dma-doca -p dma-doca-sys -p dma-ioat -p dma-spdk-sys --all-features
)

echo "--- bindgen, on the headers of DOCA 2.5"
standins/doca-emu/install "$prefix/doca-2.5" --generation 2.5 --profile dev
older=$prefix/doca-2.5/include
find "$older" -name '*.h' -printf '#include <%f>\n' | cc -DDOCA_ALLOW_EXPERIMENTAL_API -I"$older" -fsyntax-only -xc -
for later in doca_task_batch doca_pe_event_mode doca_comch_server; do
    if grep -rqw "$later" "$older"; then
        echo "the headers of 2.5 declare $later, which a later version added" >&2
        exit 1
    fi
done
DOCA_INCLUDE_DIR=$older bindgen -p dma-doca -p dma-doca-sys --features dma-doca-sys/bindgen
echo "the stand-in SDKs can replace the vendors' SDKs"
