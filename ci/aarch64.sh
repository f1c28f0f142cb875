#!/usr/bin/env bash
# Everything compiles for aarch64 Linux, as on a BlueField's cores. Programs and the C library link. Tests of dma-doca on
# the stand-in SDK run on an aarch64 kernel with pages of 16 KiB, or else of 4: its conformance suite, failures, comm channel,
# and two processes. The machine is emulated by ci/vm, because Debian 12's user-mode qemu does not start threads. Its memory
# order is the host's, which is strong, so that loom stays the judge of weak ones.
#
# Uses rustup's standard library for aarch64 if it is installed (rustup target add aarch64-unknown-linux-gnu), otherwise
# that of Debian's rustc-web (ci/install.sh). Exits with 77 ("skipped") if neither is installed.
#
#   --rustup-target      only checks for rustup's, and reports it by the exit status
#   full [ARGUMENT...]   by hand, because it takes long: runs the tests of all packages there instead, or those that these
#                        arguments of `cargo test` choose, with the programs, examples and stand-ins that they start.
#                        There is no compiler and no cargo, so that tests which call one fail. The variable KERNEL names
#                        the package of another kernel, such as linux-image-arm64, whose pages have 4 KiB.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=aarch64-unknown-linux-gnu

# Returns true if the compiler $1 has the target's standard library.
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
        echo "skipped: aarch64-linux-gnu-gcc, which links the programs, is not installed (ci/install.sh as root installs it)"
        exit 77
    fi
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
fi

full=''
if [[ "${1:-}" == full ]]; then
    full=yes
    shift
    (($#)) || set -- --workspace --exclude bindings --exclude dma-dsa-emu
fi

echo "compiler: $compiler, $("$compiler" --version)"
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")/aarch64
export CARGO_TARGET_DIR
# Builds no debug information, because it is not used.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0
# The `install` scripts need the first; build scripts run again when these change.
[[ -z "$full" ]] || export CC=aarch64-linux-gnu-gcc HOST_CC=cc
if [[ -z "$full" ]]; then
    cargo check --locked --workspace --all-targets --target "$target"
    # With the profile of the tests below, which need most of the same libraries.
    cargo build --locked --profile test -p dma-bench -p dma-copy -p dma-c --target "$target"
fi

# On an aarch64 processor, the step `tests` has already run all tests.
[[ "$(uname -m)" == x86_64 ]] || exit 0
if ! command -v aarch64-linux-gnu-strip >/dev/null; then
    echo "skipped: the tests on an aarch64 kernel, because aarch64-linux-gnu-strip is not installed (ci/install.sh as root)"
    exit 0
fi
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

# Writes a line for each program that cargo builds: its package's folder, whether it has tests, its path.
built() {
    cargo test --locked --no-run --target "$target" --message-format json-render-diagnostics "$@" </dev/null |
        sed -nE 's/.*"manifest_path":"([^"]*)\/Cargo.toml".*"test":(true|false)\},.*"executable":"([^"]+)".*/\1 \2 \3/p' >"$tree/built"
}
echo "--- tests on an aarch64 kernel"
if [[ -n "$full" ]]; then
    built "$@"
else
    built -p dma-doca --lib --test comch --test conformance_injected --test faults --test two_processes
    (($(wc -l <"$tree/built") == 5)) || {
        echo "expected 5 test programs, but cargo built these:" >&2
        cat "$tree/built" >&2
        exit 1
    }
fi
# Programs lie at the same paths there, because tests start others by them.
files=(-f "$tree/list:list" -f "$tree/files.tar:files.tar")
while read -r folder tests path; do
    [[ "$tests" == false ]] || echo "$folder $path" >>"$tree/list"
    mkdir -p "$tree$(dirname "$path")"
    aarch64-linux-gnu-strip -o "$tree$path" "$path"
    files+=(-f "$tree$path:$path")
done <"$tree/built"
# Adds the repository's files, and the stand-ins that tests install. They are installed here; the `install` script in the machine
# only checks that they exist.
git ls-files -z | tar --null -T - -cf "$tree/files.tar" --transform "s,^,${PWD#/}/,"
started_by_tests() { # FOLDER OPTIONS...: as tests/stand_ins/mod.rs does
    local prefix script=$tree/scripts$PWD/$1/install
    prefix=$CARGO_TARGET_DIR/$target/tmp/$(basename "$1")$(IFS=- && echo "${*:2}")
    CARGO_BUILD_TARGET=$target "$1/install" "$prefix" --profile test "${@:2}"
    tar -rf "$tree/files.tar" -C / "${prefix#/}"
    mkdir -p "$(dirname "$script")"
    # shellcheck disable=SC2016 # expanded by the script
    printf '#!/bin/sh\n[ -d "$1" ]\n' >"$script"
    chmod +x "$script"
}
# The programs of CI's own run have theirs within.
if [[ -n "$full" ]]; then
    mapfile -t programs < <(cut -d ' ' -f 2 "$tree/list")
    for folder in dma-doca/doca-emu dma-ioat/spdk-emu engines/dma-rdma/rdma-emu engines/dma-cuda/cuda-emu; do
        ! grep -qaF "$folder" "${programs[@]}" || started_by_tests "$folder"
    done
    for generation in 1.5 2.2; do
        ! grep -q "/work_queues_${generation/./_}-" "$tree/list" || started_by_tests dma-doca/doca-emu --generation "$generation"
    done
fi
[[ ! -e "$tree/scripts" ]] || tar -rf "$tree/files.tar" -C "$tree/scripts" .
# The first kernel is not Debian's default, so its package may be missing.
status=77
for kernel in ${KERNEL:-linux-image-6.12-arm64-16k linux-image-arm64}; do
    if ((status == 77)); then
        status=0
        ci/vm -c aarch64 -K "$kernel" -m "$([[ -n "$full" ]] && echo 4096 || echo 1024)" -w "$([[ -n "$full" ]] && echo 7200 || echo 1800)" \
            "${files[@]}" ci/guest/aarch64.sh || status=$?
    fi
done
# ci/vm has printed the reason why it skipped the tests. All other checks have passed.
((status != 77)) || exit 0
exit $status
