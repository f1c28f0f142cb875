"""Random programs of the API. No program reads bytes that a device is writing, uses memory after its end, or crashes.

The oracle is a model of plain bytearrays. An operation changes the model when it is submitted, with a fence before it, so that
the order is known. The bytes that a view shows must equal the model whenever a view is granted: so no view shows bytes that a
device is writing. `DMA_FUZZ_SEEDS` sets the number of programs.
"""

from __future__ import annotations

import gc
import os
import random

import pytest

import dma

SEEDS = range(int(os.environ.get("DMA_FUZZ_SEEDS", "8")))
STEPS = 300
NAMES = [
    "cpu", "cpu:inline=0", "sim:seed={seed}", "sim:seed={seed},profile=bluefield3", "auto", "meter+verify+cpu",
    "sim:seed={seed},faults=fail:p=0.1+reset:p=0.05+refuse:p=0.05", "sim:seed={seed},faults=lose:p=0.02+stick@40",
]  # fmt: skip


class Memory:
    """A buffer, and its model: the bytes, of which some are unknown after a failure."""

    def __init__(self, buffer, model: bytearray) -> None:
        self.buffer = buffer
        self.model = model
        self.known = bytearray(b"\1" * len(model))
        self.views: list = []


class Program:
    def __init__(self, name: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.engine = dma.open(name.format(seed=seed))
        self.queue = self.engine.queue(depth=self.random.choice([0, 2, 8]), drop_timeout=0.2)
        self.memory: list[Memory] = []
        # Transfers, with the ranges that they write.
        self.flights: list[tuple] = []
        self.batches: list[tuple] = []
        self.is_closed = False

    def allocate(self) -> None:
        length = self.random.choice([0, 1, 63, 64, 5000, 20_000])
        if self.random.random() < 0.7:
            self.memory.append(Memory(self.engine.allocate(length), bytearray(length)))
        else:
            data = self.random.randbytes(length)
            self.memory.append(Memory(self.engine.register(bytearray(data)), bytearray(data)))

    def pick(self) -> Memory:
        return self.random.choice(self.memory)

    def range(self, memory: Memory, length: int | None = None) -> tuple[int, int]:
        whole = len(memory.model)
        if length is None:
            start = self.random.randint(0, whole)
            return start, self.random.randint(start, whole)
        start = self.random.randint(0, whole - length)
        return start, start + length

    def flying(self, memory: Memory, start: int, end: int, writes_only: bool) -> bool:
        """Whether an operation that may be in flight uses the range."""
        for _, uses, _ in self.flights:
            for of, (a, b), writes in uses:
                if of is memory and a < end and start < b and a < b and start < end and (writes or not writes_only):
                    return True
        return False

    def viewed(self, memory: Memory, start: int, end: int, writes: bool) -> bool:
        return any(
            a < end and start < b and a < b and start < end and (writes or not view.readonly)
            for view, (a, b) in memory.views
        )

    def spoil(self, uses) -> None:
        for memory, (start, end), writes in uses:
            if writes:
                memory.known[start:end] = bytes(end - start)

    def submit(self, call, uses, apply, *, may_refuse: bool = False) -> None:
        """Submits an operation. It must be refused if a view forbids it."""
        forbidden = any(self.viewed(memory, *range, writes) for memory, range, writes in uses)
        read_only = any(writes and memory.buffer.readonly for memory, _, writes in uses)
        try:
            if not self.is_closed:
                self.queue.fence()
            transfer = call()
        except BufferError:
            assert forbidden or read_only or may_refuse
            return
        except dma.QueueFull:
            return self.wait()
        except (dma.Overlap, dma.LengthMismatch):
            return
        except dma.Closed:
            assert self.is_closed
            return
        assert not forbidden and not read_only and not self.is_closed
        # Bytes that come from unknown ones are unknown.
        unknown = any(0 in memory.known[a:b] for memory, (a, b), writes in uses if not writes)
        apply()
        if unknown:
            self.spoil(uses)
        else:
            for memory, (a, b), writes in uses:
                if writes:
                    memory.known[a:b] = b"\1" * (b - a)
        if self.random.random() < 0.2:
            # A dropped transfer: its outcome is unknown.
            del transfer
            self.flights.append((None, uses, unknown))
            self.spoil(uses)
            return
        self.flights.append((transfer, uses, unknown))

    def copy(self) -> None:
        src, dst = self.pick(), self.pick()
        if len(src.model) > len(dst.model) and self.random.random() < 0.9:
            src, dst = dst, src
        a, b = self.range(src)
        if b - a > len(dst.model):
            return
        c, d = self.range(dst, b - a)

        def apply():
            dst.model[c:d] = src.model[a:b]

        uses = [(src, (a, b), False), (dst, (c, d), True)]
        self.submit(lambda: self.queue.copy(src.buffer[a:b], dst.buffer[c:d]), uses, apply)

    def fill(self) -> None:
        dst = self.pick()
        a, b = self.range(dst)
        byte = self.random.randrange(256)

        def apply():
            dst.model[a:b] = bytes([byte]) * (b - a)

        self.submit(lambda: self.queue.fill(dst.buffer[a:b], byte), [(dst, (a, b), True)], apply)

    def crc(self) -> None:
        src = self.pick()
        a, b = self.range(src)
        self.submit(lambda: self.queue.crc32c(src.buffer[a:b]), [(src, (a, b), False)], lambda: None)

    def batch(self) -> None:
        if self.batches and self.random.random() < 0.5:
            batch, uses = self.random.choice(self.batches)
        else:
            pairs, uses = [], []
            free = {id(memory): 0 for memory in self.memory}
            for _ in range(self.random.randint(0, 5)):
                src, dst = self.pick(), self.pick()
                if src is dst or free[id(src)] > 0 and src in [use[0] for use in uses if use[2]]:
                    continue
                start = free[id(dst)]
                length = min(len(src.model), len(dst.model) - start, 100)
                if any(use[0] is dst and not use[2] for use in uses) or length <= 0:
                    continue
                free[id(dst)] = start + length
                pairs.append((src.buffer[:length], dst.buffer[start : start + length]))
                uses += [(src, (0, length), False), (dst, (start, start + length), True)]
            if any(memory.buffer.readonly for memory, _, writes in uses if writes):
                return
            batch = dma.Batch(pairs)
            self.batches.append((batch, uses))

        def apply():
            for (src, (a, b), _), (dst, (c, d), _) in zip(uses[::2], uses[1::2]):
                dst.model[c:d] = src.model[a:b]

        # A batch that is in flight is refused.
        may_refuse = any(known is uses for _, known, _ in self.flights)
        self.submit(lambda: self.queue.submit(batch), uses, apply, may_refuse=may_refuse)

    def view(self) -> None:
        memory = self.pick()
        a, b = self.range(memory)
        buffer = memory.buffer[a:b]
        if self.random.random() < 0.3:
            buffer = buffer.toreadonly()
        try:
            view = memoryview(buffer)
        except BufferError:
            assert self.flying(memory, a, b, writes_only=buffer.readonly)
            return
        self.settle()
        self.check(memory, a, bytes(view))
        if self.random.random() < 0.5:
            memory.views.append((view, (a, b)))
        else:
            view.release()

    def check(self, memory: Memory, start: int, data: bytes) -> None:
        for at, byte in enumerate(data, start):
            if memory.known[at]:
                assert byte == memory.model[at], f"byte {at} is {byte}, not {memory.model[at]}"

    def write(self) -> None:
        for memory in self.memory:
            for view, (a, b) in memory.views:
                if not view.readonly and a < b and self.random.random() < 0.3:
                    self.check(memory, a, bytes(view))
                    at = self.random.randrange(a, b)
                    view[at - a] = memory.model[at] = self.random.randrange(256)
                    memory.known[at] = 1

    def item(self) -> None:
        memory = self.pick()
        if not memory.model:
            return
        at = self.random.randrange(len(memory.model))
        try:
            byte = memory.buffer[at]
            self.settle()
            self.check(memory, at, bytes([byte]))
            if not memory.buffer.readonly:
                memory.buffer[at] = memory.model[at] = 7
                memory.known[at] = 1
        except BufferError:
            assert self.flying(memory, at, at + 1, writes_only=False)

    def unview(self) -> None:
        memory = self.pick()
        self.random.shuffle(memory.views)
        if memory.views:
            memory.views.pop()

    def wait(self) -> None:
        if not self.flights:
            return
        transfer, uses, _ = self.flights.pop(self.random.randrange(len(self.flights)))
        if transfer is None:
            # It may be in flight for ever.
            self.flights.insert(0, (transfer, uses, True))
            return
        try:
            transfer.wait(0.05)
        except dma.TimedOut:
            self.spoil(uses)
            self.flights.append((None, uses, True))
        except dma.Error:
            self.spoil_all()

    def settle(self) -> None:
        """Learns of operations that have failed, whose destinations are undefined."""
        for transfer, _, _ in self.flights:
            if transfer is not None and transfer.done:
                try:
                    transfer.wait()
                except dma.Error:
                    self.spoil_all()

    def spoil_all(self) -> None:
        """After a failure: what was made from its destination is unknown, too."""
        for memory in self.memory:
            memory.known = bytearray(len(memory.model))

    def poll(self) -> None:
        if self.is_closed:
            return
        self.queue.poll()
        for transfer, _, _ in self.flights:
            if transfer is not None and self.random.random() < 0.5:
                _ = transfer.done

    def release(self) -> None:
        if len(self.memory) < 3:
            return
        memory = self.pick()
        try:
            memory.buffer.release()
        except BufferError:
            whole = 0, len(memory.model)
            assert self.flying(memory, *whole, writes_only=False) or self.viewed(memory, *whole, True)
            return
        with pytest.raises(ValueError):
            memory.buffer[0:1]
        self.memory = [other for other in self.memory if other is not memory]

    def collect(self) -> None:
        gc.collect(self.random.randrange(3))

    def close(self) -> None:
        if self.random.random() < 0.05:
            self.queue.close(0.2)
            self.is_closed = True
            self.spoil_all()

    def nonsense(self) -> None:
        values = [None, -1, 1 << 70, b"x", "x", 1.5, self.queue, self.engine, [], [None], self.pick().buffer, object()]
        target = self.random.choice([self.engine, self.queue, self.pick().buffer])
        name = self.random.choice([name for name in dir(target) if not name.startswith("__") and name not in HARMFUL])
        try:
            method = getattr(target, name)
            if callable(method):
                method(*(self.random.choice(values) for _ in range(self.random.randrange(4))))
        except (dma.Error, TypeError, ValueError, OverflowError, BufferError, AttributeError):
            pass
        else:
            if name in ("copy", "fill", "copy_to_both", "copy_crc32c"):
                self.spoil_all()

    def run(self) -> None:
        steps = [
            self.copy, self.copy, self.copy, self.fill, self.crc, self.batch, self.view, self.view, self.write, self.item,
            self.unview, self.unview, self.wait, self.wait, self.poll, self.release, self.collect, self.close, self.nonsense,
        ]  # fmt: skip
        for _ in range(4):
            self.allocate()
        for _ in range(STEPS):
            if len(self.memory) < 4 or self.random.random() < 0.03:
                self.allocate()
            self.random.choice(steps)()
        self.batches.clear()
        for transfer, _, _ in self.flights:
            if transfer is not None:
                try:
                    transfer.wait(1)
                except dma.Error:
                    self.spoil_all()
        self.queue.close(0.2)
        for memory in self.memory:
            try:
                self.check(memory, 0, bytes(memory.buffer))
            except BufferError:
                # A device that lost an operation may still write the bytes.
                assert any(transfer is None for transfer, _, _ in self.flights) or self.queue.counters.abandoned


# Calls whose effects the model does not follow.
HARMFUL = {"close", "release", "_notifier"}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", NAMES)
def test_random_programs(name, seed):
    Program(name, seed).run()
