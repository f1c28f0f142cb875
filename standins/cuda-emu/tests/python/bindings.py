"""NVIDIA's own Python bindings of the driver API, on the stand-in or on a card: memory of both places, copies in all directions, order by
events and host functions, a batch, fills, peers, and what is refused. Run by ci/cuda.sh."""

import ctypes

import numpy
from cuda.bindings import driver as cuda

SIZE = 1 << 20


def call(function, *arguments):
    """Calls the driver, and returns its results."""
    code, *results = function(*arguments)
    assert code == cuda.CUresult.CUDA_SUCCESS, f"{function.__name__}: {code}"
    return results[0] if len(results) == 1 else tuple(results)


def answer(function, *arguments):
    """Calls the driver, and returns its code."""
    return int(function(*arguments)[0])


def pinned(size=SIZE):
    """Allocates pinned host memory by the driver. Returns its address, and its bytes as an array."""
    address = int(call(cuda.cuMemHostAlloc, size, 0))
    return address, numpy.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


call(cuda.cuInit, 0)
number = call(cuda.cuDeviceGetCount)
devices = [call(cuda.cuDeviceGet, ordinal) for ordinal in range(min(number, 2))]
contexts = [call(cuda.cuDevicePrimaryCtxRetain, device) for device in devices]
call(cuda.cuCtxSetCurrent, contexts[0])
name = call(cuda.cuDeviceGetName, 64, devices[0]).split(b"\0")[0].decode()
print(f"{number} devices, {name}, CUDA {call(cuda.cuDriverGetVersion)}")

stream = call(cuda.cuStreamCreate, cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)
event = call(cuda.cuEventCreate, cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING)
source, there = pinned()
target, back = pinned()
first, second = call(cuda.cuMemAlloc, SIZE), call(cuda.cuMemAlloc, SIZE)
there[:] = numpy.random.default_rng(1).integers(0, 256, SIZE, dtype=numpy.uint8)

# Copies from host to device, within the device, and back.
call(cuda.cuMemcpyHtoDAsync, first, source, SIZE, stream)
call(cuda.cuMemcpyDtoDAsync, second, first, SIZE, stream)
call(cuda.cuMemcpyDtoHAsync, target, second, SIZE, stream)
call(cuda.cuEventRecord, event, stream)
call(cuda.cuEventSynchronize, event)
assert numpy.array_equal(there, back)
kind = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
assert int(call(cuda.cuPointerGetAttribute, kind, first)) == cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE

# One call copies 1,024 pieces.
back[:] = 0
pieces, piece = 1024, SIZE // 1024
attributes = cuda.CUmemcpyAttributes()
attributes.srcAccessOrder = cuda.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
targets = [cuda.CUdeviceptr(target + i * piece) for i in range(pieces)]
sources = [cuda.CUdeviceptr(int(second) + i * piece) for i in range(pieces)]
batch = (targets, sources, [piece] * pieces, pieces, [attributes], [0], 1)
call(cuda.cuMemcpyBatchAsync, *batch, stream)
call(cuda.cuStreamSynchronize, stream)
assert numpy.array_equal(there, back)
# The default stream refuses batches.
assert answer(cuda.cuMemcpyBatchAsync, *batch, cuda.CUstream(0)) == 1

# A stream waits for another one.
other = call(cuda.cuStreamCreate, cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)
call(cuda.cuMemsetD32Async, second, 0x01020304, SIZE // 4, stream)
call(cuda.cuEventRecord, event, stream)
call(cuda.cuStreamWaitEvent, other, event, 0)
call(cuda.cuMemcpyDtoHAsync, target, second, SIZE, other)
call(cuda.cuStreamSynchronize, other)
assert (back.view(numpy.uint32) == 0x01020304).all()

# One call writes a value of 4 bytes, waits for one, and writes one of 8 bytes.
words = back.view(numpy.uint64)
words[:3] = 0
kinds = cuda.CUstreamBatchMemOpType
operations = []
for kind, name, place, value in (
    (kinds.CU_STREAM_MEM_OP_WRITE_VALUE_32, "writeValue", 0, 7),
    (kinds.CU_STREAM_MEM_OP_WAIT_VALUE_32, "waitValue", 1, 3),
    (kinds.CU_STREAM_MEM_OP_WRITE_VALUE_64, "writeValue", 2, 1 << 40),
):
    operation = cuda.CUstreamBatchMemOpParams()
    operation.operation = kind
    part = getattr(operation, name)
    part.operation, part.address, part.value64, part.flags = kind, cuda.CUdeviceptr(target + 8 * place), value, 0
    operations.append(operation)
call(cuda.cuStreamBatchMemOp, other, len(operations), operations, 0)
assert answer(cuda.cuStreamQuery, other) == 600
words[1] = 3
call(cuda.cuStreamSynchronize, other)
assert words[:3].tolist() == [7, 3, 1 << 40]

# Host functions run in the stream's order, and may not call CUDA.
codes = []
function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: codes.append(answer(cuda.cuCtxSynchronize)))
call(cuda.cuLaunchHostFunc, stream, cuda.CUhostFn(_ptr=ctypes.addressof(function)), 0)
call(cuda.cuStreamSynchronize, stream)
assert codes == [800], codes

# Copies from memory of another device.
if number > 1:
    call(cuda.cuCtxSetCurrent, contexts[1])
    peer = call(cuda.cuMemAlloc, SIZE)
    call(cuda.cuMemcpyPeer, peer, contexts[1], first, contexts[0], SIZE)
    call(cuda.cuMemcpyDtoH, target, peer, SIZE)
    assert numpy.array_equal(there, back)
    call(cuda.cuMemFree, peer)
    call(cuda.cuCtxSetCurrent, contexts[0])

# Registers and unregisters memory. The second call of each fails.
array = numpy.zeros(8192, dtype=numpy.uint8)
page = (array.ctypes.data + 4095) // 4096 * 4096
call(cuda.cuMemHostRegister, page, 4096, 0)
assert answer(cuda.cuMemHostRegister, page, 4096, 0) == 712
call(cuda.cuMemHostUnregister, page)
assert answer(cuda.cuMemHostUnregister, page) == 713
# Refused: an allocation that is too large, a copy beyond the end, and memory that is freed twice.
assert answer(cuda.cuMemAlloc, 1 << 50) == 2
assert answer(cuda.cuMemcpyHtoD, int(first) + 1, source, SIZE) == 1
call(cuda.cuMemFree, first)
assert answer(cuda.cuMemFree, first) == 1
# A kernel that adds 1 to each word, and images that no driver takes.
KERNEL = b"""
.version 6.0
.target sm_70
.address_size 64
.visible .entry increment(.param .u64 words, .param .u32 count)
{
    .reg .pred %p;
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [words];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r4, %r2, %r3, %r4;
    setp.ge.u32 %p, %r4, %r1;
    @%p bra done;
    cvta.to.global.u64 %rd1, %rd1;
    mul.wide.u32 %rd2, %r4, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r5, [%rd3];
    add.s32 %r5, %r5, 1;
    st.global.u32 [%rd3], %r5;
done:
    ret;
}
\0"""
module = call(cuda.cuModuleLoadData, KERNEL)
increment = call(cuda.cuModuleGetFunction, module, b"increment")
words = numpy.arange(1000, dtype=numpy.uint32)
call(cuda.cuMemcpyHtoD, second, words.ctypes.data, words.nbytes)
arguments = ((second, words.size), (None, ctypes.c_uint32))
call(cuda.cuLaunchKernel, increment, 8, 1, 1, 128, 1, 1, 0, stream, arguments, 0)
call(cuda.cuStreamSynchronize, stream)
added = numpy.zeros_like(words)
call(cuda.cuMemcpyDtoH, added.ctypes.data, second, added.nbytes)
assert numpy.array_equal(added, words + 1)
call(cuda.cuModuleUnload, module)
assert answer(cuda.cuModuleLoadData, b"\0") == 200

call(cuda.cuMemFree, second)
call(cuda.cuMemFreeHost, source)
call(cuda.cuMemFreeHost, target)
call(cuda.cuEventDestroy, event)
for each in (stream, other):
    call(cuda.cuStreamDestroy, each)
for device in devices:
    call(cuda.cuDevicePrimaryCtxRelease, device)
print("all as expected")
