"""Compares transfers by this plugin and by UCX, in one run: figures.py PROGRAM PLUGIN_DIR ROUNDS

PROGRAM is figures.c. Each round starts it once with each backend, one after the other, and the next round in the other
order. The table has the median over the rounds of each time, and the median, the smallest and the largest of the rounds'
ratios. The machine's load should be below 0.5.
"""

import os
import statistics
import subprocess
import sys

BACKENDS = {"UCX": [], "DMA": ["engine=cpu"]}


def run(program, plugins, backend):
    """Returns the times of one process in microseconds, by transfer."""
    environment = {**os.environ, "NIXL_LOG_LEVEL": "FATAL"}
    environment.pop("NIXL_PLUGIN_DIR", None)
    if backend == "DMA":
        environment["NIXL_PLUGIN_DIR"] = plugins
    done = subprocess.run(
        [program, backend, *BACKENDS[backend]], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600
    )
    assert done.returncode == 0, f"{backend}: exit status {done.returncode}\n{done.stderr}"
    lines = [line.split() for line in done.stdout.splitlines()]
    return {(*key, int(pieces), int(length)): float(time) / 1000 for *key, pieces, length, time in lines}


def processor():
    with open("/proc/cpuinfo") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line)
    known = {key.strip(): value.strip() for key, value in fields.items()}
    return f"{known.get('model name', 'unknown')}, family {known.get('cpu family')}, model {known.get('model')}"


def length_text(length):
    return f"{length >> 20} MiB" if length >= 1 << 20 else f"{length >> 10} KiB"


def main(program, plugins, rounds):
    print(f"{os.cpu_count()} processors: {processor()}; Linux {os.uname().release}; load {os.getloadavg()[0]:.1f}", end="")
    times = {backend: [] for backend in BACKENDS}
    for number in range(rounds):
        for backend in sorted(BACKENDS, reverse=number % 2 == 0):
            times[backend].append(run(program, plugins, backend))
    print(f" to {os.getloadavg()[0]:.1f}; {rounds} rounds")
    print(f"{'':8}{'':6}{'':>22}{'UCX':>12}{'DMA':>12}  times as fast")
    for transfer in times["DMA"][0]:
        where, operation, pieces, length = transfer
        ratios = [ucx[transfer] / dma[transfer] for ucx, dma in zip(times["UCX"], times["DMA"])]
        ucx, dma = (statistics.median(each[transfer] for each in times[backend]) for backend in ("UCX", "DMA"))
        print(f"{where:8}{operation:6}{pieces:5} of {length_text(length):>7}    {ucx:9.1f} us{dma:9.1f} us"
              f"  {statistics.median(ratios):6.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
