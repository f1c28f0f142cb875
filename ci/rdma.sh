#!/usr/bin/env bash
# Unmodified programs for RDMA run on the stand-in for rdma-core, as two processes that the stand-in connects: rdma-core's
# examples and ibv_devinfo (package ibverbs-utils), perftest, and UCX's ucx_perftest over its transports for verbs.
# The hardware test of dma-rdma also runs on the stand-in.
#
# The programs come from Debian 12's packages, which are unpacked below the target directory, so no installation and no
# root rights are needed. UCX uses a device only if it finds a character device for it below /dev/infiniband, so its
# programs run with a /dev of their own, for which they need user namespaces. Exits with 77 ("skipped") if the packages
# cannot be downloaded.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

skip() {
    echo "skipped: $1"
    exit 77
}

machine=$(uname -m)
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
prefix=$target/ci-rdma
mkdir -p "$prefix"
standins/rdma-emu/install "$prefix/rdma" --profile test
emulated=$prefix/rdma/lib
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

echo "--- the test for hardware, on the stand-in"
hardware=$(ci/built.sh dma-rdma test hardware)
DMA_IBVERBS_LIB_DIR=$emulated timeout 300 "$hardware" --ignored

echo "--- Debian's packages"
command -v apt-get >/dev/null || skip "there is no apt-get to download programs for RDMA"
wanted=(ibverbs-utils perftest ucx-utils)
needed=$(LC_ALL=C apt-get -s -q install --reinstall --no-install-recommends "${wanted[@]}" 2>/dev/null |
    sed -n 's/^Inst \([^ ]*\).*/\1/p') || skip "apt-get does not know the packages ${wanted[*]}"
# Keeps only the packages with programs and libraries.
mapfile -t needed < <(grep -vE '^rdma-core$' <<<"$needed" | sort -u)
root=$prefix/root
if [[ "$(cat "$prefix/packages" 2>/dev/null)" != "${needed[*]}" ]]; then
    rm -rf "$root" "$prefix/packages"
    (cd "$logs" && timeout 300 apt-get -q -o Acquire::Retries=3 download "${needed[@]}" >log 2>&1) ||
        skip "apt-get cannot download ${needed[*]}: $(tail -n 1 "$logs/log")"
    for deb in "$logs"/*.deb; do
        dpkg-deb -x "$deb" "$root"
    done
    echo "${needed[*]}" >"$prefix/packages"
fi
bin=$root/usr/bin
libraries=$root/usr/lib/$machine-linux-gnu:$root/lib/$machine-linux-gnu
export LD_LIBRARY_PATH=$emulated:$libraries

# Prints the logs of a program that has failed, and ends.
fail() { # WHAT
    tail -n 30 "$logs"/server "$logs"/client 2>/dev/null || true
    echo "$1" >&2
    exit 1
}

# both PORT COMMAND...: runs a server that listens on the port, and a client. The client is started when the server listens.
both() {
    local port=$1 server hex
    shift
    printf -v hex ':%04X ' "$port"
    timeout 120 "$@" >"$logs/server" 2>&1 &
    server=$!
    until grep -hE '^ *[0-9]+: .* 0A ' /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -qF "$hex"; do
        kill -0 $server 2>/dev/null || fail "the server of \"$*\" has ended"
        sleep 0.1
    done
    timeout 120 "$@" "${client[@]}" >"$logs/client" 2>&1 || fail "the client of \"$*\" fails"
    wait $server || fail "the server of \"$*\" fails"
}

# The ports lie below those that the system gives to outgoing connections of other programs.
port=$((18515 + $$ % 14000))
row() { printf '%-42s %s\n' "$1" "$2"; }

echo "--- ibv_devices, ibv_devinfo"
"$bin/ibv_devices" >"$logs/client"
grep -q '^ *emu0' "$logs/client" || fail "ibv_devices does not list the device"
"$bin/ibv_devinfo" -v | tr -s '\t' ' ' >"$logs/client"
for line in 'hca_id: *emu0' 'state: *PORT_ACTIVE (4)' 'link_layer: *Ethernet' 'GID\[ *1\]: *::ffff:127.0.0.1, RoCE v2'; do
    grep -q "$line" "$logs/client" || fail "ibv_devinfo does not print $line"
done

echo "--- rdma-core's examples (microseconds for an iteration)"
for mode in "rc -c" "rc -e" "rc -N" "uc" "ud" "srq"; do
    port=$((port + 1)) client=(localhost)
    read -ra mode <<<"$mode"
    both $port "$bin/ibv_${mode[0]}_pingpong" -g 1 -p $port "${mode[@]:1}"
    for log in server client; do
        grep -q '^1000 iters in' "$logs/$log" || fail "ibv_${mode[0]}_pingpong has not made 1000 iterations"
        ! grep -q 'invalid data' "$logs/$log" || fail "ibv_${mode[0]}_pingpong has received wrong bytes"
    done
    row "ibv_${mode[0]}_pingpong ${mode[*]:1}" "$(sed -n 's/^1000 iters.*= \(.*\) usec.*/\1/p' "$logs/client")"
done

echo "--- perftest (MB/s, or microseconds of a typical iteration)"
for command in ib_write_bw ib_read_bw ib_send_bw ib_write_lat ib_read_lat ib_send_lat ib_atomic_bw ib_atomic_lat \
    "ib_send_bw -b -q 2" "ib_send_bw -e" "ib_send_bw -c UD" "ib_write_bw -c UC" "ib_send_bw -r 64 --use-srq"; do
    port=$((port + 1)) client=(localhost)
    read -ra words <<<"$command"
    both $port "$bin/${words[0]}" -p $port "${words[@]:1}"
    # The result is the line of numbers in the client's table.
    result=$(grep -E '^ *[0-9]+ +[0-9]+ +[0-9.]+ ' "$logs/client") || fail "\"$command\" prints no result"
    case $command in
    *_lat*) column=5 ;;
    *) column=4 ;;
    esac
    row "$command" "$(awk -v column=$column '{ print $column }' <<<"$result")"
done

echo "--- UCX (microseconds for an iteration)"
# shellcheck disable=SC2016 # expanded by the inner shell
own_dev='mount --rbind /dev "$0" && mount -t tmpfs tmpfs /dev && for name in "$0"/*; do ln -s "$name" /dev/; done &&
    mkdir /dev/infiniband && ln -s ../null /dev/infiniband/uverbs0 && exec "$@"'
mkdir "$logs/dev"
with_dev=(unshare -rm sh -c "$own_dev" "$logs/dev")
if "${with_dev[@]}" true 2>"$logs/client"; then
    export UCX_IB_GID_INDEX=1 UCX_TLS=rc_v,ud_v UCX_LOG_LEVEL=warn
    direct() { echo "-x ${1}_verbs -d emu0:1 -t $2"; }
    for command in "$(direct rc put_lat)" "$(direct rc put_bw)" "$(direct rc get) -D zcopy -s 1000" "$(direct rc am_lat)" \
        "$(direct ud am_lat)" "-t tag_lat -s 20000" "-t tag_bw -s 20000" "-t ucp_put_bw -s 20000" "-t ucp_get -s 20000" \
        "-t ucp_am_lat -s 20000" "-t ucp_fadd"; do
        port=$((port + 1))
        read -ra words <<<"$command"
        client=(localhost -n 1000 "${words[@]}")
        both $port "${with_dev[@]}" "$bin/ucx_perftest" -p $port
        result=$(grep '^Final:' "$logs/client") || fail "ucx_perftest $command prints no result"
        ! grep -q ERROR "$logs/client" || fail "ucx_perftest $command reports an error"
        row "ucx_perftest $command" "$(awk '{ print $4 }' <<<"$result")"
    done
else
    row "ucx_perftest" "skipped: no user namespace: $(tail -n 1 "$logs/client")"
fi
echo "programs for RDMA run on the stand-in"
