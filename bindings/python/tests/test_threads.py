"""Threads that use the same objects at the same time: in parallel on an interpreter without the global lock, by turns elsewhere."""

from __future__ import annotations

import random
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator

import pytest

import dma

LIMIT = 300  # seconds, against hangs
ROUNDS = 400
IS_FREE = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


@pytest.fixture(autouse=True)
def short_turns() -> Iterator[None]:
    """Lets an interpreter with a global lock change between threads often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(*works: Callable[[], None]) -> None:
    """Runs functions in threads that start together, and raises the first error."""
    start, errors = threading.Barrier(len(works)), []

    def run(work: Callable[[], None]) -> None:
        try:
            start.wait(LIMIT)
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("size", [64, 8192, 100_000])
@pytest.mark.parametrize("kind", ["copy", "batch", "shared"])
@pytest.mark.parametrize("name", ["cpu", "sim"])
def test_no_view_sees_a_copy_in_flight(name: str, kind: str, size: int) -> None:
    engine = dma.open(name)
    dst = engine.allocate(size)
    readers = 2
    running = [True] * 2
    seen = [0] * readers
    refused = [0] * 2

    def write(at: int) -> None:
        queue = engine.shared_queue() if kind == "shared" else engine.queue()
        src = engine.allocate(size)
        src[:] = bytes([at + 1]) * size
        batch = dma.Batch([(src[: size // 2], dst[: size // 2]), (src[size // 2 :], dst[size // 2 :])])
        try:
            for _ in range(ROUNDS):
                try:
                    transfer = queue.submit(batch) if kind == "batch" else queue.copy(src, dst)
                except dma.InUse:
                    refused[at] += 1
                    continue
                transfer.wait()
        finally:
            running[at] = False

    def read(at: int) -> None:
        while any(running):
            try:
                with memoryview(dst.toreadonly()) as view:
                    first = bytes(view)
                    second = bytes(view)
            except dma.InUse:
                continue
            seen[at] += 1
            assert first == second
            # Two writers may have ended at once; a copy itself is whole.
            assert set(first) <= {0, 1, 2}

    together(*(lambda at=at: write(at) for at in range(2)), *(lambda at=at: read(at) for at in range(readers)))
    memoryview(dst).release()
    dst.release()


@pytest.mark.parametrize("operation", ["copy", "fill", "crc32c", "compare", "batch", "write", "read", "assign", "tobytes"])
@pytest.mark.skipif(IS_FREE, reason="there is no global lock")
def test_long_operations_release_the_lock(operation: str) -> None:
    engine = dma.open("cpu")
    queue = engine.queue()
    src, dst = engine.allocate("1M"), engine.allocate("1M")
    batch, window = dma.Batch([(src, dst)]), engine.allocate_window("1M")
    data = bytes(1 << 20)
    call = {
        "copy": lambda: queue.copy(src, dst).wait(), "fill": lambda: queue.fill(dst, 7).wait(),
        "crc32c": lambda: queue.crc32c(src).wait(), "compare": lambda: queue.compare(src, src).wait(),
        "batch": lambda: queue.submit(batch).wait(), "write": lambda: window.write(data),
        "read": window.read, "assign": lambda: dst.__setitem__(slice(None), data), "tobytes": src.tobytes,
    }[operation]  # fmt: skip
    gate, ran = threading.Lock(), []
    gate.acquire()

    def work() -> None:
        gate.acquire()
        ran.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    # The interpreter itself takes the lock from no thread, so the other one runs only if the operation releases it.
    sys.setswitchinterval(1e6)
    gate.release()
    for _ in range(1_000_000):
        if ran:
            break
        call()
    assert ran
    thread.join()


def test_threads_wait_for_one_transfer() -> None:
    engine = dma.open("sim:profile=bluefield3")
    queue = engine.shared_queue()
    src, dst = engine.allocate(1 << 16), engine.allocate(1 << 16)
    src[:5] = b"hello"
    expected = queue.crc32c(src).wait()
    for _ in range(30):
        transfer = queue.copy_crc32c(src, dst)
        results: list[int] = []

        def wait(transfer: dma.Transfer[int] = transfer, results: list[int] = results) -> None:
            results.append(transfer.wait(LIMIT))

        def view() -> None:
            try:
                dst.tobytes()
            except dma.InUse:
                pass

        together(wait, wait, wait, view)
        assert results == [expected] * 3


def test_a_batch_is_submitted_by_one_thread_at_a_time() -> None:
    engine = dma.open("cpu")
    src, dst = engine.allocate(1 << 16), engine.allocate(1 << 16)
    batch = dma.Batch([(src[:30_000], dst[:30_000]), (src[30_000:], dst[30_000:])])

    def submit() -> None:
        queue = engine.queue()
        for _ in range(ROUNDS):
            try:
                queue.submit(batch).wait()
            except dma.InUse:
                pass

    together(submit, submit, submit)
    engine.queue().submit(batch).wait()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["cpu", "sim", "sim:faults=fail:p=0.05+refuse:p=0.02"])
def test_random_calls_in_threads(name: str, seed: int) -> None:
    engine = dma.open(name)
    pool = engine.pool({4096: 4})
    shared = engine.shared_queue()
    queue = engine.queue()
    size = 20_000
    buffers = [engine.allocate(size) for _ in range(3)] + [engine.register(bytearray(size))]
    batch = dma.Batch([(buffers[0][:500], buffers[1][:500]), (buffers[1][500:900], buffers[2][500:900])])
    kept: list[dma.Transfer[None]] = []

    def work(number: int) -> None:
        chance = random.Random(seed * 100 + number)

        def part() -> dma.Buffer:
            start = chance.randrange(size)
            return chance.choice(buffers)[start : start + chance.choice((0, 1, 64, 5000))]

        def of_same_length() -> tuple[dma.Buffer, dma.Buffer]:
            length = chance.choice((1, 64, 9000))
            a, b = (chance.randrange(size - length) for _ in range(2))
            return chance.choice(buffers)[a : a + length], chance.choice(buffers)[b : b + length]

        def keep(transfer: dma.Transfer[None]) -> None:
            kept.append(transfer)
            if len(kept) > 20:
                kept.pop(0).wait(LIMIT)

        def assign() -> None:
            a, b = of_same_length()
            a[:] = b

        def poke() -> None:
            chance.choice(buffers)[chance.randrange(size)] = number

        def view() -> None:
            with memoryview(part()) as bytes_:
                sum(bytes_[:100])

        calls: list[Callable[[], object]] = [
            lambda: keep(shared.copy(*of_same_length())),
            lambda: shared.copy(*of_same_length()).wait(LIMIT),
            lambda: queue.copy(*of_same_length()).wait(LIMIT),
            lambda: queue.submit(batch).wait(LIMIT),
            lambda: shared.submit(batch).done,
            lambda: shared.fill(part(), number),
            lambda: shared.crc32c(part()).wait(LIMIT),
            lambda: kept[0].wait(0),
            lambda: kept.clear(),
            lambda: queue.counters,
            lambda: queue.poll(),
            lambda: pool.get(100, timeout=0)[:10].release(),
            lambda: part().tobytes(),
            lambda: part().release(),
            assign,
            poke,
            view,
        ]
        for _ in range(ROUNDS):
            try:
                chance.choice(calls)()
            except (dma.Error, IndexError):
                pass

    together(*(lambda number=number: work(number) for number in range(4)))
    kept.clear()
    shared.close(LIMIT)
    queue.close(LIMIT)
    for buffer in buffers:
        memoryview(buffer).release()
        buffer.release()


@pytest.mark.skipif(not hasattr(sys, "_is_gil_enabled"), reason="the interpreter has a global lock")
def test_the_package_leaves_the_global_lock_off() -> None:
    if IS_FREE:
        assert not sys._is_gil_enabled()
