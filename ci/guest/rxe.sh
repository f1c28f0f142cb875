#!/bin/sh
# Runs in two machines of ci/vm, for ci/kernel.sh. Both make a software RDMA device on eth0, and exchange and check bytes by
# rdma-core's own programs. Then the first runs the tests of dma-rdma for hardware.
fail() {
    echo "FAILED: $1"
    dmesg | tail -n 30
    exit 1
}

for module in crc32_generic virtio_pci virtio_net rdma_rxe ib_uverbs; do
    modprobe $module || fail "$module does not load"
done
ip link set eth0 up
ip addr add "10.0.0.$1/24" dev eth0
rdma link add rxe0 type rxe netdev eth0 || fail "there is no Soft-RoCE"

gids=/sys/class/infiniband/rxe0/ports/1/gids
gid=0
until [ "$(cat $gids/$gid)" = "0000:0000:0000:0000:0000:ffff:0a00:000$1" ]; do
    gid=$((gid + 1))
    [ -e $gids/$gid ] || fail "no GID of the address"
done

# Runs a program on both machines, until it succeeds: the second connects once the first listens, and a machine that does
# not get a processor in time ends the connection. The limit of ci/vm ends all that.
pair() { # WANTED PROGRAM ARGUMENT...: prints the lines with WANTED
    wanted=$1
    shift
    [ "$machine" = 1 ] || set -- "$@" 10.0.0.1
    until timeout 60 "$@" >/tmp/out 2>&1; do
        [ "$machine" = 1 ] || echo "$1: $(head -n 1 /tmp/out)"
        sleep 0.2
    done
    grep -E "$wanted" /tmp/out
    grep "invalid data" /tmp/out && fail "$1 received wrong bytes"
}
machine=$1
pair iters ibv_rc_pingpong -d rxe0 -g $gid -c -s 4096 -n 200
pair "^ 65536" ib_read_bw -d rxe0 -x $gid -F -s 65536 -n 100
[ "$machine" = 1 ] || exit 0

# The kernel takes back the queue pairs and regions of a process that is killed.
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
