#!/usr/bin/env bash
# The compiler's messages for a frequent mistake name the remedy.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
crate=$(mktemp -d)
trap 'rm -rf "$crate"' EXIT
mkdir -p "$crate/src/bin"
cat >"$crate/Cargo.toml" <<EOF
[package]
name = "messages"
edition = "2024"

[dependencies]
dma-core.path = '$PWD/dma-core'
EOF
cp Cargo.lock "$crate/"

# Makes a program NAME of the body on standard input, whose message must contain REMEDY.
names=() remedies=()
program() { # NAME REMEDY
    names+=("$1") remedies+=("$2")
    {
        echo "use dma_core::*;"
        cat
        echo "fn main() {}"
    } >"$crate/src/bin/$1.rs"
}
program slices 'queue.copy_bytes(&pool, src, dst)' <<'EOF'
pub fn copy(queue: &Queue, src: &'static [u8], dst: &'static mut [u8]) { let _ = queue.copy(src, dst); }
EOF
program shared_destination 'try_into_mut' <<'EOF'
pub fn copy(queue: &Queue, src: Buffer, dst: Buffer) { let _ = queue.copy(src, dst); }
EOF
program thread 'UseSharedQueueForSeveralThreads' <<'EOF'
pub fn copy(queue: Queue) { std::thread::spawn(move || queue.flush()); }
EOF
program task 'UseSharedQueueForSeveralThreads' <<'EOF'
fn spawn(_: impl Future<Output = ()> + Send) {}
pub fn copy(queue: Queue, src: Buffer, dst: BufferMut) { spawn(async move { let _ = queue.copy(src, dst).unwrap().await; }); }
EOF

failed=0
for at in "${!names[@]}"; do
    name=${names[at]} remedy=${remedies[at]}
    if said=$(CARGO_TARGET_DIR=$target/messages cargo check --quiet --manifest-path "$crate/Cargo.toml" --bin "$name" 2>&1); then
        echo "$name compiles" >&2
        failed=1
    elif ! grep -qF "$remedy" <<<"$said"; then
        printf 'the message of the compiler for %s does not contain "%s":\n%s\n' "$name" "$remedy" "$said" >&2
        failed=1
    fi
done
((!failed))
echo "${#names[@]} messages of the compiler name the remedy"
