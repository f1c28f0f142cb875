#!/usr/bin/env bash
# Every benchmark works. Each case runs once. Times are not checked, because that needs a quiet machine and a complete
# run of criterion. Benchmarks that count instructions are not run here: valgrind.sh and figures.sh run them, with limits.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
shopt -s nullglob

names=()
while IFS=$'\t' read -r package folder; do
    [[ "$package" != instructions ]] || continue
    for bench in "$folder"/benches/*.rs "$folder"/benches/*/main.rs; do
        name=$(basename "${bench%/main.rs}" .rs)
        [[ "$name" == instructions ]] || names+=("$name")
    done
done < <(ci/members.sh)
((${#names[@]})) || {
    echo "no benchmark ran: no package has a file benches/*.rs" >&2
    exit 1
}
mapfile -t chosen < <(printf -- '--bench=%s\n' "${names[@]}" | sort -u)
# Uses the profile of the tests, to reuse their builds.
cargo test --locked --workspace "${chosen[@]}" -- --test </dev/null
echo "${#names[@]} benchmarks ran"
