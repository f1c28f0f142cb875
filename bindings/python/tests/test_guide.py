"""The blocks of docs/python.md run, each by itself."""

from __future__ import annotations

import os
import pathlib
import re

import pytest

GUIDE = pathlib.Path(os.environ.get("DMA_PYTHON_GUIDE", pathlib.Path(__file__).parents[3] / "docs/python.md"))
BLOCKS = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_guide_has_blocks():
    assert len(BLOCKS) >= 10


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[number], f"block {number} of {GUIDE.name}", "exec"), {"__name__": "guide"})
