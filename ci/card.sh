#!/usr/bin/env bash
# Measures an engine on a real device, in at most eight minutes, and prints one table.
#   ci/card.sh cuda             builds the test for hardware and runs it on the first NVIDIA GPU
#   ci/card.sh cuda build       only builds it, and prints the path of the program
#   ci/card.sh cuda PROGRAM     runs this program, for a machine with a GPU and without Rust
# First, random pieces are copied in every way and compared with an oracle. Then each cell of a grid of lengths, numbers
# and directions is copied by the batch call, by the kernel, by single calls, and in the way that the engine has learned.
# Exits with 77 ("skipped") if the machine has no GPU. No step of .ci/run calls this script.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
    echo "usage: ci/card.sh cuda [build|PROGRAM]" >&2
    exit 2
}
build() {
    cargo test --locked --release -p dma-cuda --test hardware --no-run --message-format json-render-diagnostics </dev/null |
        sed -nE 's/.*"name":"hardware".*"executable":"([^"]+)".*/\1/p'
}

[[ $# =~ ^[12]$ && "$1" == cuda ]] || usage
if [[ "${2:-}" == build ]]; then
    build
    exit
fi
# The control device exists wherever the kernel's module is loaded and the container has the device.
[[ -e /dev/nvidiactl || -e /dev/dxg ]] || {
    echo "skipped: this machine has no NVIDIA GPU (/dev/nvidiactl)"
    exit 77
}
program=${2:-$(build)}
[[ -x "$program" ]] || usage

seconds=480 began=$SECONDS
left() { echo $((seconds - (SECONDS - began))); }
timeout "$(left)" "$program" --ignored --nocapture --test-threads=1 --exact random_pieces_keep_all_bytes_in_every_way
timeout "$(left)" "$program" --ignored --nocapture --test-threads=1 --exact rates_of_pieces_by_every_way_and_by_the_learned_one
