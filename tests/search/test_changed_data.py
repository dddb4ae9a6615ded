"""A search answers of the samples that are there now, whatever was kept of others, or names those that changed."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import counterpoint as cp
from counterpoint.core.errors import DataError, UsageError
from data.picture_files import encoded
from data.shard_files import write_shard

SIDE, NUM_SAMPLES = 8, 12


def pixels(seed: int, count: int = NUM_SAMPLES) -> np.ndarray:
    """Pictures, each unlike any other."""
    return np.random.default_rng(seed).integers(0, 256, (count, SIDE, SIDE, 3), dtype=np.uint8)


def files(seed: int) -> dict[str, bytes]:
    """The same as files."""
    return {f"{number:02}.png": encoded(image, "PNG") for number, image in enumerate(pixels(seed))}


def write_folder(folder: Path, seed: int) -> None:
    (folder / "deep").mkdir(parents=True, exist_ok=True)
    for name, content in files(seed).items():
        (folder / "deep" / name).write_bytes(content)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    """A run on pictures in a folder, ``photos`` beside it."""
    top = tmp_path_factory.mktemp("run")
    write_folder(top / "photos", seed=0)
    settings: dict[str, Any] = {"source": {"image_size": SIDE}, "batch_size": 4, "epochs": 1, "quiet": True}
    return cp.train(top / "photos", out=top / "run", **settings)


@dataclass(frozen=True)
class Form:
    """A form of data: writes pictures of a seed to a path, and what a change of single pictures does."""

    name: str
    write: Callable[[Path, int], object]
    is_named: bool = False  # pictures that changed are refused by name, as everywhere


FORMS = [
    Form("photos", write_folder, is_named=True),
    Form("rows.npy", lambda path, seed: np.save(path, pixels(seed))),
    Form("rows.npz", lambda path, seed: np.savez(path, images=pixels(seed), labels=np.arange(NUM_SAMPLES) % 2)),
    Form("rows.tar", lambda path, seed: write_shard(path, files(seed)), is_named=True),
]


def hits(run: cp.Run, to: Path, **options: Any) -> list[tuple[str, float]]:
    found = cp.search(run, 0, to=str(to), k=3, **{"quiet": True, **options})
    return [(hit.name, hit.similarity) for hit in found.queries[0].hits]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_samples_that_were_replaced_are_not_answered_from_the_old_ones(form: Form, run: cp.Run, tmp_path: Path) -> None:
    data = tmp_path / form.name
    form.write(data, 0)
    before = hits(run, data)
    form.write(data, 1)
    if form.is_named:
        with pytest.raises(DataError, match=r"12 of 12 samples in .* changed since they were indexed"):
            hits(run, data)
        hits(run, data, altered="reindex")  # as the message says
    after = hits(run, data)
    assert after != before
    assert after == hits(run, data) == hits(run, data, cache=False)


def ask(run: cp.Run, verb: str) -> int:
    """Ask the run's own samples; how many there are."""
    found = cp.search(run, 0, k=1) if verb == "search" else cp.duplicates(run)
    return int(found.facts["collection"].split()[0])


@pytest.mark.parametrize("verb", ["search", "duplicates"])
def test_files_of_the_runs_own_samples_come_and_go(verb: str, run: cp.Run) -> None:
    new = run.path.parent / "photos" / "new.png"
    assert ask(run, verb) == NUM_SAMPLES
    new.write_bytes(encoded(pixels(5)[0], "PNG"))
    assert ask(run, verb) == NUM_SAMPLES + 1
    new.unlink()
    assert ask(run, verb) == NUM_SAMPLES


def test_other_bytes_of_the_same_length_and_time_are_other_samples(run: cp.Run, tmp_path: Path) -> None:
    data = tmp_path / "rows.npy"
    np.save(data, pixels(0))
    before, then = hits(run, data), data.stat()
    np.save(data, pixels(1))
    os.utime(data, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert (data.stat().st_size, data.stat().st_mtime_ns) == (then.st_size, then.st_mtime_ns)
    assert hits(run, data) != before


def test_samples_that_are_gone_are_missed(run: cp.Run, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", pixels(0))
    hits(run, tmp_path / "rows.npy")
    (tmp_path / "rows.npy").unlink()
    with pytest.raises(UsageError, match=r"no such file or folder: .*rows\.npy"):
        hits(run, tmp_path / "rows.npy")


def test_a_run_that_was_copied_with_its_data_answers_of_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    write_folder(first / "photos", seed=0)
    monkeypatch.chdir(first)
    cp.train("photos", out="run", source={"image_size": SIDE}, batch_size=4, epochs=1, quiet=True)
    before = cp.search("run", [0], quiet=True)
    shutil.copytree(first, second)
    monkeypatch.chdir(second)
    Path("photos/deep/05.png").unlink()
    assert "12 samples" in str(before)
    assert "11 samples" in str(cp.search("run", [0], quiet=True))
