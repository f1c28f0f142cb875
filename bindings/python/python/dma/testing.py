"""Tests of your own code against a device that fails: a pytest plugin.

The fixture `dma_faulty_engine` runs a test once for each seed of a simulated device with faults, which the seed reproduces:

    def test_upload(dma_faulty_engine):
        queue = dma_faulty_engine.queue()
        ...

    @pytest.mark.dma_faults("sim:profile=bluefield3", faults="lose:p=0.01", seeds=range(100))
    def test_download(dma_faulty_engine): ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import dma

if TYPE_CHECKING:
    import pytest

__all__ = ["FAULTS", "SEEDS", "dma_faulty_engine", "faulty_engine", "faulty_engines"]

FAULTS = "reset:p=0.05+fail:p=0.05+refuse:p=0.02"
"""Faults of the fixture unless a test chooses others: resets, failed operations, refused submissions."""

SEEDS = range(20)
"""Seeds of the fixture unless a test chooses others."""


def faulty_engine(seed: int, faults: str = FAULTS, name: str = "sim") -> dma.Engine:
    """Opens a simulated device with faults. `name` is an engine name of sim, such as "sim:profile=bluefield3"."""
    return dma.open(f"{name}{',' if ':' in name else ':'}seed={seed},faults={faults}")


def faulty_engines(seeds: Iterable[int] = SEEDS, faults: str = FAULTS, name: str = "sim") -> Iterator[dma.Engine]:
    """Opens a simulated device with faults for each seed."""
    return (faulty_engine(seed, faults, name) for seed in seeds)


try:
    import pytest
except ImportError:  # The functions above need no pytest.
    pass
else:

    def pytest_configure(config: pytest.Config) -> None:
        config.addinivalue_line(
            "markers", "dma_faults(name='sim', *, faults, seeds): the device, faults and seeds of dma_faulty_engine"
        )

    def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
        if "dma_faulty_engine" not in metafunc.fixturenames:
            return
        marker = metafunc.definition.get_closest_marker("dma_faults")
        given: dict[str, Any] = dict(marker.kwargs) if marker else {}
        name = marker.args[0] if marker and marker.args else "sim"
        faults = given.get("faults", FAULTS)
        cases = [(seed, faults, name) for seed in given.get("seeds", SEEDS)]
        ids = [f"seed={seed}" for seed, _, _ in cases]
        metafunc.parametrize("dma_faulty_engine", cases, ids=ids, indirect=True)

    @pytest.fixture
    def dma_faulty_engine(request: pytest.FixtureRequest) -> dma.Engine:
        """A simulated device with faults, once for each seed."""
        seed, faults, name = request.param
        return faulty_engine(seed, faults, name)
