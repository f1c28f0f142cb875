"""Times of the package beside Python's own, in one run. Each figure is the shortest of many short rounds, which other load on
the machine disturbs least; the two sides of a ratio take turns. Needs numpy beside the package, and shows google-crc32c if it is
installed.

    python bindings/python/benches/figures.py
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import multiprocessing
import platform
import resource
import subprocess
import sys
import threading
import time
import timeit
import zlib
from collections.abc import Callable
from queue import SimpleQueue

import numpy

import dma

ROUNDS = 200


def best(*sides: tuple[str, dict[str, object]], rounds: int = ROUNDS) -> list[float]:
    """Shortest time of each statement in seconds. The statements take turns."""
    timers = []
    for statement, names in sides:
        timer = timeit.Timer(statement, globals=names)
        number = 1
        while timer.timeit(number) < 0.0005:
            number *= 2
        timers.append((timer, number))
    shortest = [float("inf")] * len(timers)
    for _ in range(rounds):
        for at, (timer, number) in enumerate(timers):
            shortest[at] = min(shortest[at], timer.timeit(number) / number)
    return shortest


def row(what: str, figure: str, beside: str = "", ratio: float | None = None) -> None:
    print(f"{what:44} {figure:>16} {beside:>30} {'' if ratio is None else f'{ratio:.2f}':>6}")


def nanoseconds(time: float) -> str:
    return f"{time * 1e9:,.0f} ns"


def rate(bytes: int, time: float) -> str:
    return f"{bytes / time / 1e9:.1f} GB/s"


def processor() -> str:
    with open("/proc/cpuinfo") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return models[0] if models else platform.machine()


def main() -> None:
    print(f"{processor()}, CPython {platform.python_version()}, numpy {numpy.__version__}, dma {dma.__version__}, engine cpu")
    engine = dma.open("cpu")
    queue = engine.queue()

    src, dst = engine.allocate(64), engine.allocate(64)
    a, b = memoryview(bytearray(64)), memoryview(bytearray(64))
    names: dict[str, object] = {"copy": queue.copy, "src": src, "dst": dst, "a": a, "b": b, "numpy": numpy}
    names |= {"x": numpy.zeros(64, "u1"), "y": numpy.zeros(64, "u1")}
    copied, waited, assigned, array = best(
        ("copy(src, dst)", names), ("copy(src, dst).wait()", names), ("b[:] = a", names), ("numpy.copyto(y, x)", names)
    )
    row("64 B: copy(src, dst)", nanoseconds(copied), f"memoryview {nanoseconds(assigned)}", copied / assigned)
    row("64 B: copy(src, dst).wait()", nanoseconds(waited), f"memoryview {nanoseconds(assigned)}", waited / assigned)
    row("", "", f"numpy.copyto {nanoseconds(array)}", waited / array)

    slots, staging = engine.allocate(32 * 64), engine.allocate(32 * 64)
    batch = dma.Batch((slots[i : i + 64], staging[i : i + 64]) for i in range(0, 32 * 64, 64))
    (submitted,) = best(("submit(batch)", {"submit": queue.submit, "batch": batch}))
    row("prepared batch of 32 copies of 64 B: submit()", nanoseconds(submitted), f"{submitted / 32 * 1e9:.0f} ns for each copy")

    size = 64 << 20
    src, dst = engine.allocate(size), engine.allocate(size)
    src[:] = bytes(size)
    a, b = memoryview(bytearray(size)), memoryview(bytearray(size))
    x, y = numpy.zeros(size, "u1"), numpy.zeros(size, "u1")
    y[:] = x
    names = {"queue": queue, "src": src, "dst": dst, "a": a, "b": b, "x": x, "y": y, "numpy": numpy}
    ours, theirs, array = best(
        ("queue.copy(src, dst).wait()", names), ("b[:] = a", names), ("numpy.copyto(y, x)", names), rounds=15
    )
    row("64 MiB: copy(src, dst).wait()", rate(size, ours), f"memoryview {rate(size, theirs)}", ours / theirs)
    row("", "", f"numpy.copyto {rate(size, array)}", ours / array)

    part = 1 << 20
    names = {"queue": queue, "src": src[:part], "x": bytes(part), "zlib": zlib}
    ours, theirs = best(("queue.crc32c(src).wait()", names), ("zlib.crc32(x)", names), rounds=30)
    row("1 MiB: crc32c(src).wait()", rate(part, ours), f"zlib.crc32 {rate(part, theirs)}", ours / theirs)
    if importlib.util.find_spec("google_crc32c"):
        google = importlib.import_module("google_crc32c")
        ours, theirs = best(
            ("queue.crc32c(src).wait()", names), ("value(x)", {"value": google.value, "x": bytes(part)}), rounds=30
        )
        row("", "", f"google_crc32c {rate(part, theirs)}", ours / theirs)

    # With helper threads, one thread's operation would use all processors.
    alone = "cpu:threads=0"

    def ours_copy(length: int) -> Callable[[], object]:
        engine = dma.open(alone)
        own, of, to = engine.queue(), engine.allocate(length), engine.allocate(length)
        return lambda: own.copy(of, to).wait()

    def array_copy(length: int) -> Callable[[], object]:
        of, to = numpy.ones(length, "u1"), numpy.zeros(length, "u1")
        return lambda: numpy.copyto(to, of)

    def view_copy(length: int) -> Callable[[], object]:
        of, to = memoryview(bytearray(length)), memoryview(bytearray(length))

        def copy() -> None:
            to[:] = of

        return copy

    def ours_crc(length: int) -> Callable[[], object]:
        engine = dma.open(alone)
        own, of = engine.queue(), engine.allocate(length)
        return lambda: own.crc32c(of).wait()

    def timed(workers: int, prepare: Callable[[int], Callable[[], object]], length: int, processes: bool = False) -> float:
        """Number of operations a second, summed over threads or processes that each have a queue and memory."""
        operations = (768 << 20) // length
        context = multiprocessing.get_context("fork")
        barrier = context.Barrier(workers) if processes else threading.Barrier(workers)
        times = context.SimpleQueue() if processes else SimpleQueue()

        def work() -> None:
            operation = prepare(length)
            operation()
            barrier.wait()
            begin = time.perf_counter()
            for _ in range(operations):
                operation()
            times.put((begin, time.perf_counter()))

        worker = context.Process if processes else threading.Thread
        running = [worker(target=work) for _ in range(workers)]
        for one in running:
            one.start()
        taken = [times.get() for _ in running]
        for one in running:
            one.join()
        return workers * operations / (max(end for _, end in taken) - min(begin for begin, _ in taken))

    # Two threads that copy share caches and memory. Two that compute a CRC only read their core's own cache. An assignment
    # keeps the interpreter's lock. Two processes share no interpreter, so they show the limit of the machine.
    sides = (
        ("256 KiB: copy().wait()", ours_copy, 256 << 10),
        ("256 KiB: numpy.copyto()", array_copy, 256 << 10),
        ("256 KiB: memoryview", view_copy, 256 << 10),
        ("1 MiB: copy().wait()", ours_copy, 1 << 20),
        ("1 MiB: crc32c().wait()", ours_crc, 1 << 20),
    )
    for what, prepare, length in sides:
        one = two = apart = 0.0
        for _ in range(12):
            one, two = max(one, timed(1, prepare, length)), max(two, timed(2, prepare, length))
            apart = max(apart, timed(2, prepare, length, processes=True))
        row(f"{what} by one thread", f"{one:,.0f}/s", f"two threads {two:,.0f}/s", two / one)
        row("", "", f"two processes {apart:,.0f}/s", apart / one)

    async def tasks() -> float:
        shared = engine.shared_queue()

        async def work() -> None:
            of, to = engine.allocate(64), engine.allocate(64)
            for _ in range(500):
                await shared.copy(of, to)

        begin = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(64)))
        return 64 * 500 / (time.perf_counter() - begin)

    row("64 tasks on asyncio, 64 B each", f"{max(asyncio.run(tasks()) for _ in range(5)):,.0f}/s")

    def started(statement: str) -> float:
        """Time of processors, because a process that starts waits for other programs."""
        begin = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-I", "-c", statement], check=True)
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        return end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime

    pairs = [(started("import dma"), started("pass")) for _ in range(10)]
    imported = min(pair[0] for pair in pairs) - min(pair[1] for pair in pairs)
    row("import dma, time of processors", f"{imported * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
