#!/usr/bin/env bash
# Time decides no test. Tests that sleep or read a clock are listed here, with the reason why a slow, stopped or crowded machine
# cannot make them fail. The script fails if a test file sleeps or reads a clock more often than its line says, and if a line is
# out of date. A test that waits for a program holds it at a point (`tests/support/src/hold.rs`), or reads a line that the program
# writes. A limit against a hang needs no line: it is a comparison with LONG, HANGS, SOON or PATIENCE, or with a number of
# seconds, and is at least a minute.
#
#   ci/clocks.sh   checks
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# file, number of sleeps, reason
listed='
apps/dma-copy/tests/admission.rs 2 polls until a condition holds, or connects until the copy has ended
apps/dma-copy/tests/copies/main.rs 1 both orders of two starts are right, and the pause makes one likely
apps/dma-copy/tests/faults.rs 1 chooses a moment to kill; every moment is right
apps/dma-copy/tests/pair/mod.rs 1 polls until a condition holds
apps/dma-copy/tests/protocol.rs 1 repeats a message until the other side gives up
apps/dma-copy/tests/stream.rs 1 makes it likely that a sender blocks; a sender that does not block yet ends the same way
dma-bench/tests/serve.rs 1 polls until a condition holds
bindings/c/tests/c/every_call.c 1 polls until a condition holds
bindings/c/tests/c/forked.c 2 limit against a hang of two minutes
bindings/c/tests/nixl/agent.hpp 2 polls until a condition holds
bindings/c/tests/nixl/host.cpp 1 limits the whole program
bindings/c/tests/nixl/host_peers.hpp 3 polls until a condition holds; chooses a moment to kill
bindings/c/tests/nixl/kills.py 1 chooses a moment to kill; every moment is right
bindings/preload/tests/c/every_case.c 1 gives a wrong device time to write what it must not write
bindings/python/tests/test_waiting.py 2 lets the other tasks of an event loop run, for 0 s
dma-core/process/src/fork_lock.rs 1 limits a child that hangs
dma-core/process/src/process_lock.rs 1 limits a child that hangs
dma-core/src/queue/fault_injection_tests/mod.rs 1 a device that needs time to stop
dma-core/src/shared/tests/mod.rs 2 a device that needs time to stop; polls until a condition holds
standins/doca-emu/tests/c/comch.c 1 polls until a condition holds
standins/doca-emu/tests/c/comch_fast.c 2 polls until a condition holds
standins/doca-emu/tests/c/tasks25/program.c 1 polls until a condition holds
dma-doca/tests/comch.rs 2 makes it likely that all threads send; fewer are right, too
standins/spdk-emu/tests/engine.rs 4 gives a wrong device time to do what it must not do
standins/spdk-emu/tests/reattach.rs 1 polls until a condition holds
engines/dma-cpu/src/helpers.rs 1 sleeps until another thread calls
engines/dma-cpu/src/queue/tests.rs 1 makes two moments differ
engines/dma-layers/src/auto/cpu_times.rs 1 a time that is shared in proportion, whatever it is
engines/dma-cpu/tests/fork.rs 1 polls until a condition holds
engines/dma-cpu/tests/queue/ending.rs 2 gives a wrong engine time to write what it must not write
engines/dma-cpu/tests/queue/progress.rs 1 gives helper threads time to go to sleep
standins/cuda-emu/tests/reach.rs 1 a host function that takes time
engines/dma-cuda/tests/behaviour.rs 1 polls until a condition holds
standins/dsa-emu/tests/c/early.c 1 polls until a condition holds
standins/dsa-emu/tests/c/faults.c 1 limits the whole program
standins/dsa-emu/tests/c/program.c 2 polls until a condition holds; limits the whole program
engines/dma-dsa/tests/on_standin.rs 2 polls until a condition holds; waits longer than the engine caches a file
engines/dma-layers/tests/record_traces.rs 2 a program that is killed; waits longer than the buffer of a trace
engines/dma-rdma/src/service.rs 1 limits a child that hangs
engines/dma-rdma/src/tests/flood.rs 2 polls until a condition holds
engines/dma-rdma/src/tests/hosts/faults.rs 3 chooses a moment to kill; polls until a link is up; the time that a link is down
engines/dma-rdma/src/tests/hosts/mod.rs 2 chooses a moment to end; polls until a peer listens
support/dma-ipc/src/import/tests.rs 1 repeats a signal until the importer gives up
support/dma-ipc/tests/no_leaks.rs 1 polls until a condition holds
support/dma-ipc/tests/process_memory.rs 1 chooses a moment to revoke; every moment is right
tests/left_over.rs 1 polls until the kernel has removed threads
tests/support/src/in_child.rs 1 limits a child that hangs
'
# file, number of clock reads other than limits against a hang, reason
reads_listed='
bindings/c/tests/nixl/agent.hpp 4 limits against a hang of two minutes
bindings/c/tests/nixl/figures.c 2 figures that are printed
bindings/c/tests/nixl/host_peers.hpp 3 a stopped peer is given up after the time limit, not before; repeats what a stop of the machine has disturbed
bindings/c/tests/nixl/kills.py 2 limit against a hang, and the figure that is printed
bindings/c/tests/nixl/peers.py 4 limits against a hang of two minutes
bindings/preload/tests/c/ratios.c 1 figures that are printed
bindings/python/tests/test_device_files.py 2 limit against a hang of a minute
dma-bench/src/run/cpu_time.rs 1 threads that run for a time
dma-core/process/src/limited_socket.rs 1 no shorter than the limit
dma-core/src/shared/tests/closing.rs 1 half a minute against a minute
dma-core/src/shared/tests/mod.rs 2 repeats what a stop of the machine has disturbed; limit against a hang
dma-core/src/shared/tests/stalls.rs 1 repeats what a stop of the machine has disturbed
dma-doca/tests/raw_queue.rs 1 one of 20 tries has to be short
dma-doca/tests/logs.rs 2 limits against a hang of two minutes
dma-ioat/tests/raw_queue.rs 1 one of 100 tries has to be short
dma-sim/tests/sim_faults/clocks.rs 1 no shorter than the time of the model
engines/dma-cpu/src/pool.rs 1 different pauses; every pause is right
engines/dma-cpu/tests/fork.rs 1 limit against a hang of a minute
engines/dma-cuda/tests/hardware.rs 6 figures that are printed, on a GPU
engines/dma-layers/tests/auto_failover.rs 1 a figure that is printed
engines/dma-rdma/src/tests/flood.rs 2 a figure that is printed; repeats what took too long
engines/dma-rdma/src/tests/hosts/faults.rs 4 limit against a hang, and figures that are printed
engines/dma-rdma/src/tests/hosts/mod.rs 1 a figure that is printed
engines/dma-rdma/src/tests/hosts/rights.rs 1 limit against a hang
engines/dma-rdma/src/tests/hosts/speed.rs 1 a figure that is printed
standins/dsa-emu/src/ring.rs 1 limit against a hang of a minute
standins/doca-emu/tests/c/clock.c 1 time that a thread has run, which grows only while it runs
standins/doca-emu/tests/faults.rs 1 no shorter than the time of the model
standins/spdk-emu/tests/reattach.rs 1 no shorter than the pause that it waits for
support/dma-handshake/tests/exchange.rs 1 repeats what a stop of the machine has disturbed
support/dma-ipc/src/import/tests.rs 1 limit against a hang of two minutes
tests/guest.rs 1 limit against a hang of a minute
'
tests=('*/tests/*' 'tests/*' '*tests.rs' '*_tests/*' '*/src/*/tests/*' ':!tests/fuzz')
failed=0
# Prints the lines that match $1 in test files, and in the modules `tests` at the ends of sources.
matches() {
    git grep -nE "$1" -- "${tests[@]}"
    git grep -nE "$1|^(pub\(crate\) )?mod tests \{" -- 'src/*.rs' '*/src/*.rs' ':!*tests.rs' ':!*/tests/*' ':!*_tests/*' | awk -F: '/:(pub\(crate\) )?mod tests \{/ { inside = $1; next } $1 == inside'
}
# Compares the lines of the tests that match $2, and not $3, with the list $1. $4 says what these tests do.
compare() {
    local found expected
    found=$(matches "$2" | grep -vE "$3" | cut -d: -f1 | LC_ALL=C sort | uniq -c | awk '{ print $2, $1 }')
    expected=$(awk 'NF { print $1, $2 }' <<<"$1" | LC_ALL=C sort)
    if [[ "$found" != "$expected" ]]; then
        echo "tests $4 elsewhere than ci/clocks.sh lists (<: listed, >: found); let the program say what it has reached instead:" >&2
        diff <(echo "$expected") <(echo "$found") >&2 || true
        failed=1
    fi
    echo "$(wc -l <<<"$found") files of tests $4; each is listed with its reason"
}
compare "$listed" '(^|[^_[:alnum:]])(sleep|sleep_for|usleep|nanosleep|alarm)\(' '^$' sleep
name='(LONG|HANGS|SOON|PATIENCE|deadline|end)'
limit="assert!\(.*(elapsed\(\)|Instant::now\(\)) < ($name,|$name\)|Duration::from_secs\(([6-9]|[1-9][0-9])[0-9]\))"
compare "$reads_listed" '\.elapsed\(\)|Instant::now\(\) [<>]|steady_clock::now|clock_gettime\(|time\.monotonic\(|(^|[^_[:alnum:]])time\((NULL|0)\)' "$limit" 'read a clock'
short=$(git grep -nE 'const (LONG|HANGS|SOON|PATIENCE): Duration' -- "${tests[@]}" | grep -vE 'from_secs\(([6-9]|[1-9][0-9])[0-9]\)' || true)
short+=$(git grep -nE 'let (deadline|end) = Instant::now\(\) \+' -- "${tests[@]}" | grep -vE "from_secs\(([6-9]|[1-9][0-9])[0-9]\)|$name;" || true)
# Waits that must succeed.
waits='(wait_for|wait_timeout|recv_timeout|get_timeout|accept|connect|recv|send|revoke|open_within)'
short+=$(matches "$waits\([^;]*from_(secs\([1-5]?[0-9]\)|millis\([0-9_]+\))\)+\.(unwrap|expect)\(" || true)
number='([1-5][0-9]{4}|[1-9][0-9]{0,3})'
short+=$(git grep -nE "OK\(dma_queue_wait[a-z_]*\(.*, $number, (&|done)|poll\(.*, [0-9]+, $number\) == 1" -- '*.c' '*.cpp' '*.hpp' || true)
if [[ -n "$short" ]]; then
    echo "a limit against a hang is at least a minute: $short" >&2
    failed=1
fi
((!failed))
