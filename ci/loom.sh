#!/usr/bin/env bash
# Loom visits every interleaving of what threads share. It runs in each package that has loom as a dependency.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
# Other flags, so another place: the normal build stays as it is.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
checked=0
while IFS=$'\t' read -r package folder; do
    grep -qE "^\[target\.'cfg\(loom\)'\.(dev-)?dependencies\]" "$folder/Cargo.toml" || continue
    echo "$package"
    cargo test --locked --release -p "$package" --lib loom </dev/null 2>&1 | tee "$log"
    grep -qE '^test result: ok\. [1-9]' "$log" || {
        echo "$package depends on loom, but no test with loom in its name ran" >&2
        exit 1
    }
    checked=$((checked + 1))
done < <(ci/members.sh)
((checked)) || {
    echo "no package has a section [target.'cfg(loom)'.dependencies] or [target.'cfg(loom)'.dev-dependencies]" >&2
    exit 1
}
