#!/usr/bin/env bash
# Licences, sources and versions of all dependencies are as ci/deny.toml permits, and no advisory names one of them.
# Exits with 77 ("skipped") without cargo-deny. Advisories come from the network, and are left out without one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo deny --version >/dev/null 2>&1 || {
    echo "skipped: cargo-deny is not installed (cargo install --locked cargo-deny)"
    exit 77
}
cargo deny --locked check --config ci/deny.toml licenses bans sources
if cargo deny --locked fetch --config ci/deny.toml db; then
    cargo deny --locked check --config ci/deny.toml --disable-fetch advisories
else
    echo "skipped: the advisories could not be fetched"
fi
