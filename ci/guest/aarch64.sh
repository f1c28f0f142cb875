#!/bin/sh
# Runs the test programs of ci/aarch64.sh. /list contains the folder and path of each program.
sed -n 's/^KernelPageSize: */pages of /p' /proc/self/smaps | head -n 1
export RUST_TEST_THREADS=2 RUST_BACKTRACE=1
tar -xf /files.tar -C /
rm /files.tar
mount -t tmpfs tmpfs /tmp
ln -s /proc/self/fd /dev/fd

failed=
while read -r folder program; do
    name=$(basename "$program")
    begun=$(cut -d . -f 1 /proc/uptime)
    echo "--- $name"
    if (cd "$folder" && CARGO_MANIFEST_DIR=$folder "$program" --quiet) >/tmp/output 2>&1; then
        grep '^test result: ' /tmp/output
    else
        cat /tmp/output
        failed="$failed $name"
    fi
    echo "$(($(cut -d . -f 1 /proc/uptime) - begun)) s"
done </list
[ -z "$failed" ] || echo "FAILED:$failed"
[ -z "$failed" ]
