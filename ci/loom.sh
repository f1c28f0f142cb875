#!/usr/bin/env bash
# Loom checks every interleaving of the threads' shared state, in each package that depends on loom.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
# Other compiler flags need another target directory, so that the normal build is kept.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"

packages=()
while IFS=$'\t' read -r package folder; do
    if grep -qE "^\[target\.'cfg\(loom\)'\.(dev-)?dependencies\]" "$folder/Cargo.toml"; then
        packages+=("$package")
    fi
done < <(ci/members.sh)
((${#packages[@]})) || {
    echo "no package has a section [target.'cfg(loom)'.dependencies] or [target.'cfg(loom)'.dev-dependencies]" >&2
    exit 1
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "${packages[*]}"
# When the tests run, only loom takes time, so only loom is optimised.
quick=(--config profile.release.opt-level=0 --config 'profile.release.package."*".opt-level=0')
for package in loom generator scoped-tls; do
    quick+=(--config "profile.release.package.$package.opt-level=3")
done
cargo test --locked --release "${quick[@]}" "${packages[@]/#/--package=}" --lib loom </dev/null 2>&1 | tee "$log"
ran=$(grep -cE '^test result: ok\. [1-9]' "$log" || true)
((ran == ${#packages[@]})) || {
    echo "${#packages[@]} packages depend on loom, but tests with loom in their names ran in $ran" >&2
    exit 1
}
