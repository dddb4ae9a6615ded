"""`runs --delete` killed before each of its calls in turn: the same command, or the next list, finishes it."""

import shutil
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from counterpoint.cli.main import main
from counterpoint.core.errors import RunError
from counterpoint.core.run_files import create_run, create_seeds, delete_run
from counterpoint.core.run_lock import lock_run
from counterpoint.core.run_records import SeedsRecord
from counterpoint.core.rundir import open_run
from runs.kill_server import KillServer, SignalAt, said_by
from system_calls import CALLS

SECONDS = 120  # for one process; far more than it needs
OURS = ("metrics.jsonl", "checkpoints/step-00000004/state.json", "second/encoder.json", ".evaluation.json.1a.tmp.json")


def one_run(path: Path) -> None:
    """A run with files in folders, one of a killed writer, and one of the user's."""
    create_run(path, overwrite=False).update_status(status="finished", data_fingerprint="x")
    for name in OURS:
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text("ours", encoding="utf-8")
    (path / "notes.txt").write_text("mine", encoding="utf-8")


def some_seeds(path: Path) -> None:
    """Runs of two seeds; in one of them is a file of the user's."""
    path.mkdir(parents=True)
    create_seeds(path, SeedsRecord(seeds=(0, 1), settings={}, data_fingerprint="x"), overwrite=False)
    one_run(path / "seed-0")
    one_run(path / "seed-1")
    (path / "seed-0" / "notes.txt").unlink()


def names_in(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*"))


@pytest.fixture(scope="module")
def server() -> Iterator[KillServer]:
    with KillServer() as started:
        yield started


@pytest.mark.thorough
@pytest.mark.parametrize(("make", "stays"), [(one_run, ["notes.txt"]), (some_seeds, ["seed-1", "seed-1/notes.txt"])])
def test_a_deletion_killed_anywhere_is_finished(
    tmp_path: Path, server: KillServer, make: Callable[[Path], None], stays: list[str]
) -> None:
    top, files = tmp_path / "runs", tmp_path / "process"
    path, delete = top / "one", ["runs", str(top), "--delete", "one", "--yes"]

    def command(words: list[str], fate: SignalAt | None = None) -> int | None:
        return server.wait(server.start(words, files, environment={}, fate=fate), SECONDS)

    call = 0
    for call in count(1):
        shutil.rmtree(top, ignore_errors=True)
        make(path)
        whole = names_in(path)
        code = command(delete, SignalAt(call, signal.SIGKILL, CALLS))
        if code == 0:
            break
        assert code == -signal.SIGKILL, said_by([files])
        left = [name for name in names_in(path) if not name.endswith(".lock")]
        assert left in (whole, stays, [])
        for remnant in top.glob(".*"):
            with pytest.raises(RunError):
                open_run(remnant)
        again = command(delete if left == whole or call % 2 else ["runs", str(top)])
        assert again == 0 or left == stays, said_by([files])  # what is deleted is no run any more
        assert names_in(path) == stays, call
        assert list(top.iterdir()) == [path]
    assert call > 15
    assert names_in(path) == stays


def test_a_deletion_that_goes_on_is_left_alone_and_a_new_run_keeps_its_place(tmp_path: Path) -> None:
    path, remnant = tmp_path / "one", tmp_path / ".one.0123abcd-1-0123abcd.deleted"
    one_run(remnant)
    with lock_run(remnant):
        assert delete_words(tmp_path) == 2
    assert (remnant / "metrics.jsonl").exists()
    create_run(path, overwrite=False)
    assert main(["runs", str(tmp_path)]) == 0
    assert names_in(remnant) == ["notes.txt"]  # its place is taken
    assert open_run(path).is_ours
    assert delete_run(path) == []
    assert main(["runs", str(tmp_path)]) == 0
    assert names_in(tmp_path) == ["one", "one/notes.txt"]


def delete_words(top: Path) -> int:
    return main(["runs", str(top), "--delete", "one", "--yes"])


def test_a_folder_that_only_looks_like_it_is_left_alone(tmp_path: Path) -> None:
    for name in (".one.deleted", ".one.0123abcd-x-0123abcd.deleted", "one.0123abcd-1-0123abcd.deleted"):
        one_run(tmp_path / name)
    before = names_in(tmp_path)
    assert main(["runs", str(tmp_path)]) == 0
    assert delete_words(tmp_path) == 2
    assert names_in(tmp_path) == before
