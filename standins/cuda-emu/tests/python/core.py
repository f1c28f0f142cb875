"""NVIDIA's cuda-core on the stand-in or on a card: memory of pools and pinned memory, copies in all directions, fills, order by events, pools of
host and managed memory, memory and events of another process. Run by ci/cuda.sh."""

import ctypes
import multiprocessing
import queue
import traceback

import numpy
from cuda.core import (
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    EventOptions,
    Host,
    LegacyPinnedMemoryResource,
    ManagedMemoryResource,
    ManagedMemoryResourceOptions,
    PinnedMemoryResource,
    PinnedMemoryResourceOptions,
)
from cuda.core.utils import CopyOptions, MemcpySrcAccessOrder, copy_batch, discard_batch, prefetch_batch

SIZE = 1 << 16
# A process that does not answer within this time has failed.
ANSWER_SECONDS = 120


def view(buffer):
    """Returns the bytes of host memory as an array, which must not outlive the buffer."""
    return numpy.ctypeslib.as_array((ctypes.c_uint8 * buffer.size).from_address(int(buffer.handle)))


def start():
    """Returns the first device, which is current from now on, and a stream."""
    device = Device(0)
    device.set_current()
    return device, device.create_stream()


def copies():
    device, stream = start()
    other = device.create_stream()
    pinned = LegacyPinnedMemoryResource()
    source, target = pinned.allocate(SIZE), pinned.allocate(SIZE)
    view(source)[:] = numpy.random.default_rng(1).integers(0, 256, SIZE, dtype=numpy.uint8)

    # The device's default pool, and a pool of the program, with copies in all directions.
    own = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=1 << 22))
    for resource in (device.memory_resource, own):
        first, second = (resource.allocate(SIZE, stream=stream) for _ in range(2))
        first.copy_from(source, stream=stream)
        second.copy_from(first, stream=stream)
        second.copy_to(target, stream=stream)
        stream.sync()
        assert numpy.array_equal(view(source), view(target))
        # Fills of 1, 2 and 4 bytes, and a stream that waits for another one.
        for value in (7, b"\x01\x02", b"\x01\x02\x03\x04"):
            first.fill(value, stream=stream)
            other.wait(stream.record())
            target.copy_from(first, stream=other)
            other.sync()
            pattern = bytes([value]) if isinstance(value, int) else value
            assert view(target).tobytes() == pattern * (SIZE // len(pattern))
        if resource is own:
            assert own.attributes.used_mem_current == 2 * SIZE
        first.close(stream)
        second.close(stream)
        stream.sync()
    assert (own.attributes.used_mem_current, own.attributes.used_mem_high) == (0, 2 * SIZE)

    # A batch.
    pieces = [pinned.allocate(64) for _ in range(8)]
    there = [device.memory_resource.allocate(64, stream=stream) for _ in pieces]
    for number, piece in enumerate(pieces):
        view(piece)[:] = number
    copy_batch(stream, pieces, there, options=CopyOptions(src_access_order=MemcpySrcAccessOrder.STREAM))
    for number, piece in enumerate(there):
        piece.copy_to(pieces[-1 - number], stream=stream)
    stream.sync()
    assert [int(view(piece)[0]) for piece in pieces] == list(range(8))[::-1]
    own.close()


def host_pools():
    """Pinned memory of the current pool, of pools with and without a NUMA node, and managed memory of pools."""
    device, stream = start()
    there = device.memory_resource.allocate(SIZE, stream=stream)
    pools = [PinnedMemoryResource()]
    if device.properties.host_memory_pools_supported:
        pools += [PinnedMemoryResource(PinnedMemoryResourceOptions(max_size=1 << 22))]
    if device.properties.host_numa_memory_pools_supported:
        pools += [PinnedMemoryResource(PinnedMemoryResourceOptions(numa_id=0))]
    pools += [ManagedMemoryResource()]
    for place in ({"preferred_location_type": "host"}, {"preferred_location": 0}):
        pools += [ManagedMemoryResource(ManagedMemoryResourceOptions(**place))]
    for number, pool in enumerate(pools):
        source, target = pool.allocate(SIZE, stream=stream), pool.allocate(SIZE, stream=stream)
        stream.sync()
        assert source.is_host_accessible and source.is_device_accessible
        view(source)[:] = number + 1
        there.copy_from(source, stream=stream)
        target.copy_from(there, stream=stream)
        stream.sync()
        assert (view(target) == number + 1).all()
        if pool.is_handle_owned:
            assert pool.attributes.used_mem_current >= 2 * SIZE
        source.close(stream)
        target.close(stream)
        stream.sync()
        pool.close()

    # Managed memory: advice, prefetches, and discarded bytes.
    pool = ManagedMemoryResource()
    first, second = (pool.allocate(SIZE, stream=stream) for _ in range(2))
    first.preferred_location, first.read_mostly, first.accessed_by = device, True, {device, Host()}
    assert (first.preferred_location, first.read_mostly, set(first.accessed_by)) == (device, True, {device, Host()})
    first.preferred_location, first.read_mostly, first.accessed_by = None, False, set()
    assert (first.preferred_location, first.read_mostly, set(first.accessed_by)) == (None, False, set())
    for buffer in (first, second):
        buffer.fill(5, stream=stream)
        buffer.prefetch(Host(), stream=stream)
    prefetch_batch(stream, [first, second], [device, Host()])
    stream.sync()
    assert (view(first) == 5).all() and (view(second) == 5).all()
    discard_batch(stream, [first, second])
    first.discard_prefetch(device, stream=stream)
    first.fill(6, stream=stream)
    stream.sync()
    assert (view(first) == 6).all()


def other_process(resource, buffer, event, answers):
    """Waits for the event, reads the memory of the other process, and writes to it."""
    try:
        _, stream = start()
        target = LegacyPinnedMemoryResource().allocate(SIZE)
        stream.wait(event)
        target.copy_from(buffer, stream=stream)
        stream.sync()
        assert (view(target) == 5).all()
        buffer.fill(9, stream=stream)
        stream.sync()
        try:
            resource.allocate(64, stream=stream)
            raise AssertionError("a pool of another process allocates")
        except (RuntimeError, TypeError):
            pass
        buffer.close(stream)
        stream.sync()
        answers.put("")
    except BaseException:
        answers.put(traceback.format_exc())


def processes():
    """Memory of a device and of the host in another process, which waits for an event of this one."""
    device, stream = start()
    if not device.properties.mempool_supported_handle_types & 1:
        return
    pools = [DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=1 << 22, ipc_enabled=True))]
    if device.properties.host_numa_memory_pools_supported and device.properties.host_numa_id >= 0:
        pools += [PinnedMemoryResource(PinnedMemoryResourceOptions(ipc_enabled=True))]
    target = LegacyPinnedMemoryResource().allocate(SIZE)
    for pool in pools:
        buffer = pool.allocate(SIZE, stream=stream)
        buffer.fill(5, stream=stream)
        event = stream.record(options=EventOptions(ipc_enabled=True))
        answers = multiprocessing.Queue()
        child = multiprocessing.Process(target=other_process, args=(pool, buffer, event, answers))
        child.start()
        try:
            problem = answers.get(timeout=ANSWER_SECONDS)
        except queue.Empty:
            problem = "no answer"
        child.kill() if problem else child.join(ANSWER_SECONDS)
        assert not problem, problem
        target.copy_from(buffer, stream=stream)
        stream.sync()
        assert (view(target) == 9).all()
        buffer.close(stream)
        stream.sync()
        assert pool.attributes.used_mem_current == 0


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    copies()
    host_pools()
    processes()
    print("all as expected")
