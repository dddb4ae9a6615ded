"""Samples that are not as those of training: told where drawn so, silent where parts and pictures are alike."""

# N samples, D features, H, W pixels

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor

import counterpoint as cp
from counterpoint.data.order import split_source
from counterpoint.diagnostics.evidence import ToldApart
from counterpoint.diagnostics.label_agreement import left_out_fit
from counterpoint.diagnostics.sample_shift import altered_input, matched_parts, picture_moments, told_apart
from draws import draw_single as draw

Pictures = NDArray[np.uint8]
LABELS = np.arange(240) % 3


def told(first: Tensor, second: Tensor, labels: Tensor | None = None) -> ToldApart:
    found = told_apart(first, second, labels, generator=torch.Generator().manual_seed(0))
    assert found is not None
    return found


def test_the_area_is_that_of_predictions_on_samples_left_out() -> None:
    x = draw(60, 4, 0)
    x[30:] += 0.5
    scaled = ((x - x.mean(dim=0)) / x.std(dim=0, correction=0)).double()
    y = (torch.arange(60) >= 30).double()
    expected = roc_auc_score(y, left_out_fit(scaled, y[:, None])[:, 0])
    assert told(x[:30], x[30:]).auc == pytest.approx(expected)


@pytest.mark.parametrize(("n", "width"), [(20, 2), (20, 300), (60, 16), (300, 64), (200, 400)])
def test_parts_of_one_distribution_are_not_told_apart(n: int, width: int) -> None:
    for seed in range(10):
        z = draw(2 * n, width, seed)
        kinds = (z, z.relu(), z * torch.logspace(0, -4, width), z**3, torch.cat([z[:, :1], z[:, 1:] * 0], dim=1))
        assert not any(told(part[:n], part[n:]).is_apart for part in kinds)


@pytest.mark.parametrize(("n", "width"), [(40, 300), (60, 16), (300, 64)])
def test_parts_that_are_moved_are_told_apart(n: int, width: int) -> None:
    z = draw(2 * n, width, 1)
    assert told(z[:n], z[n:] + 0.5).is_apart


def test_class_proportions_alone_are_no_shift() -> None:
    labels = torch.tensor([0] * 90 + [1] * 30 + [0] * 30 + [1] * 90)
    z = draw(240, 8, 2) + 3 * labels[:, None]
    first, second = torch.arange(120), torch.arange(120, 240)
    by_class = matched_parts(first, second, labels)
    assert torch.equal(labels[by_class[0]], labels[by_class[1]])
    assert len(by_class[0]) == 60
    assert not told(z[by_class[0]], z[by_class[1]], labels[by_class[0]]).is_apart
    assert told(z[:120], z[120:]).is_apart


def test_of_few_samples_nothing_is_told() -> None:
    assert told_apart(draw(19, 3, 0), draw(19, 3, 1), None, generator=torch.Generator()) is None
    unlabelled = torch.full((40,), -1)
    assert len(matched_parts(torch.arange(20), torch.arange(20, 40), unlabelled)[0]) == 20


def pictures(n: int, seed: int, tint: tuple[float, float, float] = (0.5, 0.45, 0.35)) -> Pictures:
    """Pictures of two areas each, whose colours scatter around a tint."""
    draws = np.random.default_rng(seed)
    areas = np.array(tint) + draws.normal(0, 0.12, (n, 2, 1, 1)) + draws.normal(0, 0.05, (n, 2, 1, 3))
    noise = draws.normal(0, 0.05, (n, 16, 16, 3))
    return (255 * (areas.repeat(8, axis=1).repeat(16, axis=2) + noise)).clip(0, 255).round().astype(np.uint8)


def as_floats(given: Pictures) -> Tensor:
    return torch.from_numpy(given).permute(0, 3, 1, 2).float() / 255


CHANGES: dict[str, tuple[Callable[[Pictures], Pictures], str]] = {
    "blue first": (lambda given: given[..., ::-1].copy(), "blue, green, red"),
    "turned": (lambda given: given[..., [1, 2, 0]], "green, blue, red"),
    "inverted": (lambda given: 255 - given, "inverted"),
    "darker": (lambda given: given // 3, "darker"),
}


@pytest.mark.parametrize("n", [60, 500])
@pytest.mark.parametrize("change", CHANGES)
def test_one_change_of_pictures_is_named(change: str, n: int) -> None:
    alter, words = CHANGES[change]
    known = as_floats(pictures(300, 0)).double().movedim(1, 0).flatten(1)
    found = altered_input(picture_moments(as_floats(alter(pictures(n, 1)))), known.mean(dim=1), known.std(dim=1))
    assert found is not None
    assert words in found.change


@pytest.mark.parametrize("n", [20, 60, 500])
def test_other_pictures_of_the_source_and_pictures_from_elsewhere_are_not_called_altered(n: int) -> None:
    known = as_floats(pictures(300, 0)).double().movedim(1, 0).flatten(1)
    statistics = known.mean(dim=1), known.std(dim=1)
    grey = as_floats(pictures(300, 0)).mean(dim=1, keepdim=True).expand(-1, 3, -1, -1)
    others = [
        pictures(n, 1),
        pictures(n, 2, (0.4, 0.5, 0.6)),
        pictures(n, 3, (0.8, 0.8, 0.8)),
        pictures(n, 4, (0.2, 0.2, 0.2)),
    ]
    for other in (*map(as_floats, others), as_floats(pictures(n, 5)) ** 2, grey):
        assert altered_input(picture_moments(other), *statistics) is None
    assert altered_input(picture_moments(as_floats(pictures(n, 1))), statistics[0], torch.ones(3)) is None


def trained(given: Pictures, folder: Path) -> cp.Run:
    return cp.train(
        given, labels=LABELS, out=folder / "run", epochs=1, quiet=True, encoder="convnet", source={"holdout": 0.4}
    )  # fmt: skip


@pytest.mark.thorough
def test_a_run_names_held_out_pictures_from_elsewhere_and_pictures_that_were_altered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = pictures(240, 0)
    run = trained(given, tmp_path)
    own = {finding.name for finding in cp.diagnose(run, quiet=True).findings}
    assert not own & {"shift", "altered-input"}
    turned = cp.diagnose(run, data=given[..., ::-1].copy(), labels=LABELS, quiet=True)
    (said,) = [finding for finding in turned.findings if finding.name == "altered-input"]
    assert said.level == "warning"
    assert "blue, green, red" in said.title
    asked: dict[str, Any] = {"metrics": ("knn",), "layers": ("embedding",)}
    other = {"data": given[..., ::-1].copy(), "labels": LABELS}
    for samples in (other, {f"test_{name}": value for name, value in other.items()}):
        cp.evaluate(run, **samples, **asked)
        lines = [line for line in capsys.readouterr().err.splitlines() if "blue, green, red" in line]
        assert len(lines) == 1
    cp.evaluate(run, **asked)
    cp.evaluate(run, data=pictures(240, 1), labels=LABELS, **asked)
    assert "look like those of training" not in capsys.readouterr().err
    elsewhere = cp.diagnose(run, data=pictures(240, 7, (0.3, 0.5, 0.3)), labels=LABELS, quiet=True)
    assert "altered-input" not in {finding.name for finding in elsewhere.findings}


def test_a_run_names_held_out_pictures_that_are_darker(tmp_path: Path) -> None:
    given = pictures(240, 0)
    held_out = split_source(240, torch.from_numpy(LABELS), 0.4).held_out.numpy()
    given[held_out] //= 3
    found = {finding.name: finding for finding in cp.diagnose(trained(given, tmp_path), quiet=True).findings}
    assert found["shift"].level == "warning"
    assert "equal numbers of each class" in found["shift"].text
