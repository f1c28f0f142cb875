#!/usr/bin/env bash
# Rust and the shell scripts are formatted, and shellcheck reports nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo fmt --all --check
cargo fmt --manifest-path tests/fuzz/Cargo.toml --check
cargo fmt --manifest-path bindings/python/Cargo.toml --check

scripts=(.ci/run ci/vm ci/*.sh ci/guest/*.sh bindings/python/wheel)
missing=()
if command -v shellcheck >/dev/null; then
    shellcheck "${scripts[@]}"
else
    missing+=(shellcheck)
fi
if command -v shfmt >/dev/null; then
    shfmt -i 4 -d "${scripts[@]}"
else
    missing+=(shfmt)
fi
if ((${#missing[@]})); then
    echo "skipped: the scripts' own checks, without ${missing[*]} (ci/install.sh installs them)"
fi
