#!/bin/sh
# Runs in two virtual machines of ci/vm, for ci/nixl.sh. Both machines have NIXL's library, and the plugin with the engine
# rdma on Soft-RoCE.
machine=$1
fail() {
    echo "FAILED: $1"
    dmesg | tail -n 30
    exit 1
}
# shellcheck source=ci/guest/rxe_device.sh
. /rxe_device.sh

export NIXL_PLUGIN_DIR=/plugins NIXL_LOG_LEVEL=ERROR
# The first engine copies within the process, and the second one between hosts. They may be the same.
for engine in cpu rdma:rxe0; do
    while :; do
        hosts "$machine" 10.0.0.1 60 engine=$engine remote=rdma:rxe0 "listen=10.0.0.$machine" >/tmp/out 2>&1
        status=$?
        # The second machine can connect only after the first one listens.
        [ $status = 3 ] || break
        sleep 0.2
    done
    cat /tmp/out
    # The first machine's program is killed at last. After the second engine, the first machine also ends. Then the second machine
    # waits for it, but its own device is not lost.
    [ "$status" = $((machine == 1 ? 137 : 0)) ] || fail "engine=$engine: exit status $status"
    if grep -q "is lost" /tmp/out; then
        fail "engine=$engine: a lost device"
    fi
done
