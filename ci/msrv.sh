#!/usr/bin/env bash
# Everything compiles with the oldest supported compiler (rust-version in Cargo.toml), which rustup installs if it is missing.
# Where rustup cannot, this compiler's clippy checks that the standard library's items are not newer (incompatible_msrv).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
[[ -n "$version" ]] || {
    echo "Cargo.toml has no line: rust-version = \"...\"" >&2
    exit 1
}
installed() {
    { rustup toolchain list 2>/dev/null || true; } | grep -oE "^${version//./\\.}(\.[0-9]+)?-[^ ]+" | head -n 1
}
toolchain=$(installed) || true
if [[ -z "$toolchain" ]]; then
    # Without the network, this fails after the limit.
    timeout 180 rustup toolchain install --no-self-update --profile minimal "$version" >&2 || true
    toolchain=$(installed) || true
fi
if [[ -n "$toolchain" ]]; then
    export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/msrv"
    cargo "+$toolchain" check --locked --workspace --all-targets
    echo "compiled with $toolchain"
    exit 0
fi
cargo clippy --locked --workspace --all-targets -- -A clippy::all -D clippy::incompatible_msrv
echo "skipped: compiling with $version, which rustup cannot install here; the standard library's items were checked by $(rustc --version)"
