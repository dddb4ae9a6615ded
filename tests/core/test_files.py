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
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.core import files
from counterpoint.core.errors import RunError
from counterpoint.core.files import (
    BLOCK_BYTES,
    finite_or_null,
    read_json,
    remove_leftovers,
    sha256_of,
    temporary_sibling,
    write_atomically,
    write_file,
    write_json,
    write_text,
)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def half_write_then_raise(error: Exception) -> Any:
    """Return a writer that leaves half a file and fails."""

    def write(path: Path) -> None:
        path.write_text("half", encoding="utf-8")
        raise error

    return write


def test_a_write_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "first Grüße\n")
    assert path.read_bytes() == "first Grüße\n".encode()
    write_text(path, "second")
    assert path.read_bytes() == b"second"
    assert names_in(tmp_path) == ["a.txt"]


def test_the_writer_is_given_a_sibling_with_the_same_suffix(tmp_path: Path) -> None:
    seen: list[Path] = []

    def write(path: Path) -> None:
        seen.append(path)
        path.touch()

    write_atomically(tmp_path / "arrays.npz", write)
    (given_path,) = seen
    assert given_path.parent == tmp_path  # a rename across file systems is not atomic
    assert given_path.suffix == ".npz"  # numpy appends the suffix when it is missing
    assert given_path.name != "arrays.npz"


def test_the_old_file_stands_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old", encoding="utf-8")

    def write(temporary: Path) -> None:
        temporary.write_text("new", encoding="utf-8")
        assert path.read_text(encoding="utf-8") == "old"

    write_atomically(path, write)
    assert path.read_text(encoding="utf-8") == "new"


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


@pytest.mark.parametrize("before", ["old", None])
def test_a_full_disk_leaves_what_stood_there(tmp_path: Path, before: str | None) -> None:
    path = tmp_path / "a.txt"
    if before is not None:
        path.write_text(before, encoding="utf-8")
    with pytest.raises(RunError) as caught:
        write_atomically(path, half_write_then_raise(OSError(28, "No space left on device")))
    assert str(caught.value).startswith(f"cannot write {path}: No space left on device; ")
    assert names_in(tmp_path) == ([] if before is None else ["a.txt"])
    assert before is None or path.read_text(encoding="utf-8") == before


def test_an_error_without_text_from_the_system_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot write .*: the cable fell out; "):
        write_atomically(tmp_path / "a.txt", half_write_then_raise(OSError("the cable fell out")))


def test_a_fault_of_the_writer_passes_through_and_leaves_what_stood_there(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(ZeroDivisionError):
        write_atomically(path, half_write_then_raise(ZeroDivisionError()))
    assert path.read_text(encoding="utf-8") == "old"
    assert names_in(tmp_path) == ["a.txt"]


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


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "a.txt"
    with pytest.raises(RunError) as caught:
        write_text(path, "x")
    assert str(caught.value).startswith(f"cannot write {path}: No such file or directory")


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old", encoding="utf-8")
    path = tmp_path / "file" / "a.txt"
    with pytest.raises(RunError) as caught:
        write_text(path, "x")
    assert str(caught.value).startswith(f"cannot write {path}: Not a directory")


def test_a_name_that_is_too_long_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="File name too long"):
        write_text(tmp_path / ("a" * 300), "x")


def test_a_folder_in_the_place_of_the_file_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "a.txt"
    (place / "inside").mkdir(parents=True)
    with pytest.raises(RunError, match="cannot write"):
        write_text(place, "x")
    assert names_in(tmp_path) == ["a.txt"]
    assert names_in(place) == ["inside"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to a read-only folder")
def test_a_read_only_folder_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old", encoding="utf-8")
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(RunError, match="Permission denied"):
            write_text(path, "new")
        assert path.read_text(encoding="utf-8") == "old"
        assert names_in(tmp_path) == ["a.txt"]
    finally:
        tmp_path.chmod(0o700)


# --- JSON

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda child: st.lists(child, max_size=4) | st.dictionaries(st.text(max_size=5), child, max_size=4),
    max_leaves=10,
)


def oracle_finite(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [oracle_finite(child) for child in value]
    if isinstance(value, dict):
        return dict(zip(value, map(oracle_finite, value.values()), strict=True))
    if isinstance(value, float):
        return value if abs(value) < math.inf else None
    return value


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


@given(PLAIN)
@pytest.mark.thorough
def test_not_finite_numbers_become_null_and_nothing_else_changes(value: Any) -> None:
    assert repr(finite_or_null(value)) == repr(oracle_finite(value))


@given(value=PLAIN)
@pytest.mark.thorough
def test_json_survives_a_round_trip(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.mktemp("json") / "a.json"
    write_json(path, value)
    assert repr(read_json(path)) == repr(oracle_finite(value))


def test_what_json_cannot_hold_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})
    with pytest.raises(TypeError):
        write_json(path, {"new": object()})
    assert read_json(path) == {"old": 1}
    assert names_in(tmp_path) == ["a.json"]


def test_a_missing_json_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError) as caught:
        read_json(tmp_path / "a.json")
    assert str(caught.value) == f"{tmp_path / 'a.json'} is missing"


@pytest.mark.parametrize("content", [b"", b'{"a": 1', b"{'a': 1}", b'{"a": "\xff"}', b"[" * 100_000])
def test_a_damaged_json_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(RunError) as caught:
        read_json(path)
    assert str(caught.value).startswith(f"{path} is damaged: ")


def test_a_folder_is_not_a_json_file(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is damaged"):
        read_json(tmp_path)


# --- hashes


@pytest.mark.parametrize(
    ("content", "digest"),
    [
        # FIPS 180-4's examples.
        (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
    ],
)
def test_known_hashes(tmp_path: Path, content: bytes, digest: str) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(content)
    assert sha256_of(path) == digest


@pytest.mark.parametrize("excess", [-1, 0, 1, 12345])
def test_a_file_longer_than_one_chunk_is_hashed_whole(tmp_path: Path, excess: int) -> None:
    content = bytes(range(256)) * (2 * files.HASH_CHUNK_BYTES // 256) + b"z" * (files.HASH_CHUNK_BYTES + excess)
    path = tmp_path / "a.bin"
    path.write_bytes(content)
    assert sha256_of(path) == hashlib.sha256(content).hexdigest()


# --- files in pieces


@pytest.mark.parametrize(
    "sizes", [[], [0], [3, 0, 4], [BLOCK_BYTES], [5, BLOCK_BYTES, 7], [BLOCK_BYTES - 1, 9, 2 * BLOCK_BYTES + 1]]
)
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
