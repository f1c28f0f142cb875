#!/usr/bin/env bash
# The documentation builds without a warning with all features. `cargo test` runs its examples as tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -Dwarnings" cargo doc --locked --workspace --no-deps --features dma/conformance,dma/schemars,dma/files,dma/metrics,dma/compio,dma/tokio-uring,dma/vm-memory,bindings/generate
