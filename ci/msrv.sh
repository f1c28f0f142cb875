#!/usr/bin/env bash
# Everything compiles with the oldest supported compiler (rust-version in Cargo.toml).
# Exits with 77 ("skipped") if rustup does not have that compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
[[ -n "$version" ]] || {
    echo "Cargo.toml has no line: rust-version = \"...\"" >&2
    exit 1
}
toolchain=$({ rustup toolchain list 2>/dev/null || true; } | grep -oE "^${version//./\\.}(\.[0-9]+)?-[^ ]+" | head -n 1) || true
if [[ -z "$toolchain" ]]; then
    echo "skipped: rustup has no toolchain $version (rustup toolchain install $version)"
    exit 77
fi

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/msrv"
cargo "+$toolchain" check --locked --workspace --all-targets
