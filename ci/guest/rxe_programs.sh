#!/bin/sh
# Runs in both virtual machines, for rxe.sh. dma-copy copies between them by RDMA. dma-bench in the second machine
# measures copies to and from memory of the first machine, where rxe.sh runs `dma-bench serve`, and compares the bytes.
# Both machines have the secret in /tmp/key.
machine=$1
fail() {
    echo "FAILED: $1"
    exit 1
}

# The first machine has dma-copy's role DPU, and the second machine the role host. `exec` replaces the calling subshell by
# dma-copy.
copier() { # OPTION...
    role=host
    [ "$machine" != 1 ] || role=dpu
    exec dma-copy --role $role --channel tcp:10.0.0.1:4711 --secret-file /tmp/key --quiet "$@"
}

# Sets the file that the sender sends (a program that both machines have), and its name on this machine.
sent_by() { # SENDER
    original=/bin/dma-copy
    [ "$1" = 1 ] || original=/bin/lib
    name=/tmp/copy
    [ "$machine" != "$1" ] || name=$original
}

# Copies the sender's file, and compares it.
copy() { # SENDER OPTION...
    sent_by "$1"
    shift
    (copier --engine rdma:rxe0 --file $name "$@") || fail "dma-copy"
    cmp $name $original || fail "dma-copy made a copy with other bytes"
    rm -f /tmp/copy
}

# Kills the receiver after it has received a part of the file. The sender must end by itself.
kill_receiver() { # SENDER
    sent_by "$1"
    if [ $name = $original ]; then
        (copier --engine rdma:rxe0 --file $name --resume) && fail "dma-copy succeeded without a receiver"
        return
    fi
    partial=/tmp/.copy.dma-copy.partial
    copier --engine rdma:rxe0 --file $name --resume &
    until [ "$(stat -c %s $partial 2>/dev/null || echo 0)" -ge 2000000 ]; do kill -0 $! || fail "dma-copy ended by itself"; done
    kill -9 $!
    wait $!
    [ -e $partial ] || fail "dma-copy had already ended when it was killed"
    echo "dma-copy was killed when it had $(stat -c %s $partial) bytes"
}

for sender in 1 2; do
    copy $sender
    kill_receiver $sender
    copy $sender --resume >/tmp/resumed
    cat /tmp/resumed
    grep -q "bytes were already copied earlier" /tmp/resumed || fail "dma-copy did not resume the copy"
done

# Runs dma-copy, which must fail at a step and suggest the copy without RDMA.
refused() { # STEP ENGINE
    before=$(cut -d ' ' -f 1 /proc/uptime)
    (copier --engine "$2" --file $name 2>/tmp/refusal) && fail "dma-copy succeeded with $2"
    after=$(cut -d ' ' -f 1 /proc/uptime)
    cat /tmp/refusal
    grep "$1" /tmp/refusal | grep -q -- "--engine stream on both sides$" || fail "dma-copy does not suggest the copy without RDMA"
    awk "BEGIN { printf \"dma-copy reported it after %.2f s\n\", $after - $before }"
}
# A host without RDMA fails before it connects. If the sides have different engines, or packets to an RDMA address are
# lost, both sides report it.
sent_by 1
if [ "$machine" = 1 ]; then
    refused importing rdma:rxe0
    ip addr add 192.168.9.1/32 dev eth0
    gid=0
    until [ "$(cat /sys/class/infiniband/rxe0/ports/1/gids/$gid)" = "0000:0000:0000:0000:0000:ffff:c0a8:0901" ]; do
        gid=$(((gid + 1) % 16))
    done
    refused "importing.* a route exists between" "rdma:rxe0,gid=$gid"
    ip addr del 192.168.9.1/32 dev eth0
    exit 0
fi
refused starting rdma:rxe9
refused importing cpu
arp -i eth0 -s 192.168.9.1 02:00:00:00:00:99
refused "importing.* a route exists between" rdma:rxe0

# This checks only that dma-bench works. With so few repetitions on a shared processor, its figures are not
# measurements.
dma-bench run --engine rdma:rxe0 --peer 10.0.0.1:4712 --secret-file /tmp/key -o 4K,64K -q 1,8 --samples 2 -t 0.04 --warm-up 0.01 \
    --footprint 256K --quiet >/tmp/table 2>&1 || { cat /tmp/table && fail "dma-bench run"; }
grep -A 6 -E "^copy cold (push|pull)|^Trust" /tmp/table
grep -q "operations compared, no wrong byte" /tmp/table || fail "dma-bench compared nothing"
