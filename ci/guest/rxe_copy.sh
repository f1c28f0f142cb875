# Read by rxe.sh in both machines: dma-copy between them, by RDMA. The first machine is the DPU, and the second one the host.
# They send programs, which both machines have.
file1=/bin/dma-copy file2=/bin/lib
[ "$machine" = 1 ] && role=dpu || role=host
echo "the secret of both machines" >/tmp/key
chmod 600 /tmp/key
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
