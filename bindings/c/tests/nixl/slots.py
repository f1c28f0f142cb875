"""Compares the slots of agent.hpp with the table of NIXL's own plugin: slots.py libplugin_POSIX.so

The table's entries are relocations to named functions, so no headers are needed.
"""

import pathlib
import re
import subprocess
import sys

POINTER = 8
# In a virtual table, two words precede the first function.
HEAD = 2 * POINTER


def readelf(option, library):
    """Returns the words of each output line."""
    lines = subprocess.run(["readelf", "-W", option, library], capture_output=True, text=True, check=True).stdout
    return [line.split() for line in lines.splitlines()]


def table(library, name):
    """Returns the functions of a class's table, by their own names without class and arguments."""
    start, size = next(
        (int(words[1], 16), int(words[2], 0))
        for words in readelf("--dyn-syms", library)
        if len(words) >= 8 and words[7].split("@")[0] == name and words[6] != "UND"
    )
    targets = {int(words[0], 16): words[4] for words in readelf("-r", library) if len(words) > 4 and words[0].isalnum()
               and re.fullmatch("[0-9a-f]{12,16}", words[0])}
    symbols = [targets[start + at] for at in range(HEAD, size, POINTER)]
    plain = subprocess.run(["c++filt", *symbols], capture_output=True, text=True, check=True).stdout
    return [re.sub(r"\(.*", "", line).split("::")[-1] for line in plain.splitlines()]


def main(library):
    source = pathlib.Path(__file__).with_name("agent.hpp").read_text()
    names = re.search(r"enum Slot \{\n(.*?)\n\};", source, re.DOTALL).group(1)
    slots = {int(number): name.rstrip("_") for name, number in re.findall(r"(\w+) = (\d+),", names)}
    found = table(library, "_ZTV15nixlPosixEngine")
    assert sorted(slots) == list(range(len(found))), f"{len(found)} slots: {found}"
    for slot, name in enumerate(found):
        expected = "~nixlPosixEngine" if "estructor" in slots[slot] else slots[slot]
        assert name == expected, f"slot {slot} is {name}, not {expected}"
    print(f"{len(found)} slots are as declared")


if __name__ == "__main__":
    main(sys.argv[1])
