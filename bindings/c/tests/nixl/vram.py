"""Runs and verifies transfers between VRAM of two processes and DRAM: vram.py LIBCUDA

LIBCUDA is the driver that the engine also loads.
"""

import ctypes
import multiprocessing
import sys

import numpy as np

import peers

PIECES, LENGTH = 256, 4 << 20
STEP = LENGTH // PIECES


class Gpu:
    """Memory of the first GPU."""

    def __init__(self, libcuda):
        self.driver = ctypes.CDLL(libcuda)
        context, self.address = ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(LENGTH))

    def call(self, name, *arguments):
        code = getattr(self.driver, name)(*arguments)
        assert code == 0, f"{name}: {code}"

    def write(self, values):
        self.call("cuMemcpyHtoD_v2", self.address, ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(LENGTH))

    def read(self):
        values = np.zeros(LENGTH, dtype=np.uint8)
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(values.ctypes.data), self.address, ctypes.c_size_t(LENGTH))
        return values


def random_bytes(seed):
    return np.random.default_rng(seed).integers(0, 256, LENGTH, dtype=np.uint8)


def serve(pipe, libcuda):
    """The target: registers its VRAM, and sends its bytes after each notification."""
    gpu = Gpu(libcuda)
    gpu.write(random_bytes(0))
    me = peers.agent("target", engine="cuda")
    registered = me.register_memory([(gpu.address.value, LENGTH, 0, "")], "VRAM", backends=[peers.BACKEND])
    pipe.send((gpu.address.value, me.get_agent_metadata()))
    while (message := pipe.recv()) is not None:
        found = {}
        while not found:
            found = me.get_new_notifs()
        assert found == {"initiator": [message]}, found
        pipe.send(gpu.read())
    me.deregister_memory(registered, backends=[peers.BACKEND])


def main(libcuda):
    pipe, other = multiprocessing.get_context("spawn").Pipe()
    target = multiprocessing.get_context("spawn").Process(target=serve, args=(other, libcuda), daemon=True)
    target.start()
    address, metadata = pipe.recv()
    gpu, host = Gpu(libcuda), random_bytes(1)
    me = peers.agent("initiator", engine="cuda")
    me.add_remote_agent(metadata)
    sides = {"DRAM": host.ctypes.data, "VRAM": gpu.address.value}
    for kind, start in sides.items():
        me.register_memory([(start, LENGTH, 0, "")], kind, backends=[peers.BACKEND])
    theirs = [(address + (PIECES - 1 - at) * STEP, STEP, 0) for at in range(PIECES)]
    expected, count = random_bytes(0), 0
    for kind, start in sides.items():
        ours = [(start + at * STEP, STEP, 0) for at in range(PIECES)]
        for operation in ("WRITE", "READ", "WRITE"):
            count += 1
            host[:] = random_bytes(2 * count)
            gpu.write(random_bytes(2 * count + 1))
            own = host.copy() if kind == "DRAM" else gpu.read()
            message = b"transfer %d" % count
            descriptors = me.get_xfer_descs(ours, kind), me.get_xfer_descs(theirs, "VRAM")
            handle = me.initialize_xfer(operation, *descriptors, "target", message, backends=[peers.BACKEND])
            state = me.transfer(handle)
            if state == "PROC":
                state = peers.wait(me, handle)
            assert state == "DONE", state
            me.release_xfer_handle(handle)
            if operation == "WRITE":
                expected = own.reshape(PIECES, STEP)[::-1].reshape(LENGTH)
            else:
                own = expected.reshape(PIECES, STEP)[::-1].reshape(LENGTH)
            pipe.send(message)
            assert np.array_equal(pipe.recv(), expected), f"wrong bytes in the target after transfer {count}"
            assert np.array_equal(host if kind == "DRAM" else gpu.read(), own), f"wrong bytes after transfer {count}"
    pipe.send(None)
    target.join(120)
    assert target.exitcode == 0, target.exitcode
    print(f"{count} transfers of {PIECES} pieces between VRAM of two processes and DRAM, 0 wrong")


if __name__ == "__main__":
    main(sys.argv[1])
