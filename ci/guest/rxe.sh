#!/bin/sh
# Runs in two virtual machines of ci/vm, for ci/kernel.sh. Both machines create a software RDMA device, and
# exchange and check bytes by rdma-core's own programs. Then dma-copy and dma-bench run between the machines. The second machine
# imports memory of the first machine by dma-rdma, and the first machine runs the hardware tests of dma-rdma.
machine=$1
fail() {
    echo "FAILED: $1"
    dmesg | tail -n 30
    [ "$machine" != 2 ] || timeout 20 lib --ignored --exact tests::hosts::the_exporter_is_told_to_end >/dev/null 2>&1
    exit 1
}

# shellcheck source=ci/guest/rxe_device.sh
. /rxe_device.sh

# Runs a program on both machines, and repeats it until it succeeds. The second machine can connect only after the
# first one listens, and a machine that does not get a processor in time ends the connection. The same failure is
# printed only once, and the time limit of ci/vm ends the retries.
pair() { # WANTED PROGRAM ARGUMENT...: prints the lines with WANTED
    wanted=$1
    shift
    [ "$machine" = 1 ] || set -- "$@" 10.0.0.1
    said=
    until timeout 60 "$@" >/tmp/out 2>&1; do
        line=$(head -n 1 /tmp/out)
        [ "$machine" = 1 ] || [ "$line" = "$said" ] || echo "$1: $line"
        said=$line
        sleep 0.2
    done
    grep -E "$wanted" /tmp/out
    grep "invalid data" /tmp/out && fail "$1 received wrong bytes"
}
pair iters ibv_rc_pingpong -d rxe0 -g $gid -c -s 4096 -n 200

echo "the secret of both machines" >/tmp/key
chmod 600 /tmp/key
if [ "$machine" = 1 ]; then
    dma-bench serve --engine rdma:rxe0 --listen 10.0.0.1:4712 --secret-file /tmp/key >/tmp/serve 2>&1 &
    served=$!
    until grep -q ^serving /tmp/serve; do kill -0 $served || { cat /tmp/serve && fail "dma-bench serve"; }; done
fi
sh /rxe_programs.sh "$machine" || fail "dma-copy or dma-bench"

# When the exporter of dma-rdma in the first machine was killed, it is started again.
export DMA_RDMA_CONTROL=10.0.0.1:7000 DMA_RDMA_LINK=eth0
serve() {
    while :; do
        lib --ignored --exact tests::hosts::exporter >/tmp/exporter 2>&1
        status=$?
        [ $status = 137 ] || return $status
    done
}
if [ "$machine" = 1 ]; then
    serve &
    exporter=$!
    while :; do ib_read_bw -d rxe0 -x $gid -F -s 65536 -t 32 -n 300; done >/dev/null 2>&1 &
    reads=$!
    wait $exporter || { cat /tmp/exporter && fail "the exporter"; }
    kill $reads
    killall -q ib_read_bw
    kill -TERM "$served"
    wait "$served" || { cat /tmp/serve && fail "dma-bench serve"; }
    grep "^dma-bench: served" /tmp/serve || fail "dma-bench serve"
else
    # Measures ib_read_bw and dma-rdma alternately, at least twice and at most 8 times, until dma-rdma was as fast once.
    # Repetitions are needed because the share of the processor that a machine gets varies over time.
    best=0 rounds=0
    until [ $rounds -ge 2 ] && awk "BEGIN { exit !($best >= 1) }"; do
        rounds=$((rounds + 1))
        # This is not a failure, because time must not decide a test.
        [ $rounds -le 8 ] || { echo "dma-rdma never read as fast as ib_read_bw" && break; }
        pair "^ 65536" ib_read_bw -d rxe0 -x $gid -F -s 65536 -t 32 -n 300 >/tmp/theirs
        lib --ignored --exact --nocapture tests::hosts::speed::bandwidth >/tmp/ours || fail "bandwidth"
        theirs=$(awk '/^ 65536/ { print $4 }' /tmp/theirs)
        ours=$(awk '/^read bandwidth/ { print $3 }' /tmp/ours)
        ratio=$(awk "BEGIN { printf \"%.2f\", $ours / $theirs }")
        echo "read bandwidth, 64 KiB, depth 32: dma-rdma $ours MiB/s, ib_read_bw $theirs MiB/s, ratio $ratio"
        best=$(awk "BEGIN { print ($ratio > $best ? $ratio : $best) }")
    done
    lib --ignored --nocapture --test-threads=1 importer_ || fail "the tests between two hosts"
    lib --ignored --exact tests::hosts::the_exporter_is_told_to_end || fail "the exporter"
    exit 0
fi

# The kernel frees the queue pairs and regions of a killed process.
held() {
    { rdma resource show qp && rdma resource show mr; } | grep " pid "
}
hardware --ignored >/dev/null 2>&1 &
until held; do kill -0 $! || fail "the tests ended before they had a queue pair"; done
kill -9 $!
wait $!
until ! held; do sleep 0.1; done

lib --ignored hardware || fail "the tests of the library"
hardware --ignored || fail "conformance or random programs"
