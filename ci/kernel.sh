#!/usr/bin/env bash
# A real Linux kernel agrees with our models and our engine, in machines of ci/vm:
# - Its I/OAT driver, ioatdma, accepts the engine of the stand-in SPDK as versions 3.2 and 3.4, and notices a channel that
#   halts, a completion that is lost and a copy that is wrong.
# Exits with 77 ("skipped") where ci/vm does.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")

echo "--- ioatdma"
cargo build --locked -p dma-spdk-emu --example pci_proxy
# 2021 would be Skylake's number, whose version Linux takes for 3.2.
export SPDK_EMU="
    [[socket]]
    cbver = 0x32
    function = [{ pci = '00:10.0', device = 0x0e20 }]
    [[socket]]
    cbver = 0x34
    function = [{ pci = '00:11.0', device = 0x0b00 }]
    [[socket]]
    faults = 'fail@2'
    function = [{ pci = '00:12.0' }]
    [[socket]]
    faults = 'lose@2'
    function = [{ pci = '00:13.0' }]
    [[socket]]
    faults = 'corrupt@2'
    function = [{ pci = '00:14.0' }]
"
"$target/debug/examples/pci_proxy" ci/vm -k ioatdma -a "memmap=1M\$1M" -q '{}' ci/guest/ioatdma.sh
unset SPDK_EMU
