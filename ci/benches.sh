#!/usr/bin/env bash
# Every bench works. Each case runs once, and no time is judged, because that needs a quiet machine and a whole run of
# criterion.
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
# The profile of the tests, whose builds are reused. '*' selects benches only; without it cargo runs the unit tests too. The
# feature is that of dma-core's benches, which cargo skips without it.
cargo test --locked --workspace --features dma-core/conformance --bench '*' -- --test </dev/null
echo "$ran benches ran"
