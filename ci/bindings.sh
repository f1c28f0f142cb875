#!/usr/bin/env bash
# The committed declarations of the vendors' C calls match the headers. Needs libclang.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ci/libclang.sh cargo run --locked --quiet -p bindings --features generate -- --check
echo "the generated declarations match the headers"
