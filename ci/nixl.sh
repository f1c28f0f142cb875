#!/usr/bin/env bash
# The NIXL plugin works in NIXL's own wheels from PyPI, in the oldest 1.x that it accepts and in the
# newest. The order of the virtual functions equals that of NIXL's own plugins. NIXL reads and calls the
# members that the plugin declares. Random transfers within a process and between two processes are
# correct, also if the processes act as on two hosts with RDMA. A transfer to a killed peer fails. Transfers
# between VRAM of two processes are correct on the stand-in for CUDA's driver.
#
#   ci/nixl.sh            runs the tests that CI runs
#   ci/nixl.sh figures    prints the times of transfers by this plugin and by UCX, on a machine without other load
#   ci/nixl.sh hosts      runs transfers between two virtual machines that are connected by Soft-RoCE (ci/rxe.sh), until one
#                         process is killed, and until one machine ends
#   ci/nixl.sh full       runs 10,000 transfers over cpu, doca and dsa on their stand-ins, kills 100 peers, and
#                         shows that tests of the plugin tell wrong declarations of NIXL's classes
#
# Exits with 77 ("skipped") if the wheels or the machines' packages cannot be downloaded. bindings/c/tests/nixl_plugin.rs needs no wheel.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

oldest=1.0.0 newest=1.5.1
seconds=600 # for one program; they take some seconds

skip() {
    echo "skipped: $1"
    exit 77
}

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
prefix=$target/ci-nixl
mkdir -p "$prefix"

command -v python3 >/dev/null || skip "there is no Python"
python3 -m pip --version >/dev/null 2>&1 || skip "there is no pip"
# Dependencies are not installed, because they are PyTorch and 3 GB of CUDA.
wheel() { # DIRECTORY PACKAGE
    [[ -e "$prefix/$1/installed" ]] && return
    rm -rf "${prefix:?}/$1"
    timeout 300 python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --root-user-action=ignore --target "$prefix/$1" "$2" >"$prefix/log" 2>&1 ||
        skip "pip cannot install $2: $(tail -n 1 "$prefix/log")"
    touch "$prefix/$1/installed"
}
wheel numpy numpy
for version in "$oldest" "$newest"; do
    wheel "$version" "nixl-cu12==$version"
done
# The oldest wheel imports PyTorch, although these programs do not use it.
mkdir -p "$prefix/torch"
echo >"$prefix/torch/torch.py"

# The plugin of `full` and `figures` is the one that users install. Without optimisation it is built in a third of the time.
profile=dev
[[ "${1:-}" != @(full|figures) ]] || profile=release
bindings/c/nixl/install "$prefix/plugin" --profile "$profile"
tests=bindings/c/tests/nixl
in_wheel() { # VERSION PROGRAM [ARGUMENT...]
    local version=$1
    shift
    NIXL_PLUGIN_DIR=$prefix/plugin NIXL_LOG_LEVEL=ERROR PYTHONDONTWRITEBYTECODE=1 \
        PYTHONPATH=$prefix/$version:$prefix/numpy:$prefix/torch \
        timeout "$seconds" "${runner[@]}" python3 "$@" </dev/null 2>"$prefix/log" || {
        echo "$* in nixl-cu12 $version: exit status $? (124: ran for more than $seconds s)" >&2
        cat "$prefix/log" >&2
        exit 1
    }
}
runner=()

build() { # NAME: builds a program with the C interface of the newest wheel
    local libraries=$prefix/$newest/.nixl_cu12.mesonpy.libs
    cc -std=c11 -O2 -Wall -Wextra -pedantic -Werror "$tests/$1.c" -o "$prefix/$1" "$libraries/libnixl_capi.so" \
        -Wl,-rpath,"$libraries",--allow-shlib-undefined
}
if [[ "${1:-}" == hosts ]]; then
    build hosts
    # The wheel's libraries and the plugin are 80 MB.
    exec ci/rxe.sh -m 640 -f "$prefix/hosts:bin/hosts" -f "$prefix/plugin/libplugin_DMA.so:plugins/libplugin_DMA.so" \
        -f '@usr/lib/*/libibverbs.so.1' ci/guest/rxe_nixl.sh
fi

if [[ "${1:-}" == figures ]]; then
    build figures
    python3 "$tests/figures.py" "$prefix/figures" "$prefix/plugin" "${2:-5}"
    exit
fi

standins/rdma-emu/install "$prefix/rdma" --profile dev
export DMA_IBVERBS_LIB_DIR=$prefix/rdma
standins/cuda-emu/install "$prefix/cuda" --profile dev
export DMA_CUDA_LIB_DIR=$prefix/cuda/lib
far=(remote=rdma listen=127.0.0.1 peers=remote)

if [[ "${1:-}" == full ]]; then
    standins/doca-emu/install "$prefix/doca"
    standins/dsa-emu/install "$prefix/dsa"
    DMA_DOCA_LIB_DIR=$(dirname "$(find "$prefix/doca" -name 'libdoca_common.so' | head -n 1)")
    export DMA_DOCA_LIB_DIR
    for version in "$oldest" "$newest"; do
        for engine in cpu doca; do
            in_wheel "$version" "$tests/transfers.py" "$engine" 10000 7
        done
        runner=("$prefix/dsa/bin/dsa-emu-run")
        in_wheel "$version" "$tests/transfers.py" dsa 10000 7
        runner=()
        in_wheel "$version" "$tests/kills.py" 100 7
        in_wheel "$version" "$tests/transfers.py" cpu 10000 7 "${far[@]}"
        in_wheel "$version" "$tests/kills.py" 100 7 "${far[@]}"
    done
    cargo test --locked -p dma-c --test nixl_plugin -- --ignored --exact wrong_declarations_are_told
    exit
fi

for version in "$oldest" "$newest"; do
    echo "--- nixl-cu12 $version"
    python3 "$tests/slots.py" "$prefix/$version/.nixl_cu12.mesonpy.libs/plugins/libplugin_POSIX.so"
    in_wheel "$version" "$tests/canary.py" "sim:profile=bluefield3,clock=real"
    for engine in cpu sim:seed=7; do
        in_wheel "$version" "$tests/transfers.py" "$engine" 200 "$RANDOM"
    done
    in_wheel "$version" "$tests/kills.py" 4 "$RANDOM"
    in_wheel "$version" "$tests/transfers.py" cpu 200 "$RANDOM" "${far[@]}"
    in_wheel "$version" "$tests/kills.py" 2 "$RANDOM" "${far[@]}"
    in_wheel "$version" "$tests/vram.py" "$DMA_CUDA_LIB_DIR/libcuda.so.1"
done
