#!/usr/bin/env bash
# Libraries, programs and examples compile with the oldest supported compiler (rust-version in Cargo.toml), which rustup
# installs if it is missing. For tests and benchmarks, clippy in lint.sh checks that they use no newer items of the standard
# library (incompatible_msrv). If rustup cannot install the compiler, this is the only check of all code.
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
    # Without a network, this fails after the time limit.
    timeout 180 rustup toolchain install --no-self-update --profile minimal "$version" >&2 || true
    toolchain=$(installed) || true
fi
if [[ -n "$toolchain" ]]; then
    export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/msrv"
    cargo "+$toolchain" check --locked --workspace --lib --bins --examples
    echo "compiled with $toolchain"
    exit 0
fi
echo "skipped: compiling with $version, which rustup cannot install here; lint.sh checks the standard library's items"
exit 77
