"""Hardware memory copies: NVIDIA BlueField, Intel I/OAT and DSA, RDMA NICs, GPUs, the processor, and a simulated device
with faults, behind one interface.

    engine = dma.open("auto")
    queue = engine.queue()
    src, dst = engine.allocate(1 << 20), engine.allocate(1 << 20)
    src[:5] = b"hello"
    queue.copy(src, dst).wait()
    assert dst[:5].tobytes() == b"hello"
"""

from __future__ import annotations

import atexit as _atexit
import errno as _errno
import os as _os
import time as _time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Optional, TypeVar

from . import _dma, _errors, _types, files
from ._dma import Batch, Buffer, Engine, Export, Pool, Queue, Rows, SharedQueue, Transfer, Window, open
from ._errors import *  # noqa: F403
from ._errors import Error, TimedOut
from ._types import Backend, Counters, Diagnosis, Discovered, EngineInfo, Finding, Limits, Option

__version__: str = _dma.__version__
__all__ = [
    "Backend", "Batch", "Buffer", "Counters", "Diagnosis", "Discovered", "Engine", "EngineInfo", "Export", "Finding",
    "Limits", "Option", "Pool", "Queue", "Rows", "SharedQueue", "Transfer", "Window", "as_completed", "backends",
    "discover", "doctor", "files", "nixl_plugin_dir", "open", "retry",
]  # fmt: skip
__all__ += _errors.__all__

_Result = TypeVar("_Result")


def discover() -> list[Discovered]:
    """Lists the engines of this machine. Opens each of them for a moment."""
    return [_types.discovered(entry) for entry in _dma.discover()]


def doctor(*names: str) -> list[Diagnosis]:
    """Says for each named backend, or for all, whether it can be used here, and names the remedies.

    Raises:
        dma.InvalidArgument (a ValueError): no backend has the name.
    """
    return [_types.diagnosis(entry) for entry in _dma.doctor(list(names))]


def backends() -> list[Backend]:
    """Lists the backends of this build, with the options of their names."""
    return [_types.backend(entry) for entry in _dma.backends()]


def nixl_plugin_dir() -> str:
    """Returns the directory of the NIXL plugin, which has the backend "DMA". One line makes NIXL find it, before the process
    creates its first agent:

        os.environ["NIXL_PLUGIN_DIR"] = dma.nixl_plugin_dir()

    Raises:
        dma.NotFound (a FileNotFoundError): the package was built without the plugin.
    """
    directory = _os.path.join(_os.path.dirname(__file__), "nixl")
    if not _os.path.exists(_os.path.join(directory, "libplugin_DMA.so")):
        hint = "install a wheel of bindings/python/wheel, or build the plugin: bindings/c/nixl/install DIR"
        message = f"not found: the NIXL plugin, because this package was built without it; {hint}"
        raise _errors.make(message, {"kind": "NotFound", "hint": hint, "errno": _errno.ENOENT})
    return directory


def as_completed(transfers: Iterable[Transfer[Any]], timeout: Optional[float] = None) -> Iterator[Transfer[Any]]:
    """Yields transfers in the order in which they end. wait() of a yielded transfer returns at once.

    Args:
        timeout: seconds for all of them together.

    Raises:
        dma.TimedOut (a TimeoutError): the time has passed. The transfers are still in flight.
    """
    waiting = list(transfers)
    deadline = None if timeout is None else _time.monotonic() + timeout
    while waiting:
        ended = [transfer for transfer in waiting if transfer.done]
        yield from ended
        waiting = [transfer for transfer in waiting if not any(transfer is other for other in ended)]
        if waiting and not ended:
            left = None if deadline is None else deadline - _time.monotonic()
            try:
                # Another one may end first, so the wait for one of them is short.
                waiting[0].wait(0.001 if left is None else max(0.0, min(left, 0.001)))
            except TimedOut:
                if left is not None and left <= 0:
                    raise
            except Error:
                pass  # The program gets it from the transfer.


def retry(
    submit: Callable[[], Transfer[_Result]], *, attempts: int = 10, faults: int = 3, delay: float = 0.001
) -> _Result:
    """Submits an operation by `submit`, waits for it, and repeats it as its error advises (Error.retry).

    Args:
        submit: returns a transfer, such as lambda: queue.copy(src, dst).
        attempts: the maximum number of attempts.
        faults: the maximum number of retries after faults of the device.
        delay: the first delay in seconds of retries that need time. It doubles each time, up to 1 s.

    Raises:
        The last attempt's error.
    """
    while True:
        attempts -= 1
        try:
            return submit().wait()
        except Error as error:
            faults -= error.retry == "few times"
            if attempts <= 0 or faults < 0 or error.retry == "never" or isinstance(error, TimedOut):
                raise
            if error.retry in ("later", "after progress"):
                _time.sleep(delay)
                delay = min(2 * delay, 1.0)


# At the interpreter's end, copies in flight end before the memory of Python's objects goes.
_atexit.register(_dma.close_all)
