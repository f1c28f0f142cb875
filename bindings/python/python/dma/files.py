"""Files into and from registered memory, by io_uring or threads.

    files = dma.files.Queue()
    file = dma.files.open("data.bin")
    buffer = engine.allocate("1M")
    length = files.read(file, 0, buffer).wait()

DeviceFiles reads files into a device's own memory, such as a GPU's, and saves them from there.
"""

from __future__ import annotations

from ._dma import DeviceFiles, File
from ._dma import File as open
from ._dma import FileQueue as Queue

__all__ = ["DeviceFiles", "File", "Queue", "open"]
