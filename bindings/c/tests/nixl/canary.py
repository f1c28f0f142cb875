"""Tests the members that NIXL reads and the functions that it calls, by its Python interface: canary.py ENGINE

The engine must be asynchronous, so that a transfer is in flight for some time.
"""

import sys

import numpy as np
from nixl_cu12._api import nixl_agent, nixl_agent_config

import peers

PIECES, LENGTH = 64, 16 << 20


def main(engine):
    me = nixl_agent("me", nixl_agent_config(backends=[]))
    assert sorted(me.get_plugin_mem_types(peers.BACKEND)) == ["DRAM_SEG", "VRAM_SEG"]
    parameters = {"engine", "answer_ms", "fallback", "listen", "peers", "ptrace", "remote", "stall_ms"}
    assert set(me.get_plugin_params(peers.BACKEND)) == parameters
    try:
        me.create_backend(peers.BACKEND, {"engine": "none"})
        raise AssertionError("an engine that failed was accepted")
    except Exception as e:
        assert "NIXL_ERR_BACKEND" in str(e), e

    me = nixl_agent("me", nixl_agent_config(backends=[], capture_telemetry=True))
    me.create_backend(peers.BACKEND, {"engine": engine})
    in_force = {"answer_ms": "30000", "engine": engine, "fallback": "", "listen": "", "peers": "", "ptrace": "", "remote": "", "stall_ms": "30000"}
    assert me.get_backend_params(peers.BACKEND) == in_force
    assert me.get_backend_mem_types(peers.BACKEND) == ["DRAM_SEG"]
    source = np.random.default_rng(1).integers(0, 256, LENGTH, dtype=np.uint8)
    destination = np.zeros(LENGTH, dtype=np.uint8)
    ranges = [(memory.ctypes.data, LENGTH, 0, "") for memory in (source, destination)]
    registered = me.register_memory(ranges, "DRAM", backends=[peers.BACKEND])
    step = LENGTH // PIECES
    ours = me.get_xfer_descs([(source.ctypes.data + at * step, step, 0) for at in range(PIECES)], "DRAM")
    theirs = me.get_xfer_descs(
        [(destination.ctypes.data + (PIECES - 1 - at) * step, step, 0) for at in range(PIECES)], "DRAM"
    )
    handle = me.initialize_xfer("WRITE", ours, theirs, "me", b"note", backends=[peers.BACKEND])
    polls = 0
    for _ in range(3):
        destination[:] = 0
        state = me.transfer(handle)
        while state == "PROC":
            polls += 1
            state = me.check_xfer_state(handle)
        assert state == "DONE", state
        assert np.array_equal(destination.reshape(PIECES, step), source.reshape(PIECES, step)[::-1])
        assert me.get_new_notifs() == {"me": [b"note"]}
    assert polls > 0, "the engine is not asynchronous"
    measured = me.get_xfer_telemetry(handle)
    assert measured.totalBytes == LENGTH and measured.descCount == PIECES, measured
    duration, margin, _ = me.estimate_xfer_cost(handle)
    assert duration > 0 and margin >= 0, (duration, margin)
    me.release_xfer_handle(handle)
    # The memory is deregistered while the device writes it, so the call waits.
    destination[:] = 0
    handle = me.initialize_xfer("WRITE", ours, theirs, "me", b"", backends=[peers.BACKEND])
    assert me.transfer(handle) == "PROC"
    me.deregister_memory(registered, backends=[peers.BACKEND])
    assert np.array_equal(destination.reshape(PIECES, step), source.reshape(PIECES, step)[::-1])
    me.release_xfer_handle(handle)
    print(f"the canary passed after {polls} polls")


if __name__ == "__main__":
    main(sys.argv[1])
