#!/usr/bin/env bash
# Code that uses optional processor features also works on processors without them: the tests of kernels, checksums,
# comparisons, rows and operations within the call run natively, and on processor models of QEMU's user-mode emulation.
# The instructions that the stand-in DSA emulates are tested natively with the prefix LOCK, because QEMU's signals
# differ from the kernel's (no SIGBUS behind the end of a file, another signal for an undefined instruction in a child).
# ARCHITECTURE.md ("Processors") lists the processors that the suite covers.
#
# Uses the installed emulator, or Debian's, unpacked below the target directory. Exits with 77 ("skipped") if the
# emulator cannot be downloaded, or if the processor is not x86-64.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

skip() {
    echo "skipped: $1"
    exit 77
}

[[ "$(uname -m)" == x86_64 ]] || skip "these tests need an x86-64 processor"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")

qemu=$(command -v qemu-x86_64-static || command -v qemu-x86_64 || true)
if [[ -z "$qemu" ]]; then
    qemu=$target/ci-processors/qemu-x86_64-static
    if [[ ! -x "$qemu" ]]; then
        command -v apt-get >/dev/null || skip "there is neither qemu-x86_64 nor apt-get to download it"
        rm -rf "$target/ci-processors"
        mkdir -p "$target/ci-processors"
        debs=$(mktemp -d)
        trap 'rm -rf "$debs"' EXIT
        (cd "$debs" && timeout 300 apt-get -q -o Acquire::Retries=3 download qemu-user-static >log 2>&1) ||
            skip "apt-get cannot download qemu-user-static: $(tail -n 1 "$debs/log")"
        dpkg-deb --fsys-tarfile "$debs"/*.deb | tar -x -C "$debs" ./usr/bin/qemu-x86_64-static
        mv "$debs/usr/bin/qemu-x86_64-static" "$qemu"
    fi
fi

core=$(ci/built.sh dma-core lib dma_core)
cpu=$(ci/built.sh dma-cpu lib dma_cpu)

# passes PACKAGE PROGRAM FILTER: checks that PROGRAM has tests whose names contain FILTER, and that they pass on the
# model.
passes() {
    local package=$1 program=$2 filter=$3 log
    local emulator=()
    [[ "$model" == native ]] || emulator=("$qemu" -cpu "$model")
    log=$("${emulator[@]}" "$program" "$filter" 2>&1) || {
        printf '%s\n' "$log" | grep -v "TCG doesn't support" | tail -n 40
        echo "the tests of $package fail on $model" >&2
        return 1
    }
    grep '^test result: ok. [1-9]' <<<"$log" || {
        echo "$package has no tests $filter" >&2
        return 1
    }
}

features=$(sed -n 's/^flags[^:]*: //p' /proc/cpuinfo | head -n 1)
lacking=()
for feature in sse4_2 avx2 avx512f movdir64b enqcmd waitpkg; do
    grep -qw "$feature" <<<"$features" || lacking+=("$feature")
done
((${#lacking[@]} == 0)) ||
    echo "skipped: code that uses ${lacking[*]}, which this processor lacks"

# `max` has all features that QEMU emulates, but no AVX-512, FSRM, MOVDIR64B, ENQCMD or WAITPKG. `qemu64` is the
# smallest x86-64 processor, also without SSE 4.2, AVX2 and ERMS.
for model in native max qemu64; do
    echo "--- $model"
    passes dma-core "$core" racy_copy::
    passes dma-core "$core" inline
    passes dma-core "$core" planner::rows::
    passes dma-cpu "$cpu" kernel::
    passes dma-cpu "$cpu" inline::
done
echo "the tests pass on processor models with fewer features"
