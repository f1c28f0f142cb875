#!/usr/bin/env bash
# Valgrind's memcheck finds no error in a program on each engine: `cpu`, `sim`, `auto`, and `doca`, `ioat`, `rdma` and
# `cuda` on their stand-ins. `dsa` is omitted, because valgrind does not know instructions that its stand-in uses. Three
# C programs on dma.h also run, including misuses of it. The calls that users write, and posts of prepared
# transfers of the NIXL plugin, exceed their figures in tests/instructions/benches by at most 3 %.
#
# Uses the installed valgrind, or Debian's, unpacked below the target directory. Exits with 77 ("skipped") if valgrind
# cannot be downloaded.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=300 # for one program; they take a few, and a busy machine is slower

skip() {
    echo "skipped: $1"
    exit 77
}

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
prefix=$target/ci-valgrind
mkdir -p "$prefix"
valgrind=$(command -v valgrind || true)
if [[ -z "$valgrind" ]]; then
    valgrind=$prefix/usr/bin/valgrind
    if [[ ! -x "$valgrind" ]]; then
        command -v apt-get >/dev/null || skip "there is neither valgrind nor apt-get to download it"
        debs=$(mktemp -d)
        trap 'rm -rf "$debs"' EXIT
        # Valgrind needs the symbols of the C library's loader, which Debian has in the second package.
        (cd "$debs" && timeout 300 apt-get -q -o Acquire::Retries=3 download valgrind libc6-dbg >log 2>&1) ||
            skip "apt-get cannot download valgrind: $(tail -n 1 "$debs/log")"
        for deb in "$debs"/*.deb; do
            dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$prefix"
        done
    fi
    export VALGRIND_LIB=$prefix/usr/libexec/valgrind VALGRIND_OPTS=--extra-debuginfo-path=$prefix/usr/lib/debug
    export PATH=$prefix/usr/bin:$PATH # the bench looks for it there
fi

# The examples and the library of the README's test command. The library lies beside the test programs.
examples=$(dirname "$(ci/built.sh dma example 02_choose_engine)")
library=$(realpath "$examples/../deps/libdma_c.so")
standins/doca-emu/install "$prefix/doca" --profile dev
standins/spdk-emu/install "$prefix/spdk" --profile dev
standins/rdma-emu/install "$prefix/rdma" --profile dev
standins/cuda-emu/install "$prefix/cuda" --profile dev
export DMA_DOCA_LIB_DIR=$prefix/doca DMA_SPDK_LIB_DIR=$prefix/spdk DMA_IBVERBS_LIB_DIR=$prefix/rdma
export DMA_CUDA_LIB_DIR=$prefix/cuda/lib
# A small memory is enough: the stand-in maps its GPU's memory, and memcheck tracks every byte.
export CUDA_EMU='memory = "64M"'

for engine in cpu sim auto doca ioat rdma cuda; do
    echo "--- $engine"
    # The output is printed only if a run has errors.
    # Valgrind runs one thread at a time. Fair scheduling prevents a polling thread from blocking the other threads.
    timeout "$seconds" "$valgrind" -q --fair-sched=yes --error-exitcode=9 "$examples/02_choose_engine" "$engine" \
        >"$prefix/log" 2>&1 </dev/null || {
        status=$?
        cat "$prefix/log"
        echo "$engine under valgrind: exit status $status (9: errors of memcheck; 124: ran for more than $seconds s)" >&2
        exit 1
    }
    grep '^1 of 1 engines' "$prefix/log" || {
        cat "$prefix/log"
        echo "$engine does not copy under valgrind" >&2
        exit 1
    }
done

echo "--- cuda, memory of the device"
timeout "$seconds" "$valgrind" -q --fair-sched=yes --error-exitcode=9 "$examples/16_device_memory" cuda:0 \
    >"$prefix/log" 2>&1 </dev/null || {
    status=$?
    cat "$prefix/log"
    echo "device memory under valgrind: exit status $status (9: errors of memcheck; 124: ran for more than $seconds s)" >&2
    exit 1
}

# Links to the library under its soname.
soname=libdma.so.$(sed -n 's/^#define DMA_ABI_VERSION \([0-9]*\)u$/\1/p' bindings/c/include/dma.h)
ln -sf "$library" "$prefix/$soname"
for program in "every_call cpu sim:seed=7" misuse broken_devices; do
    echo "--- $program"
    read -r name engines <<<"$program"
    cc -std=c99 -g -Ibindings/c/include "bindings/c/tests/c/$name.c" -o "$prefix/$name" "$prefix/$soname" -Wl,-rpath,"$prefix"
    # shellcheck disable=SC2086 # split into words on purpose
    timeout "$seconds" "$valgrind" -q --error-exitcode=9 --leak-check=full --show-leak-kinds=definite \
        --errors-for-leak-kinds=definite "$prefix/$name" $engines </dev/null || {
        echo "$name under valgrind: exit status $? (9: errors of memcheck; 124: ran for more than $seconds s)" >&2
        exit 1
    }
done

echo "--- instructions of users' calls"
cargo bench --locked -p instructions
