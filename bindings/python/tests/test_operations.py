"""Every operation on every engine and both kinds of queue, beside plain Python."""

from __future__ import annotations

import pytest
from conftest import filled

import dma


def crc32c(data: bytes, crc: int = 0) -> int:
    """CRC-32C bit by bit."""
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


DATA = bytes(i * 7 & 255 for i in range(1000))


@pytest.mark.parametrize("length", [0, 1, 64, 4096, 100_000])
def test_copy(engine, queue, length):
    data = (DATA * 101)[:length]
    src, dst = filled(engine, data), engine.allocate(length)
    assert queue.copy(src, dst).wait() is None
    assert dst.tobytes() == data == src.tobytes()


def test_parts_of_one_buffer(engine, queue):
    buffer = filled(engine, DATA)
    queue.copy(buffer[:100], buffer[500:600]).wait()
    assert buffer.tobytes() == DATA[:500] + DATA[:100] + DATA[600:]
    with pytest.raises(dma.Overlap) as caught:
        queue.copy(buffer[:100], buffer[99:199])
    assert isinstance(caught.value, ValueError)


def test_lists_and_rows(engine, queue):
    table, out = filled(engine, DATA), engine.allocate(30)
    queue.copy([table[5:15], table[100:120]], out).wait()
    assert out.tobytes() == DATA[5:15] + DATA[100:120]
    queue.copy(dma.Rows(table, [(50, 10), (0, 10), (50, 10)]), out).wait()
    assert out.tobytes() == DATA[50:60] + DATA[:10] + DATA[50:60]
    queue.copy(out, dma.Rows(table, [(10, 20), (900, 10)])).wait()
    assert table[10:30].tobytes() + table[900:910].tobytes() == out.tobytes()
    queue.copy(dma.Rows(table, [(0, 5), (900, 5)]), dma.Rows(out, [(20, 10)])).wait()
    assert out[20:].tobytes() == table[:5].tobytes() + table[900:905].tobytes()
    queue.copy(out, (table[:20], table[20:30])).wait()
    assert table[:30].tobytes() == out.tobytes()
    with pytest.raises(dma.OutOfRange, match="row 1"):
        dma.Rows(table, [(0, 1), (999, 2)])


def test_fill(engine, queue):
    dst = engine.allocate(20)
    queue.fill(dst, 7).wait()
    assert dst.tobytes() == bytes([7]) * 20
    queue.fill(dst, b"abcdefgh").wait()
    assert dst.tobytes() == b"abcdefghabcdefghabcd"
    queue.fill([dst[:3], dst[10:12]], 1).wait()
    assert dst.tobytes()[:4] == b"\1\1\1d"
    for wrong in (256, 300, -1, b"abc"):
        with pytest.raises(dma.InvalidArgument, match="give 8 bytes, or a number below 256"):
            queue.fill(dst, wrong)
    for wrong in ("x", None, 1.5, bytearray(8)):
        with pytest.raises(TypeError, match="give 8 bytes, or a number below 256"):
            queue.fill(dst, wrong)


def test_results(engine, queue):
    a, b, c = filled(engine, DATA), engine.allocate(1000), engine.allocate(1000)
    assert queue.crc32c(a).wait() == crc32c(DATA)
    assert queue.crc32c(a[100:], crc32c(DATA[:100])).wait() == crc32c(DATA)
    assert queue.crc32c([a[:100], a[100:]]).wait() == crc32c(DATA)
    assert queue.copy_crc32c(a, b).wait() == crc32c(DATA)
    assert queue.compare(a, b).wait() is None
    b[777] ^= 1
    transfer = queue.compare(a, b)
    assert transfer.wait() == 777 == transfer.wait()
    queue.copy_to_both(a, b, c).wait()
    assert b.tobytes() == c.tobytes() == DATA


def test_batches(engine, queue):
    src = [filled(engine, bytes([i]) * 100) for i in range(32)]
    dst = [engine.allocate(100) for _ in range(32)]
    batch = dma.Batch(zip(src, dst))
    assert (len(batch), batch.nbytes) == (32, 3200)
    for round in range(3):
        queue.submit(batch).wait()
        assert all(to.tobytes() == of.tobytes() for of, to in zip(src, dst))
        for of in src:
            queue.fill(of, round + 40).wait()
    queue.submit(dma.Batch([])).wait()
    with memoryview(dst[5]), pytest.raises(BufferError):
        queue.submit(batch)
    queue.submit(batch).wait()


def test_fences_order_operations(engine):
    queue = engine.queue()
    a, b, c = filled(engine, DATA), engine.allocate(1000), engine.allocate(1000)
    first = queue.copy(a, b)
    queue.fence()
    second = queue.copy(b, c)
    second.wait()
    first.wait()
    assert c.tobytes() == DATA


def test_errors_have_kinds_hints_and_built_in_classes(engine, queue):
    a, b = engine.allocate(10), engine.allocate(11)
    with pytest.raises(ValueError) as caught:
        queue.copy(a, b)
    error = caught.value
    assert isinstance(error, dma.LengthMismatch)
    assert (error.kind, error.retry, error.operation) == ("LengthMismatch", "never", "copy")
    assert error.backend in str(error)
    other = dma.open("cpu").allocate(10)
    with pytest.raises(dma.WrongEngine):
        queue.copy(other, a)
    for wrong in (None, b"bytes", bytearray(10), 7, "text"):
        with pytest.raises(TypeError, match="memory of an engine"):
            queue.copy(wrong, a)
        with pytest.raises(TypeError, match="memory of an engine"):
            queue.copy(a, [wrong])


def test_a_full_queue_refuses_and_has_room_again():
    engine = dma.open("sim:profile=bluefield3")
    queue = engine.queue(depth=2)
    pairs = [(filled(engine, bytes([i]) * 5000), engine.allocate(5000)) for i in range(9)]
    kept = [queue.copy(*pair) for pair in pairs[:2]]
    with pytest.raises(dma.QueueFull) as caught:
        queue.copy(*pairs[2])
    assert caught.value.retry == "after progress" and caught.value.hint
    # A refused copy leaves its memory free.
    pairs[2][1][0] = 9
    with pytest.raises(dma.QueueFull):
        queue.wait_for_room()
    for transfer in kept:
        transfer.wait()
    for pair in pairs[2:]:
        queue.wait_for_room()
        queue.copy(*pair)
    queue.fence()
    queue.wait_for_room()
    counters = queue.close()
    assert (counters.completed, counters.in_flight, counters.abandoned) == (9, 0, 0)
    assert all(src.tobytes() == dst.tobytes() for src, dst in pairs)


def test_failures_of_batches_name_their_copies():
    engine = dma.open("sim:faults=fail@2")
    queue = engine.queue()
    batch = dma.Batch([(engine.allocate(100), engine.allocate(100)) for _ in range(3)])
    with pytest.raises(dma.DeviceFault) as caught:
        queue.submit(batch).wait()
    assert caught.value.failed == (1,) and caught.value.native is not None
    queue.submit(batch).wait()


def test_retry_repeats_as_errors_advise():
    for seed in range(20):
        engine = dma.open(f"sim:seed={seed},faults=reset:p=0.05+fail:p=0.05+refuse:p=0.02")
        queue = engine.queue()
        src, dst = filled(engine, DATA), engine.allocate(1000)
        dma.retry(lambda: queue.copy(src, dst), attempts=30, faults=30)
        assert dst.tobytes() == DATA
    with pytest.raises(dma.Overlap):
        dma.retry(lambda: queue.copy(src, src))


def test_names_and_descriptions(engine):
    assert engine.name in repr(engine)
    assert set(engine.info) == {"backend", "device", "version", "model", "numa_node", "capabilities", "limits"}
    assert any(found.name == "cpu" and found.info for found in dma.discover())
    (cpu,) = dma.doctor("cpu")
    assert cpu.usable and not cpu.hardware and cpu.findings
    assert {"cpu", "sim", "auto"} <= {backend.name for backend in dma.backends()}
    for wrong, kind in [
        ("cpuu", dma.InvalidArgument), ("cpu:threads=x", ValueError), ("", ValueError), ("cpu\0", ValueError),
        ("cpu:nothing=1", ValueError), ("doca:99:00.0", dma.Error),
    ]:  # fmt: skip
        with pytest.raises(kind) as caught:
            dma.open(wrong)
        assert str(caught.value)
    with pytest.raises(PermissionError):
        dma.open("record+cpu:file=/tmp/x", untrusted=True)


def test_options_are_checked(engine):
    for options in [{"depth": 1 << 40}, {"stall_timeout": 0}, {"stall_timeout": -1}, {"hint": "warm"}]:
        with pytest.raises(ValueError):
            engine.queue(**options)
    for size in (-1, "7Q", "", 1 << 100):
        with pytest.raises((ValueError, MemoryError)):
            engine.allocate(size)
    for size in (1.5, None, b"7"):
        with pytest.raises(TypeError):
            engine.allocate(size)
    with pytest.raises(ValueError):
        engine.shared_queue(lanes=0)
    assert len(engine.allocate("4K")) == 4096
