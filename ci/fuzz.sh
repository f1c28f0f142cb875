#!/usr/bin/env bash
# Parsers of untrusted bytes never panic, accept only valid input, and lose no information (tests/fuzz/src/lib.rs). No
# sequence of calls to the stand-ins' C interfaces, valid or not, crashes them or writes a wrong byte: DOCA's memory and
# DMA (tests/fuzz/src/calls), comm channel and events (contexts), command lines and log (programs.rs), DOCA 1.5 and 2.2
# (work_queues), and SPDK (spdk). The stand-in for DSA reports each descriptor of random programs, and writes to no
# other memory (dsa). A program that does not know the secret is not accepted as a peer (handshake.rs).
#   ci/fuzz.sh replay         runs every input of the committed corpus, unchanged and with one change, except those of
#                             DOCA 1.5 and 2.2; works with any compiler
#   ci/fuzz.sh replay all     also runs clippy, and those of DOCA 1.5 and 2.2, each with a build of its stand-in
#   ci/fuzz.sh [SECONDS]      fuzzes every target for SECONDS (default: 60), with cargo-fuzz and a nightly compiler;
#                             exits with 77 ("skipped") if they are not installed
# Failing inputs are stored in tests/fuzz/artifacts/. Fix the fault, and commit the input to the corpus under a descriptive
# name.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/fuzz"
[[ "$CARGO_TARGET_DIR" == /* ]] || CARGO_TARGET_DIR="$PWD/$CARGO_TARGET_DIR"

# Uses the dependency versions of the workspace. Cargo adds the fuzzer's own dependencies.
cp Cargo.lock tests/fuzz/Cargo.lock

if [[ "${1:-}" == replay ]]; then
    cargo test --manifest-path tests/fuzz/Cargo.toml --no-default-features
    [[ "${2:-}" == all ]] || exit 0
    cargo clippy --quiet --manifest-path tests/fuzz/Cargo.toml --no-default-features --lib --test corpus -- -D warnings
    for generation in 1-5 2-2; do
        cargo test --manifest-path tests/fuzz/Cargo.toml --no-default-features --features "generation-$generation" --test corpus
    done
    exit
fi

seconds=${1:-60}
[[ "$seconds" =~ ^[1-9][0-9]*$ ]] || {
    echo "usage: ci/fuzz.sh replay [all]|SECONDS" >&2
    exit 2
}
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "skipped: no nightly compiler (rustup toolchain install nightly)"
    exit 77
fi
if ! command -v cargo-fuzz >/dev/null; then
    echo "skipped: no cargo-fuzz (cargo install cargo-fuzz --locked)"
    exit 77
fi

found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
fuzz() { # TARGET ARGUMENTS...
    local target=$1
    echo "--- $*"
    mkdir -p "$found/$target"
    # New inputs are written to the first folder, so that the committed corpus does not change.
    LSAN_OPTIONS=suppressions=$PWD/ci/lsan.supp cargo +nightly fuzz run --fuzz-dir tests/fuzz "${@:2}" "$target" "$found/$target" "tests/fuzz/corpus/$target" -- \
        -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
}
for target in $(cargo +nightly fuzz list --fuzz-dir tests/fuzz | grep -vx doca_work_queues); do
    fuzz "$target"
done
# A build of the stand-in has the calls of only one DOCA generation.
for generation in 1-5 2-2; do
    fuzz doca_work_queues --features "generation-$generation"
done
