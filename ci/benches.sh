#!/usr/bin/env bash
# Every benchmark works. Each case runs once. Times are not checked, because that needs a quiet machine and a complete
# run of criterion.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
shopt -s nullglob

ran=0
while IFS=$'\t' read -r _ folder; do
    benches=("$folder"/benches/*.rs "$folder"/benches/*/main.rs)
    ran=$((ran + ${#benches[@]}))
done < <(ci/members.sh)
((ran)) || {
    echo "no benchmark ran: no package has a file benches/*.rs" >&2
    exit 1
}
# Uses the profile of the tests, to reuse their builds. '*' selects only benchmarks: without it, cargo would also run
# the unit tests.
cargo test --locked --workspace --bench '*' -- --test </dev/null
echo "$ran benchmarks ran"
