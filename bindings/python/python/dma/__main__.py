"""python -m dma list | doctor [NAME...] | bench [-e NAME] [SIZE...]"""

from __future__ import annotations

import argparse
import os
import sys
import timeit
from typing import Optional

import dma


def _list() -> int:
    for found in dma.discover():
        if found.info is None:
            print(f"{found.name}: {found.error}")
            continue
        info = found.info
        names = ", ".join(sorted(info["capabilities"]))
        print(f"{found.name}: {info['device']}, version {info['version']}; {names}")
    return 0


def _doctor(names: list[str]) -> int:
    diagnoses = dma.doctor(*names)
    for diagnosis in diagnoses:
        print(f"{diagnosis.name}: {'usable' if diagnosis.usable else 'not usable'}")
        for finding in diagnosis.findings:
            remedy = f"\n      {finding.fix}" if finding.fix else ""
            print(f"  {finding.verdict:7} {finding.what}: {finding.found}{remedy}")
    return 0 if any(diagnosis.usable for diagnosis in diagnoses) else 1


def _best(statement: str, names: dict[str, object]) -> float:
    """Returns the shortest time of a statement, in seconds, of 7 runs of about 20 ms each."""
    timer = timeit.Timer(statement, globals=names)
    number = 1
    while timer.timeit(number) < 0.005:
        number *= 2
    return min(timer.repeat(repeat=7, number=number * 4)) / (number * 4)


def _bench(name: str, sizes: list[int]) -> int:
    engine = dma.open(name)
    queue = engine.queue()
    print(f"{name}: best of 7 runs; memoryview is the assignment of a slice in one thread")
    print(f"{'bytes':>12} {'copy().wait()':>15} {'memoryview':>15} {'ratio':>7}")
    for size in sizes:
        src, dst = engine.allocate(size), engine.allocate(size)
        a, b = memoryview(bytearray(size)), memoryview(bytearray(size))
        ours = _best("queue.copy(src, dst).wait()", {"queue": queue, "src": src, "dst": dst})
        theirs = _best("b[:] = a", {"a": a, "b": b})
        print(f"{size:12} {ours * 1e9:12.0f} ns {theirs * 1e9:12.0f} ns {ours / theirs:7.2f}")
    return 0


def main(arguments: Optional[list[str]] = None) -> int:
    """Runs the command line, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dma", description="Engines of this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="lists the engines, with their capabilities")
    doctor = commands.add_parser("doctor", help="says why engines cannot be used, and names the remedies")
    doctor.add_argument("names", nargs="*", metavar="NAME", help="backends; all if none is given")
    bench = commands.add_parser("bench", help="times copies beside assignments of memoryview")
    bench.add_argument("-e", "--engine", default="auto", metavar="NAME")
    bench.add_argument("sizes", nargs="*", type=int, default=[64, 4096, 65536, 1 << 20, 1 << 26], metavar="BYTES")
    given = parser.parse_args(arguments)
    try:
        if given.command == "list":
            return _list()
        if given.command == "doctor":
            return _doctor(given.names)
        return _bench(given.engine, given.sizes)
    except dma.Error as error:
        print(f"python -m dma: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader, such as `head`, has ended. The interpreter's end must not write to it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main())
