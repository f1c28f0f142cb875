#!/usr/bin/env bash
# Time decides no test. Tests that sleep are listed here, with the reason why a slow, stopped or crowded machine cannot make them
# fail. The script fails if a test file sleeps more often than its line says, and if a line is out of date. A test that waits for
# a program reads a line that the program writes; a limit against a hang is at least a minute.
#
#   ci/clocks.sh   checks
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# file, number of sleeps, reason
listed='
apps/dma-copy/tests/admission.rs 2 polls until a condition holds, or connects until the copy has ended
apps/dma-copy/tests/copies.rs 1 both orders of two starts are right, and the pause makes one likely
apps/dma-copy/tests/faults.rs 1 chooses a moment to kill; every moment is right
apps/dma-copy/tests/pair/mod.rs 2 polls until a condition holds
apps/dma-copy/tests/protocol.rs 1 repeats a message until the other side gives up
apps/dma-copy/tests/stream.rs 1 makes it likely that a sender blocks; a sender that does not block yet ends the same way
dma-bench/tests/process/mod.rs 1 polls until a condition holds
dma-bench/tests/serve.rs 1 polls until a condition holds
bindings/c/tests/c/every_call.c 1 polls until a condition holds
bindings/c/tests/nixl/host.cpp 5 polls until a condition holds; chooses a moment to kill; limits the whole program
bindings/c/tests/nixl/kills.py 1 chooses a moment to kill; every moment is right
dma-core/src/queue/fault_injection_tests/mod.rs 1 a device that needs time to stop
dma-core/src/shared/tests/mod.rs 2 a device that needs time to stop; polls until a condition holds
standins/doca-emu/tests/c/comch.c 1 polls until a condition holds
standins/doca-emu/tests/c/comch_fast.c 2 polls until a condition holds
standins/doca-emu/tests/c/tasks25/program.c 1 polls until a condition holds
dma-doca/tests/comch.rs 2 makes it likely that all threads send; fewer are right, too
dma-doca/tests/logs.rs 1 polls until a line appears
standins/spdk-emu/tests/engine.rs 4 gives a wrong device time to do what it must not do
standins/spdk-emu/tests/reattach.rs 1 polls until a condition holds
engines/dma-cpu/src/queue/tests.rs 1 makes two moments differ
engines/dma-cpu/tests/fork.rs 1 polls until a condition holds
engines/dma-cpu/tests/queue.rs 3 gives a wrong engine time to write what it must not write
standins/cuda-emu/tests/reach.rs 1 a host function that takes time
engines/dma-cuda/tests/behaviour.rs 1 polls until a condition holds
standins/dsa-emu/tests/c/early.c 1 polls until a condition holds
standins/dsa-emu/tests/c/faults.c 1 limits the whole program
standins/dsa-emu/tests/c/program.c 2 polls until a condition holds; limits the whole program
engines/dma-dsa/tests/on_standin.rs 2 polls until a condition holds; waits longer than the engine caches a file
engines/dma-layers/tests/record_traces.rs 2 a program that is killed; waits longer than the buffer of a trace
engines/dma-rdma/src/tests/flood.rs 2 polls until a condition holds
engines/dma-rdma/src/tests/hosts/faults.rs 3 chooses a moment to kill; polls until a link is up; the time that a link is down
engines/dma-rdma/src/tests/hosts/mod.rs 2 chooses a moment to end; polls until a peer listens
support/dma-ipc/tests/no_leaks.rs 1 polls until a condition holds
support/dma-ipc/tests/process_memory.rs 1 chooses a moment to revoke; every moment is right
tests/left_over.rs 1 polls until the kernel has removed threads
'
sleeps='(^|[^_[:alnum:]])(sleep|sleep_for|usleep|nanosleep|alarm)\('
found=$(git grep -cE "$sleeps" -- '*/tests/*' 'tests/*' '*tests.rs' '*_tests/*' '*/src/*/tests/*' ':!tests/fuzz' | tr ':' ' ' | LC_ALL=C sort)
expected=$(awk 'NF { print $1, $2 }' <<<"$listed" | LC_ALL=C sort)
if [[ "$found" != "$expected" ]]; then
    echo "tests sleep elsewhere than ci/clocks.sh lists (<: listed, >: found); let the program say what it has reached instead:" >&2
    diff <(echo "$expected") <(echo "$found") >&2 || true
    exit 1
fi
echo "$(wc -l <<<"$found") files of tests sleep, and each has its reason"
