#!/usr/bin/env bash
# Programs of other projects run on the stand-in driver, which is installed as libcuda.so.1:
# NVIDIA's Python bindings of the driver API (PyPI: cuda-bindings, 13 MB), NVIDIA's cuda-core, and the
# tests and eight examples of the Rust crate cudarc, except the tests that time a card or keep one busy for
# long and those of stream capture. The engine loads the same library: its hardware tests and the example
# 18_load_safetensors run on it, and dma-bench labels it as a model. CUDA C++ that NVIDIA's compiler NVRTC
# (PyPI: nvidia-cuda-nvrtc-cu12, 90 MB) makes into PTX for six generations of devices stores what numpy
# computes. NVIDIA's assembler (PyPI: nvidia-cuda-nvcc-cu12, 40 MB) takes the text of the engine's kernel for
# each generation of devices without spilling registers. Exits with 77 ("skipped") if PyPI or crates.io
# cannot be reached.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bindings=13.5.0 nvcc=12.9.86 nvrtc=12.9.86 core=1.2.2 pathfinder=1.9.1 numpy=2.4.6 cudarcs='0.19.4 0.19.10'
minutes=5 # for one program; they take seconds

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
limited() { timeout "${minutes}m" "$@"; }
skip() {
    echo "skipped: $1"
    exit 77
}

# A low optimisation level halves the build time.
standins/cuda-emu/install "$dir/cuda" --debug
lib=$dir/cuda/lib
two='memory = "64M"
[[gpu]]
[[gpu]]'

echo "--- the engine, by the installed library"
export DMA_CUDA_LIB_DIR=$lib
hardware=$(ci/built.sh dma-cuda test hardware)
CUDA_EMU='memory = "1G"' limited "$hardware" --ignored --skip rates
program=$(ci/built.sh dma-bench bin dma-bench)
bench() { CUDA_EMU='profile = "hopper"' limited "$program" "$@"; }
bench list >"$dir/list"
grep 'cuda:0000:17:00.0 is a model' "$dir/list" || {
    echo "dma-bench lists no model of a GPU: $(<"$dir/list")" >&2
    exit 1
}
bench run -e cuda -o 4K -q 1 --limit 5 >"$dir/report" 2>&1 || {
    echo "dma-bench fails on the stand-in: $(<"$dir/report")" >&2
    exit 1
}
grep -m 1 -F 'cuda [model]' "$dir/report" || {
    echo "dma-bench does not say that the stand-in is a model: $(<"$dir/report")" >&2
    exit 1
}
# dma-bench copies the GPU's memory back and compares every byte. It does not measure memcpy, which cannot access this
# memory.
bench run -e cuda -d to-device,from-device,on-device -o 64,8K -q 1,32 -a cold,hot -y --footprint 1M --limit 5 \
    --format csv --quiet >"$dir/device.csv" || {
    echo "dma-bench fails on the GPU's memory: $(<"$dir/device.csv")" >&2
    exit 1
}
for way in to-device from-device on-device; do
    ok=$(grep -c "^cuda,model,.*,$way,ok," "$dir/device.csv") || true
    ((ok == 8)) || {
        echo "of 8 cells $way, $ok are ok: $(<"$dir/device.csv")" >&2
        exit 1
    }
done
# A file goes into the GPU's memory and back, and all CRCs are equal.
example=$(ci/built.sh dma example 18_load_safetensors)
CUDA_EMU='profile = "hopper"' TMPDIR=$dir limited "$example" --engine cuda:0 >"$dir/example" || {
    echo "the example 18_load_safetensors fails on the stand-in: $(<"$dir/example")" >&2
    exit 1
}
unset DMA_CUDA_LIB_DIR

echo "--- NVIDIA's Python bindings"
python3 -c 'import sys, venv; sys.exit(sys.version_info < (3, 10))' || skip "no Python 3.10 with venv"
python3 -m venv "$dir/python"
limited "$dir/python/bin/pip" install --quiet --no-deps --disable-pip-version-check \
    "cuda-bindings==$bindings" "cuda-core==$core" "cuda-pathfinder==$pathfinder" "numpy==$numpy" >"$dir/pip" 2>&1 ||
    skip "pip cannot install cuda-bindings: $(tail -n 1 "$dir/pip")"
for settings in '' 'delay = "30us"' 'profile = "hopper"'; do
    echo "settings: ${settings:-none}"
    LD_LIBRARY_PATH=$lib CUDA_EMU="$settings
$two" limited "$dir/python/bin/python" standins/cuda-emu/tests/python/bindings.py
    LD_LIBRARY_PATH=$lib CUDA_EMU="$settings
$two" limited "$dir/python/bin/python" standins/cuda-emu/tests/python/core.py
done

echo "--- CUDA C++ by NVRTC"
limited "$dir/python/bin/pip" install --quiet --no-deps --disable-pip-version-check --target "$dir/nvrtc" \
    "nvidia-cuda-nvrtc-cu12==$nvrtc" >"$dir/pip" 2>&1 ||
    skip "pip cannot install nvidia-cuda-nvrtc-cu12: $(tail -n 1 "$dir/pip")"
nvrtc_lib=$dir/nvrtc/nvidia/cuda_nvrtc/lib
# The name that cudarc loads.
ln -s libnvrtc.so.12 "$nvrtc_lib/libnvrtc.so"
LD_LIBRARY_PATH=$lib limited "$dir/python/bin/python" standins/cuda-emu/tests/python/nvrtc.py "$nvrtc_lib/libnvrtc.so.12"

echo "--- NVIDIA's assembler"
[[ $(uname -m) == x86_64 ]] || skip "the assembler is for x86-64"
limited "$dir/python/bin/pip" install --quiet --no-deps --disable-pip-version-check --target "$dir/nvcc" \
    "nvidia-cuda-nvcc-cu12==$nvcc" >"$dir/pip" 2>&1 ||
    skip "pip cannot install nvidia-cuda-nvcc-cu12: $(tail -n 1 "$dir/pip")"
ptxas=$dir/nvcc/nvidia/cuda_nvcc/bin/ptxas
chmod +x "$ptxas"
for architecture in sm_70 sm_80 sm_90 sm_100 sm_120; do
    limited "$ptxas" -v -arch="$architecture" engines/dma-cuda/src/pieces/pieces.ptx -o "$dir/kernel" >"$dir/ptxas" 2>&1 || {
        echo "ptxas refuses the kernel for $architecture: $(<"$dir/ptxas")" >&2
        exit 1
    }
    grep -q ' 0 bytes spill stores, 0 bytes spill loads' "$dir/ptxas" || {
        echo "the kernel spills registers on $architecture: $(<"$dir/ptxas")" >&2
        exit 1
    }
    echo "$architecture: $(grep -o 'Used [0-9]* registers' "$dir/ptxas"), no spills"
done

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/cudarc
for cudarc in $cudarcs; do
    echo "--- cudarc's tests, $cudarc"
    mkdir -p "$dir/fetch/src"
    touch "$dir/fetch/src/lib.rs"
    cat >"$dir/fetch/Cargo.toml" <<EOF
[package]
name = "fetch"
edition = "2024"

[dependencies]
cudarc = { version = "=$cudarc", default-features = false, features = ["std", "driver", "dynamic-loading", "cuda-13000"] }

[workspace]
EOF
    manifest=$(cargo metadata --format-version 1 --manifest-path "$dir/fetch/Cargo.toml" 2>"$dir/cargo") ||
        skip "cargo cannot fetch cudarc: $(tail -n 1 "$dir/cargo")"
    manifest=$(grep -o "[^\"]*/cudarc-$cudarc/Cargo.toml" <<<"$manifest" | head -n 1)
    cp -r "$(dirname "$manifest")" "$dir/cudarc-$cudarc"
    # The stand-in has no stream capture. The kernels of the last three compute for seconds on a card.
    CARGO_TARGET_DIR=$target LD_LIBRARY_PATH=$lib:$nvrtc_lib limited cargo test --quiet \
        --manifest-path "$dir/cudarc-$cudarc/Cargo.toml" \
        --no-default-features --features std,driver,nvrtc,dynamic-loading,cuda-13000 --lib -- --test-threads=1 \
        --skip test_pinned_copy_is_faster --skip test_default_pinned_host_reads_are_faster_than_write_combined \
        --skip test_end_capture --skip preserves_capture_error \
        --skip par_launch --skip multi_stream --skip waits_for_src_stream
    for example in 05-device-repr 09-constant-memory matmul-kernel nvrtc-compile 01-allocate 02-copy 03-launch-kernel 04-streams; do
        (cd "$dir/cudarc-$cudarc" && CARGO_TARGET_DIR=$target LD_LIBRARY_PATH=$lib:$nvrtc_lib limited cargo run --quiet \
            --no-default-features --features std,driver,nvrtc,dynamic-loading,cuda-13000 --example "$example" >"$dir/example") || {
            echo "cudarc's example $example fails: $(<"$dir/example")" >&2
            exit 1
        }
    done
    # The last one, and the one before it, compute sines on the device.
    grep -F 'Found [0.84147' "$dir/example"
done
