"""NVIDIA's cuda-core on the stand-in or on a card: memory of pools and pinned memory, copies in all directions, fills, and order by events. Run by
ci/cuda.sh."""

import ctypes

import numpy
from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions, LegacyPinnedMemoryResource
from cuda.core.utils import CopyOptions, MemcpySrcAccessOrder, copy_batch

SIZE = 1 << 16


def view(buffer):
    """Returns the bytes of host memory as an array, which must not outlive the buffer."""
    return numpy.ctypeslib.as_array((ctypes.c_uint8 * buffer.size).from_address(int(buffer.handle)))


device = Device(0)
device.set_current()
stream, other = device.create_stream(), device.create_stream()
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
print("all as expected")
