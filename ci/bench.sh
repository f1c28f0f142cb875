#!/usr/bin/env bash
# dma-bench's results for simulated devices equal those in dma-bench/baseline.json. Simulated
# devices run on a virtual clock, so their figures are the same on every machine. A difference means
# a change of the model, the engine or the measuring loop. After an intended change, run:
#   ci/bench.sh update
# The script does not check the speed of this machine.
#   ci/bench.sh verdicts   tests instead the verdicts on 400 runs over each known curve; README's test command makes 25
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if [[ "${1-}" == verdicts ]]; then
    VERDICT_RUNS=400 "$(ci/built.sh dma-bench lib dma_bench)" verdict::
    exit
fi
program=$(ci/built.sh dma-bench bin dma-bench)
bench() {
    "$program" "$@" </dev/null
}

now=$folder/now.json
[[ "${1-}" != update ]] || now=dma-bench/baseline.json
bench run -e sim:profile=bluefield3 -e sim:profile=dsa -e sim:profile=ioat -o 64,4K,1M -q 1,32 --samples 3 -t 0.003 \
    --warm-up 0.001 --footprint 1M --quiet --json "$now" >"$folder/table"
bench compare dma-bench/baseline.json "$now" --fail-if-slower 1%
# `compare` must report a slowdown by 50 % through its exit code.
sed -E 's/("(min|median|max)": )([0-9]+)[.]/\10.\3/' "$now" >"$folder/slower.json"
status=0
bench compare dma-bench/baseline.json "$folder/slower.json" --fail-if-slower 1% >"$folder/comparison" 2>&1 || status=$?
((status == 4)) || {
    cat "$folder/comparison" >&2
    echo "compare did not find a slowdown: exit code $status instead of 4" >&2
    exit 1
}
