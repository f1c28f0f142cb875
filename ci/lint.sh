#!/usr/bin/env bash
# Clippy reports nothing in all targets with all features, and in each package without default features.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# sdk.sh checks features that need an installed SDK.
cargo clippy --locked --workspace --all-targets --features dma/conformance,dma/schemars,dma/files,dma/metrics,dma/compio,dma/tokio-uring,dma/vm-memory,bindings/generate -- -D warnings

# The stand-in for DOCA 1.5 to 2.2 is a different library.
for generation in 1-5 2-2; do
    cargo clippy --locked --quiet -p dma-doca-emu --lib --features "generation-$generation" -- -D warnings
done

# This library has no standard library.
cargo clippy --locked --quiet -p dma-memcpy --lib --features preload -- -D warnings

# Checks one package at a time, because cargo would unify the features of several packages.
ci/members.sh | while read -r package _; do
    echo "$package without default features"
    cargo clippy --locked --quiet -p "$package" --no-default-features -- -D warnings
done
