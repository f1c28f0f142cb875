"""Compares writes to another process by this plugin and by UCX, in turns: compare.py ROUNDS [BYTES]

NIXL's plugin directory must contain both plugins. Prints the median time of one transfer, from posting to DONE.
"""

import statistics
import sys
import time

import numpy as np

import peers


class Side:
    def __init__(self, backend, length):
        self.agent = peers.agent(f"initiator-{backend}", backend)
        self.target = peers.Target(length, backend)
        self.memory = np.random.default_rng(1).integers(0, 256, length, dtype=np.uint8)
        self.agent.register_memory([(self.memory.ctypes.data, length, 0, "")], "DRAM", backends=[backend])
        self.agent.add_remote_agent(self.target.metadata)
        ours = self.agent.get_xfer_descs([(self.memory.ctypes.data, length, 0)], "DRAM")
        theirs = self.agent.get_xfer_descs([(self.target.address, length, 0)], "DRAM")
        self.handle = self.agent.initialize_xfer("WRITE", ours, theirs, self.target.name, b"", backends=[backend])
        self.times = []

    def transfer(self, measured):
        start = time.perf_counter()
        state = self.agent.transfer(self.handle)
        if state == "PROC":
            state = peers.wait(self.agent, self.handle)
        taken = time.perf_counter() - start
        assert state == "DONE", state
        if measured:
            self.times.append(taken)
        else:
            assert np.array_equal(self.memory, self.target.memory), "wrong bytes"


def main(rounds, length):
    sides = {backend: Side(backend, length) for backend in ("UCX", peers.BACKEND)}
    for measured in [False, *[True] * rounds]:
        for side in sides.values():
            side.transfer(measured)
    for side in sides.values():
        side.target.end()
    for backend, side in sides.items():
        median = statistics.median(side.times)
        fast, slow = min(side.times), max(side.times)
        print(f"{backend}: {length} bytes: median {median * 1e3:.3f} ms ({length / median / 1e9:.2f} GB/s), "
              f"{fast * 1e3:.3f} to {slow * 1e3:.3f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 64 << 20)
