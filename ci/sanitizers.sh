#!/usr/bin/env bash
# The tests of the crates that copy memory touch no freed or foreign memory and leak none (AddressSanitizer, over the C
# code with its undefined behaviour trapped), and their threads do not race (ThreadSanitizer):
#   ci/sanitizers.sh [address|thread] [PACKAGE...]
# Needs a nightly compiler. Threads need the standard library built with the sanitizer as well, since its locks would
# look like races otherwise: from nightly's rust-src, or else by Debian's rustc-web, rust-web-src and lld with nightly's
# sanitizer runtime. Exits with 77 ("skipped") if all that it was asked for could not run for want of these.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

host=x86_64-unknown-linux-gnu
# Absolute: tests build in other folders.
targets=$(realpath -m "${CARGO_TARGET_DIR:-target}")

which=both
if [[ "${1:-}" =~ ^(address|thread)$ ]]; then
    which=$1
    shift
fi
packages=("$@")
((${#packages[@]})) || packages=(dma-core dma-sim dma-doca-sys dma-doca-emu dma-doca dma-spdk-sys dma-spdk-emu dma-ioat)
nightly=$(rustc +nightly --print sysroot 2>/dev/null) || {
    echo "skipped: no nightly compiler (rustup toolchain install nightly)"
    exit 77
}
[[ "$(uname -m)" == x86_64 ]] || {
    echo "skipped: the sanitizers are set up for x86-64 only"
    exit 77
}
ran=0
failed=()

# The tests ask for sizes that no allocator has: they must be refused, as they are without a sanitizer.
refuse=allocator_may_return_null=1

# Of the C code. It traps, and so needs no runtime beside the one that Rust brings.
export CFLAGS="-fsanitize=undefined -fsanitize-undefined-trap-on-error"

# rustix calls the kernel past the C library, and so past the sanitizers, unless told: memory that is mapped anew would look like that
# which was there before.
through_libc=--cfg=rustix_use_libc

# The flags of Rust are no environment: tests install the stand-in SDK, by a cargo of their own, without a sanitizer.
flags() {
    local words
    printf -v words '"%s",' "$@"
    printf 'target.%s.rustflags=[%s]' "$host" "$words"
}

if [[ "$which" != thread ]]; then
    for package in "${packages[@]}"; do
        echo "--- address: $package"
        CARGO_TARGET_DIR=$targets/san-address \
            ASAN_OPTIONS=$refuse LSAN_OPTIONS=suppressions=$PWD/ci/lsan.supp \
            cargo +nightly test --no-fail-fast --locked --config "$(flags -Zsanitizer=address "$through_libc")" -p "$package" --target "$host" --lib --tests ||
            failed+=("address: $package")
    done
    ran=1
fi

# Tests of a package that load no library, which would not be built with the sanitizer.
linked() {
    local source
    while read -r source; do
        printf -- '--test %s ' "$(basename "$source" .rs)"
    done < <(find . -path ./target -prune -o -path "*/$1/tests/*.rs" -print | grep -E "/$1/tests/[^/]+\.rs$" | xargs -r grep -LE '(doca|spdk)_emu_prefix')
}

if [[ "$which" != address ]]; then
    # A test forks, and its child starts the thread of an exporter.
    export CARGO_TARGET_DIR=$targets/san-thread TSAN_OPTIONS=$refuse:die_after_fork=0
    runtime=$nightly/lib/rustlib/$host/lib/librustc-nightly_rt.tsan.a
    rustflags=(-Zsanitizer=thread "$through_libc")
    cargo=(cargo +nightly)
    if [[ -d "$nightly/lib/rustlib/src/rust/library" ]]; then
        ran=1 threads=1
    elif [[ -x /usr/bin/rustc && -d /usr/lib/rustlib/src/rust/library && -f "$runtime" ]] && command -v ld.lld >/dev/null; then
        ran=1 threads=1
        rustflags+=(-Zexternal-clangrt -Clink-arg=-fuse-ld=lld "-Clink-arg=-Wl,--export-dynamic")
        rustflags+=("-Clink-arg=-Wl,--whole-archive,$runtime,--no-whole-archive")
        # What the runtime needs, behind it.
        rustflags+=(-Clink-arg=-lm -Clink-arg=-lpthread -Clink-arg=-ldl -Clink-arg=-lrt -Clink-arg=-lc)
        # RUSTC_BOOTSTRAP: unstable flags of a stable compiler.
        export RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1
        cargo=(cargo)
    else
        threads=0
        echo "skipped: ThreadSanitizer, without rust-src (rustup component add rust-src --toolchain nightly," \
            "or apt-get install rustc-web rust-web-src lld)"
    fi
    for package in "${packages[@]}"; do
        ((threads)) || break
        echo "--- thread: $package"
        # The directory of a package is its name, or what comes behind the family's.
        directory=$package
        [[ -n "$(find . -maxdepth 3 -type d -path "*/$directory/tests" -print -quit)" ]] || directory=${package#dma-}
        # shellcheck disable=SC2046 # words
        "${cargo[@]}" test --no-fail-fast --locked -Zbuild-std --config "$(flags "${rustflags[@]}")" -p "$package" --target "$host" \
            --lib $(linked "$directory") || failed+=("thread: $package")
    done
fi
((ran)) || exit 77
if ((${#failed[@]})); then
    printf 'failed: %s\n' "${failed[@]}"
    exit 1
fi
