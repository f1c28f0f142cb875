#!/usr/bin/env bash
# A command that a page names for a figure works, and its limit holds.
#   ci/figures.sh       checks that each command that a page names for a figure is in one of the lists below: benchmarks, tests,
#                       programs of this repository that print times, and runs of dma-bench whose output a page shows
#   ci/figures.sh run   runs the commands of the list `weekly`. Benchmarks that count instructions have limits; the times of
#                       others depend on the machine, so they only have to end with success. Takes an hour.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Commands that `run` runs.
weekly='
cargo bench -p dma-bench --bench api -- --table
cargo bench -p dma-bench --bench harness
cargo bench -p dma-bench --bench tasks
cargo bench -p dma-core --bench pool
cargo bench -p dma-cpu --bench allocate
cargo bench -p dma-cpu --bench copy -- --hot
cargo bench -p dma-cpu --bench copy -- --table
cargo bench -p dma-cpu --bench instructions
cargo bench -p dma-cpu --bench peers
cargo bench -p dma-cpu --bench peers -- cold
cargo bench -p dma-cpu --bench peers -- hot
cargo bench -p dma-cpu --bench peers -- single
cargo bench -p dma-cpu --bench queue -- --table
cargo bench -p dma-cpu --bench results
cargo bench -p dma-cpu --bench rows
cargo bench -p dma-cuda --bench instructions
cargo bench -p dma-doca --bench instructions
cargo bench -p dma-dsa --bench instructions
cargo bench -p dma-cuda --bench device_files
cargo bench -p dma-cuda --bench device_files -- --fio fio
cargo bench -p dma-ioat --bench instructions
cargo bench -p dma-layers --bench auto
cargo bench -p dma-layers --bench instructions
cargo bench -p dma-layers --bench replay
cargo bench -p dma-rdma --bench instructions
cargo test --release -p dma-cuda --test pieces -- --ignored
cargo test --release -p dma-cuda --test random -- --ignored
cargo test -p dma-layers --test auto_failover -- --ignored --nocapture
cargo run --release -p dma-bench -- run --preset quick --report out.html
cargo run --release -p dma-bench -- run --preset quick --report out.html --json quick.json --plots plots
ci/nixl.sh figures
ci/preload.sh ratios
dma-bench run -e cpu -o 64K,128K,256K,512K,1M,4M -q 1,8 --preset quick
'
# Commands that other steps run, or a part of a command above.
elsewhere='
cargo bench -p instructions --bench dma_h
cargo bench -p instructions --bench posts
cargo bench -p instructions --bench safe_api
cargo bench -p dma-bench --bench api
cargo bench -p dma-rdma -p dma-dsa --bench instructions
cargo bench -p dma-rdma -p dma-dsa -p dma-cuda -p dma-doca --bench instructions
cargo test --doc -p dma
cargo test --test allocations
cargo test --workspace
cargo test -p dma-c --test nixl_plugin
cargo test -p dma-doca --test allocations
cargo test -p dma-ioat
cargo test -p dma-sim --test model_published -- --nocapture
cargo test -p dma-spdk-emu --test ioat doorbell -- --nocapture
python bindings/python/benches/figures.py
'
# Commands that need the hardware, or two machines (ci/kernel.sh has the latter).
hardware='
cargo test --release -p dma-cuda --test hardware -- --ignored --nocapture --test-threads=1
cargo test -p dma-dsa --test hardware -- --ignored --nocapture
cargo test -p dma-ioat --test hardware -- --ignored --nocapture
cargo test -p dma-rdma -- --ignored --nocapture hardware
cargo test -p dma-rdma --lib -- --ignored --exact tests::hosts::exporter
cargo test -p dma-rdma --lib -- --ignored --nocapture --test-threads=1 importer_
'
lines() { sed '/^$/d' <<<"$1" | LC_ALL=C sort; }

case "${1:-}" in
'')
    # shellcheck disable=SC2016 # a pattern
    programs='cargo (bench|test) [^`|#)]*|cargo run --release -p dma-bench [^`#]*|ci/[a-z]+\.sh (figures|ratios)|python [a-z/]+/benches/[a-z]+\.py'
    # The manual of dma-bench names runs that show its options. Figures of runs are in performance.md.
    named=$({
        git ls-files '*.md' | xargs grep -ohE "$programs"
        grep -ohE 'dma-bench run [^`…]*' docs/performance.md
    } | sed -E 's/[[:space:]]+$//; s/[,.;:]$//' | LC_ALL=C sort -u)
    listed=$(lines "$weekly$elsewhere$hardware")
    if [[ "$named" != "$listed" ]]; then
        echo "the pages name other commands than ci/figures.sh lists (<: listed, >: named):" >&2
        diff <(echo "$listed") <(echo "$named") >&2 || true
        exit 1
    fi
    echo "$(wc -l <<<"$named") commands of the pages: $(lines "$weekly" | wc -l) run every week, $(lines "$elsewhere" | wc -l) in other steps, $(lines "$hardware" | wc -l) need hardware"
    ;;
run)
    failed=0
    target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
    files=$(mktemp -d)
    trap 'rm -rf "$files"' EXIT
    while read -r command; do
        if [[ "$command" == *--fio* ]] && ! command -v fio >/dev/null; then
            echo "skipped: $command, because fio is not installed"
            continue
        fi
        echo "--- $command"
        status=0
        case $command in
        *dma-bench\ *run\ *)
            # shellcheck disable=SC2086 # split into words on purpose
            (cargo build --release --quiet --locked -p dma-bench && cd "$files" &&
                "$target/release/dma-bench" run ${command##* run }) </dev/null || status=$?
            ;;
        *) bash -c "$command" </dev/null || status=$? ;;
        esac
        if ((status && status != 77)); then
            echo "FAILED: $command" >&2
            failed=1
        fi
    done < <(lines "$weekly")
    exit $failed
    ;;
*)
    echo "usage: ci/figures.sh [run]" >&2
    exit 2
    ;;
esac
