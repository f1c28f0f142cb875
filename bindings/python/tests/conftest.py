"""Engines of the tests. `DMA_PYTHON_ENGINES` of ci/python.sh adds engines on stand-ins, one in a line."""

from __future__ import annotations

import os

import pytest

import dma

pytest_plugins = ["pytester"]

ENGINES = ["cpu", "auto", "verify+cpu", "meter+cpu", "cpu:inline=0", "sim", "sim:profile=bluefield3", "verify+sim"]
ENGINES += os.environ.get("DMA_PYTHON_ENGINES", "").splitlines()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> dma.Engine:
    return dma.open(request.param)


@pytest.fixture(params=["queue", "shared_queue"])
def queue(engine: dma.Engine, request: pytest.FixtureRequest) -> dma.Queue | dma.SharedQueue:
    return getattr(engine, request.param)()


@pytest.fixture
def stuck() -> tuple[dma.Engine, dma.Queue]:
    """A device that never ends an operation, until its queue is closed."""
    engine = dma.open("sim:faults=stick@1")
    return engine, engine.queue(drop_timeout=0)


def filled(engine: dma.Engine, data: bytes) -> dma.Buffer:
    """A buffer with these bytes."""
    buffer = engine.allocate(len(data))
    buffer[:] = data
    return buffer
