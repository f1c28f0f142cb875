#!/usr/bin/env bash
# Clippy finds nothing: in all targets with all features, and in each package as it is without default features.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Features that need an installed SDK are sdk.sh's.
cargo clippy --locked --workspace --all-targets --features dma/conformance,bindings/generate -- -D warnings

# One at a time: together, their features would be united.
ci/members.sh | while read -r package _; do
    echo "$package without default features"
    cargo clippy --locked --quiet -p "$package" --no-default-features -- -D warnings
done
