"""Kills peers during transfers: kills.py COUNT SEED [OPTION=VALUE...]

Each transfer must end within 60 s, and be DONE only if all bytes are in place. The next transfer to the peer must fail.
"""

import os
import random
import signal
import sys
import threading
import time

import numpy as np

import peers

LENGTH = 64 << 20
SECONDS = 60


def state_of(agent, handle):
    """Posts a transfer, and returns its last state."""
    try:
        state = agent.transfer(handle)
        return peers.wait(agent, handle, 2 * SECONDS) if state == "PROC" else state
    except Exception as e:
        # After NIXL is told that a peer is gone, some releases forget the peer.
        assert "DISCONNECT" in str(e) or "NOT_FOUND" in str(e), e
        return "ERR"


def main(count, seed, options):
    rng = random.Random(seed)
    me = peers.agent("initiator", **options)
    ours = np.zeros(LENGTH, dtype=np.uint8)
    registered = me.register_memory([(ours.ctypes.data, LENGTH, 0, "")], "DRAM", backends=[peers.BACKEND])
    states, slowest = {"DONE": 0, "ERR": 0}, 0.0
    for at in range(count):
        target = peers.Target(LENGTH, **options)
        me.add_remote_agent(target.metadata)
        operation = rng.choice(("READ", "WRITE"))
        source, destination = (ours, target.memory) if operation == "WRITE" else (target.memory, ours)
        source[:], destination[:] = at % 200 + 1, 0
        descriptors = [
            me.get_xfer_descs([(base, LENGTH, 0)], "DRAM") for base in (ours.ctypes.data, target.address)
        ]
        handle = me.initialize_xfer(operation, *descriptors, target.name, b"done", backends=[peers.BACKEND])
        delay = rng.random() * 0.15
        killer = threading.Thread(target=lambda: (time.sleep(delay), os.kill(target.process.pid, signal.SIGKILL)))
        killer.start()
        start = time.monotonic()
        state = state_of(me, handle)
        taken = time.monotonic() - start
        killer.join()
        assert state in states and taken < SECONDS, (state, taken)
        if state == "DONE":
            assert (destination == at % 200 + 1).all(), f"peer {at}: a false DONE"
        states[state] += 1
        slowest = max(slowest, taken)
        target.process.join(10)
        # The peer is gone now.
        again = state_of(me, handle)
        assert again == "ERR", again
        me.release_xfer_handle(handle)
        try:
            me.remove_remote_agent(target.name)
        except Exception as e:
            assert "NOT_FOUND" in str(e), e
    me.deregister_memory(registered, backends=[peers.BACKEND])
    print(f"{count} peers killed: {states['ERR']} transfers failed, {states['DONE']} had ended before; slowest {slowest:.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), dict(option.split("=", 1) for option in sys.argv[3:]))
