#!/usr/bin/env bash
# Everything compiles for aarch64 Linux, as on a BlueField's cores. Libraries, programs and examples link. Nothing is
# run, because Debian 12's user-mode qemu does not start threads.
#
# The standard library for it is rustup's if that is installed (rustup target add aarch64-unknown-linux-gnu), or else
# that of Debian's rustc-web (ci/install.sh). Exits with 77 ("skipped") if neither is there.
#
# --rustup-target: only checks for rustup's, and reports it by the exit status.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=aarch64-unknown-linux-gnu

# True if the compiler $1 has the target's standard library.
has_std() {
    local libdir
    libdir=$("$1" --print target-libdir --target "$target" 2>/dev/null) || return 1
    compgen -G "$libdir/libstd-*.rlib" >/dev/null
}

if [[ "${1:-}" == --rustup-target ]]; then
    has_std rustc
    exit
fi

if has_std rustc; then
    compiler=$(command -v rustc)
elif [[ -x /usr/bin/rustc ]] && has_std /usr/bin/rustc; then
    compiler=/usr/bin/rustc
    export RUSTC=$compiler
else
    echo "skipped: no standard library for $target (rustup target add $target, or ci/install.sh as root)"
    exit 77
fi
if [[ "$(uname -m)" != aarch64 ]]; then
    if ! command -v aarch64-linux-gnu-gcc >/dev/null; then
        echo "skipped: no aarch64-linux-gnu-gcc to link with (ci/install.sh as root installs it)"
        exit 77
    fi
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
fi

echo "compiler: $compiler, $("$compiler" --version)"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/aarch64"
# No debug information, because nothing is run.
export CARGO_PROFILE_DEV_DEBUG=0
cargo check --locked --workspace --all-targets --target "$target"
cargo build --locked --workspace --lib --bins --examples --target "$target"
