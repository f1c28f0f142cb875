"""A short program for valgrind: views, operations, tensors, files, threads, awaits, errors. smoke.py"""

from __future__ import annotations

import asyncio
import threading

import dma


def main() -> None:
    for name in ("cpu", "sim:seed=3"):
        engine = dma.open(name)
        queue, shared = engine.queue(), engine.shared_queue()
        src, dst = engine.allocate(20_000), engine.allocate(20_000)
        src[:5] = b"hello"
        queue.copy(src, dst).wait()
        assert dst[:5].tobytes() == b"hello" and dst[0] == 104
        assert queue.crc32c(src).wait() == shared.copy_crc32c(src, dst).wait()
        queue.submit(dma.Batch([(src[:64], dst[64:128]), (src[64:128], dst[:64])])).wait()
        queue.copy(dma.Rows(src, [(0, 5), (100, 7)]), dst[:12]).wait()
        with memoryview(dst) as view:
            view[0] = 1
            try:
                queue.copy(src, dst)
            except dma.InUse as error:
                assert error.hint
        own = bytearray(5000)
        registered = engine.register(own)
        queue.fill(registered, 7).wait()
        assert own == bytes([7]) * 5000
        for version in (None, (1, 0)):
            capsule = src.__dlpack__(max_version=version)
            del capsule

        async def several() -> None:
            await asyncio.gather(*(shared.copy(src[i : i + 100], dst[i : i + 100]) for i in range(0, 3000, 100)))
            await queue.copy(src, dst)

        asyncio.run(several())
        workers = [threading.Thread(target=lambda: shared.copy(src, dst).wait()) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        pool = engine.pool({4096: 2})
        pool.get(100).release()
        queue.copy(src, dst)  # The transfer is dropped.
        registered.release()
        queue.close()
    try:
        dma.open("nothing")
    except dma.InvalidArgument as error:
        print(error.kind)


main()
