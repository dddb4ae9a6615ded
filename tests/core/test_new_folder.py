"""A folder that appears whole or not at all, and never over what is not ours."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from counterpoint.core.errors import RunError
from counterpoint.core.files import check_target, files_in, new_folder, write_sealed


def earlier_export(folder: Path) -> Path:
    (folder / "timm").mkdir(parents=True)
    for name in ("README.md", "timm/config.json"):
        (folder / name).write_text("old", encoding="utf-8")
    write_sealed(folder / "export.json", {"sha256s": {"README.md": "0", "timm/config.json": "1"}})
    return folder


def filled(target: Path, earlier: bool) -> None:
    with new_folder(target, earlier) as folder:
        (folder / "new.txt").write_text("new", encoding="utf-8")
        assert not (target / "new.txt").exists()


@pytest.mark.parametrize("is_there", [False, True])
def test_a_new_or_empty_folder_is_filled(tmp_path: Path, is_there: bool) -> None:
    target = tmp_path / "out"
    if is_there:
        target.mkdir()
    filled(target, check_target(target, overwrite=False))
    assert files_in(target) == ["new.txt"]
    assert list(tmp_path.iterdir()) == [target]


def test_an_earlier_export_is_replaced_only_when_asked(tmp_path: Path) -> None:
    target = earlier_export(tmp_path / "out")
    with pytest.raises(RunError, match="--overwrite"):
        check_target(target, overwrite=False)
    filled(target, check_target(target, overwrite=True))
    assert files_in(target) == ["new.txt"]
    assert list(tmp_path.iterdir()) == [target]


def test_what_is_not_ours_is_never_replaced(tmp_path: Path) -> None:
    foreign, mixed, file = tmp_path / "photos", earlier_export(tmp_path / "mixed"), tmp_path / "file"
    foreign.mkdir()
    (foreign / "a.jpg").touch()
    (mixed / "timm" / "mine.txt").touch()
    file.touch()
    link = tmp_path / "link"
    link.symlink_to(earlier_export(tmp_path / "linked"))
    for target, words in (
        (foreign, "not an export"),
        (file, "not an export"),
        (mixed, "timm/mine.txt"),
        (link, "not an export"),
    ):
        with pytest.raises(RunError, match=words):
            check_target(target, overwrite=True)
    with pytest.raises(RunError, match="does not exist"):
        check_target(tmp_path / "no" / "out", overwrite=False)


def test_a_changed_record_is_no_licence_to_replace(tmp_path: Path) -> None:
    target = earlier_export(tmp_path / "out")
    text = (target / "export.json").read_text(encoding="utf-8")
    (target / "export.json").write_text(text.replace("README.md", "mine.txt"), encoding="utf-8")
    with pytest.raises(RunError, match="damaged"):
        check_target(target, overwrite=True)


@pytest.mark.parametrize("error", [RunError("differs"), OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("earlier", [False, True])
def test_a_failure_leaves_everything_as_it_was(tmp_path: Path, error: BaseException, earlier: bool) -> None:
    target = tmp_path / "out"
    if earlier:
        earlier_export(target)
    before = sorted(tmp_path.rglob("*"))
    expected = RunError if isinstance(error, OSError) else type(error)

    def fail() -> None:
        with new_folder(target, earlier) as folder:
            (folder / "half.bin").write_bytes(b"x")
            raise error

    with pytest.raises(expected):
        fail()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_rename_that_fails_brings_the_earlier_export_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, usual = earlier_export(tmp_path / "out"), os.rename

    def rename(source: str, place: str) -> None:
        if ".new." in str(source):
            raise OSError(5, "Input/output error")
        usual(source, place)

    monkeypatch.setattr(os, "rename", rename)
    before = files_in(target)
    with pytest.raises(RunError, match="Input/output error"):
        filled(target, True)
    assert files_in(target) == before


KILLED = """
import os, signal, sys
from pathlib import Path
from counterpoint.core.files import check_target, new_folder
rename, calls = os.rename, []
def dying(*places):
    if len(calls) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    calls.append(places)
    rename(*places)
os.rename = dying
target = Path(sys.argv[1])
with new_folder(target, check_target(target, overwrite=True)) as folder:
    (folder / "half.txt").write_text("half", encoding="utf-8")
"""


@pytest.mark.parametrize("num_renames", [0, 1, 2])
def test_a_killed_export_is_cleared_away_and_the_earlier_one_is_never_lost(tmp_path: Path, num_renames: int) -> None:
    target = earlier_export(tmp_path / "out")
    before = files_in(target)
    command = [sys.executable, "-c", KILLED, str(target), str(num_renames)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    foreign = tmp_path / ".out.0123.old.tmp"
    foreign.mkdir()
    if num_renames == 2:  # the new one has its name
        filled(target, True)
        assert files_in(target) == ["new.txt"]
    else:
        with pytest.raises(RunError, match="--overwrite"):
            check_target(target, overwrite=False)
        assert files_in(target) == before
    assert sorted(tmp_path.iterdir()) == [foreign, target]
