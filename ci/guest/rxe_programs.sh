# Read by rxe.sh in both machines: dma-copy and dma-bench between them, by RDMA.

echo "the secret of both machines" >/tmp/key
chmod 600 /tmp/key
if [ "$machine" = 1 ]; then
    # For dma-bench below, and until rxe.sh ends it.
    dma-bench serve --engine rdma:rxe0 --listen 10.0.0.1:4712 --secret-file /tmp/key >/tmp/serve 2>&1 &
    served=$!
    until grep -q ^serving /tmp/serve; do kill -0 $served || { cat /tmp/serve && fail "dma-bench serve"; }; done
fi

# The first machine is dma-copy's DPU, and the second one its host. They send programs, which both machines have.
file1=/bin/dma-copy file2=/bin/lib
[ "$machine" = 1 ] && role=dpu || role=host
common="--role $role --channel tcp:10.0.0.1:4711 --secret-file /tmp/key --quiet"

# Sets the file that a machine sends, and its name on this one.
sent_by() { # SENDER
    eval "original=\$file$1"
    [ "$machine" = "$1" ] && name=$original || name=/tmp/copy
}

# Copies the sender's file, and compares it.
copy() { # SENDER OPTION...
    sent_by "$1"
    shift
    dma-copy $common --engine rdma:rxe0 --file $name "$@" || fail "dma-copy"
    cmp $name $original || fail "dma-copy made a copy with other bytes"
    rm -f /tmp/copy
}

# Kills the receiver when it has a part of the file. The sender ends by itself.
kill_receiver() { # SENDER
    sent_by "$1"
    if [ $name = "$original" ]; then
        dma-copy $common --engine rdma:rxe0 --file $name --resume && fail "dma-copy sent a file to nobody"
        return
    fi
    partial=/tmp/.copy.dma-copy.partial
    dma-copy $common --engine rdma:rxe0 --file $name --resume &
    until [ "$(stat -c %s $partial 2>/dev/null || echo 0)" -ge 2000000 ]; do kill -0 $! || fail "dma-copy ended by itself"; done
    kill -9 $!
    wait $!
    [ -e $partial ] && ! [ -e $name ] || fail "the copy was complete when dma-copy was killed"
    echo "dma-copy was killed when it had $(stat -c %s $partial) bytes"
}

for sender in 1 2; do
    copy $sender
    kill_receiver $sender
    copy $sender --resume >/tmp/resumed
    cat /tmp/resumed
    grep -q "bytes were there already" /tmp/resumed || fail "dma-copy began again"
done

# Runs dma-copy, which has to fail at a step and offer the way without RDMA.
refused() { # STEP ENGINE
    before=$(cut -d ' ' -f 1 /proc/uptime)
    dma-copy $common --engine "$2" --file $name 2>/tmp/refusal && fail "dma-copy copied by $2"
    after=$(cut -d ' ' -f 1 /proc/uptime)
    cat /tmp/refusal
    grep "$1" /tmp/refusal | grep -q -- "--engine stream on both sides$" || fail "dma-copy does not offer the other way"
    awk "BEGIN { printf \"dma-copy said so after %.2f s\n\", $after - $before }"
}
# A host without RDMA does not even connect; of one with another engine, both sides tell.
sent_by 1
if [ "$machine" = 1 ]; then
    refused importing rdma:rxe0
else
    refused starting rdma:rxe9
    refused importing cpu
fi

# The figures say that it works: so few repetitions in a machine without a processor of its own are no measurement.
if [ "$machine" = 2 ]; then
    dma-bench run --engine rdma:rxe0 --peer 10.0.0.1:4712 --secret-file /tmp/key -o 4K,64K -q 1,8 -r 2 -t 0.04 --warm-up 0.01 \
        --footprint 256K --quiet >/tmp/table 2>&1 || { cat /tmp/table && fail "dma-bench run"; }
    grep -A 6 -E "^copy cold (push|pull)|^Trust" /tmp/table
    grep -q "operations compared, no wrong byte" /tmp/table || fail "dma-bench compared nothing"
fi
