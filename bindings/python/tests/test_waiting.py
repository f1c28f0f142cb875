"""Waits, awaits, threads and signals."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import threading

import pytest
from conftest import filled

import dma

LIMIT = 120  # seconds, against hangs


async def copies(engine, queue, number, rounds):
    """One of several tasks."""
    src, dst = engine.allocate(300), engine.allocate(300)
    for round in range(rounds):
        src[:] = bytes([number * 7 + round & 255]) * 300
        while True:
            try:
                transfer = queue.copy(src, dst)
                break
            except dma.QueueFull:
                await asyncio.sleep(0)
        assert await transfer is None
        assert dst.tobytes() == src.tobytes()


@pytest.mark.parametrize("depth", [0, 3])
def test_tasks_await_transfers(engine, request, depth):
    for kind in ("queue", "shared_queue"):
        queue = getattr(engine, kind)(depth=depth)

        async def main():
            await asyncio.gather(*(copies(engine, queue, number, 4) for number in range(20)))
            src, dst = filled(engine, b"123456789"), engine.allocate(9)
            assert await queue.crc32c(src) == 0xE3069283
            assert await queue.compare(src, dst) == 0
            assert await queue.copy(src, dst) is None

        asyncio.run(asyncio.wait_for(main(), LIMIT))
        # Another loop, and no loop.
        asyncio.run(asyncio.wait_for(main(), LIMIT))
        src, dst = filled(engine, b"x" * 100_000), engine.allocate(100_000)
        queue.copy(src, dst).wait(LIMIT)
        assert dst.tobytes() == src.tobytes()


def test_uvloop_awaits_transfers(engine):
    uvloop = pytest.importorskip("uvloop")

    async def main():
        for queue in (engine.queue(), engine.shared_queue()):
            await asyncio.gather(*(copies(engine, queue, number, 4) for number in range(20)))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), LIMIT))


@pytest.mark.parametrize("kind", ["queue", "shared_queue"])
def test_a_cancelled_task_leaves_the_transfer(kind):
    engine = dma.open("sim:faults=stick@1")
    queue = getattr(engine, kind)(drop_timeout=0)
    src, dst = engine.allocate(10), engine.allocate(10)

    async def main():
        transfer = queue.copy(src, dst)
        for _ in range(2):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.ensure_future(wait(transfer)), 0.01)
        assert not transfer.done
        with pytest.raises(BufferError):
            memoryview(dst)
        both = [asyncio.ensure_future(wait(transfer)) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.to_thread(queue.close, 0)
        for task in both:
            with pytest.raises(dma.Error):
                await asyncio.wait_for(task, LIMIT)

    async def wait(transfer):
        return await transfer

    asyncio.run(main())
    memoryview(dst).release()


@pytest.mark.parametrize("kind", ["queue", "shared_queue"])
def test_a_stalled_device_fails_waits_and_awaits(kind):
    engine = dma.open("sim:faults=stick@1")
    queue = getattr(engine, kind)(stall_timeout=0.3, drop_timeout=0)
    src, dst = engine.allocate(10), engine.allocate(10)
    transfer = queue.copy(src, dst)
    with pytest.raises(TimeoutError, match="completed nothing"):
        transfer.wait()

    async def main():
        with pytest.raises(TimeoutError, match="completed nothing"):
            await transfer

    asyncio.run(asyncio.wait_for(main(), LIMIT))
    with pytest.raises(BufferError):
        memoryview(dst)
    queue.close(0)
    with pytest.raises(dma.Error):
        transfer.wait()


def test_waits_with_a_timeout_lose_nothing(stuck):
    engine, queue = stuck
    transfer = queue.copy(engine.allocate(10), engine.allocate(10))
    for timeout in (0, 0.01):
        with pytest.raises(TimeoutError) as caught:
            transfer.wait(timeout)
        assert isinstance(caught.value, dma.TimedOut)
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError):
            transfer.wait(wrong)
    with pytest.raises(TypeError):
        transfer.wait("soon")
    queue.close(0)
    for _ in range(2):
        with pytest.raises(dma.Error):
            transfer.wait(0)


@pytest.fixture
def interruptible():
    # Programs that a shell starts in the background ignore the signal, and so does Python then.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_a_wait(stuck, interruptible):
    engine, queue = stuck
    transfer = queue.copy(engine.allocate(10), engine.allocate(10))
    pool = engine.pool({10: 1})
    held = pool.get(10)
    for wait in (transfer.wait, lambda: pool.get(10), lambda: [*dma.as_completed([transfer])]):
        waits = threading.Event()

        def interrupt():
            waits.wait(LIMIT)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            waits.set()
            wait()
        thread.join()
    assert len(held) == 10 and not transfer.done
    queue.close(0)


def test_other_threads_run_during_a_wait(stuck):
    engine, queue = stuck
    transfer = queue.copy(engine.allocate(10), engine.allocate(10))
    ended = []

    def wait():
        while not ended:
            try:
                transfer.wait(LIMIT)
            except dma.InUse:
                pass  # This thread is refused while the other one submits a copy.
            except dma.Error as error:
                ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    # The queue serves the waiting thread most of the time: the other one is refused, and never blocked.
    refused = 0
    while refused < 3:
        try:
            queue.copy(engine.allocate(20_000), engine.allocate(20_000))
        except dma.InUse as error:
            assert "another thread" in str(error)
            refused += 1
        except dma.QueueFull:
            pass
    queue.close(0)
    thread.join()
    assert len(ended) == 1


def test_queues_move_between_threads(engine):
    queue = engine.queue()
    kept = []

    def use():
        src, dst = filled(engine, b"t" * 50_000), engine.allocate(50_000)
        kept.append((queue.copy(src, dst), src, dst))

    for _ in range(4):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    for transfer, src, dst in kept:
        transfer.wait()
        assert dst.tobytes() == src.tobytes()
    kept.clear()
    boxes = [engine.queue()]
    boxes[0].copy(engine.allocate(50_000), engine.allocate(50_000))
    thread = threading.Thread(target=boxes.clear)
    thread.start()
    thread.join()


def test_threads_share_a_queue(engine):
    queue = engine.shared_queue(lanes=1)
    failures = []

    def use(number):
        try:
            src, dst = engine.allocate(20_000), engine.allocate(20_000)
            for round in range(20):
                src[:] = bytes([number * 20 + round & 255]) * 20_000
                while True:
                    try:
                        queue.copy(src, dst).wait(LIMIT)
                        break
                    except dma.QueueFull:
                        queue.wait_for_room(LIMIT)
                assert dst.tobytes() == src.tobytes()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_transfers_are_yielded_as_they_end(engine, queue):
    pairs = [(filled(engine, bytes([i]) * 30_000), engine.allocate(30_000)) for i in range(20)]
    transfers = [queue.copy(*pair) for pair in pairs]
    seen = [transfer.wait() for transfer in dma.as_completed(transfers, timeout=LIMIT)]
    assert seen == [None] * 20
    assert all(src.tobytes() == dst.tobytes() for src, dst in pairs)
    assert list(dma.as_completed([])) == []


def test_as_completed_has_a_limit(stuck):
    engine, queue = stuck
    transfer = queue.copy(engine.allocate(10), engine.allocate(10))
    with pytest.raises(TimeoutError):
        list(dma.as_completed([transfer], timeout=0.01))
    queue.close(0)
    assert list(dma.as_completed([transfer])) == [transfer]


def test_closed_queues_refuse(engine, queue):
    src, dst = engine.allocate(10), engine.allocate(10)
    with queue:
        queue.copy(src, dst).wait()
    for use in (
        lambda: queue.copy(src, dst),
        lambda: queue.fill(dst, 1),
        lambda: queue.submit(dma.Batch([(src, dst)])),
        lambda: queue.crc32c(src),
    ):
        with pytest.raises(dma.Closed) as caught:
            use()
        assert isinstance(caught.value, ValueError)
    assert queue.close().completed == queue.counters.completed == 1
    memoryview(dst).release()
    gc.collect()


def test_queues_of_files_leave_no_descriptors(tmp_path):
    (tmp_path / "in").write_bytes(bytes(1000))
    engine = dma.open("sim:device_memory=1M")
    queue, pool = engine.shared_queue(), engine.pool({4096: 2})
    source, buffer, other = dma.files.open(tmp_path / "in"), engine.allocate(1000), engine.allocate(1000)

    def use() -> int:
        for method in ("threads", None):
            files = dma.files.Queue(method=method)
            assert files.read(source, 0, buffer).wait() == 1000
            # This transfer is dropped.
            files.read(source, 0, other)
            assert dma.files.DeviceFiles(queue, pool, method=method).read(source, [(0, buffer)]).wait() == 1000
        del files
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    assert use() == use()


def test_operations_that_have_ended_leave_no_memory():
    engine = dma.open("sim:profile=dsa")
    src, dst = engine.allocate(64), engine.allocate(64)
    queue, shared = engine.queue(), engine.shared_queue()

    def use(count: int) -> int:
        for _ in range(count):
            queue.copy(src, dst).wait()
            shared.copy(src, dst).wait()
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = use(5000)
    assert use(100_000) - before < 5_000_000


def test_files(engine, tmp_path):
    data = os.urandom(100_000)
    (tmp_path / "in").write_bytes(data)
    for method in ("threads", None):
        files = dma.files.Queue(method=method)
        buffer = engine.allocate(120_000)
        source = dma.files.open(tmp_path / "in")
        transfer = files.read(source, 0, buffer)
        assert transfer.wait() == 100_000 and buffer[:100_000].tobytes() == data
        target = dma.files.open(tmp_path / "out", create=True)
        assert files.write(target, 0, buffer[:100_000]).wait() == 100_000
        files.sync(target).wait()
        assert (tmp_path / "out").read_bytes() == data

        async def main():
            assert await files.read(source, 50_000, buffer[:10]) == 10
            await asyncio.gather(*(wait(files.read(source, i, buffer[i * 100 : i * 100 + 100])) for i in range(50)))

        async def wait(transfer):
            return await transfer

        asyncio.run(asyncio.wait_for(main(), LIMIT))
        assert buffer[100:200].tobytes() == data[1:101]
        with memoryview(buffer), pytest.raises(BufferError):
            files.read(source, 0, buffer)
        with open(tmp_path / "in", "rb") as file:
            assert files.read(dma.files.File.from_file(file), 5, buffer[:3]).wait() == 3
    with pytest.raises(FileNotFoundError):
        dma.files.open(tmp_path / "nothing")
    with pytest.raises(OSError) as caught:
        dma.files.open(tmp_path, write=True)
    assert isinstance(caught.value, dma.OsError) and caught.value.errno == errno.EISDIR
    with pytest.raises(ValueError):
        dma.files.Queue(depth=0)
    with pytest.raises(ValueError):
        dma.files.Queue(method="magic")
