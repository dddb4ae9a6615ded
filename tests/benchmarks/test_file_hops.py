"""Calls that cross from file to file are counted where both are ours."""

import importlib
import re
import sys
from pathlib import Path

import file_hops
import pytest

PARTS = {
    "hops_first": "import hops_second\ndef begin():\n    own()\n    return [hops_second.go(own) for _ in range(2)]\n"
    "def own():\n    pass\n",
    "hops_second": "from functools import partial\ndef go(back):\n    sorted([1, 2], key=partial(key, back))\n"
    "def key(back, number):\n    back()\n    return number\n",
}


def test_only_calls_from_one_file_of_ours_to_another_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, program in PARTS.items():
        (tmp_path / f"{name}.py").write_text(program, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(file_hops, "PACKAGE", str(tmp_path))
    first, second = (str(tmp_path / f"{name}.py") for name in PARTS)
    found = file_hops.hops_of(importlib.import_module("hops_first").begin)
    # Twice into the second file; each time its key calls back for two numbers. Calls within a file are no hops.
    assert found == {(first, second): 2, (second, first): 4}
    assert file_hops.hops_of(lambda: re.compile("no file of ours")) == {}
    assert sys.getprofile() is None
