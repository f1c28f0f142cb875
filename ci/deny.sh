#!/usr/bin/env bash
# ci/deny.toml permits the licences, sources and versions of all dependencies, and no advisory names
# a dependency. Exits with 77 ("skipped") without cargo-deny. Advisories are downloaded; without a
# network they are not checked.
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
