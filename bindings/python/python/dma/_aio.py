"""Awaits of transfers on asyncio (and uvloop)."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Generator
from typing import Any

# The bridges of each loop, by the identity of the queue. A bridge exists only while transfers are awaited.
_bridges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, _Bridge]] = weakref.WeakKeyDictionary()
# The loop in which a transfer is awaited, by its token.
_loops: dict[int, asyncio.AbstractEventLoop] = {}


class _Bridge:
    """Connects a queue with an event loop, while transfers of the queue are awaited."""

    def __init__(self, loop: asyncio.AbstractEventLoop, queue: Any) -> None:
        self.loop = loop
        self.queue = queue
        self.notifier = queue._notifier()
        self.waiting: dict[int, tuple[Any, list[asyncio.Future[None]]]] = {}
        loop.add_reader(self.notifier.fileno(), self._ended)
        self.driver = self.notifier.driver_fileno()
        if self.driver is not None:
            loop.add_reader(self.driver, self._drive)

    def wait(self, transfer: Any, token: int) -> asyncio.Future[None] | None:
        """Returns a future that ends with the transfer, or None if it has ended."""
        if self.notifier.watch(transfer):
            return None
        future = self.loop.create_future()
        _, futures = self.waiting.setdefault(token, (transfer, []))
        futures.append(future)
        if self.driver is not None:
            # Submits the operation and arms the descriptor. Ends the future if the device is fast.
            self._drive()
        return future

    def forget(self, token: int, future: asyncio.Future[None] | None) -> None:
        """Ends a wait, and the bridge with the last one."""
        entry = self.waiting.get(token)
        if entry is not None and future is not None:
            _, futures = entry
            futures[:] = [other for other in futures if other is not future]
            if not futures:
                del self.waiting[token]
        if not self.waiting:
            self.loop.remove_reader(self.notifier.fileno())
            if self.driver is not None:
                self.loop.remove_reader(self.driver)
                self.notifier.close()
            _bridges.get(self.loop, {}).pop(id(self.queue), None)

    def _drive(self) -> None:
        try:
            self.notifier.run()
            self.notifier.check()
        except Exception as error:
            self._fail(error)

    def _ended(self) -> None:
        tokens = self.notifier.take()
        try:
            for token in tokens:
                entry = self.waiting.get(token)
                if entry is not None and self.notifier.watch(entry[0]):
                    for future in self.waiting.pop(token)[1]:
                        if not future.done():
                            future.set_result(None)
            self.notifier.check()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        for _, futures in self.waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)


def pending(transfer: Any, queue: Any, token: int) -> Generator[Any, None, Any]:
    """Awaits a transfer that was not done when it was submitted."""
    if transfer.done:
        return transfer.wait()
    loop = asyncio.get_running_loop()
    if _loops.setdefault(token, loop) is not loop:
        raise RuntimeError("the transfer is awaited in another event loop; await it in one loop at a time")
    bridges = _bridges.setdefault(loop, {})
    bridge = bridges.get(id(queue))
    if bridge is None:
        bridge = bridges[id(queue)] = _Bridge(loop, queue)
    future = None
    try:
        future = bridge.wait(transfer, token)
        if future is not None:
            yield from future
    finally:
        bridge.forget(token, future)
        if token not in bridge.waiting:
            _loops.pop(token, None)
    return transfer.wait()
