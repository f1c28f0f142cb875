"""CUDA C++ that NVIDIA's compiler NVRTC (PyPI: nvidia-cuda-nvrtc-cu12) makes into PTX for several generations of devices, on the stand-in or
on a card. numpy computes what each kernel of kernels.cu has to store. Run by ci/cuda.sh.

nvrtc.py LIBNVRTC"""

import ctypes
import pathlib
import re
import sys

import numpy
from cuda.bindings import driver as cuda

compiler = ctypes.CDLL(sys.argv[1])
random = numpy.random.default_rng(1)


def call(function, *arguments):
    """Calls the driver, and returns its result."""
    code, *results = function(*arguments)
    assert code == cuda.CUresult.CUDA_SUCCESS, f"{function.__name__}: {code}"
    return results[0] if results else None


def compiled(text, architecture):
    """Returns the PTX of CUDA C++."""
    program, length = ctypes.c_void_p(), ctypes.c_size_t()
    assert compiler.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None) == 0
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    code = compiler.nvrtcCompileProgram(program, 1, options)
    what = "ProgramLog" if code else "PTX"
    assert getattr(compiler, f"nvrtcGet{what}Size")(program, ctypes.byref(length)) == 0
    found = ctypes.create_string_buffer(length.value)
    assert getattr(compiler, f"nvrtcGet{what}")(program, found) == 0
    assert code == 0, found.value.decode()
    assert compiler.nvrtcDestroyProgram(ctypes.byref(program)) == 0
    return found.value


def run(name, blocks, threads, *arguments, shared=0):
    """Launches a kernel. Arrays are copied to the device. Returns the arrays after the kernel."""
    memory, places, kinds = [], [], []
    for argument in arguments:
        if isinstance(argument, numpy.ndarray):
            memory.append((argument, call(cuda.cuMemAlloc, argument.nbytes)))
            call(cuda.cuMemcpyHtoD, memory[-1][1], argument, argument.nbytes)
            argument = ctypes.c_uint64(int(memory[-1][1]))
        places.append(argument)
        kinds.append(ctypes.addressof(argument))
    pointers = (ctypes.c_void_p * len(kinds))(*kinds)
    function = call(cuda.cuModuleGetFunction, module, name.encode())
    (x, y), (width, height) = ((size if isinstance(size, tuple) else (size, 1)) for size in (blocks, threads))
    call(cuda.cuLaunchKernel, function, x, y, 1, width, height, 1, shared, 0, ctypes.addressof(pointers), 0)
    call(cuda.cuCtxSynchronize)
    after = []
    for array, address in memory:
        copy = numpy.empty_like(array)
        call(cuda.cuMemcpyDtoH, copy, address, copy.nbytes)
        call(cuda.cuMemFree, address)
        after.append(copy)
    return after


def expect(name, found, *expected):
    """Compares the last arrays of a launch."""
    for stored, right in zip(found[-len(expected) :], expected):
        assert numpy.array_equal(stored, numpy.broadcast_to(right, stored.shape)), f"{name}, {architecture}: {stored} instead of {right}"


def integers(n, low=-1000, high=1000, kind=numpy.int32):
    return random.integers(low, high, n, dtype=kind)


def floats(n):
    # Sums and products of these are exact.
    return integers(n).astype(numpy.float32) / 8


I, F, L = ctypes.c_int, ctypes.c_float, ctypes.c_size_t


class Pair(ctypes.Structure):
    _fields_ = [("key", ctypes.c_float), ("value", ctypes.c_int)]


class Table(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int), ("values", ctypes.c_int * 9)]


def check():
    n = 1000
    a, b = floats(n), floats(n)
    expect("vector_add", run("vector_add", 8, 128, a, b, numpy.zeros_like(a), I(n)), a + b)
    expect("saxpy", run("saxpy", 3, 64, F(2.5), a, b, L(n)), 2.5 * a + b)
    x = integers(n)
    sums = numpy.zeros(3, numpy.int64)
    sums = run("block_sums", 3, 128, x, sums, I(n))[1]
    expected = [sum(int(x[i]) for i in range(n) if i // 128 % 3 == block) for block in range(3)]
    expect("block_sums", [sums], numpy.array(expected))
    matrix = floats(37 * 50).reshape(37, 50)
    turned = run("transpose", (4, 3), (16, 16), matrix, numpy.zeros((50, 37), numpy.float32), I(50), I(37))
    expect("transpose", turned, matrix.T)
    data = integers(5000, 0, 256, numpy.uint8)
    expect("histogram", run("histogram", 2, 256, data, numpy.zeros(256, numpy.uint32), I(5000)), numpy.bincount(data, minlength=256))
    source = integers(20 * 4 * 12).reshape(20, 48)
    strided = run("strided_copy", (1, 3), 8, source, numpy.zeros((20, 64), numpy.int32), I(20), I(10), I(12), I(16))
    expect("strided_copy", strided, numpy.pad(source[:, :40], ((0, 0), (0, 24))))
    left, right = (integers(17 * 17).reshape(17, 17).astype(numpy.float64) for _ in range(2))
    expect("matrix_product", run("matrix_product", (3, 3), (8, 8), left, right, numpy.zeros_like(left), I(17)), left @ right)
    index, rows = integers(40, 0, 30), integers(30 * 77, 0, 256, numpy.uint8).reshape(30, 77)
    expect("gather", run("gather", 7, 32, index, rows, numpy.zeros((40, 77), numpy.uint8), I(77), I(40)), rows[index])
    expect("reverse", run("reverse", 1, 200, x[:200].copy(), I(200), shared=800), x[:200][::-1])
    wide = numpy.pad(a, 2, mode="edge")
    expect("blur", run("blur", 8, 128, a, numpy.zeros_like(a), I(n)), wide[:-4] / 16 + wide[1:-3] / 4 + wide[2:-2] * 3 / 8 + wide[3:-1] / 4 + wide[4:] / 16)
    big = integers(n, -(1 << 62), 1 << 62, numpy.int64)
    by = integers(n, 1, 1 << 20, numpy.int64) * (1 - 2 * integers(n, 0, 2, numpy.int64))
    quotients = numpy.array([abs(int(p)) // abs(int(q)) * (1 if (p < 0) == (q < 0) else -1) for p, q in zip(big, by)])
    remainders = (big - quotients * by).astype(numpy.int32)
    zeros = numpy.zeros(n, numpy.int32)
    expect("divide", run("divide", 8, 128, big, by, numpy.zeros_like(big), zeros, I(n)), quotients, remainders)
    pair = max(((int(value) & 0xFFFFFFFF) << 32) | i for i, value in enumerate(x))
    reduced = run("reductions", 8, 128, x, zeros[:1] - 5000, numpy.zeros(1, numpy.uint64), zeros[:1], I(n))
    expect("reductions", reduced, x.max(), numpy.uint64(pair), numpy.bitwise_xor.reduce(x))
    expect("prefix_sums", run("prefix_sums", 1, 128, x[:100].copy(), zeros[:100], I(100)), numpy.cumsum(x[:100]))
    records = numpy.zeros(n, [("key", numpy.float32), ("value", numpy.int32)])
    records["key"], records["value"] = a, x
    changed = run("pairs", 8, 128, records, numpy.zeros_like(records), Pair(0.5, 7), I(n))[-1][::-1]
    expect("pairs", [changed["key"], changed["value"]], a + 0.5, x - 7)
    shuffled = []
    for i in range(n):
        values = [int(x[(i * 16 + k) % n]) for k in range(16)]
        at = i & 15
        for k in range(40):
            at = (at * 5 + values[at]) & 15
            values[at] += k
        shuffled.append(values[x[i] & 15])
    expect("shuffle", run("shuffle", 8, 128, x, zeros, I(n)), shuffled)
    mixed = []
    for i in range(n):
        value = i
        for _ in range(i % 7):
            value = (value * 1664525 + 1013904223) & 0xFFFFFFFF
        mixed.append(value)
    expect("hashes", run("hashes", 8, 128, numpy.zeros(n, numpy.uint32), I(n)), mixed)
    data = data[:n].copy()
    narrow = run("narrow", 8, 128, data, numpy.zeros(n, numpy.uint16), numpy.zeros(n, numpy.int8), I(n))
    expect("narrow", narrow, data.astype(numpy.uint16) * data[::-1], (data - 100).astype(numpy.int8) >> 1)
    table = Table(7, (I * 9)(3, 1, 4, 1, 5, 9, 2))
    expect("look_up", run("look_up", 8, 128, table, zeros, I(n)), numpy.resize([3, 1, 4, 1, 5, 9, 2], n))
    expect("halves", run("halves", 8, 128, 2 * x, zeros, I(n)), x)
    a = abs(a)
    roots = run("roots", 8, 128, a, numpy.zeros_like(a), zeros, I(n))
    expect("roots", roots, numpy.minimum(numpy.sqrt(a), numpy.float32(20)) / numpy.float32(3), numpy.rint(a).astype(int) + a.astype(int))


call(cuda.cuInit, 0)
device = call(cuda.cuDeviceGet, 0)
call(cuda.cuCtxSetCurrent, call(cuda.cuDevicePrimaryCtxRetain, device))
text = (pathlib.Path(__file__).parent / "kernels.cu").read_text()
kernels = re.findall(r"__global__ void (\w+)", text)
for architecture in ("compute_70", "compute_75", "compute_80", "compute_86", "compute_89", "compute_90"):
    module = call(cuda.cuModuleLoadData, compiled(text, architecture) + b"\0")
    check()
    call(cuda.cuModuleUnload, module)
    print(f"{architecture}: {len(kernels)} kernels")
