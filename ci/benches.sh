#!/usr/bin/env bash
# Every bench works. Each case runs once and no time is judged: that needs a quiet machine, and criterion's own run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
shopt -s nullglob

ran=0
while IFS=$'\t' read -r _ folder; do
    benches=("$folder"/benches/*.rs "$folder"/benches/*/main.rs)
    ran=$((ran + ${#benches[@]}))
done < <(ci/members.sh)
((ran)) || {
    echo "no bench ran: benches/*.rs were looked for in every package" >&2
    exit 1
}
# With what the tests were built with; '*': benches only, or cargo would run the unit tests too.
cargo test --locked --workspace --bench '*' -- --test </dev/null
echo "$ran benches ran"
