"""Figures 1 and 2 of imbalanced2026 from pictures: what is taken, what is trained, and what is claimed."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from counterpoint.core.errors import DataError, UsageError
from counterpoint.losses import GeneralizedContrastive
from reproductions.imbalanced2026.imbalanced_figures import figure_1, figure_2
from reproductions.imbalanced2026.plane_embeddings import PlanePlan, embed_in_plane, take_classes
from reproductions.panels import MatrixPanel, PointPanel, TablePanel
from reproductions.reproduction import Claim, FigureRun, Reproduction, ignore

pytestmark = pytest.mark.thorough

CIFAR = Path(__file__).resolve().parents[3] / "shared" / "data" / "cifar10-pack" / "train.npz"


@pytest.fixture(scope="module")
def first() -> Reproduction:
    return figure_1(FigureRun(quick=True))


def differing(made: Reproduction) -> list[Claim]:
    return [claim for claim in made.claims if claim.agrees is False]


# --- Figure 1


def test_figure_1_differs_from_the_paper_only_in_the_sentence_that_its_own_matrices_contradict(first) -> None:
    (claim,) = differing(first)
    assert "nearer to each other in UCL than in SCL" in claim.what
    # Distances of unit vectors with the paper's own cosines, -0.2097 (UCL) and -0.0485 (SCL).
    assert f"{math.sqrt(2 + 2 * 0.2097):.3f} in UCL, {math.sqrt(2 + 2 * 0.0485):.3f} in SCL" in claim.note


def test_figure_1_shows_three_clouds_and_four_matrices(first) -> None:
    clouds = [panel for panel in first.panels if isinstance(panel, PointPanel)]
    assert [cloud.title for cloud in clouds] == ["before training", "after training, SCL", "after training, UCL"]
    assert [series.name for series in clouds[0].series] == ["0", "1", "2"]
    lengths = [math.hypot(x, y) for cloud in clouds for s in cloud.series for x, y in zip(s.x, s.y, strict=True)]
    assert max(lengths) <= 1 + 1e-6
    matrices = [panel for panel in first.panels if isinstance(panel, MatrixPanel)]
    assert [panel.title for panel in matrices] == [
        "SCL: trained network", "SCL: optimum", "UCL: trained network", "UCL: optimum",
    ]  # fmt: skip


def test_scatter_stands_beside_the_matrices(first) -> None:
    scatter, _ = (panel for panel in first.panels if isinstance(panel, TablePanel))
    for claim in (claim for claim in first.claims if "nearly collapse" in claim.what):
        column = scatter.head.index(f"scatter, {claim.what[:3]}")
        # The within-class variance is the mean over all samples, of 178, 89 and 89.
        mean = np.average([float(row[column]) for row in scatter.rows], weights=[2, 1, 1])
        assert mean == pytest.approx(float(str(claim.ours).split(",")[0]), rel=0.05)
    clouds = {panel.title: panel.series for panel in first.panels if isinstance(panel, PointPanel)}
    for row, cloud in zip(scatter.rows, clouds["before training"], strict=True):
        points = np.stack([cloud.x, cloud.y], axis=1)
        assert float(row[2]) == pytest.approx(((points - points.mean(0)) ** 2).sum(1).mean(), rel=0.01)


# --- Figure 2


def test_figure_2_differs_only_in_swapped_digits_and_has_the_true_thresholds_beside_the_shares() -> None:
    made = figure_2(FigureRun(quick=True))
    (claim,) = differing(made)
    assert claim.paper == 0.9239
    assert claim.ours == pytest.approx(0.9292, abs=5e-5)  # Corollary 6 for three classes
    merging = [claim for claim in made.claims if "optimal means at a majority share of 0.9" in claim.what]
    assert ["one vector from 0.75094 on" in str(merging[0].ours), merging[0].agrees] == [True, True]
    assert ["cosine 0.9996" in str(merging[1].ours), merging[1].agrees] == [True, True]


# --- an encoder that was asked for


def test_an_encoder_that_was_asked_for_reaches_the_geometry_and_tells_each_epoch() -> None:
    lines: list[str] = []
    made = figure_1(FigureRun(encoder="convnet", epochs=30, progress=lines.append))
    assert {made.settings[name] for name in ("encoder", "epochs")} == {"convnet", "30"}
    assert made.settings["samples"] == "178 + 89 + 89"
    assert "356 samples of digits" in str(made)
    (claim,) = differing(made)
    assert "nearer to each other in UCL than in SCL" in claim.what
    for setting in ("SCL", "UCL"):
        own = [line for line in lines if line.startswith(f"{setting}: epoch")]
        assert len(own) == 30
        assert all(line.endswith(" s left") for line in own)
        assert own[-1].endswith(" 0 s left")


def test_epochs_alone_leave_the_network_of_the_figure() -> None:
    made = figure_1(FigureRun(epochs=2))
    assert {made.settings[name] for name in ("encoder", "epochs")} == {"convnet", "2"}


def test_an_encoder_that_is_unknown_or_of_other_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown encoder 'resnet99'"):
        figure_1(FigureRun(encoder="resnet99", data="nowhere"))  # before the data
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(0).normal(size=(40, 4)), labels=["a", "a", "b", "c"] * 10)
    with pytest.raises(UsageError, match="'convnet'"):
        figure_1(FigureRun(encoder="convnet", data=str(tmp_path / "rows.npz")))


# --- what is trained


def test_one_view_given_twice_leaves_the_loss_of_eq_20_as_it_is() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.nn.functional.normalize(torch.randn(7, 2, dtype=torch.float64, generator=generator))
    labels = [0, 0, 0, 1, 1, 2, 2]
    total = 0.0
    for i in range(7):
        positives = [j for j in range(7) if labels[j] == labels[i]]
        mean = sum(math.exp(float(z[i] @ z[q])) for q in range(7)) / 7  # expectation over uniform draws
        total += sum(math.log(1 + mean * math.exp(-float(z[i] @ z[j]))) for j in positives) / len(positives)
    loss = GeneralizedContrastive(normalize="ball")(z, z, torch.tensor(labels))
    assert float(loss) == pytest.approx(total / 7, abs=1e-12)


@pytest.mark.parametrize("encoder", ["convnet", "mlp"])
def test_an_embedding_is_a_function_of_the_seed(encoder: str) -> None:
    classes, lines = take_classes(None, (2, 1, 1)), []
    state = torch.random.get_rng_state()
    plan = PlanePlan(epochs=2, num_negatives=16, encoder=encoder)
    first, again = (embed_in_plane(classes, plan, supervised=True, progress=lines.append) for _ in range(2))
    other = embed_in_plane(classes, PlanePlan(2, encoder=encoder, seed=1), supervised=True, progress=ignore)
    assert torch.equal(first.after, again.after)
    assert not torch.equal(first.before, other.before)
    assert not torch.equal(first.before, first.after)
    assert torch.equal(state, torch.random.get_rng_state())
    assert lines[0].startswith("SCL: epoch 1 of 2, loss ")


def test_samples_that_pass_in_parts_land_where_they_do_all_at_once() -> None:
    classes = take_classes(None, (2, 1, 1))
    full, parts = (
        embed_in_plane(classes, PlanePlan(1, 16, pass_size=size), supervised=True, progress=ignore)
        for size in (None, 178)
    )
    # Statistics of BatchNorm: of all, and the mean of those of two halves.
    assert float((full.before - parts.before).norm(dim=1).mean()) < 0.05 * float(full.before.norm(dim=1).mean())


# --- what is taken


def write_pictures(path: Path, names: list[str]) -> str:
    """Pictures of one brightness each, which rises from one to the next."""
    images = np.arange(len(names), dtype=np.uint8)[:, None, None, None] * np.ones((1, 8, 8, 3), np.uint8)
    np.savez(path, images=images, labels=np.array(names))
    return str(path)


def test_the_papers_classes_are_taken_in_its_order_first_pictures_first(tmp_path: Path) -> None:
    names = ["airplane", "cat", "bird", "automobile"] * 10
    classes = take_classes(write_pictures(tmp_path / "cifar.npz", names), (2, 1, 1))
    assert classes.class_names == ("bird", "automobile", "airplane")
    assert classes.counts == (10, 5, 5)
    brightness = classes.samples[:, 0, 0, 0]
    order = [names.index("bird") + 4 * i for i in range(10)] + [3 + 4 * i for i in range(5)] + [4 * i for i in range(5)]
    assert torch.argsort(brightness).tolist() == np.argsort(order).tolist()
    assert float(brightness.mean()) == pytest.approx(0.0, abs=1e-5)
    assert float(brightness.std(correction=0)) == pytest.approx(1.0, abs=1e-5)


def test_proportions_are_exact_and_3000_samples_are_most(tmp_path: Path) -> None:
    assert take_classes(None, (18, 1, 1)).counts == (162, 9, 9)
    vectors, labels = np.zeros((8000, 4), np.float32), np.repeat(["a", "b"], 4000)
    np.savez(tmp_path / "many.npz", x=vectors, labels=labels)
    assert take_classes(str(tmp_path / "many.npz"), (1, 1)).counts == (1500, 1500)


def test_data_without_enough_classes_or_samples_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "none.npz", x=np.zeros((9, 4), np.float32))
    with pytest.raises(DataError, match="must have labels of at least 3 classes"):
        figure_1(FigureRun(data=str(tmp_path / "none.npz")))
    few = write_pictures(tmp_path / "few.npz", ["a", "b", "c"] * 6)
    with pytest.raises(DataError, match=r"too few samples for classes in the ratio \(18, 1, 1\): 6 of a, 6 of b"):
        figure_2(FigureRun(data=few))


@pytest.mark.slow
@pytest.mark.skipif(not CIFAR.exists(), reason="shared data are absent: cifar10-pack")
def test_minorities_among_photographs_merge_but_for_strays() -> None:
    made = figure_2(FigureRun(data=str(CIFAR)))
    assert made.settings["samples"] == "2700 + 150 + 150"
    trained = [panel for panel in made.panels if isinstance(panel, MatrixPanel) and "trained" in panel.title]
    for panel in trained:
        assert np.abs(np.array(panel.values) - [[1, -1, -1], [-1, 1, 1], [-1, 1, 1]]).max() < 0.1
    assert all("far side" in claim.note for claim in differing(made) if "Gram matrix" in claim.what)
