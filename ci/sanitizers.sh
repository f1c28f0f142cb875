#!/usr/bin/env bash
# In the tests of the crates that copy memory, no invalid access and no leak occurs (AddressSanitizer; undefined
# behaviour of C code traps), threads do not race (ThreadSanitizer), and references and pointers are valid in Rust's
# own model of memory (Miri):
#   ci/sanitizers.sh [address|thread|miri] [PACKAGE...]
# Without PACKAGE, all crates run, except those without unsafe code (dma, dma-handshake, dma-dsa-sys), those whose unsafe
# code the stand-ins test (dma-standin), those whose unsafe code only loads libraries or declares their functions
# (dma-vendor, dma-verbs-sys, ci/bindings), dma-memcpy, which replaces functions that the sanitizers replace, and
# dma-bench, whose engines and queues the other crates test.
# Miri runs tests of dma-core, of dma-cpu's ring and short operations, and of dma-sim's model. It cannot run: inline
# assembly (racy_copy has a variant for Miri, and dma-cpu only its kernel `memcpy`), signals, fork, io_uring, timers,
# madvise, pread on a pipe, memory that two mappings share (memfd, so all memory to export), and the libraries of
# vendors. So the engines of devices, dma-ipc, dma-files, the layers and the C interface do not run. Tests that copy more
# than a few kilobytes are too slow: the pools, the conformance suite, the state machine, copies from 4 KiB on.
# Needs a nightly compiler. ThreadSanitizer also needs the source of the standard library, to instrument it: otherwise
# it would report accesses under the library's locks as races. Exits with 77 ("skipped") if no requested sanitizer could
# run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

host=x86_64-unknown-linux-gnu
# The path is absolute, because tests build in other folders.
targets=$(realpath -m "${CARGO_TARGET_DIR:-target}")

which=all
if [[ "${1:-}" =~ ^(address|thread|miri)$ ]]; then
    which=$1
    shift
fi
packages=("$@")
((${#packages[@]})) || packages=(dma-core dma-process dma-ipc dma-files dma-cpu dma-sim dma-doca-sys dma-doca-emu dma-doca dma-spdk-sys dma-spdk-emu dma-ioat dma-dsa-emu dma-dsa dma-rdma-emu dma-rdma dma-cuda-emu dma-cuda dma-layers dma-c dma-copy)
nightly=$(rustc +nightly --print sysroot 2>/dev/null) || {
    echo "skipped: no nightly compiler (rustup toolchain install nightly)"
    exit 77
}
[[ "$(uname -m)" == x86_64 ]] || {
    echo "skipped: the sanitizers are set up only for x86-64"
    exit 77
}
ran=0
failed=()

# ci/lsan.supp names functions. Line tables identify inlined functions, and frame pointers the callers of small
# functions.
export CARGO_PROFILE_DEV_DEBUG=line-tables-only CARGO_PROFILE_TEST_DEBUG=line-tables-only

# Tests request impossible sizes. Such an allocation must return NULL, as without a sanitizer.
refuse=allocator_may_return_null=1

# Flags for C code. Trapping needs no runtime library.
export CFLAGS="-fsanitize=undefined -fsanitize-undefined-trap-on-error"

# Makes rustix call the C library. Otherwise it makes system calls directly, which the sanitizers cannot intercept, so
# they would mistake newly mapped memory for earlier memory at the same address.
through_libc=--cfg=rustix_use_libc

# The flags are not environment variables, because tests build the stand-in SDKs by another cargo, without a sanitizer.
flags() {
    local words
    printf -v words '"%s",' "$@"
    printf 'target.%s.rustflags=[%s]' "$host" "$words"
}

# Prints the options that select the targets of package $1, one on each line. $2 is the sanitizer.
targets_of() {
    local folder source
    # Only these tests of dma-copy run: its other tests kill processes and break channels, with timeouts that are too
    # short for a program with a sanitizer.
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
        # This test uses a stand-in library, which is not instrumented.
        work_queues_*.rs) continue ;;
        # This test maps 64 TiB, for which ThreadSanitizer lacks address space.
        huge_windows.rs) continue ;;
        esac
        # Omits tests that use a stand-in library, which is not instrumented.
        grep -qE '(doca|spdk)_emu_prefix' "$source" || printf '%s\n' --test "$(basename "$source" .rs)"
    done
}

# Runs C programs on the static library of dma.h, with the runtime of Rust's sanitizer $1: every function, every misuse,
# faulty devices, and the examples. The C compiler instruments the C programs; Rust's runtime also implements the calls
# that the C compiler inserts.
c_programs() {
    local kind=$1 folder=$2 runtime=$nightly/lib/rustlib/$host/lib/librustc-nightly_rt.${1:0:1}san.a program compiler standard
    local library=$folder/$host/debug/libdma_c.a object
    mkdir -p "$folder/c"
    while read -r program compiler standard arguments; do
        echo "--- $kind: $program $arguments"
        object=$folder/c/$(basename "$program")
        # shellcheck disable=SC2086 # split into words on purpose
        "$compiler" "-std=$standard" -g -O1 -fno-omit-frame-pointer "-fsanitize=$kind" -Ibindings/c/include -c "bindings/c/$program" -o "$object.o" &&
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

# Omits a test that limits the address space, because AddressSanitizer itself needs more address space than this limit.
if [[ "$which" =~ ^(all|address)$ ]]; then
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

if [[ "$which" =~ ^(all|thread)$ ]]; then
    # Allows a test that forks, and whose child starts an exporter's thread.
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

# Prints the arguments that select the tests of package $1 that Miri runs, one on each line. Miri takes a millisecond for
# each byte that a test copies, so tests have few bytes and rounds there (`cfg!(miri)`), or do not run.
miri_tests() {
    case $1 in
    dma-core)
        printf '%s\n' --lib -- planner::rows::tests:: memory::buffer_writer::tests:: \
            registration_cache::tests::by_default_nothing_is_kept \
            registration_cache::tests::memory_is_found_by_its_owner \
            inline_tests::several::a_batch_is_executed_as_a_whole_or_not_at_all \
            inline_tests::refusals::a_closed_queue_executes_nothing \
            fault_injection_tests::alone::
        ;;
    dma-cpu)
        printf '%s\n' --lib -- inline::tests:: long_copy::tests:: ring::tests:: tokens:: spare::
        ;;
    dma-sim)
        printf '%s\n' --test model_faults --test model_channels
        ;;
    esac
}

if [[ "$which" =~ ^(all|miri)$ ]]; then
    if cargo +nightly miri --version >/dev/null 2>&1; then
        ran=1
        for package in "${packages[@]}"; do
            mapfile -t chosen < <(miri_tests "$package")
            ((${#chosen[@]})) || continue
            echo "--- miri: $package"
            # Tree Borrows: in Stacked Borrows, an atomic load of a byte that is borrowed as read-only counts as a write,
            # because stable Rust has no atomic load without a reference to an atomic. Addresses become pointers again
            # in descriptors (permissive provenance). The headroom is read from /proc (no isolation).
            CARGO_TARGET_DIR=$targets/san-miri PROPTEST_CASES=2 \
                MIRIFLAGS="-Zmiri-tree-borrows -Zmiri-permissive-provenance -Zmiri-disable-isolation" \
                cargo +nightly miri test --no-fail-fast --locked -p "$package" "${chosen[@]}" ||
                failed+=("miri: $package")
        done
    else
        echo "skipped: Miri (rustup component add miri rust-src --toolchain nightly)"
    fi
fi
((ran)) || exit 77
if ((${#failed[@]})); then
    printf 'failed: %s\n' "${failed[@]}"
    exit 1
fi
