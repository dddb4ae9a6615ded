"""Files of the user's are opened only where they are regular ones, read up to a bound, and named in any alphabet."""

import os
import socket
from pathlib import Path

import pytest

from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.files import read_json, write_json
from counterpoint.core.settings import TrainSettings
from counterpoint.core.user_files import open_regular, read_regular, read_text, shown_name
from counterpoint.core.validation import build


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def plug(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(path))


@pytest.mark.parametrize(
    ("make", "what"), [(pipe, "a pipe"), (endless, "a device"), (Path.mkdir, "a folder"), (plug, "No such device")]
)
def test_what_is_no_regular_file_is_never_waited_for(make: object, what: str, tmp_path: Path) -> None:
    make(tmp_path / "x")  # pyright: ignore[reportCallIssue]
    with pytest.raises(OSError, match=what):
        open_regular(tmp_path / "x")


def test_a_link_to_a_file_is_followed_and_no_handle_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"content")
    (tmp_path / "link").symlink_to("x")
    os.mkfifo(tmp_path / "pipe")
    before = len(os.listdir("/dev/fd"))
    assert read_regular(tmp_path / "link", 7) == b"content"
    with pytest.raises(OSError, match="a pipe"):
        open_regular(tmp_path / "pipe")
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_name_that_no_file_can_have_is_an_error_of_the_system(name: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no file can have this name"):
        open_regular(tmp_path / name)


def test_a_hole_of_a_terabyte_is_refused_by_its_size(tmp_path: Path) -> None:
    with (tmp_path / "x.csv").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(OSError, match="1,099,511,627,776 bytes, at most 536,870,912"):
        read_text(tmp_path / "x.csv")
    with pytest.raises(RunError, match="is damaged: it has 1,099,511,627,776 bytes"):
        read_json(tmp_path / "x.csv")


def test_text_has_no_mark_of_its_order_and_no_nul(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"\xef\xbb\xbfa\r\nb\n")
    assert read_text(tmp_path / "x.txt") == "a\r\nb\n"
    (tmp_path / "x.txt").write_bytes(b"a\nb\nc\0d\n")
    with pytest.raises(ValueError, match="line 3 has a NUL character"):
        read_text(tmp_path / "x.txt")


def test_names_that_are_not_utf8_are_shown_escaped_and_come_back_from_json(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.png")
    assert shown_name(name) == "caf\\udce9.png"
    assert shown_name("café.png") == "café.png"
    write_json(tmp_path / "x.json", {"data": name, "plain": "café"})
    (tmp_path / "x.json").read_text(encoding="utf-8")  # any program can read it
    assert read_json(tmp_path / "x.json") == {"data": name, "plain": "café"}


@pytest.mark.parametrize("values", [{"data": "a\0b"}, {"source": {"labels": "a\0.csv"}}])
def test_a_nul_in_a_setting_is_refused_by_its_name(values: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"run.yaml: (data|source.labels) has a NUL character"):
        build(TrainSettings, values, "run.yaml")
