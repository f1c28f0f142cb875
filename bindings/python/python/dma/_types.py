"""Named tuples that the package returns."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, TypedDict


class Counters(NamedTuple):
    """Counts of a queue's operations so far. Each copy of a batch counts."""

    submitted: int
    completed: int
    failed: int
    aborted: int
    abandoned: int
    in_flight: int
    bytes: int
    full: int
    descriptors: int
    doorbells: int
    polls: int
    resets: int


class Limits(TypedDict):
    """Limits of an engine, in bytes or operations. None: only memory limits it."""

    max_transfer: int
    max_segments: int
    max_queue_depth: int
    default_queue_depth: int
    max_queues: Optional[int]
    register_alignment: int
    preferred_alignment: int


class EngineInfo(TypedDict):
    """Description of an engine."""

    backend: str
    device: str
    version: str
    model: Optional[str]
    numa_node: Optional[int]
    capabilities: frozenset[str]
    limits: Limits


class Discovered(NamedTuple):
    """An engine of this machine: its name for dma.open(), and its description, or the error of opening it."""

    name: str
    info: Optional[EngineInfo]
    error: Optional[Exception]


class Finding(NamedTuple):
    """A check of a backend: verdict is "ok", "warning" or "bad", fix is the remedy or empty."""

    what: str
    verdict: str
    found: str
    fix: str


class Diagnosis(NamedTuple):
    """The diagnosis of a backend."""

    name: str
    hardware: bool
    usable: bool
    findings: tuple[Finding, ...]


class Option(NamedTuple):
    """An option of engine names, such as threads=2 of cpu."""

    key: str
    value: str
    default: str
    about: str


class Backend(NamedTuple):
    """A backend, whose name begins engine names."""

    name: str
    about: str
    hardware: bool
    options: tuple[Option, ...]


def discovered(entry: dict[str, Any]) -> Discovered:
    return Discovered(entry["name"], entry["info"], entry["error"])


def diagnosis(entry: dict[str, Any]) -> Diagnosis:
    findings = tuple(Finding(*finding) for finding in entry["findings"])
    return Diagnosis(entry["name"], entry["hardware"], entry["usable"], findings)


def backend(entry: dict[str, Any]) -> Backend:
    options = tuple(Option(*option) for option in entry["options"])
    return Backend(entry["name"], entry["about"], entry["hardware"], options)
