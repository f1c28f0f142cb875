#!/usr/bin/env bash
# The tests of dma-core and dma-sim touch no freed or foreign memory and leak none (AddressSanitizer), and their threads
# do not race (ThreadSanitizer):
#   ci/sanitizers.sh [address|thread]
# Needs a nightly compiler. Threads need the standard library built with the sanitizer as well, since its locks would
# look like races otherwise: from nightly's rust-src, or else by Debian's rustc-web, rust-web-src and lld with nightly's
# sanitizer runtime. Exits with 77 ("skipped") if all that it was asked for could not run for want of these.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(-p dma-core -p dma-sim)
host=x86_64-unknown-linux-gnu
targets="${CARGO_TARGET_DIR:-target}"

which=${1:-both}
[[ "$which" =~ ^(both|address|thread)$ ]] || {
    echo "usage: ci/sanitizers.sh [address|thread]" >&2
    exit 2
}
nightly=$(rustc +nightly --print sysroot 2>/dev/null) || {
    echo "skipped: no nightly compiler (rustup toolchain install nightly)"
    exit 77
}
[[ "$(uname -m)" == x86_64 ]] || {
    echo "skipped: the sanitizers are set up for x86-64 only"
    exit 77
}
ran=0

# The tests ask for sizes that no allocator has: they must be refused, as they are without a sanitizer.
refuse=allocator_may_return_null=1

if [[ "$which" != thread ]]; then
    echo "--- address"
    CARGO_TARGET_DIR=$targets/san-address RUSTFLAGS="-Zsanitizer=address" \
        ASAN_OPTIONS=$refuse LSAN_OPTIONS=suppressions=$PWD/ci/lsan.supp \
        cargo +nightly test --locked "${packages[@]}" --target "$host" --lib --tests
    ran=1
fi

if [[ "$which" != address ]]; then
    export CARGO_TARGET_DIR=$targets/san-thread TSAN_OPTIONS=$refuse
    runtime=$nightly/lib/rustlib/$host/lib/librustc-nightly_rt.tsan.a
    if [[ -d "$nightly/lib/rustlib/src/rust/library" ]]; then
        echo "--- thread"
        RUSTFLAGS="-Zsanitizer=thread" \
            cargo +nightly test --locked -Zbuild-std "${packages[@]}" --target "$host" --lib --tests
        ran=1
    elif [[ -x /usr/bin/rustc && -d /usr/lib/rustlib/src/rust/library && -f "$runtime" ]] && command -v ld.lld >/dev/null; then
        echo "--- thread, with $(/usr/bin/rustc --version)"
        flags="-Zsanitizer=thread -Zexternal-clangrt -Clink-arg=-fuse-ld=lld -Clink-arg=-Wl,--export-dynamic"
        flags+=" -Clink-arg=-Wl,--whole-archive,$runtime,--no-whole-archive"
        # What the runtime needs, behind it.
        flags+=" -Clink-arg=-lm -Clink-arg=-lpthread -Clink-arg=-ldl -Clink-arg=-lrt -Clink-arg=-lc"
        # RUSTC_BOOTSTRAP: unstable flags of a stable compiler.
        RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 RUSTFLAGS=$flags \
            cargo test --locked -Zbuild-std "${packages[@]}" --target "$host" --lib --tests
        ran=1
    else
        echo "skipped: ThreadSanitizer, without rust-src (rustup component add rust-src --toolchain nightly," \
            "or apt-get install rustc-web rust-web-src lld)"
    fi
fi
((ran)) || exit 77
