#!/usr/bin/env bash
# Everything compiles for aarch64 Linux, as on a BlueField's cores. Programs and the C library link. Tests of dma-doca on
# the stand-in SDK run on an aarch64 kernel with pages of 16 KiB, or else of 4: its conformance suite, failures, comm channel,
# and two processes. The machine is emulated by ci/vm, because Debian 12's user-mode qemu does not start threads. Its memory
# order is the host's, which is strong, so that loom stays the judge of weak ones.
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
# No debug information, because nobody debugs these.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0
cargo check --locked --workspace --all-targets --target "$target"
# With the profile of the tests below, which need most of the same libraries.
cargo build --locked --profile test -p dma-bench -p dma-copy -p dma-c --target "$target"

# On such a processor the step `tests` has run all tests.
[[ "$(uname -m)" == x86_64 ]] || exit 0
if ! command -v aarch64-linux-gnu-strip >/dev/null; then
    echo "skipped: the tests on an aarch64 kernel, without aarch64-linux-gnu-strip (ci/install.sh as root)"
    exit 0
fi
echo "--- tests of dma-doca on an aarch64 kernel"
built=$(cargo test --locked --color never --no-run --target "$target" -p dma-doca --lib --test comch --test conformance_injected \
    --test faults --test two_processes 2>&1) || {
    echo "$built"
    exit 1
}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
files=()
while read -r path; do
    name=$(basename "$path")
    aarch64-linux-gnu-strip -o "$tree/$name" "$path"
    files+=(-f "$tree/$name:tests/$name")
done < <(sed -nE 's/.*Executable .* \((.*)\)$/\1/p' <<<"$built")
((${#files[@]} == 10)) || {
    echo "cargo names other test programs: $built" >&2
    exit 1
}
# The first kernel is not the default of Debian, and may be missing.
status=77
for kernel in linux-image-6.12-arm64-16k linux-image-arm64; do
    if ((status == 77)); then
        status=0
        ci/vm -c aarch64 -K "$kernel" -m 1024 -w 1800 "${files[@]}" ci/guest/aarch64.sh || status=$?
    fi
done
# ci/vm has said why it skipped them; all else has passed.
((status != 77)) || exit 0
exit $status
