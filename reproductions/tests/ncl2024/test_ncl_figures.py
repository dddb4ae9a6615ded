"""Figure 6 of ncl2024: known answers of what it measures, and the figure itself at both sizes."""

import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from counterpoint.core.errors import CounterpointError
from counterpoint.core.numerics import unit_rows
from counterpoint.data.order import Split
from reproductions.ncl2024.ncl_figures import NON_NEGATIVE, SIGNED, figure_6, measure
from reproductions.panels import LinePanel
from reproductions.reproduction import FigureRun
from tolerances import assert_close

pytestmark = pytest.mark.thorough

NUM_CLASSES, PER_CLASS = 5, 4
LABELS = torch.arange(NUM_CLASSES).repeat_interleave(PER_CLASS)
EVERY = Split(torch.arange(len(LABELS)), torch.arange(len(LABELS)))


def of_classes(means_CD: Tensor) -> Tensor:
    """Each sample at the mean of its class."""
    return unit_rows(means_CD)[LABELS]


def test_orthogonal_classes_use_as_many_dimensions_as_there_are_classes() -> None:
    means_CD = torch.nn.functional.pad(torch.eye(NUM_CLASSES).double(), (0, 3))  # three silent dimensions
    features = measure(of_classes(means_CD), LABELS, EVERY)
    assert features.num_live == NUM_CLASSES
    assert features.leading_share == features.own_share == 1.0
    assert_close(NUM_CLASSES * features.eigenvalues_D[:NUM_CLASSES], torch.ones(NUM_CLASSES).double())
    assert_close(features.joined_C, features.activation_D[:NUM_CLASSES])


def test_split_dimensions_spread_activation_and_change_neither_spectrum_nor_classes() -> None:
    unsplit_CD = torch.eye(NUM_CLASSES).double()
    split_CD = torch.cat([unsplit_CD * math.cos(0.6), unsplit_CD * math.sin(0.6)], dim=1)
    unsplit, split = (measure(of_classes(means_CD), LABELS, EVERY) for means_CD in (unsplit_CD, split_CD))
    assert_close(split.eigenvalues_D[:NUM_CLASSES], unsplit.eigenvalues_D)
    assert_close(split.joined_C, unsplit.joined_C)
    assert abs(split.own_share - 1.0) < 1e-12
    assert abs(split.leading_share - math.cos(0.6) / (math.cos(0.6) + math.sin(0.6))) < 1e-12


def test_a_simplex_uses_one_dimension_less() -> None:
    centred_CD = torch.eye(NUM_CLASSES) - 1 / NUM_CLASSES
    turn_DD = torch.linalg.qr(torch.randn(NUM_CLASSES, NUM_CLASSES, generator=torch.Generator().manual_seed(0))).Q
    features = measure(of_classes(centred_CD @ turn_DD), LABELS, EVERY)
    assert features.num_live == NUM_CLASSES - 1
    assert features.own_share < 0.9


def test_training_samples_name_the_dimensions_and_held_out_ones_are_measured() -> None:
    z_ND, labels = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]).double(), torch.tensor([0, 1, 0])
    features = measure(z_ND, labels, Split(torch.tensor([0, 1]), torch.tensor([2])))
    assert features.own_share == 0.0
    assert features.activation_D.tolist() == [1.0, 0.0]


def test_the_quick_figure_is_whole_and_non_negative_dimensions_belong_to_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = figure_6(FigureRun(quick=True))
    assert not list(tmp_path.iterdir()), "run folders must not stay behind"
    assert made.settings["epochs"] == "6"
    activation, spectrum = (panel for panel in made.panels if isinstance(panel, LinePanel))
    assert [series.name for series in activation.series[:2]] == [SIGNED, NON_NEGATIVE]
    for series in (*activation.series[:2], *spectrum.series[:2]):
        assert list(series.x) == list(range(1, 51))
        assert all(before >= after >= 0 for before, after in zip(series.y, series.y[1:], strict=False))
    own_share = made.claims[-1]
    assert float(own_share.ours) > 0.6
    assert float(own_share.note.split()[2].rstrip(";")) < 0.5  # of signed dimensions


def test_data_without_labels_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "plain.npy", np.zeros((40, 8, 8), dtype=np.uint8) + np.arange(40, dtype=np.uint8)[:, None, None])
    with pytest.raises(CounterpointError, match="label"):
        figure_6(FigureRun(quick=True, data=str(tmp_path / "plain.npy")))
