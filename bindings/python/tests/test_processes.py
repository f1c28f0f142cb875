"""Forks, other processes, and the end of the interpreter."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap

import pytest

import dma

LIMIT = 600  # seconds, against hangs


def run(program: str, *options: str, status: int = 0) -> str:
    """Runs a program, and returns its output."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", *options, "-c", textwrap.dedent(program)],
        capture_output=True, text=True, timeout=LIMIT,
    )  # fmt: skip
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    assert "Fatal" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["queue", "shared_queue"])
@pytest.mark.parametrize("name", ["cpu", "sim", "sim:faults=stick@2"])
def test_the_interpreter_ends_with_copies_in_flight(name, kind):
    print(
        run(f"""
            import dma
            engine = dma.open("{name}")
            queue = engine.{kind}(drop_timeout=0.1)
            source = engine.register(bytearray(1 << 20))
            pairs = [(source, engine.register(bytearray(1 << 20))) for _ in range(20)]
            transfers = [queue.copy(*pair) for pair in pairs]
            view = memoryview(engine.allocate(100))
            loop = [queue, transfers]
            loop.append(loop)
            print("ended")
        """)
    )


def test_the_interpreter_ends_while_a_daemon_waits():
    run("""
        import dma, threading
        engine = dma.open("sim:faults=stick@1")
        queue = engine.shared_queue(drop_timeout=0)
        transfer = queue.copy(engine.allocate(10), engine.allocate(10))
        threading.Thread(target=transfer.wait, daemon=True).start()
    """)


def test_a_forked_child_opens_its_own_engine():
    program = """
        import dma, os
        engine = dma.open("{name}")
        queues = engine.queue(), engine.shared_queue()
        src, dst = engine.allocate(100_000), engine.allocate(100_000)
        src[:1] = b"x"
        transfers = [queue.copy(src, dst) for queue in queues]
        child = os.fork()
        if not child:
            for queue in queues:
                for use in (lambda: queue.copy(src, dst), lambda: engine.queue(), lambda: engine.allocate(1)):
                    try:
                        use()
                        os._exit(2)
                    except dma.Unsupported as error:
                        assert isinstance(error, NotImplementedError)
            del transfers, queues, queue
            own = dma.open("{name}")
            a, b = own.allocate(10), own.allocate(10)
            a[:] = b"0123456789"
            own.queue().copy(a, b).wait()
            os._exit(0 if b.tobytes() == b"0123456789" else 3)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        for transfer in transfers:
            transfer.wait()
        assert dst[0] == 120
    """
    for name in ("cpu", "sim"):
        run(program.format(name=name), "-W", "ignore")


def work(number: int) -> bytes:
    engine = dma.open("cpu")
    src, dst = engine.allocate(1000), engine.allocate(1000)
    src[:] = bytes([number]) * 1000
    engine.shared_queue().copy(src, dst).wait()
    return dst.tobytes()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_multiprocessing(method):
    engine = dma.open("cpu")
    queue = engine.shared_queue()
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(work, range(4)) == [bytes([number]) * 1000 for number in range(4)]
    queue.copy(engine.allocate(5), engine.allocate(5)).wait()


def test_two_processes_share_a_window():
    engine = dma.open("cpu")
    window = engine.allocate_window(4096, export="rw")
    with window.export() as export:
        run(f"""
            import dma
            engine = dma.open("cpu")
            there = engine.import_window(bytes.fromhex("{export.descriptor.hex()}"))
            here = engine.allocate(4096)
            here[:5] = b"child"
            engine.queue().copy(here, there).wait()
        """)
        assert window.read(0, 5) == b"child"


def test_a_second_interpreter_is_refused():
    run("""
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        import dma
        other = interpreters.create()
        source = "import sys\\ntry:\\n import dma\\nexcept ImportError: pass\\nelse: raise SystemExit('imported')"
        run = getattr(interpreters, "exec", None) or interpreters.run_string
        failed = run(other, source)
        assert not failed, failed
    """)


def test_the_command_line():
    def command(*arguments: str, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "dma", *arguments], capture_output=True, text=True, timeout=LIMIT
        )  # fmt: skip
        assert done.returncode == status, (done.stdout, done.stderr)
        return done.stdout + done.stderr

    assert "cpu:" in command("list")
    assert "cpu: usable" in command("doctor", "cpu")
    assert "did you mean `cpu`" in command("doctor", "cpuu", status=1)
    assert "memoryview" in command("bench", "-e", "cpu", "64")
    assert command("bench", "-e", "nothing", status=1)


def test_the_command_line_ends_with_its_reader():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "dma", "list"], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=LIMIT
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_the_nixl_plugin_is_found_or_refused_with_the_remedy():
    try:
        assert os.listdir(dma.nixl_plugin_dir()) == ["libplugin_DMA.so"]
    except dma.NotFound as error:
        assert isinstance(error, FileNotFoundError) and "bindings/python/wheel" in str(error)


def test_plugin_runs_tests_over_seeds(pytester):
    pytester.makepyfile(
        """
        import pytest, dma

        def test_default(dma_faulty_engine):
            assert dma_faulty_engine.name.startswith("sim:seed=")

        @pytest.mark.dma_faults("sim:profile=bluefield3", faults="fail@1", seeds=range(3))
        def test_chosen(dma_faulty_engine):
            queue = dma_faulty_engine.queue()
            with pytest.raises(dma.DeviceFault):
                queue.copy(dma_faulty_engine.allocate(9000), dma_faulty_engine.allocate(9000)).wait()
        """
    )
    result = pytester.runpytest("-p", "dma.testing") if not installed() else pytester.runpytest()
    result.assert_outcomes(passed=23)


def installed() -> bool:
    from importlib.metadata import entry_points

    return any(point.name == "dma" for point in entry_points(group="pytest11"))


def test_environment_is_left_alone():
    before = os.environ.copy()
    dma.open("auto").queue()
    assert os.environ == before
