#!/usr/bin/env bash
# The guide's way between registered memory and Arrow's buffers works with the two major versions of Arrow before the one that
# tests/arrow.rs uses, in both directions and without a copy.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

newest=$(sed -nE 's/^arrow-buffer = "([0-9]+).*/\1/p' Cargo.toml)
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
crate=$(mktemp -d)
trap 'rm -rf "$crate"' EXIT
mkdir "$crate/src"
cat >"$crate/Cargo.toml" <<EOF
[package]
name = "arrow-majors"
edition = "2024"

[dependencies]
bytes = "1"
dma.path = '$PWD'
second = { package = "arrow-buffer", version = "$((newest - 1))" }
third = { package = "arrow-buffer", version = "$((newest - 2))" }
EOF
cp Cargo.lock "$crate/"
cat >"$crate/src/main.rs" <<'EOF'
use bytes::Bytes;
use dma::prelude::*;

macro_rules! check {
    ($arrow:ident) => {{
        struct Owner($arrow::Buffer);
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        let engine = dma::open("cpu").unwrap();
        let queue = engine.open_queue(&QueueOptions::new()).unwrap();
        let from = $arrow::Buffer::from_vec((0..100_000).map(|i| i as u8).collect::<Vec<u8>>());
        let begin = from.as_ptr();
        let src = engine.register_read_only(Bytes::from_owner(Owner(from.clone()))).unwrap();
        assert_eq!(src.as_ptr(), begin, "registered in place");
        let dst = engine.allocate(src.len()).unwrap();
        let (_, dst) = queue.copy(src, dst).and_then(Transfer::wait).unwrap();
        let copied = dst.as_ptr();
        let to = $arrow::Buffer::from(Bytes::from(dst.freeze()));
        assert_eq!(to.as_ptr(), copied, "not copied");
        assert_eq!(to.as_slice(), from.as_slice());
    }};
}

fn main() {
    check!(second);
    check!(third);
}
EOF
CARGO_TARGET_DIR=$target/arrow cargo run --quiet --manifest-path "$crate/Cargo.toml"
echo "arrow-buffer $((newest - 1)) and $((newest - 2)): registered in place, and back without a copy"
