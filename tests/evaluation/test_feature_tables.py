"""Tables of features are computed once, known by all they depend on, and never trusted without their hash."""

# N samples, D features

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import counterpoint as cp
from counterpoint.core.errors import RunError
from counterpoint.core.settings import SourceSettings
from counterpoint.core.stored_rows import StoredRows, load
from counterpoint.data.manifest import cache_folder
from counterpoint.data.sources import open_source
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation import feature_tables, features
from counterpoint.evaluation.feature_tables import Write, key_of, stored_or_computed
from counterpoint.evaluation.features import extract
from counterpoint.nn.trained import Encoder, EncoderCard
from failing_disk import FAULTS, FailingDisk

NUM_ROWS = 11


def values(name: str, num_rows: int = NUM_ROWS) -> np.ndarray:
    """What a table of a name holds: one number for each of its letters."""
    return np.arange(num_rows * len(name), dtype=np.float32).reshape(num_rows, len(name))


class Work:
    """Computes tables in parts, last ones first, and counts what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, names: Sequence[str], write: Write) -> None:
        self.asked.append(tuple(names))
        for first in range(8, -1, -4):
            write(first, {name: values(name)[first : first + 4] for name in names})

    def tables(self, key: str | None, *names: str) -> Mapping[str, Any]:
        found = stored_or_computed(key, names, NUM_ROWS, self)
        assert list(found) == list(names)
        for name in names:
            rows = found[name]
            assert np.array_equal(load(rows).numpy(), values(name))  # pyright: ignore[reportArgumentType]
        return found


@pytest.fixture
def work() -> Work:
    return Work()


def files(ending: str) -> list[Path]:
    return sorted((cache_folder() / "features").rglob(f"*{ending}"))


def test_the_second_call_computes_nothing(work: Work) -> None:
    work.tables("a", "xy", "z")
    work.tables("a", "z", "xy")
    assert work.asked == [("xy", "z")]


def test_of_two_layers_only_the_missing_one_is_computed(work: Work) -> None:
    work.tables("a", "xy")
    work.tables("a", "xy", "layer1.0", "../up")
    assert work.asked == [("xy",), ("layer1.0", "../up")]
    assert len({path.parent for path in files(".npy")}) == 1


def test_without_a_key_nothing_is_kept(work: Work) -> None:
    work.tables(None, "xy")
    work.tables(None, "xy")
    assert work.asked == [("xy",), ("xy",)]
    assert files("") == []


def change_value(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "another value": (".npy", change_value),
    "cut off": (".npy", lambda path: os.truncate(path, path.stat().st_size - 4)),
    "empty": (".npy", lambda path: path.write_bytes(b"")),
    "another shape": (".npy", lambda path: np.save(path, np.load(path).reshape(2, -1))),
    "gone": (".npy", Path.unlink),
    "another hash": (".json", change_value),
    "hash cut off": (".json", lambda path: os.truncate(path, 20)),
    "hash gone": (".json", Path.unlink),
}


@pytest.mark.parametrize(("ending", "damage"), DAMAGES.values(), ids=DAMAGES)
def test_what_is_damaged_is_computed_again(ending: str, damage: Callable[[Path], Any], work: Work) -> None:
    work.tables("a", "xy")
    (path,) = files(ending)
    damage(path)
    work.tables("a", "xy")
    work.tables("a", "xy")
    assert work.asked == [("xy",)] * 2


def test_large_tables_are_read_from_disk_and_others_are_not(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_tables, "IN_MEMORY", 4 * 2 * NUM_ROWS)
    found = work.tables("a", "xy", "xyz")
    assert isinstance(found["xy"], torch.Tensor)
    assert isinstance(found["xyz"], StoredRows)


def test_without_a_folder_that_can_be_written_it_works_all_the_same(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    for place in (tmp_path / "file", Path("/proc/nowhere")):
        monkeypatch.setenv("COUNTERPOINT_CACHE", str(place))
        work.tables("a", "xy")
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    work.tables("a", "xy")
    assert len(work.asked) == 3
    assert list(tmp_path.rglob("*.npy")) == []


REMOVE = shutil.rmtree


def on_a_good_disk(disk: FailingDisk, path: Path, **known: Any) -> None:
    disk.first = 0
    REMOVE(path, **known)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_disk_that_refuses_is_told_in_one_line_and_leaves_nothing(
    fault: str, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.tables("a", "xy")
    number = 1
    while True:
        disk = FailingDisk(FAULTS[fault], first=number, is_lasting=False)
        with monkeypatch.context() as patch:
            disk.install(patch)
            # What removes folders closes them twice where the system reports an error.
            patch.setattr(shutil, "rmtree", partial(on_a_good_disk, disk))
            try:
                stored_or_computed(f"new {number}", ["xyz"], NUM_ROWS, work)
            except RunError as error:
                assert "\n" not in str(error)
                assert "cannot keep features in" in str(error)
                assert "COUNTERPOINT_CACHE" in str(error)
                assert "--no-cache" in str(error)
        if not disk.failed:
            break
        number += 1
    assert number > 5  # folder, file, rows, names, hash
    assert not [path for path in (cache_folder() / "features").iterdir() if path.name.startswith(".")]
    work.asked.clear()
    work.tables("a", "xy")
    assert work.asked == []
    for earlier in range(1, number):  # whatever a failure left behind is not taken for a table
        work.tables(f"new {earlier}", "xyz")


def test_an_error_while_computing_leaves_nothing(work: Work) -> None:
    def fail(names: Sequence[str], write: Write) -> None:
        work(names, write)
        raise cp.DataError("sample 3 is damaged")

    with pytest.raises(cp.DataError, match="sample 3 is damaged"):
        stored_or_computed("a", ["xy"], NUM_ROWS, fail)
    assert files("") == []


def test_the_tables_unused_for_longest_go_first(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    for age, key in enumerate("abc"):
        work.tables(key, "xy")
        newest = max((path.parent for path in files(".npy")), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (1e9 + age, 1e9 + age))
    work.tables("a", "xy")  # used again: now b is the oldest
    size = sum(path.stat().st_size for path in files("") if path.is_file()) // 3
    monkeypatch.setattr(feature_tables, "MOST_BYTES", 3 * size)
    work.tables("d", "xy")
    work.asked.clear()
    for key in "acd":
        work.tables(key, "xy")
    assert work.asked == []
    work.tables("b", "xy")
    assert work.asked == [("xy",)]


# --- keys


def encoder(architecture: str = "mlp", mean: float = 0.0) -> Encoder:
    torch.manual_seed(0)
    card = EncoderCard(architecture, "vectors", (3,), (mean,) * 3, (1.0,) * 3, 4, "none", 4, 4, "none", None)
    norm = nn.BatchNorm1d(4)
    return Encoder(card, nn.Sequential(nn.Linear(3, 4), norm), nn.Identity()).eval()


def change_weight(module: nn.Module, name: str) -> None:
    with torch.no_grad():
        value = module.state_dict()[name].view(-1)
        value[-1] += 1


def test_a_key_depends_on_all_that_features_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = key_of(encoder())
    assert usual == key_of(encoder())
    keys = [usual, key_of(encoder(mean=0.5)), key_of(encoder("timm:x"))]
    for name in ("backbone.0.weight", "backbone.0.bias", "backbone.1.running_mean"):
        changed = encoder()
        change_weight(changed, name)
        keys.append(key_of(changed))
    with monkeypatch.context() as patch:
        patch.setattr(feature_tables, "version", lambda library: "0.1")
        keys.append(key_of(encoder("timm:x")))
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "0.1")
        keys.append(key_of(encoder()))
    monkeypatch.setattr(feature_tables, "__version__", "0.1")
    keys.append(key_of(encoder()))
    assert len(set(keys)) == len(keys)
    assert None not in keys


def test_samples_pass_once_for_an_encoder_a_layer_and_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, known = np.random.default_rng(0), encoder()
    array = rng.normal(size=(300, 3)).astype(np.float32)
    passed: list[int] = []
    known.backbone.register_forward_hook(lambda module, args, output: passed.append(len(args[0])))

    def rows(data: np.ndarray, *layers: str, **options: Any) -> int:
        """How many samples passed."""
        passed.clear()
        source = open_source(data, SourceSettings(), progress=Reporter(quiet=True).bar)
        found = extract(known, source, layers, cache=True, **options)
        with torch.no_grad():
            expected = known.backbone(torch.from_numpy(data))
        assert torch.allclose(found.representation, expected, atol=1e-6)
        return sum(passed) - len(data)

    begun: list[int] = []
    assert rows(array, "representation", begin=lambda: begun.append(1)) == 300
    assert rows(array, "representation", begin=lambda: begun.append(1)) == 0
    assert rows(array, "representation", "0", begin=lambda: begun.append(1)) == 300
    assert rows(array, "0", "representation") == 0
    assert len(begun) == 2
    array[299, 2] += 1
    assert rows(array, "representation") == 300
    assert rows(array[:299], "representation") == 299
    change_weight(known, "backbone.0.bias")
    assert rows(array, "representation") == 300
    monkeypatch.setattr(features, "PIECE", 7)
    assert rows(array, "representation") == 0
