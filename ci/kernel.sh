#!/usr/bin/env bash
# A real Linux kernel works with our device model and our engine, in virtual machines of ci/vm:
# - The kernel's I/OAT driver, ioatdma, accepts the engine of the stand-in SPDK as versions 3.2 and 3.4, copies random
#   ranges correctly, and detects a halted channel, a lost completion and a wrong copy.
# - The hardware tests of dma-rdma (conformance, random programs, rights) pass on the kernel's software RDMA device,
#   Soft-RoCE. Between two machines, the tests make 10,000 random copies, use each right separately, kill each side at
#   random moments, and take the link down. They compare the bandwidth of reads with `ib_read_bw`, which together with
#   `ibv_rc_pingpong` proves that the set-up works.
# - dma-copy copies between the two machines in both directions, resumes after the receiver was killed, and refuses to
#   copy if one side has no RDMA. dma-bench measures and compares memory of the other machine.
#   ci/kernel.sh ioatdma [COPIES]   the first part, with this number of copies for each seed (default: 6000; full: 20000)
#   ci/kernel.sh hosts              the others
# Exits with 77 ("skipped") or 75 ("slow") if ci/vm does.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Runs a part. A part that is skipped or too slow prints the reason itself.
ran=0 slow=0
part() {
    local status=0
    "$@" || status=$?
    case $status in
    0) ran=$((ran + 1)) ;;
    75) slow=1 ;;
    77) ;;
    *) exit "$status" ;;
    esac
}

# Faults of two functions begin after 5,000 copies.
copies=${2:-6000}
ioatdma() {
    echo "--- ioatdma"
    proxy=$(ci/built.sh dma-spdk-emu example pci_proxy)
    # 2021 would be the device id of Skylake, for which Linux assumes version 3.2.
    export SPDK_EMU="
    [[socket]]
    cbver = 0x32
    function = [{ pci = '00:10.0', device = 0x0e20 }]
    [[socket]]
    cbver = 0x34
    xfercap = '4K'
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
    [[socket]]
    faults = 'corrupt@5000'
    function = [{ pci = '00:15.0' }]
    [[socket]]
    faults = 'fail@5000'
    function = [{ pci = '00:16.0' }]
"
    module=(-b ci/guest/copies.c)
    if ! { command -v make && command -v gcc; } >/dev/null; then
        echo "skipped: random copies by ioatdma, because make and gcc, which build the kernel module, are missing"
        module=()
    fi
    part "$proxy" ci/vm "${module[@]}" -k ioatdma -a "memmap=1M\$1M copies=$copies" -q '{}' ci/guest/ioatdma.sh
    unset SPDK_EMU
}

hosts() {
    echo "--- Soft-RoCE"
    stripped=$(mktemp -d)
    trap 'rm -rf "$stripped"' EXIT
    programs=()
    while read -r package kind name as; do
        path=$(ci/built.sh "$package" "$kind" "$name")
        strip -o "$stripped/$as" "$path"
        programs+=(-f "$stripped/$as:bin/$as")
    done <<'END'
dma-rdma lib dma_rdma lib
dma-rdma test hardware hardware
dma-copy bin dma-copy dma-copy
dma-bench bin dma-bench dma-bench
END
    programs+=(-f ci/guest/rxe_programs.sh:rxe_programs.sh)
    part ci/rxe.sh -p ibverbs-utils -p perftest -f ibv_rc_pingpong -f ib_read_bw "${programs[@]}" ci/guest/rxe.sh
}

case "${1:-}" in
ioatdma | hosts) "$1" ;;
*)
    echo "usage: ci/kernel.sh ioatdma [COPIES]|hosts" >&2
    exit 2
    ;;
esac
((!slow)) || exit 75
((ran)) || exit 77
