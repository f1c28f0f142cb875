#!/usr/bin/env bash
# All libraries and programs compile for aarch64 Linux, as on a BlueField's cores. With `run`, examples compile too, all link, and
# tests run on an aarch64 kernel with pages of 16 KiB, or else of 4: those of the contract, the CPU engine, the simulator and
# memory between processes, those of dma-doca on the stand-in SDK of each generation, two sides of dma-copy, and the examples.
# The machine is emulated by ci/vm, because Debian 12's user-mode qemu does not start threads. Its memory order is the host's,
# which is strong, so that loom stays the judge of weak ones. Properties are tested with fewer cases than elsewhere.
#
# Uses rustup's standard library for aarch64 if it is installed (rustup target add aarch64-unknown-linux-gnu), otherwise
# that of Debian's rustc-web (ci/install.sh). Exits with 77 ("skipped") if neither is installed.
#
#   --rustup-target      only checks for rustup's, and reports it by the exit status
#   run                  also runs tests, as above
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

[[ "$(uname -m)" == x86_64 ]] || {
    echo "skipped: on an aarch64 processor, the README's test command compiles and runs all tests"
    exit 77
}
if has_std rustc; then
    compiler=$(command -v rustc)
elif [[ -x /usr/bin/rustc ]] && has_std /usr/bin/rustc; then
    compiler=/usr/bin/rustc
    export RUSTC=$compiler
else
    echo "skipped: no standard library for $target (rustup target add $target, or ci/install.sh as root)"
    exit 77
fi
for tool in aarch64-linux-gnu-gcc aarch64-linux-gnu-strip; do
    command -v $tool >/dev/null || {
        echo "skipped: $tool, which links and shrinks the programs, is not installed (ci/install.sh as root installs it)"
        exit 77
    }
done
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc

full='' run=''
if [[ "${1:-}" == full ]]; then
    full=yes run=yes
    shift
elif [[ "${1:-}" == run ]]; then
    run=yes
    shift
fi
# The stand-in for DSA is only for x86-64.
packages=(--workspace --exclude bindings --exclude dma-dsa-emu --exclude dma-dsa-preload)

echo "compiler: $compiler, $("$compiler" --version)"
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")/aarch64
export CARGO_TARGET_DIR
# Builds no debug information, because it is not used.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0
# The `install` scripts need the first; build scripts run again when these change.
export CC=aarch64-linux-gnu-gcc HOST_CC=cc

if [[ -z "$run" ]]; then
    # Examples are left to `run`, because they need the development dependencies, which are half of all crates.
    cargo check --locked "${packages[@]}" --target "$target" --lib --bins
    exit
fi
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
# Writes a line for each program: /NAME in the folder of its package below the repository, whether it has tests, its path.
cargo_for_target() {
    cargo "$@" --locked --target "$target" --message-format json-render-diagnostics </dev/null |
        sed -nE 's,.*"manifest_path":"'"$PWD"'([^"]*)/Cargo.toml".*"name":"([^"]+)".*"test":(true|false)\}.*"executable":"([^"]+)".*,\1/\2 \3 \4,p' >>"$tree/programs"
}
if [[ -n "$full" ]]; then
    (($#)) || set -- "${packages[@]}"
    cargo_for_target test --no-run "$@"
else
    # The tests that run below. Packages whose tests do not run have tests of these names, too.
    tests=()
    for name in allocations comch 'conformance*' copies copy_bytes cores dmabufs examples faults fork huge_windows in_process \
        limits list_memory logs lost_reports 'model_*' output_file plain_bytes process_memory queue raw_queue reference sim_faults sim_properties \
        sim_two_processes threads two_processes 'work_queues_*'; do
        tests+=(--test "$name")
    done
    cargo_for_target test --no-run "${packages[@]}" --lib "${tests[@]}"
    # `cargo test --examples` would build the examples' own tests instead.
    cargo_for_target build --profile test "${packages[@]}" --lib --bins --examples
fi
sort -u "$tree/programs" >"$tree/built"
echo "$(wc -l <"$tree/built") programs compiled and linked"

# The packages and test programs that run in CI. Others call a C compiler, start other stand-ins, or take long.
ran='/(dma-core|engines/dma-cpu|support/dma-(process|ipc))/.*'
ran+='|/dma-sim/(dma_sim|model_.*|sim_faults|sim_properties|sim_two_processes)'
ran+='|/dma-doca/(dma_doca|allocations|comch|conformance_.*|dmabufs|faults|limits|logs|raw_queue|two_processes|work_queues_.*)'
ran+='|/apps/(copy-file|dma-copy)/copies|/examples'
# Programs lie at the same paths there, because tests start others by them.
files=(-f "$tree/list:list" -f "$tree/files.tar:files.tar")
while read -r name tests path; do
    if [[ "$tests" == true ]]; then
        [[ -n "$full" || "$name" =~ ^($ran)$ ]] || continue
        echo "$PWD${name%/*} $path" >>"$tree/list"
    elif [[ -z "$full" && ! "$name" =~ ^(/dma-core|/dma-sim|/dma-doca|/apps/copy-file|/apps/dma-copy)?/[^/]*$ ]]; then
        continue
    fi
    mkdir -p "$tree$(dirname "$path")"
    aarch64-linux-gnu-strip -o "$tree$path" "$path"
    files+=(-f "$tree$path:$path")
done <"$tree/built"
[[ -n "$full" ]] || (($(wc -l <"$tree/list") >= 40)) || {
    echo "expected at least 40 test programs, but these were built:" >&2
    cat "$tree/list" >&2
    exit 1
}
# Adds the repository's files, and the stand-ins that tests install. They are installed here; the `install` script in the machine
# only checks that they exist.
git ls-files -z | tar --null -T - -cf "$tree/files.tar" --transform "s,^,${PWD#/}/,"
started_by_tests() { # FOLDER OPTIONS...: as tests/support/src/stand_ins.rs does
    local prefix script=$tree/scripts$PWD/$1/install
    prefix=$CARGO_TARGET_DIR/$target/tmp/$(basename "$1")$(IFS=- && echo "${*:2}")
    CARGO_BUILD_TARGET=$target "$1/install" "$prefix" --profile test "${@:2}"
    tar -rf "$tree/files.tar" -C / "${prefix#/}"
    mkdir -p "$(dirname "$script")"
    # shellcheck disable=SC2016 # expanded by the script
    printf '#!/bin/sh\n[ -d "$1" ]\n' >"$script"
    chmod +x "$script"
}
mapfile -t programs < <(cut -d ' ' -f 2 "$tree/list")
for folder in standins/doca-emu ${full:+standins/spdk-emu standins/rdma-emu standins/cuda-emu}; do
    ! grep -qaF "$folder" "${programs[@]}" || started_by_tests "$folder"
done
for generation in 1.5 2.2; do
    ! grep -q "/work_queues_${generation/./_}-" "$tree/list" || started_by_tests standins/doca-emu --generation "$generation"
done
[[ ! -e "$tree/scripts" ]] || tar -rf "$tree/files.tar" -C "$tree/scripts" .
# The kernel passes the variable to the first program, and so to the tests.
if [[ -n "$full" ]]; then
    options=(-m 4096 -w 7200)
else
    options=(-m 2048 -w 900 -a PROPTEST_CASES=16)
fi
# The first kernel is not Debian's default, so its package may be missing.
status=77
for kernel in ${KERNEL:-linux-image-6.12-arm64-16k linux-image-arm64}; do
    if ((status == 77)); then
        status=0
        ci/vm -c aarch64 -K "$kernel" "${options[@]}" "${files[@]}" ci/guest/aarch64.sh || status=$?
    fi
done
# ci/vm has printed the reason why it skipped the tests. All other checks have passed.
((status != 77)) || exit 0
exit $status
