#!/usr/bin/env bash
# Every example of every package runs as it is, without arguments, and ends well. `copy_file` needs arguments: readme.sh runs it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
shopt -s nullglob

seconds=300 # for one example; they take a few

ran=0
while IFS=$'\t' read -r package folder; do
    examples=()
    for file in "$folder"/examples/*.rs "$folder"/examples/*/main.rs; do
        name=${file#"$folder"/examples/}
        name=${name%/main.rs}
        examples+=("${name%.rs}")
    done
    ((${#examples[@]})) || continue
    cargo build --locked --release -p "$package" --examples
    for name in "${examples[@]}"; do
        [[ "$name" != copy_file ]] || continue
        echo "--- $package: $name"
        timeout "$seconds" cargo run --locked --release --quiet -p "$package" --example "$name" </dev/null || {
            echo "example $name of $package: exit status $? (124: ran for more than $seconds s)" >&2
            exit 1
        }
        ran=$((ran + 1))
    done
done < <(ci/members.sh)
((ran)) || {
    echo "no example ran: examples/*.rs and examples/*/main.rs were looked for in every package" >&2
    exit 1
}
echo "$ran examples ran"
