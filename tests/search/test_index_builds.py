"""An index is whole, of one build and of the run as it is, whoever builds, trains, deletes or dies meanwhile."""

import contextlib
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import counterpoint as cp
from counterpoint.core.errors import RunError
from counterpoint.core.run_files import INDEX_FILES
from counterpoint.core.run_lock import lock_run
from counterpoint.search import run_index, vector_index
from counterpoint.search.vector_index import build_index, open_index

ROWS = np.random.default_rng(0).normal(size=(40, 16)).astype(np.float32)


def train(top: Path, seed: int = 0) -> cp.Run:
    np.save(top / "rows.npy", ROWS)
    settings: dict[str, Any] = {"method": "simclr", "epochs": 1, "batch_size": 16, "projector": {"features": 8}}
    return cp.train(top / "rows.npy", out=top / "run", seed=seed, overwrite=True, quiet=True, **settings)


@pytest.fixture
def run(tmp_path: Path) -> cp.Run:
    """A run of its own, as these tests replace and delete it."""
    return train(tmp_path)


def test_a_build_beside_another_one_is_refused_and_takes_what_that_made(run: cp.Run) -> None:
    truth = ask(run)
    with lock_run(run.path):
        assert ask(run) == truth
        with pytest.raises(RunError, match="is in use by process"):
            ask(run, rebuild=True)
    assert ask(run) == truth


def ask(run: cp.Run, **options: Any) -> list[tuple[int, float]]:
    found = cp.search(run, 3, k=5, quiet=True, **options)
    return [(hit.row, hit.similarity) for hit in found.queries[0].hits]


@contextlib.contextmanager
def small_disk(num_bytes: int) -> Iterator[None]:
    """No file grows beyond this: the system refuses in the middle of a write, as a full disk does."""
    limits, earlier = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, earlier)


def after(place: Any, name: str, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch, *, call: int = 1) -> None:
    """Act once, after a function was called so many times."""
    original, calls = getattr(place, name), list[int]()

    def acting(*words: Any, **named: Any) -> Any:
        found = original(*words, **named)
        calls.append(1)
        if len(calls) == call:
            act()
        return found

    monkeypatch.setattr(place, name, acting)


@pytest.mark.parametrize(("step", "call"), [("read_card", 1), ("sha256_of", 1), ("sha256_of", 2), ("_table", 1)])
def test_a_reader_has_the_index_of_one_build(
    step: str, call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another index takes the place of the one that is being read, after each of its steps."""
    place, other = tmp_path / "index", tmp_path / "other"
    for folder, rows, age in ((place, ROWS, "old"), (other, ROWS[::-1].copy(), "new")):
        folder.mkdir()
        build_index(torch.from_numpy(rows), folder, names=[f"{age} {row}" for row in range(40)])

    def swap() -> None:
        place.rename(tmp_path / "aside")
        other.rename(place)
        shutil.rmtree(tmp_path / "aside")

    after(vector_index, step, swap, monkeypatch, call=call)
    found = open_index(place)
    assert found is not None
    expected = ROWS[::-1] if found.names[0] == "new 0" else ROWS
    assert torch.allclose(found.vectors(), torch.nn.functional.normalize(torch.from_numpy(expected.copy())))
    near = found.search(torch.from_numpy(expected.copy()), 1)
    assert near.positions_QK[:, 0].tolist() == list(range(40))


def test_nothing_comes_back_into_a_run_that_is_deleted_while_it_is_opened(
    run: cp.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    after(run_index, "open_subject", lambda: shutil.rmtree(run.path), monkeypatch)
    with pytest.raises(RunError):
        ask(run)
    assert not run.path.exists()


@pytest.mark.parametrize("has_index", [False, True])
def test_no_encoder_is_asked_beside_the_index_of_another_one(
    run: cp.Run, has_index: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is trained anew right after its encoder was read."""
    query = ROWS[:1]
    if has_index:
        cp.search(run, query, k=1, quiet=True)
    after(run_index, "open_subject", lambda: train(run.path.parent, seed=1), monkeypatch)
    with pytest.raises(RunError, match="was deleted or trained again while it was searched"):
        cp.search(run, query, k=1, quiet=True)
    assert not run.folder.indexes.exists()


def test_what_a_killed_build_left_is_removed_by_the_next_one(run: cp.Run) -> None:
    ask(run)
    left = run.folder.indexes / ".representation.0123456789abcdef.new.tmp"
    left.mkdir()
    (left / ".index.json.0123.tmp.json").touch()
    (left / "vectors.npy").touch()
    ask(run, rebuild=True)
    assert not left.exists()


def test_files_of_the_user_in_the_folder_of_an_index_stay(run: cp.Run) -> None:
    ask(run)
    mine = run.folder.indexes / "representation" / "mine.txt"
    mine.write_text("mine")
    with pytest.raises(RunError, match=r"holds mine\.txt, which search did not write"):
        ask(run, rebuild=True)
    assert mine.read_text() == "mine"
    assert ask(run)


def test_a_build_on_a_full_disk_leaves_the_index_that_was_there(run: cp.Run) -> None:
    before = ask(run)
    with small_disk(2000), pytest.raises(RunError, match=r"cannot write .*indexes/representation: .*untouched"):
        ask(run, rebuild=True, cache=False)
    assert [path.name for path in run.folder.indexes.iterdir()] == ["representation"]
    assert {path.name for path in run.folder.indexes.rglob("*.*")} <= set(INDEX_FILES)
    assert ask(run) == before
