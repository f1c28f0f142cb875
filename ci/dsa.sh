#!/usr/bin/env bash
# Unmodified programs for Intel DSA run on the stand-in: DPDK's `dpdk-test` with DPDK's own driver (dmadev_autotest,
# which fails if the stand-in writes a wrong byte), `accel-config list`, and accel-config's own `dsa_test` with the
# cases of its runner. The hardware test of dma-dsa also runs on the stand-in.
#
# The programs come from Debian's packages, which are unpacked below the target directory, so no installation and no
# root rights are needed. Exits with 77 ("skipped") if the packages cannot be downloaded, or if the processor is not
# x86-64.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

skip() {
    echo "skipped: $1"
    exit 77
}

[[ "$(uname -m)" == x86_64 ]] || skip "the stand-in DSA runs only on x86-64"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
prefix=$target/ci-dsa
mkdir -p "$prefix"
standins/dsa-emu/install "$prefix/dsa" --profile test
run=$prefix/dsa/bin/dsa-emu-run

echo "--- the test for hardware, on the stand-in"
hardware=$(ci/built.sh dma-dsa test hardware)
for mode in dedicated shared; do
    DSA_EMU="mode = '$mode'" DSA_EMU_REPORT=1 timeout 300 "$run" "$hardware" --ignored 2>&1 | tee "$prefix/log"
    grep -q '^dsa-emu: wq0.0: [1-9]' "$prefix/log" || {
        echo "the test did not use the stand-in" >&2
        exit 1
    }
done

echo "--- Debian's packages"
command -v apt-get >/dev/null || skip "there is no apt-get to download programs for DSA"
wanted=(dpdk-dev librte-dma-idxd23 librte-mempool-ring23 accel-config accel-config-test)
needed=$(LC_ALL=C apt-get -s -q install --no-install-recommends "${wanted[@]}" 2>/dev/null | sed -n 's/^Inst \([^ ]*\).*/\1/p') ||
    skip "apt-get does not know the packages ${wanted[*]} (DPDK 22.11, of Debian 12)"
# Keeps only the packages with programs and libraries.
mapfile -t needed < <(grep -vE -- '-dev$|^(lib)?(systemd|udev|rdma-core|nss-|pam-)' <<<"$needed")
mapfile -t needed < <(printf '%s\n' "${needed[@]}" "${wanted[@]}" | sort -u)
root=$prefix/root
if [[ "$(cat "$prefix/packages" 2>/dev/null)" != "${needed[*]}" ]]; then
    rm -rf "$root" "$prefix/packages"
    debs=$(mktemp -d)
    trap 'rm -rf "$debs"' EXIT
    (cd "$debs" && timeout 300 apt-get -q -o Acquire::Retries=3 download "${needed[@]}" >log 2>&1) ||
        skip "apt-get cannot download DPDK and accel-config: $(tail -n 1 "$debs/log")"
    for deb in "$debs"/*.deb; do
        dpkg-deb -x "$deb" "$root"
    done
    echo "${needed[*]}" >"$prefix/packages"
fi
libraries=$root/usr/lib/x86_64-linux-gnu

# dpdk CONFIG: runs the test on one work queue. The drivers are preloaded, because DPDK loads no drivers from a folder
# below a world-writable folder. DPDK's log contains carriage returns.
dpdk() {
    # shellcheck disable=SC2016 # expanded by the inner shell, which has the stand-in's LD_PRELOAD
    DSA_EMU=$1 DSA_EMU_REPORT=1 DPDK_TEST=dmadev_autotest RUNTIME_DIRECTORY=$prefix timeout 300 "$run" sh -c '
        export LD_LIBRARY_PATH=$1 LD_PRELOAD=$LD_PRELOAD:$1/librte_dma_idxd.so.23:$1/librte_mempool_ring.so.23
        exec "$2" --no-huge --no-pci -m 512 --iova-mode=va --no-shconf --no-telemetry -l 0' sh \
        "$libraries" "$root/usr/bin/dpdk-test" </dev/null 2>&1 | tr '\r' '\n' >"$prefix/log" || true
}

echo "--- dpdk-test: dmadev_autotest"
for config in "" "size = 4" "block_on_fault = true"; do
    dpdk "$config"
    if ! grep -qx 'Test OK' "$prefix/log" || ! grep -q 'wq0.0: [1-9][0-9]* submissions' "$prefix/log"; then
        grep -v '^Ops submitted' "$prefix/log" | tail -n 50
        echo "dpdk-test does not pass on work queues with \"$config\"" >&2
        exit 1
    fi
    echo "passes${config:+ with $config}: $(grep -o 'wq0.0: .*' "$prefix/log")"
done
dpdk "faults = 'corrupt@100'"
if ! grep -qx 'Test Failed' "$prefix/log"; then
    tail -n 20 "$prefix/log"
    echo "dpdk-test does not detect a wrong byte" >&2
    exit 1
fi

echo "--- accel-config list"
# shellcheck disable=SC2016 # for the inner shell
listed=$(DSA_EMU=$'size = 8\n[[queue]]\n[[queue]]\nmode = "shared"\n[[queue]]\nname = "wq1.0"\nblock_on_fault = true' \
    timeout 60 "$run" sh -c 'LD_LIBRARY_PATH=$1 exec "$2" list' sh "$libraries" "$root/usr/bin/accel-config")
for line in '"dev":"dsa0"' '"dev":"wq0.1"' '"mode":"shared"' '"size":8' '"dev":"wq1.0"' '"block_on_fault":1' '"state":"enabled"'; do
    grep -qF "$line" <<<"$listed" || {
        printf '%s\n' "$listed"
        echo "accel-config does not list $line" >&2
        exit 1
    }
done
echo "--- accel-config: dsa_test"
# These are the cases of dsa_test's runner, dsa_user_test_runner.sh: each operation alone and in batches of 16, with and
# without block-on-fault, on a dedicated (0) and a shared work queue (1).
cat >"$prefix/cases" <<'END'
case_() {
    if "$program" "$@" >/dev/null 2>&1; then passed=$((passed + 1)); else echo "failed: dsa_test $*"; fi
}
program=$1 passed=0
shift
for operation; do
    case $operation in
    0x1[2-5]) sizes='512 1024 4096' ;; # DIF
    *) sizes='1 4096 65536 1048576 2097152' ;;
    esac
    for queue in 0 1; do
        for flag in 0 1; do
            for size in $sizes; do
                case_ -w $queue -l $size -f $flag -o "$operation" t200
                # A drain cannot be in a batch.
                [ "$operation" = 0x2 ] || case_ -w $queue -l $size -f $flag -o 0x1 -b "$operation" -c 16 t2000
            done
        done
    done
done
echo "passed: $passed"
END
queues=$'[[queue]]\nmode = "dedicated"\n[[queue]]\nmode = "shared"'
cases() { # CONFIG OPERATION...
    # shellcheck disable=SC2016 # for the inner shell
    DSA_EMU="$1"$'\n'"$queues" timeout 600 "$run" sh -c 'export LD_LIBRARY_PATH=$1; shift; exec sh "$@"' sh \
        "$libraries" "$prefix/cases" "$root/usr/libexec/accel-config/test/dsa_test" "${@:2}" >"$prefix/log" || true
}
cases "" 0x0 0x2 0x3 0x4 0x5 0x6 0x9 0x10 0x11 0x12 0x13 0x14 0x15 0x20
if ! grep -qx 'passed: 476' "$prefix/log" || grep -q failed "$prefix/log"; then
    cat "$prefix/log"
    exit 1
fi
for operation in 0x3 0x14; do
    cases "faults = 'corrupt@7'" $operation
    if ! grep -q "^failed: dsa_test .* -o 0x1 -b $operation" "$prefix/log"; then
        cat "$prefix/log"
        echo "dsa_test does not detect a wrong byte of operation $operation" >&2
        exit 1
    fi
done
echo "476 cases pass"
echo "programs for DSA run on the stand-in"
