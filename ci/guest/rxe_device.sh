#!/bin/sh
# Creates a software RDMA device, rxe0, on eth0 of one of two virtual machines of ci/vm. Other scripts, which have `fail`,
# source it after they have set `machine` to 1 or 2. Sets `gid` to the index of the GID of the address 10.0.0.$machine.
# shellcheck disable=SC2154 # the sourcing script sets `machine`
for module in crc32_generic virtio_pci virtio_net rdma_rxe ib_uverbs; do
    modprobe $module || fail "$module does not load"
done
ip link set eth0 up
ip addr add "10.0.0.$machine/24" dev eth0
rdma link add rxe0 type rxe netdev eth0 || fail "there is no Soft-RoCE"

gids=/sys/class/infiniband/rxe0/ports/1/gids
gid=0
until [ "$(cat $gids/$gid)" = "0000:0000:0000:0000:0000:ffff:0a00:000$machine" ]; do
    gid=$((gid + 1))
    [ -e $gids/$gid ] || fail "no GID of the address"
done
