#!/bin/sh
# Runs in a virtual machine of ci/vm, with the PCI functions that ci/kernel.sh configures. Binds
# Linux's ioatdma to each function: the driver starts the channel, copies and compares 2,000 bytes,
# and registers the channel if they are correct. Then copies.ko makes more copies.
driver=/sys/bus/pci/drivers/ioatdma

fail() {
    echo "FAILED: $1"
    dmesg | tail -n 30
    exit 1
}

# ci/kernel.sh chooses the number of copies for each seed.
count=$(sed -n 's/.*copies=\([0-9]*\).*/\1/p' /proc/cmdline)

# SEED: makes $count copies by the only channel, and prints the result: see copies.c.
copies() {
    insmod /copies.ko count="$count" seed="$1" || fail "copies.ko does not load"
    cat /sys/module/copies/parameters/result
    rmmod copies
}

# ADDRESS VERSION: checks that the driver accepts the function every time, and copies correctly.
accepted() {
    for seed in 1 2 3; do
        echo "$1" >$driver/bind || fail "$1 was refused"
        [ "$(cat /sys/class/dma/dma0chan0/quickdata/version)" = "$2" ] || fail "$1 has no channel of version $2"
        [ "$(readlink -f /sys/class/dma/dma0chan0/device)" = "$(readlink -f "/sys/bus/pci/devices/$1")" ] || fail "the channel is not of $1"
        [ ! -e /copies.ko ] || [ "$(copies $seed)" = 0 ] || fail "copies by $1 with the seed $seed are wrong"
        echo "$1" >$driver/unbind
    done
    dmesg | grep -iE "ioatdma $1: .*(error|halted|timed out|failed)" && fail "the driver reports errors of $1"
    echo "ioatdma: $1, version $2, accepted"
}

# ADDRESS MESSAGE...: checks that the driver refuses the function, and logs all these messages.
refused() {
    address=$1
    shift
    if echo "$address" >$driver/bind 2>/dev/null; then
        fail "$address was accepted"
    fi
    for message; do
        dmesg | grep -qF "ioatdma $address: $message" || fail "the kernel did not log for $address: $message"
    done
    [ -z "$(ls /sys/class/dma)" ] || fail "$address has a channel"
    echo "ioatdma: $address refused: $1"
}

echo 0 >/sys/bus/pci/drivers_autoprobe
modprobe ioatdma || fail "ioatdma does not load"
accepted 0000:00:10.0 3.2
accepted 0000:00:11.0 3.4
refused 0000:00:12.0 "Self-test copy failed compare, disabling" "Err(8): Read Data Error" "ioat_timer_event: Channel halted (100)"
refused 0000:00:13.0 "Self-test copy timed out, disabling" "Restart channel..."
refused 0000:00:14.0 "Self-test copy failed compare, disabling"
if dmesg | grep "ioatdma 0000:00:14.0: .*halted"; then
    fail "a wrong copy halted the channel"
fi

# These channels pass the driver's test, and fail later.
if [ -e /copies.ko ]; then
    echo 0000:00:15.0 >$driver/bind || fail "0000:00:15.0 was refused"
    result=$(copies 1)
    [ "$result" = -84 ] || fail "a wrong byte was not detected: $result"
    echo 0000:00:15.0 >$driver/unbind
    echo 0000:00:16.0 >$driver/bind || fail "0000:00:16.0 was refused"
    result=$(copies 1)
    { [ "$result" -gt 0 ] && [ "$result" -lt 100 ]; } || fail "after a halt, $result copies failed"
    echo 0000:00:16.0 >$driver/unbind
    echo "ioatdma: a wrong byte was detected; after a halt, $result copies failed and the others succeeded"
fi
