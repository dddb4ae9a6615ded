"""A map keeps groups together, says how far it can be trusted, and is made once."""

from pathlib import Path

import numpy as np
import pytest

from counterpoint.core.rundir import RunFolder
from counterpoint.report import map_layout
from counterpoint.report.map_layout import BOTH_UP_TO, make_map, read_map, tsne_layout, tsne_places
from counterpoint.runs.sample_collection import collect
from kept_samples import embedded, keep_samples, toy_source


def groups(num: int = 60, seed: int = 0) -> np.ndarray:
    """Samples around three far points."""
    generator = np.random.default_rng(seed)
    return 5 * np.eye(3, 6)[np.arange(num) % 3] + 0.1 * generator.normal(size=(num, 6))


def kept(path: Path, values: np.ndarray) -> RunFolder:
    source = toy_source(None, None, [f"{n}" for n in range(len(values))], [])
    return keep_samples(path, collect(source, **embedded(values)))


def test_samples_of_a_group_lie_together(tmp_path: Path) -> None:
    made = make_map(kept(tmp_path, groups()), quiet=True)
    assert made is not None
    layout = made.tsne["embedding"]
    points, group = np.array([layout.x, layout.y]).T, np.arange(60) % 3
    centres = np.array([points[group == each].mean(0) for each in range(3)])
    nearest = ((points[:, None] - centres) ** 2).sum(2).argmin(1)
    assert (nearest == group).all()
    assert (points.min(), points.max()) == (0, 4095)
    assert 0.5 < (layout.trustworthiness or 0) <= 1


def test_principal_components_of_a_plane_keep_every_neighbour(tmp_path: Path) -> None:
    angles = np.linspace(0, 1, 40) ** 2
    made = make_map(kept(tmp_path, np.stack([np.cos(angles), np.sin(angles)], 1)), quiet=True)
    assert made is not None
    assert made.pca_trustworthiness["embedding"] == pytest.approx(1.0)


def test_a_map_is_made_once_and_is_the_same_when_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = kept(tmp_path, groups())
    first = make_map(folder, quiet=True)
    content = folder.map_layout.read_bytes()
    folder.map_layout.unlink()
    make_map(folder, quiet=True)
    assert folder.map_layout.read_bytes() == content
    monkeypatch.setattr(map_layout, "tsne_layout", lambda scores: pytest.fail("made again"))
    assert make_map(folder, quiet=True) == first


@pytest.mark.parametrize(
    "values", [np.eye(5), np.ones((20, 4)), np.zeros((20, 4)), np.ones((1, 1))], ids=["five", "equal", "silent", "one"]
)
def test_where_neighbours_say_nothing_no_map_is_made(tmp_path: Path, values: np.ndarray) -> None:
    made = make_map(kept(tmp_path, values), quiet=True)
    assert made is not None
    assert not made.tsne
    assert set(made.pca_trustworthiness.values()) == {None}
    assert read_map(RunFolder(tmp_path), None) is None


def test_of_many_samples_the_embedding_alone_is_laid_out() -> None:
    few, many = (
        collect(toy_source(None, None, [""] * num, []), **embedded(groups(num))) for num in (30, BOTH_UP_TO + 1)
    )
    assert tsne_places(few) == ["embedding", "representation"]
    assert tsne_places(many) == ["embedding"]


def test_nothing_is_made_of_nothing(tmp_path: Path) -> None:
    assert make_map(RunFolder(tmp_path), quiet=True) is None


@pytest.mark.parametrize("num", [8, 9, 31])
def test_few_samples_have_a_layout(num: int) -> None:
    assert len(tsne_layout(groups(num)).x) == num
