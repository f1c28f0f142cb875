"""Starts target processes with NIXL's wheel, as peers of this process. transfers.py and kills.py use it."""

import mmap
import multiprocessing
import os
import time

import numpy as np

BACKEND = "DMA"


def agent(name, backend=BACKEND, **options):
    """Returns an agent with one backend."""
    from nixl_cu12._api import nixl_agent, nixl_agent_config

    made = nixl_agent(name, nixl_agent_config(backends=[]))
    made.create_backend(backend, options)
    return made


def map_file(fd, length):
    """Maps a file that both processes share, so that this process sees the bytes of the target's memory."""
    return np.frombuffer(mmap.mmap(fd, length), dtype=np.uint8)


def serve(pipe, path, length, backend, options):
    """The target: registers its memory, and answers requests until its parent ends it."""
    with open(path, "r+b") as file:
        memory = map_file(file.fileno(), length)
    name = f"target-{os.getpid()}"
    me = agent(name, backend, **options)
    registered = me.register_memory([(memory.ctypes.data, length, 0, "")], "DRAM", backends=[backend])
    pipe.send((name, memory.ctypes.data, me.get_agent_metadata()))
    while True:
        request = pipe.recv()
        if request == "end":
            me.deregister_memory(registered, backends=[backend])
            return
        # The request is the number of notifications to wait for.
        found, deadline = [], time.monotonic() + 120
        while len(found) < request and time.monotonic() < deadline:
            for messages in me.get_new_notifs().values():
                found += messages
        pipe.send(found)


class Target:
    """A target process, whose memory is also mapped in this process."""

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["nixl_cu12._api"])

    def __init__(self, length, backend=BACKEND, **options):
        fd = os.memfd_create("target")
        os.ftruncate(fd, length)
        self.memory = map_file(fd, length)
        self.pipe, other = self.context.Pipe()
        path = f"/proc/{os.getpid()}/fd/{fd}"
        self.process = self.context.Process(target=serve, args=(other, path, length, backend, options), daemon=True)
        self.process.start()
        if not self.pipe.poll(60):
            raise RuntimeError("the target does not start")
        self.name, self.address, self.metadata = self.pipe.recv()
        os.close(fd)

    def notifications(self, count):
        self.pipe.send(count)
        return self.pipe.recv()

    def end(self):
        self.pipe.send("end")
        self.process.join(120)
        assert self.process.exitcode == 0, self.process.exitcode


def wait(agent, handle, seconds=120):
    """Returns a transfer's last state."""
    end = time.monotonic() + seconds
    while True:
        state = agent.check_xfer_state(handle)
        if state != "PROC" or time.monotonic() > end:
            return state
