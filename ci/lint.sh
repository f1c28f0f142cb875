#!/usr/bin/env bash
# Clippy reports nothing in all targets with all features, and in each package with features without the default ones.
#   ci/lint.sh        these checks
#   ci/lint.sh alone  each package alone, without default features: it names all features of its dependencies that it needs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Checks one package at a time, because cargo would unify the features of several packages.
bare() {
    echo "$1 without default features"
    cargo clippy --locked --quiet -p "$1" --no-default-features -- -D warnings </dev/null
}
if [[ "${1:-}" == alone ]]; then
    ci/members.sh | while read -r package _; do
        bare "$package"
    done
    exit
fi

# sdk.sh checks features that need an installed SDK.
cargo clippy --locked --workspace --all-targets --features dma/conformance,dma/schemars,dma/files,dma/metrics,dma/compio,dma/tokio-uring,dma/vm-memory,bindings/generate -- -D warnings

# The stand-in for DOCA 1.5 to 2.2 is a different library.
for generation in 1-5 2-2; do
    cargo clippy --locked --quiet -p dma-doca-emu --lib --features "generation-$generation" -- -D warnings
done

# This library has no standard library.
cargo clippy --locked --quiet -p dma-memcpy --lib --features preload -- -D warnings

ci/members.sh | while IFS=$'\t' read -r package folder; do
    # A package whose features are none by default is checked as a part of others.
    if grep -q '^default = \[.' "$folder/Cargo.toml"; then
        bare "$package"
    fi
done
