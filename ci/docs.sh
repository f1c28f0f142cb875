#!/usr/bin/env bash
# The documentation builds without a warning with all features. `cargo test` runs its examples as tests. A reader can copy each example
# of the guide as the page shows it: lines that the page hides only start a runtime, or return the result.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

hidden=$(awk '/^```/ { inside = /^```rust/ } inside && /^# /' docs/guide.md | grep -vE '^# (Ok::<.*>\(\(\)\)|let runtime = .*|runtime\.block_on\(async \{|\}\)\?;)$' || true)
if [[ -n "$hidden" ]]; then
    echo "docs/guide.md hides lines that its examples need: $hidden" >&2
    exit 1
fi
RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -Dwarnings" cargo doc --locked --workspace --no-deps --features dma/conformance,dma/schemars,dma/files,dma/metrics,dma/compio,dma/tokio-uring,dma/vm-memory,bindings/generate
