"""Exceptions of the package: one class for each kind of error, each also a fitting built-in exception."""

from __future__ import annotations

from typing import Any, Optional

__all__ = [
    "Aborted", "AccessDenied", "Closed", "DeviceFault", "DeviceLost", "Error", "InUse", "InvalidArgument",
    "LengthMismatch", "Malformed", "MissingSdk", "NotFound", "OsError", "OutOfMemory", "OutOfRange",
    "OutOfResources", "Overlap", "PermissionDenied", "QueueFull", "Revoked", "TimedOut", "Unsupported",
    "VersionMismatch", "WrongEngine",
]  # fmt: skip


class Error(Exception):
    """An error of an engine, a queue or memory. str(error) has all details in one line.

    Attributes:
        kind: the category, such as "QueueFull". The class of the error has the same name.
        retry: whether the same request can succeed: "never", "now", "few times", "after progress" or "later".
        hint: the remedy, or an empty text.
        operation: the operation that failed, or an empty text.
        backend: the backend, or an empty text.
        requested, limit: the requested number and its limit, or None.
        native: the code, name and description of the vendor's library or the device, or None.
        failed: the numbers of the copies of a batch that failed.
    """

    kind: str = ""
    retry: str = "never"
    hint: str = ""
    operation: str = ""
    backend: str = ""
    requested: Optional[int] = None
    limit: Optional[int] = None
    native: Optional[tuple[int, str, str]] = None
    failed: tuple[int, ...] = ()

    def __str__(self) -> str:
        return str(self.args[-1]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return (_remake, (type(self), self.args, dict(self.__dict__)))


def _remake(kind: type[Error], args: tuple[Any, ...], details: dict[str, Any]) -> Error:
    error = kind(*args)
    error.__dict__.update(details)
    return error


class InvalidArgument(Error, ValueError):
    """An argument is invalid by itself."""


class OutOfRange(Error, ValueError):
    """A range exceeds its memory, or a number exceeds what the engine allows."""


class LengthMismatch(Error, ValueError):
    """Source and destination differ in length."""


class Overlap(Error, ValueError):
    """Source and destination overlap, or two parts of the destination."""


class WrongEngine(Error, ValueError):
    """The memory and the queue belong to different engines."""


class Malformed(Error, ValueError):
    """The bytes are not a valid descriptor."""


class VersionMismatch(Error, ValueError):
    """The library does not support the version."""


class Closed(Error, ValueError):
    """The queue is closed, or the memory was released."""


class AccessDenied(Error, BufferError):
    """The memory does not grant the right that the operation needs, such as a read-only destination."""


class InUse(Error, BufferError):
    """A view or an operation in flight uses the memory, or another thread the queue."""


class Unsupported(Error, NotImplementedError):
    """The engine does not have this capability."""


class QueueFull(Error):
    """The queue is full: wait for a transfer, or call wait_for_room()."""


class OutOfMemory(Error, MemoryError):
    """Memory of the host or the device is exhausted."""


class OutOfResources(Error):
    """Queues, channels or another countable resource are exhausted."""


class NotFound(Error, FileNotFoundError):
    """The engine, device, file or export does not exist."""


class MissingSdk(Error, FileNotFoundError):
    """A vendor's library or driver is not installed."""


class PermissionDenied(Error, PermissionError):
    """The system refuses the request, because of privileges, the limit of locked memory, or rights of device files."""


class TimedOut(Error, TimeoutError):
    """The time of a wait has passed, or the device has stalled. The operation may still be in flight."""


class DeviceFault(Error):
    """The device reported a failure that the request did not cause. The destination is undefined."""


class Aborted(Error):
    """The operation ended before it was complete. The destination is undefined; submitting again is safe."""


class DeviceLost(Error):
    """The device is lost and does not recover."""


class Revoked(Error, ConnectionResetError):
    """The peer has revoked the export, or has exited."""


class OsError(Error, OSError):
    """A system call failed. errno has the reason."""


_KINDS: dict[str, type[Error]] = {kind.__name__: kind for kind in Error.__subclasses__()}
_KINDS["Os"] = OsError


def make(message: str, details: dict[str, Any]) -> Error:
    """Makes the exception of an error of the native part."""
    kind = _KINDS.get(details["kind"], Error)
    errno = details.pop("errno")
    error = kind(errno, message) if errno is not None and issubclass(kind, OSError) else kind(message)
    error.__dict__.update(details)
    return error
