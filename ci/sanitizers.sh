#!/usr/bin/env bash
# The tests of the crates that copy memory neither access freed or foreign memory nor leak (AddressSanitizer; undefined
# behaviour of the C code traps), and their threads do not race (ThreadSanitizer):
#   ci/sanitizers.sh [address|thread] [PACKAGE...]
# Needs a nightly compiler. ThreadSanitizer also needs the source of the standard library, to instrument it, because its
# locks would be reported as races otherwise. Exits with 77 ("skipped") if no requested sanitizer could run.
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
((${#packages[@]})) || packages=(dma-core dma-ipc dma-cpu dma-sim dma-doca-sys dma-doca-emu dma-doca dma-spdk-sys dma-spdk-emu dma-ioat dma-dsa-emu dma-dsa dma-rdma-emu dma-rdma dma-cuda-emu dma-cuda dma-layers dma-c dma-copy)
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

# ci/lsan.supp names functions. Line tables tell those that are inlined, frame pointers the callers of small ones.
export CARGO_PROFILE_DEV_DEBUG=line-tables-only CARGO_PROFILE_TEST_DEBUG=line-tables-only

# Tests request impossible sizes, which must return NULL as they do without a sanitizer.
refuse=allocator_may_return_null=1

# For C code. Trapping needs no runtime library.
export CFLAGS="-fsanitize=undefined -fsanitize-undefined-trap-on-error"

# Without this rustix makes system calls directly. The sanitizers would miss them, and take newly mapped memory for the
# memory that was at the same address before.
through_libc=--cfg=rustix_use_libc

# The flags are no environment variables, because tests build the stand-in SDKs by another cargo without a sanitizer.
flags() {
    local words
    printf -v words '"%s",' "$@"
    printf 'target.%s.rustflags=[%s]' "$host" "$words"
}

# Prints the options that choose the targets of package $1, one on each line. $2 is the sanitizer.
targets_of() {
    local folder source
    # The other tests of dma-copy kill processes and break channels, with short timeouts.
    if [[ "$1" == dma-copy ]]; then
        printf '%s\n' --test copies
        return
    fi
    echo --lib
    if [[ "$2" == address ]]; then
        echo --tests
        return
    fi
    folder=$(ci/members.sh | awk -F '\t' -v name="$1" '$1 == name { print $2 }')
    for source in "$folder"/tests/*.rs; do
        case $(basename "$source") in
        '*.rs') continue ;;
        # Of a stand-in library, which is not instrumented.
        work_queues_*.rs) continue ;;
        # Maps 64 TiB, for which ThreadSanitizer has no address space.
        huge_windows.rs) continue ;;
        esac
        # A stand-in library is not instrumented.
        grep -qE '(doca|spdk)_emu_prefix' "$source" || printf '%s\n' --test "$(basename "$source" .rs)"
    done
}

# C programs run on the static library of dma.h, with the runtime of Rust's sanitizer $1: every function, every misuse, broken
# devices, and the examples. The C programs are instrumented by the C compiler, whose calls this runtime has, too.
c_programs() {
    local kind=$1 folder=$2 runtime=$nightly/lib/rustlib/$host/lib/librustc-nightly_rt.${1:0:1}san.a program compiler standard
    local library=$folder/$host/debug/libdma_c.a object
    mkdir -p "$folder/c"
    while read -r program compiler standard arguments; do
        echo "--- $kind: $program $arguments"
        object=$folder/c/$(basename "$program")
        # shellcheck disable=SC2086 # words of a command
        "$compiler" "-std=$standard" -g -O1 -fno-omit-frame-pointer "-fsanitize=$kind" -Idma-c/include -c "dma-c/$program" -o "$object.o" &&
            c++ "$object.o" "$library" -rdynamic -Wl,--whole-archive "$runtime" -Wl,--no-whole-archive \
                -lgcc_s -lutil -lrt -lpthread -lm -ldl -o "$object" &&
            timeout 600 "$object" $arguments </dev/null || return 1
    done <<'END'
tests/c/every_call.c cc c99 cpu cpu:threads=0 auto verify+cpu sim:seed=7 sim:profile=dsa,clock=real
tests/c/misuse.c cc c99
tests/c/broken_devices.c cc c99
tests/c/interleaved.c cc c99
examples/first_copy.c cc c99 auto
examples/request_ring.c cc c99 sim:seed=3
examples/device_faults.c cc c99 7
examples/owned_handles.cpp c++ c++17 sim:seed=3
END
}

# Left out: a test that limits the address space, which the sanitizers take a part of.
if [[ "$which" != thread ]]; then
    for package in "${packages[@]}"; do
        echo "--- address: $package"
        mapfile -t chosen < <(targets_of "$package" address)
        CARGO_TARGET_DIR=$targets/san-address \
            ASAN_OPTIONS=$refuse LSAN_OPTIONS=suppressions=$PWD/ci/lsan.supp \
            cargo +nightly test --no-fail-fast --locked --config "$(flags -Zsanitizer=address -Cforce-frame-pointers=yes "$through_libc" --cfg=dma_address_sanitizer)" \
            -p "$package" --target "$host" "${chosen[@]}" -- --skip little_memory_is_an_error_and_no_abort ||
            failed+=("address: $package")
        [[ "$package" == dma-c ]] || continue
        CARGO_TARGET_DIR=$targets/san-address cargo +nightly build --locked --config "$(flags -Zsanitizer=address -Cforce-frame-pointers=yes "$through_libc" --cfg=dma_address_sanitizer)" \
            -p dma-c --lib --target "$host" &&
            ASAN_OPTIONS=$refuse LSAN_OPTIONS=suppressions=$PWD/ci/lsan.supp c_programs address "$targets/san-address" ||
            failed+=("address: C programs")
    done
    ran=1
fi

if [[ "$which" != address ]]; then
    # A test forks, and its child starts an exporter's thread.
    export CARGO_TARGET_DIR=$targets/san-thread TSAN_OPTIONS=$refuse:die_after_fork=0
    source=$nightly/lib/rustlib/src/rust
    if [[ -d "$source/library" ]]; then
        ran=1
        for package in "${packages[@]}"; do
            echo "--- thread: $package"
            mapfile -t chosen < <(targets_of "$package" thread)
            cargo +nightly test --no-fail-fast --locked -Zbuild-std \
                --config "$(flags -Zsanitizer=thread "$through_libc" --cfg=dma_thread_sanitizer)" -p "$package" \
                --target "$host" "${chosen[@]}" -- --skip little_memory_is_an_error_and_no_abort ||
                failed+=("thread: $package")
            [[ "$package" == dma-c ]] || continue
            cargo +nightly build --locked -Zbuild-std --config "$(flags -Zsanitizer=thread "$through_libc" --cfg=dma_thread_sanitizer)" \
                -p dma-c --lib --target "$host" &&
                c_programs thread "$CARGO_TARGET_DIR" || failed+=("thread: C programs")
        done
    else
        echo "skipped: ThreadSanitizer, without rust-src (rustup component add rust-src --toolchain nightly, or a link from" \
            "$source to the rust-src of the same version that a distribution packages)"
    fi
fi
((ran)) || exit 77
if ((${#failed[@]})); then
    printf 'failed: %s\n' "${failed[@]}"
    exit 1
fi
