"""The rule for memory that Python and devices use; memory of other objects; DLPack."""

from __future__ import annotations

import array
import gc
import mmap
import sys
import weakref

import numpy
import pytest
from conftest import filled

import dma


def test_a_view_refuses_operations_and_an_operation_views(stuck):
    engine, queue = stuck
    src, dst = engine.allocate(100), engine.allocate(100)
    view = memoryview(dst)
    with pytest.raises(BufferError, match="a view of these bytes exists") as caught:
        queue.copy(src, dst)
    assert isinstance(caught.value, dma.InUse) and "release" in caught.value.hint
    view.release()
    reader = memoryview(src.toreadonly())
    transfer = queue.copy(src, dst)
    # The device reads the source: views that cannot write are harmless.
    assert reader[0] == 0 == memoryview(src.toreadonly())[1]
    for use in (
        lambda: memoryview(dst),
        lambda: dst.tobytes(),
        lambda: dst[0],
        lambda: bytes(dst),
        lambda: numpy.frombuffer(dst, "u1"),
        lambda: numpy.from_dlpack(dst),
        lambda: memoryview(dst.toreadonly()),
        lambda: memoryview(src),
        lambda: src.__setitem__(0, 1),
        lambda: src.__setitem__(slice(0, 1), b"x"),
        lambda: dst[:50].tobytes(),
        lambda: dst.release(),
        lambda: src.release(),
    ):
        with pytest.raises(BufferError):
            use()
    # The device hangs. Closing gives the operation up, and its end frees the memory.
    assert not transfer.done
    queue.close(0)
    with pytest.raises((dma.Aborted, dma.DeviceLost, dma.Closed)):
        transfer.wait()
    assert memoryview(dst)[0] == 0


def test_parts_of_a_buffer_are_used_apart(stuck):
    engine, queue = stuck
    buffer = engine.allocate(100)
    transfer = queue.copy(buffer[:10], buffer[50:60])
    assert buffer[10:50].tobytes() == bytes(40) and buffer[60] == 0
    with memoryview(buffer[60:]) as view:
        view[0] = 1
    for part in (buffer, buffer[59:], buffer[:1], buffer[9:51]):
        with pytest.raises(BufferError):
            memoryview(part)
    # No bytes overlap nothing.
    memoryview(buffer[55:55]).release()
    queue.close(0)
    assert transfer.done


def test_dropped_transfers_keep_their_memory_in_use(stuck):
    engine, queue = stuck
    dst = engine.allocate(100)
    queue.copy(engine.allocate(100), dst)
    gc.collect()
    with pytest.raises(BufferError):
        memoryview(dst)
    queue.close(0)
    memoryview(dst).release()


def test_buffers_are_sequences_of_bytes():
    engine = dma.open("cpu")
    buffer = filled(engine, b"hello world")
    assert (len(buffer), buffer.nbytes, buffer.readonly, buffer[0], buffer[-1]) == (11, 11, False, 104, 100)
    assert bytes(buffer) == b"hello world" == buffer[:].tobytes()
    buffer[4:6] = b"--"
    buffer[-1] = 33
    buffer[0:3] = buffer[6:9]
    assert buffer.tobytes() == b"wor" + b"l--" + b"wor" + b"l!"
    for key in (11, -12, 1 << 80):
        with pytest.raises((IndexError, OverflowError)):
            buffer[key]
    for key in (slice(0, 10, 2), slice(None, None, -1)):
        with pytest.raises(ValueError, match="step"):
            buffer[key]
    with pytest.raises(ValueError):
        buffer[0:3] = b"four"
    with pytest.raises((OverflowError, ValueError)):
        buffer[0] = 256
    with pytest.raises(TypeError):
        buffer["x"]
    assert bytes(buffer[9:3]) == b""
    with pytest.raises(BufferError, match="read-only"):
        buffer.toreadonly()[0] = 1
    view = memoryview(buffer.toreadonly())
    assert view.readonly and not numpy.frombuffer(buffer.toreadonly(), "u1").flags.writeable


def test_readinto_and_recv_into_use_buffers(tmp_path):
    import socket

    engine = dma.open("cpu")
    (tmp_path / "file").write_bytes(b"0123456789")
    buffer = engine.allocate(10)
    with open(tmp_path / "file", "rb", buffering=0) as file:
        assert file.readinto(buffer) == 10
    assert buffer.tobytes() == b"0123456789"
    left, right = socket.socketpair()
    left.sendall(b"abc")
    assert right.recv_into(buffer[3:6]) == 3
    assert buffer.tobytes() == b"012abc6789"
    left.close()
    right.close()


def test_released_memory_is_refused():
    engine = dma.open("cpu")
    queue = engine.queue()
    buffer, other = engine.allocate(10), engine.allocate(10)
    part = buffer[2:]
    view = memoryview(buffer)
    with pytest.raises(BufferError):
        buffer.release()
    view.release()
    with buffer:
        pass
    for use in (lambda: memoryview(buffer), lambda: buffer[0], lambda: queue.copy(buffer, other), lambda: buffer[1:]):
        with pytest.raises(ValueError, match="released"):
            use()
    buffer.release()
    assert part.tobytes() == bytes(8)


def test_views_outlive_everything_else():
    view = memoryview(filled(dma.open("cpu"), b"x" * 5000))
    array = numpy.frombuffer(filled(dma.open("sim"), b"y" * 5000), "u1")
    tensor = numpy.from_dlpack(filled(dma.open("cpu"), b"z" * 5000))
    gc.collect()
    assert bytes(view) == b"x" * 5000 and bytes(array) == b"y" * 5000 and bytes(tensor) == b"z" * 5000


@pytest.mark.parametrize("make", [bytearray, lambda n: numpy.zeros(n, "u1"), lambda n: array.array("B", bytes(n))])
def test_memory_of_other_objects(engine, queue, make):
    owner = make(4096)
    registered = engine.register(owner)
    queue.copy(filled(engine, b"a" * 4096), registered).wait()
    assert bytes(owner) == b"a" * 4096
    if isinstance(owner, bytearray):
        with pytest.raises(BufferError):
            owner.append(1)
        registered.release()
        gc.collect()
        owner.append(1)


def test_mmaps_and_multidimensional_arrays(engine, queue):
    with mmap.mmap(-1, 8192) as pages:
        registered = engine.register(pages)
        queue.fill(registered, 5).wait()
        assert pages[:3] == b"\5\5\5"
        with pytest.raises(BufferError):
            pages.close()
        registered.release()
        gc.collect()
    table = numpy.arange(64, dtype="f8").reshape(8, 8)
    buffer = engine.register(table)
    assert len(buffer) == 512
    queue.copy(buffer[64:128], buffer[:64]).wait()
    assert (table[0] == table[1]).all()


def test_read_only_and_unfit_objects(engine, queue):
    source = engine.register(b"constant" * 100)
    assert source.readonly
    out = engine.allocate(800)
    queue.copy(source, out).wait()
    assert out.tobytes() == b"constant" * 100
    with pytest.raises(BufferError, match="read-only"):
        queue.copy(out, source)
    with pytest.raises(BufferError):
        queue.fill(source, 1)
    with pytest.raises((BufferError, ValueError)):
        engine.register(numpy.zeros((8, 8))[:, 1])
    for wrong in (7, None, "text", object()):
        with pytest.raises(TypeError, match="no memory to register"):
            engine.register(wrong)
    with pytest.raises(ValueError):
        released = memoryview(bytearray(3))
        released.release()
        engine.register(released)

    class Cuda:
        __cuda_array_interface__ = {"data": (4096, False), "shape": (10,), "typestr": "|u1", "version": 3}

    # CUDA's engine asks its driver for the address, and the other engines refuse the protocol.
    with pytest.raises(dma.InvalidArgument if engine.backend == "cuda" else dma.Unsupported):
        engine.register(Cuda())


def test_registered_objects_are_freed():
    class Array(numpy.ndarray):
        pass

    engine = dma.open("cpu")
    owner = numpy.zeros(100, "u1").view(Array)
    alive = weakref.ref(owner)
    buffer = engine.register(owner)
    del owner
    assert alive() is not None
    view = memoryview(buffer)
    del buffer
    gc.collect()
    assert alive() is not None and view[99] == 0
    del view
    gc.collect()
    assert alive() is None


def test_dlpack_both_ways():
    engine = dma.open("cpu")
    queue = engine.queue()
    buffer = filled(engine, bytes(range(100)))
    assert buffer.__dlpack_device__() == (1, 0)
    array = numpy.from_dlpack(buffer)
    assert array.dtype == numpy.uint8 and bytes(array) == bytes(range(100))
    with pytest.raises(BufferError):
        queue.fill(buffer, 1)
    del array
    gc.collect()
    queue.fill(buffer, 1).wait()

    class Tensor:
        """Has DLPack alone."""

        def __init__(self, of):
            self.of = of

        def __dlpack__(self, **keywords):
            return self.of.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.of.__dlpack_device__()

    of = numpy.arange(12, dtype="i4").reshape(3, 4)
    registered = engine.register(Tensor(of))
    assert bytes(registered) == of.tobytes() and not registered.readonly
    queue.fill(registered, 0).wait()
    assert not of.any()
    with pytest.raises(ValueError, match="adjacent"):
        engine.register(Tensor(of.T))

    class Bfloat16(Tensor):
        """Has a type that the buffer protocol lacks, as arrays of JAX do."""

        def __buffer__(self, flags):
            raise BufferError("no format for bfloat16")

    if sys.version_info >= (3, 12):
        of[:] = 3
        registered = engine.register(Bfloat16(of))
        assert bytes(registered) == of.tobytes() and registered.readonly
        with pytest.raises(BufferError, match="no format for bfloat16"):
            engine.register(Bfloat16(of.T))
    for unused in (buffer.__dlpack__(), buffer.__dlpack__(max_version=(1, 0))):
        del unused
    queue.fill(buffer, 2).wait()
    for keywords in ({"copy": True}, {"dl_device": (2, 0)}):
        with pytest.raises(BufferError):
            buffer.__dlpack__(**keywords)
    with pytest.raises(BufferError):
        buffer.toreadonly().__dlpack__()

    class Liar(Tensor):
        def __dlpack__(self, **keywords):
            return 7

    with pytest.raises((ValueError, TypeError, AttributeError)):
        engine.register(Liar(of))
    capsule = buffer.__dlpack__()

    class Twice(Tensor):
        def __dlpack__(self, **keywords):
            return capsule

    engine.register(Twice(of))
    with pytest.raises((ValueError, AttributeError)):
        engine.register(Twice(of))


def test_pools():
    engine = dma.open("cpu")
    pool = engine.pool({"4K": 2, 65536: 1}, label="test")
    first, second = pool.get(100), pool.get(4096)
    assert (len(first), pool.in_use) == (100, 2)
    with pytest.raises(dma.OutOfResources):
        pool.get(10, timeout=0)
    with pytest.raises(TimeoutError):
        pool.get(10, timeout=0.01)
    with pytest.raises(ValueError):
        pool.get(1 << 20)
    engine.queue().copy(first[:50], second[:50]).wait()
    view = memoryview(first)
    del first
    gc.collect()
    assert pool.in_use == 2
    view.release()
    second.release()
    gc.collect()
    assert pool.in_use == 0, pool.explain()
    grows = engine.pool({4096: 1}, max={4096: 3})
    kept = [grows.get(1, timeout=0) for _ in range(3)]
    assert len(kept) == grows.in_use == 3


def test_windows_share_memory():
    engine = dma.open("cpu")
    queue = engine.queue()
    window = engine.allocate_window(4096, export="rw")
    window.write(b"shared", 10)
    with window.export("r") as export:
        there = dma.open("cpu").import_window(export.descriptor)
        assert (len(there), there.readonly, export.rights, export.nbytes) == (4096, True, "r", 4096)
    window.write(b"shared")
    with window[:100].export() as export:
        reader = dma.open("cpu")
        there, here = reader.import_window(export.descriptor), reader.allocate(100)
        own = reader.queue()
        own.copy(there, here).wait()
        assert here[:6].tobytes() == b"shared"
        here[:5] = b"peers"
        own.copy(here, there).wait()
        assert window.read(0, 6) == b"peersd"
    with pytest.raises(dma.Error):
        own.copy(here, there).wait()
    queue.copy(window[:10], engine.allocate(10)).wait()
    for use in (
        lambda: window.read(4090, 10), lambda: window.read(1 << 70), lambda: window.write(b"xx", 4095),
        lambda: window[::2], lambda: window.export("x"), lambda: engine.import_window(b"nothing"),
    ):  # fmt: skip
        with pytest.raises((ValueError, OverflowError)):
            use()
    with pytest.raises(BufferError):
        engine.allocate_window(100).export("rw")
    with pytest.raises(TypeError):
        memoryview(window)
    with pytest.raises(AttributeError):
        window.__cuda_array_interface__


def test_device_memory():
    engine = dma.open("sim:device_memory=64M")
    queue = engine.queue()
    there, back = engine.allocate_window("64K", device=True), engine.allocate("64K")
    queue.copy(filled(engine, b"v" * 65536), there).wait()
    queue.copy(there, back).wait()
    assert back.tobytes() == b"v" * 65536
    if not there.host:
        with pytest.raises(dma.Unsupported):
            there.read(0, 1)


def test_nothing_is_pickled():
    import copy
    import pickle

    engine = dma.open("cpu")
    for thing in (engine, engine.allocate(1), engine.queue(), engine.shared_queue(), engine.allocate_window(1)):
        for use in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError):
                use(thing)
    try:
        engine.queue().copy(engine.allocate(1), engine.allocate(2))
    except dma.Error as error:
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.kind) == (type(error), str(error), error.kind)


def test_arrow_buffers(engine, queue):
    pyarrow = pytest.importorskip("pyarrow")
    source = engine.register(pyarrow.py_buffer(b"arrow" * 100))
    assert source.readonly
    out = engine.allocate(500)
    queue.copy(source, out).wait()
    view = pyarrow.py_buffer(out)
    assert view.to_pybytes() == b"arrow" * 100
    with pytest.raises(BufferError):
        queue.fill(out, 1)
    del view
    queue.fill(out, 1).wait()
    own = pyarrow.allocate_buffer(500)
    queue.copy(out, engine.register(own)).wait()
    assert own.to_pybytes() == bytes([1]) * 500
