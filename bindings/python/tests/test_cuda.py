"""A GPU's memory, beside other libraries. `DMA_PYTHON_CUDA` names the folder of a stand-in for CUDA's driver, of two devices."""

from __future__ import annotations

import gc
import os
import weakref

import numpy
import pytest
from conftest import filled

import dma

folder = os.environ.get("DMA_PYTHON_CUDA", "")
pytestmark = pytest.mark.skipif(not folder, reason="needs a stand-in for CUDA's driver")


class Tensor:
    """A tensor of another library: DLPack alone."""

    def __init__(self, of):
        self.of = of

    def __dlpack__(self, **keywords):
        return self.of.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.of.__dlpack_device__()


class Array:
    """An array of another library: CUDA's array interface alone."""

    def __init__(self, of, **changes):
        self.of = of
        self.__cuda_array_interface__ = of.__cuda_array_interface__ | changes


def opened(device: str = "") -> dma.Engine:
    return dma.open(f"cuda:{device}{',' if device else ''}lib={folder}")


@pytest.mark.parametrize("number", [0, 1])
def test_the_device_of_dlpack(number):
    engine = opened(str(number))
    by_address = opened(engine.info["device"].split()[-1])
    for engine in (engine, by_address):
        window = engine.allocate_window(4096, device=True)
        assert window.__dlpack_device__() == (2, number)
    assert opened().allocate_window(10, device=True).__dlpack_device__() == (2, 0)
    assert dma.open(f"verify+cuda:{number},lib={folder}").allocate_window(10, device=True).__dlpack_device__()[1] == number


@pytest.mark.parametrize("foreign", [Tensor, Array])
def test_memory_of_other_libraries(foreign):
    engine = opened()
    queue = engine.queue()
    data = os.urandom(4096)
    own = engine.allocate_window(4096, device=True)
    queue.copy(filled(engine, data), own).wait()
    owner = foreign(own[96:])
    alive = weakref.ref(owner)
    registered = engine.register(owner)
    assert isinstance(registered, dma.Window) and (len(registered), registered.host) == (4000, False)
    back = engine.allocate(4000)
    queue.copy(registered, back).wait()
    assert back.tobytes() == data[96:]
    queue.copy(filled(engine, bytes(4000)), registered).wait()
    queue.copy(own, both := engine.allocate(4096)).wait()
    assert both.tobytes() == data[:96] + bytes(4000)
    del owner
    gc.collect()
    # CUDA's array interface is kept by the object, a tensor by itself.
    assert (alive() is not None) == (foreign is Array)
    del registered
    gc.collect()
    assert alive() is None


def test_unfit_memory_of_devices():
    engine, other, host = opened("0"), opened("1"), dma.open("cpu")
    window = engine.allocate_window(4096, device=True)
    for wrong in (host, other):
        with pytest.raises(dma.Unsupported):
            wrong.register(Tensor(window))
    with pytest.raises(dma.Unsupported):
        host.register(Array(window))
    with pytest.raises(ValueError, match="adjacent"):
        engine.register(Array(window, strides=(2,)))
    with pytest.raises(TypeError, match="registered memory"):
        host.register(host.allocate_window(10))
    for keywords in ({"copy": True}, {"dl_device": (1, 0)}, {"dl_device": (2, 1)}):
        with pytest.raises(BufferError):
            window.__dlpack__(**keywords)
    window.__dlpack__(stream=1, max_version=(1, 0), dl_device=(2, 0), copy=False)
    with pytest.raises((BufferError, RuntimeError, ValueError)):
        numpy.from_dlpack(window)

    class Liar(Tensor):
        def __dlpack_device__(self):
            return (1, 0)

    with pytest.raises(ValueError, match="another device"):
        host.register(Liar(window))
    for outside in (host.allocate_window(10), engine.allocate_window(10)):
        for use in (outside.__dlpack__, outside.__dlpack_device__):
            with pytest.raises(BufferError, match="not memory of a GPU"):
                use()
    window.release()
    with pytest.raises(ValueError, match="released"):
        window.__dlpack__()


def test_no_byte_is_registered_twice_and_objects_share_pages():
    engine = opened()
    queue = engine.queue()
    # Small objects lie beside each other in a page, which the driver pins for each of them.
    table = numpy.zeros(64 * 100, "u1")
    parts = [engine.register(table[i * 100 : (i + 1) * 100]) for i in range(64)]
    for number, part in enumerate(parts):
        queue.fill(part, number).wait()
    assert (table.reshape(64, 100) == numpy.arange(64)[:, None]).all()
    for again in (table, table[50:150], table[:1]):
        with pytest.raises(BufferError) as caught:
            engine.register(again)
        assert isinstance(caught.value, dma.InUse) and "register it once" in caught.value.hint
    del parts, part, caught
    gc.collect()
    engine.register(table)


def test_a_tensor_keeps_the_memory():
    engine = opened()
    queue = engine.queue()
    window = engine.allocate_window(1000, device=True)
    queue.copy(filled(engine, b"k" * 1000), window).wait()
    capsules = [window.__dlpack__(), window.__dlpack__(max_version=(1, 0))]
    window.release()
    del window
    gc.collect()

    class Kept(Tensor):
        def __dlpack__(self, **_):
            return self.of

        def __dlpack_device__(self):
            return (2, 0)

    out = engine.allocate(1000)
    for capsule in capsules:
        queue.copy(engine.register(Kept(capsule)), out).wait()
        assert out.tobytes() == b"k" * 1000
        queue.fill(out, 0).wait()
