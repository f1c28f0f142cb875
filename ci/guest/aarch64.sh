#!/bin/sh
# Runs the test programs of ci/aarch64.sh.
sed -n 's/^KernelPageSize: */pages of /p' /proc/self/smaps | head -n 1
export RUST_TEST_THREADS=2 RUST_BACKTRACE=1
mount -t tmpfs tmpfs /tmp

failed=
for program in /tests/*; do
    name=$(basename "$program")
    begun=$(cut -d . -f 1 /proc/uptime)
    echo "--- $name"
    if "$program" --quiet >/tmp/output 2>&1; then
        grep '^test result: ' /tmp/output
    else
        cat /tmp/output
        failed="$failed $name"
    fi
    echo "$(($(cut -d . -f 1 /proc/uptime) - begun)) s"
done
[ -z "$failed" ] || echo "FAILED:$failed"
[ -z "$failed" ]
