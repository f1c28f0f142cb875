"""A program that mypy and pyright accept in strict mode. It is only checked, not run."""

from __future__ import annotations

import asyncio
import mmap
from typing import assert_type

import numpy

import dma
import dma.files
import dma.testing


async def main() -> None:
    engine = dma.open("auto")
    queue, shared = engine.queue(depth=8, hint="cold"), engine.shared_queue(lanes=2)
    src, dst = engine.allocate("64K"), engine.allocate(65536, node=0)
    assert_type(src[0], int)
    assert_type(src[1:5], dma.Buffer)
    assert_type(await queue.copy(src, dst), None)
    assert_type(queue.crc32c([src[:5], src[5:]]).wait(timeout=1.0), int)
    assert_type(await shared.compare(src, dst), int | None)
    assert_type(queue.copy_crc32c(dma.Rows(src, [(0, 5)]), dst[:5], seed=7).wait(), int)
    queue.submit(dma.Batch([(src, dst)])).wait()
    queue.fill(dst, b"12345678").wait()
    src[:5] = b"hello"
    src[:5] = numpy.zeros(5, "u1")
    assert_type(engine.register(bytearray(5)), dma.Buffer)
    assert_type(engine.register(mmap.mmap(-1, 5)), dma.Buffer)
    assert_type(engine.register(numpy.zeros(5)), dma.Buffer)
    with memoryview(src) as view:
        assert_type(view[0], int)
    pool = engine.pool({"4K": 8, 65536: 1}, max={"4K": 16})
    assert_type(pool.get(100, timeout=1), dma.Buffer)
    window = engine.allocate_window(4096, export="rw")
    with window.export("r") as export:
        assert_type(engine.import_window(export.descriptor), dma.Window)
    assert_type(window.__dlpack_device__(), tuple[int, int])
    assert_type(dma.nixl_plugin_dir(), str)
    files = dma.files.Queue(pools=[pool])
    assert_type(await files.read(dma.files.open("path"), 0, dst), int)
    device_files = dma.files.DeviceFiles(shared, pool)
    assert_type(await device_files.read(dma.files.open("path"), [(0, window), (4096, dst)]), int)
    assert_type(device_files.save("path", [(0, window)]).wait(), int)
    assert_type(dma.retry(lambda: queue.crc32c(src)), int)
    for transfer in dma.as_completed([queue.copy(src, dst)]):
        transfer.wait()
    try:
        queue.copy(src, dst)
    except dma.QueueFull as error:
        assert_type(error.hint, str)
    assert_type(queue.counters.completed, int)
    assert_type(engine.info["limits"]["max_queues"], int | None)
    for faulty in dma.testing.faulty_engines(range(3)):
        assert_type(faulty, dma.Engine)


asyncio.run(main())
