"""The NIXL plugin of the installed package moves bytes between two processes. Needs NIXL's wheel: nixl.py"""

from __future__ import annotations

import os
import subprocess
import sys

import dma

os.environ["NIXL_PLUGIN_DIR"] = dma.nixl_plugin_dir()

import numpy  # noqa: E402
from nixl_cu12._api import nixl_agent, nixl_agent_config  # noqa: E402

SIZE = 1 << 20


def make(name: str, byte: int):
    agent = nixl_agent(name, nixl_agent_config(backends=[]))
    agent.create_backend("DMA", {"engine": "cpu"})
    memory = numpy.full(SIZE, byte, numpy.uint8)
    agent.register_memory([(memory.ctypes.data, SIZE, 0, "")], "DRAM", backends=["DMA"])
    return agent, memory


def serve() -> None:
    """The peer: prints its address and metadata, and then whether it has received the bytes."""
    agent, memory = make("peer", 0)
    print(memory.ctypes.data, agent.get_agent_metadata().hex(), flush=True)
    sys.stdin.readline()
    print(memory.tobytes() == bytes([7]) * SIZE, flush=True)


def main() -> None:
    agent, memory = make("initiator", 7)
    with subprocess.Popen([sys.executable, __file__, "peer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdin is not None and peer.stdout is not None
        address, metadata = peer.stdout.readline().split()
        name = agent.add_remote_agent(bytes.fromhex(metadata))
        ranges = [agent.get_xfer_descs([(at, SIZE, 0)], "DRAM") for at in (memory.ctypes.data, int(address))]
        handle = agent.initialize_xfer("WRITE", *ranges, name, b"", backends=["DMA"])
        state = agent.transfer(handle)
        while state == "PROC":
            state = agent.check_xfer_state(handle)
        assert state == "DONE", state
        agent.release_xfer_handle(handle)
        peer.stdin.write("\n")
        peer.stdin.flush()
        assert peer.stdout.readline() == "True\n"
    print(f"two agents of NIXL moved {SIZE} bytes by the plugin of the wheel")


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["peer"] else main()
