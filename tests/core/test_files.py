"""Files are whole or absent: what a failed write leaves behind, strict JSON, and hashes."""

import hashlib
import json
import math
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from counterpoint.core import files
from counterpoint.core.errors import RunError
from counterpoint.core.files import (
    read_json,
    remove_leftovers,
    temporary_sibling,
    write_atomically,
    write_file,
    write_json,
    write_text,
)
from refusals import refused


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_write_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "first Grüße\n")
    assert path.read_bytes() == "first Grüße\n".encode()
    write_text(path, "second")
    assert path.read_bytes() == b"second"
    assert names_in(tmp_path) == ["a.txt"]


def test_the_bytes_are_on_disk_before_the_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def record_fsync(handle: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def record_replace(self: Path, target: Path) -> Path:
        steps.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(Path, "replace", record_replace)
    write_text(tmp_path / "a.txt", "x")
    assert steps == ["file", "rename", "folder"]


FAULTS = {
    "full disk": (OSError(28, "No space left on device"), RunError, "cannot write {}: No space left on device; "),
    "fault of the writer": (ZeroDivisionError("by zero"), ZeroDivisionError, "by zero"),
}


@pytest.mark.parametrize("before", ["old", None])
@pytest.mark.parametrize(("error", "kind", "said"), FAULTS.values(), ids=FAULTS)
def test_a_failed_write_leaves_what_stood_there(
    tmp_path: Path, error: Exception, kind: type[Exception], said: str, before: str | None
) -> None:
    path = tmp_path / "a.txt"
    if before is not None:
        path.write_text(before, encoding="utf-8")

    def write(temporary: Path) -> None:
        temporary.write_text("half", encoding="utf-8")
        assert before is None or path.read_text(encoding="utf-8") == before
        raise error

    assert refused(kind, write_atomically, path, write).startswith(said.format(path))
    assert names_in(tmp_path) == ([] if before is None else ["a.txt"])
    assert before is None or path.read_text(encoding="utf-8") == before


def test_a_disk_that_fails_to_flush_leaves_what_stood_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old", encoding="utf-8")

    def fail(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RunError, match="Input/output error"):
        write_text(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert names_in(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("stood_there", [True, False])
def test_a_disk_that_does_not_confirm_a_rename_leaves_nothing_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stood_there: bool
) -> None:
    path, flush = tmp_path / "a.txt", files.flush_to_disk
    if stood_there:
        path.write_text("old", encoding="utf-8")

    def fail(place: Path) -> None:
        if place == tmp_path:
            raise OSError(5, "Input/output error")
        flush(place)

    monkeypatch.setattr(files, "flush_to_disk", fail)
    told = "it has its new content, which the disk does not confirm" if stood_there else "untouched"
    with pytest.raises(RunError, match=f"Input/output error; .*{told}"):
        write_text(path, "new")
    assert names_in(tmp_path) == ["a.txt"] * stood_there


# --- JSON


def refuse_constant(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


def test_json_is_strict_and_readable(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"loss": math.nan, "deep": [{"x": (1.5, math.inf, -math.inf)}], "name": "Grüße", "n": 3})
    text = path.read_text(encoding="utf-8")
    expected = {"loss": None, "deep": [{"x": [1.5, None, None]}], "name": "Grüße", "n": 3}
    assert json.loads(text, parse_constant=refuse_constant) == expected
    assert "Grüße" in text
    assert text.endswith("}\n")


@pytest.mark.parametrize("content", [b"", b'{"a": 1', b"{'a': 1}", b'{"a": "\xff"}', b"[" * 100_000])
def test_a_damaged_json_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert refused(RunError, read_json, path).startswith(f"{path} is damaged: ")


# --- files in pieces


@pytest.mark.parametrize("sizes", [[], [0], [3, 0, 4]])
def test_pieces_of_any_size_are_written_in_order_and_hashed(tmp_path: Path, sizes: list[int]) -> None:
    pieces = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
    seal = write_file(tmp_path / "a.bin", pieces)
    content = b"".join(pieces)
    assert (tmp_path / "a.bin").read_bytes() == content
    assert (seal.size, seal.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_a_write_that_takes_only_part_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, content: write(handle, bytes(content[:3])))
    write_file(tmp_path / "a.bin", [b"0123456789"])
    assert (tmp_path / "a.bin").read_bytes() == b"0123456789"


# --- what killed writers leave

KILLED = """
import os, signal, sys
from pathlib import Path
from counterpoint.core.files import write_atomically
print(os.getpid(), flush=True)
write_atomically(Path(sys.argv[1]), lambda temporary: os.kill(os.getpid(), signal.SIGKILL))
"""


def kill_a_writer(path: Path) -> int:
    """Let a process die while it writes a file; its number."""
    ended = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    return int(ended.stdout)


def test_the_next_writer_removes_what_a_killed_one_left_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    pid = kill_a_writer(path)
    (leftover,) = names_in(tmp_path)
    machine = leftover.split(".")[3].split("-")[0]
    kept = [
        temporary_sibling(path, ".tmp.json").name.replace("a.json", "b.json"),
        temporary_sibling(path, ".tmp.json").name,  # of a process that lives: this one
        f".a.json.{machine}-{os.getppid()}-0123abcd.tmp.json",
        f".a.json.{'0' * 8}-{pid}-0123abcd.tmp.json",  # of another machine
        f".a.json.{machine}-{pid}-0123abcd.tmp.json.bak",
        f".a.json.{machine}-{pid}-mine.tmp.json",
        f".a.json.{machine}-{pid}-0123abcd.tmp.txt",
        f"a.json.{machine}-{pid}-0123abcd.tmp.json",
        ".a.json.0123456789abcdef.tmp.json",
    ]
    for name in kept:
        (tmp_path / name).touch()
    write_json(path, 1)
    assert names_in(tmp_path) == sorted([*kept, "a.json"])


def test_leftovers_of_these_files_are_removed_and_nothing_else(tmp_path: Path) -> None:
    kept = ["run.json", ".run.json.bak", ".other.json.12.tmp.json", "x.tmp"]
    for name in [*kept, ".run.json.12.tmp.json", ".a.txt.7.tmp.txt"]:
        (tmp_path / name).touch()
    remove_leftovers(tmp_path, ["run.json", "a.txt", "none"])
    assert names_in(tmp_path) == sorted(kept)
