"""Files into a device's own memory and out of it. `DMA_PYTHON_CUDA` names the folder of a stand-in for CUDA's driver."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import time

import pytest
from conftest import filled

import dma

folder = os.environ.get("DMA_PYTHON_CUDA", "")
ENGINES = ["cpu", "sim:device_memory=64M", *([f"cuda:lib={folder}"] if folder else [])]


class Setup:
    def __init__(self, name: str, **options: object) -> None:
        self.engine = dma.open(name)
        self.queue = self.engine.shared_queue()
        self.pool = self.engine.pool({16 << 10: 3})
        self.files = dma.files.DeviceFiles(self.queue, self.pool, **options)
        self.on_device = not name.startswith("cpu")

    def window(self, data: bytes) -> dma.Window:
        window = self.engine.allocate_window(len(data), device=self.on_device)
        self.queue.copy(filled(self.engine, data), window).wait()
        return window

    def bytes(self, window: dma.Window) -> bytes:
        back = self.engine.allocate(len(window))
        self.queue.copy(window, back).wait()
        return back.tobytes()


@pytest.fixture(params=ENGINES)
def setup(request: pytest.FixtureRequest) -> Setup:
    return Setup(request.param)


DATA = bytes(i * 11 % 251 for i in range(200_000))


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("method", [None, "threads"])
@pytest.mark.parametrize("direct", [False, True])
def test_read_and_save(name, method, direct, tmp_path):
    setup = Setup(name, method=method)
    assert setup.files.block_size == 16 << 10 and "16384" in repr(setup.files)
    (tmp_path / "in").write_bytes(DATA)
    try:
        file = dma.files.open(tmp_path / "in", direct=direct)
    except dma.Unsupported:
        pytest.skip("the file system has no direct access")
    window, buffer = setup.window(bytes(150_000)), setup.engine.allocate(1000)
    pieces = [(100, window), (160_001, buffer)]
    assert setup.files.read(file, pieces).wait() == 151_000
    assert setup.bytes(window) == DATA[100:150_100] and buffer.tobytes() == DATA[160_001:161_001]
    (tmp_path / "out").write_bytes(b"before")
    save = setup.files.save(tmp_path / "out", iter([(0, window), (151_000, buffer)]))
    assert save.wait() == 151_000
    expected = DATA[100:150_100] + bytes(1000) + DATA[160_001:161_001]
    assert (tmp_path / "out").read_bytes() == expected
    out = dma.files.open(tmp_path / "out", write=True)
    assert setup.files.write(out, [(5, buffer[:10])]).wait() == 10
    setup.files.sync(out).wait()
    assert (tmp_path / "out").read_bytes()[:15] == expected[:5] + DATA[160_001:160_011]
    assert setup.files.read(file, []).wait() == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]
    assert setup.pool.in_use == 0


def test_awaits_and_polls(setup, tmp_path):
    async def main() -> None:
        windows = [setup.window(bytes([i]) * (40_000 + i)) for i in range(6)]
        saves = [setup.files.save(tmp_path / str(i), [(0, windows[i])]) for i in range(6)]

        async def ended(save):
            return await save

        assert await asyncio.gather(*map(ended, saves)) == [40_000 + i for i in range(6)]
        for i in range(6):
            assert (tmp_path / str(i)).read_bytes() == bytes([i]) * (40_000 + i)

    asyncio.run(main())
    window = setup.window(DATA)
    save = setup.files.save(tmp_path / "polled", [(0, window)])
    while not save.done:
        pass
    assert save.wait() == len(DATA) == save.wait()
    for ended in dma.as_completed([setup.files.save(tmp_path / "again", [(0, window)])]):
        assert ended.wait(timeout=60) == len(DATA)


def test_wrong_pieces(setup, tmp_path):
    (tmp_path / "in").write_bytes(bytes(1000))
    file = dma.files.open(tmp_path / "in", write=True)
    window, buffer = setup.window(bytes(100)), setup.engine.allocate(100)
    other = dma.open("cpu").allocate(100)
    for pieces, kind in [
        ([(901, window)], dma.OutOfRange), ([(0, window), (500, window)], dma.Overlap), ([(0, other)], dma.WrongEngine),
        ([(1 << 64, window)], OverflowError), ([(-1, window)], OverflowError), ([((1 << 64) - 1, window)], ValueError),
        ([window], TypeError), ([(0, bytearray(5))], TypeError), (7, TypeError), ([(0, buffer.toreadonly())], BufferError),
    ]:  # fmt: skip
        with pytest.raises(kind):
            setup.files.read(file, pieces)
    with memoryview(buffer), pytest.raises(dma.InUse):
        setup.files.read(file, [(0, buffer)])
    with pytest.raises(dma.Overlap):
        setup.files.save(tmp_path / "out", [(0, window), (99, buffer)])
    with pytest.raises(FileNotFoundError):
        setup.files.save(tmp_path / "no" / "out", [(0, window)])
    for name in ("out\0", ""):
        with pytest.raises((ValueError, OSError)):
            setup.files.save(name, [(0, window)])
    with pytest.raises(ValueError):
        dma.files.DeviceFiles(setup.queue, setup.pool, method="magic")
    with pytest.raises(TypeError):
        dma.files.DeviceFiles(setup.engine.queue(), setup.pool)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    # Refused operations use no memory.
    buffer[0] = 1


def test_dropped_and_failed_transfers_leave_neither_file_nor_buffers(setup, tmp_path):
    buffer, own = setup.engine.allocate(len(DATA)), dma.files.open(__file__)

    def is_free(value: int) -> bool:
        try:
            buffer[0] = value
        except dma.InUse:
            return False
        return setup.pool.in_use == 0

    for polls in range(8):
        save = setup.files.save(tmp_path / "out", [(0, buffer)])
        for _ in range(polls):
            if save.done:
                break
        del save
        # A drop waits for at most a second. Later operations free what a slower transfer used.
        deadline = time.monotonic() + 60
        while not is_free(polls) and time.monotonic() < deadline:
            setup.files.read(own, []).wait()
        assert not [path.name for path in tmp_path.iterdir() if path.name != "out"]
        assert setup.pool.in_use == 0
        buffer[0] = polls
    with pytest.raises(dma.Error):
        full = dma.files.open("/dev/full", write=True)
        setup.files.write(full, [(0, buffer)]).wait()
    assert setup.pool.in_use == 0


def test_device_faults_are_retried(tmp_path):
    for seed in range(5):
        setup = Setup(f"sim:device_memory=64M,seed={seed},faults=fail:p=0.02+reset:p=0.01")
        buffer = setup.engine.allocate(len(DATA))
        buffer[:] = DATA
        dma.retry(lambda: setup.files.save(tmp_path / "out", [(0, buffer)]), attempts=99, faults=99)
        assert (tmp_path / "out").read_bytes() == DATA


@pytest.mark.parametrize("kept", [True, False])
def test_the_end_of_the_interpreter_leaves_no_partial_file(kept, tmp_path):
    program = f"""
        import dma
        engine = dma.open("sim:device_memory=64M,profile=bluefield3")
        files = dma.files.DeviceFiles(engine.shared_queue(), engine.pool({{4096: 2}}))
        save = files.save({str(tmp_path / "out")!r}, [(0, engine.allocate_window("8M", device=True))])
        save.done
        {"" if kept else "del save"}
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=120)
    assert not list(tmp_path.iterdir())
