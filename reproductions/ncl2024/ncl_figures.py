"""Make Figure 6 of ncl2024 again: the dimensions that contrastive and non-negative features use, given classes.

As in the paper the classes are the latent classes: positives are samples of one class. Theory then says what to expect.
Signed vectors of C balanced classes become a simplex, which spans C - 1 dimensions; non-negative ones become
orthogonal, and span C.
"""

# N samples, D features, C classes

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from counterpoint.core.run import Run
from counterpoint.data.order import Split
from counterpoint.diagnostics.concepts import expected_activation
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.features import extract
from counterpoint.evaluation.trained_run import open_trained
from counterpoint.runs.training import train
from reproductions.panels import LinePanel, Series
from reproductions.reproduction import Claim, FigureRun, Reproduction
from reproductions.study_data import training_split

SHOWN = 50  # largest values, as in the paper
EPOCHS, QUICK_EPOCHS = 40, 6
TEMPERATURE = 0.2  # NCL's code; the paper is silent
LIVE = 0.05  # an eigenvalue counts from this share of the largest on
MOST = 0.5  # what "mostly" and "not much" are taken to mean
SIGNED, NON_NEGATIVE = "CL", "NCL"
OUTPUT_MAPS: Mapping[str, str] = {SIGNED: "none", NON_NEGATIVE: "relu"}


@dataclass(frozen=True)
class LearnedFeatures:
    """Activation and spectrum of one run's features, on held-out samples.

    Attributes:
        activation_D: expected activation per dimension, descending.
        joined_C: the same with the dimensions of each class joined to one, descending.
        eigenvalues_D: of E z z^T, descending.
        own_share: mean share of a vector's squared length on the dimensions of its own class.
    """

    activation_D: Tensor
    joined_C: Tensor
    eigenvalues_D: Tensor
    own_share: float

    @property
    def num_classes(self) -> int:
        """Number of classes, C."""
        return len(self.joined_C)

    @property
    def num_live(self) -> int:
        """The number of eigenvalues above the share ``LIVE`` of the largest."""
        return int((self.eigenvalues_D > LIVE * self.eigenvalues_D[0]).sum())

    @property
    def leading_share(self) -> float:
        """Share of all expected activation that the C strongest dimensions have."""
        return float(self.activation_D[: self.num_classes].sum() / self.activation_D.sum())

    @property
    def evenness(self) -> float:
        """The last of the ``SHOWN`` largest expected activations over the first."""
        return float(self.activation_D[:SHOWN][-1] / self.activation_D[0])


def figure_6(run: FigureRun) -> Reproduction:
    """Train both kinds of features with positives of the same class and compare the dimensions they use.

    Source: ncl2024, section E.1 and Fig. 6.

    Raises:
        UsageError: data without labels.
        DataError: data that cannot be used.

    Returns:
        Claims and two panels. The run folders are temporary.
    """
    epochs = QUICK_EPOCHS if run.quick else EPOCHS
    data, source = training_split("cifar10", run.data or "digits")
    features: dict[str, LearnedFeatures] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, output_map in OUTPUT_MAPS.items():
            run.progress(f"{name}: {epochs} epochs with positives of the same class")
            trained = train(
                data,
                source=source,
                out=Path(folder) / name,
                quiet=True,
                # E.1: positives are samples of the same class
                method="supcon",
                seed=run.seed,
                epochs=epochs,
                temperature=TEMPERATURE,
                output={"nonnegative": output_map},
            )
            features[name] = _measure_run(trained)
    settings = {
        "data": run.data or data,
        "seed": str(run.seed),
        "epochs": str(epochs),
        "temperature": str(TEMPERATURE),
    }
    return _reproduction(features[SIGNED], features[NON_NEGATIVE], settings)


def measure(z_ND: Tensor, labels_N: Tensor, split: Split) -> LearnedFeatures:
    r"""Expected activation and spectrum of the unit vectors of held-out samples.

    The spectrum is that of :math:`E[z z^\top]`, without centring. The class of a dimension is the one whose training
    samples have the largest mean square there.

    Args:
        z_ND: embeddings of unit length.
        labels_N: class of each sample; 0 ... C-1 all occur among the training samples.
        split: which samples say what a dimension is for, and which are measured.

    >>> measure(torch.eye(2), torch.arange(2), Split(torch.arange(2), torch.arange(2))).eigenvalues_D
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    z_ND = z_ND.double()
    # classes of dimensions from other samples than the measured ones: else noise would count as agreement
    class_D = _class_of_dimensions(z_ND[split.train], labels_N[split.train])
    held_ND, held_labels_N = z_ND[split.held_out], labels_N[split.held_out].long()
    member_DC = torch.nn.functional.one_hot(class_D, int(labels_N.max()) + 1).double()
    energy_NC = held_ND.square() @ member_DC
    own_N = energy_NC.gather(1, held_labels_N[:, None]).squeeze(1) / energy_NC.sum(dim=1)
    return LearnedFeatures(
        activation_D=expected_activation(held_ND).sort(descending=True).values,
        # split dimensions: the norm over those of a class does not depend on how they are split
        joined_C=energy_NC.sqrt().mean(dim=0).sort(descending=True).values,
        eigenvalues_D=torch.linalg.eigvalsh(held_ND.T @ held_ND / len(held_ND)).flip(0).clamp(min=0.0),
        # nanmean: a ReLU may leave a vector of zeros, of no class
        own_share=float(own_N.nanmean()),
    )


def _measure_run(run: Run) -> LearnedFeatures:
    """Measure the embedding of a run's own samples, which have labels, as it was trained with them."""
    trained = open_trained(run, reporter=Reporter(quiet=True))
    labels_N = trained.source.labels
    assert labels_N is not None
    return measure(extract(trained.encoder, trained.source).embedding, labels_N, trained.split)


def _class_of_dimensions(z_ND: Tensor, labels_N: Tensor) -> Tensor:
    """The class whose samples have the largest mean square in each dimension."""
    one_hot_NC = torch.nn.functional.one_hot(labels_N.long()).double()
    # mean per class, so that a frequent class does not take every dimension
    energy_DC = z_ND.square().T @ one_hot_NC / one_hot_NC.sum(dim=0)
    return energy_DC.argmax(dim=1)


def _reproduction(signed: LearnedFeatures, non_negative: LearnedFeatures, settings: Mapping[str, str]) -> Reproduction:
    """Build the record of the figure: claims, panels, remarks and settings."""
    return Reproduction(
        name="ncl-fig6",
        title="Dimensions that contrastive and non-negative contrastive features use when classes are given",
        source="ncl2024, Fig. 6",
        claims=[*_spectrum_claims(signed, non_negative), *_activation_claims(signed, non_negative)],
        panels=[_activation_panel(signed, non_negative), _spectrum_panel(signed, non_negative)],
        remarks=[
            "The paper trains a ResNet-18 on CIFAR-10 for 200 epochs; by default this is a small convnet on 8 x 8 "
            "digits, whose ten classes are the latent classes. It does not say whether eigenvalues are of centred "
            "features; these are not. Centring takes one direction from orthogonal classes and none from a simplex.",
            "Why activation need not gather in as many dimensions as there are classes: with more features than "
            "classes the optimum is not unique. Splitting a dimension into cos(t) and sin(t) of itself changes no "
            "similarity, so the loss is blind to it, and what the optimiser leaves behind is seen. Joined by class, "
            "the split dimensions are the classes again.",
        ],
        settings=settings,
    )


def _spectrum_claims(signed: LearnedFeatures, non_negative: LearnedFeatures) -> list[Claim]:
    """Check what the paper says of Fig. 6b."""
    count = signed.num_classes
    return [
        Claim(
            f"eigenvalues above {LIVE:.0%} of the largest, CL",
            f"small even before {count}",
            signed.num_live,
            signed.num_live < count,
            f"a simplex of {count} classes spans {count - 1} dimensions",
        ),
        Claim(
            f"eigenvalues above {LIVE:.0%} of the largest, NCL",
            f"small only after {count}",
            non_negative.num_live,
            non_negative.num_live == count,
            f"{count} orthogonal classes span {count}",
        ),
    ]


def _activation_claims(signed: LearnedFeatures, non_negative: LearnedFeatures) -> list[Claim]:
    """Check what the paper says of Fig. 6a."""
    count = signed.num_classes
    return [
        Claim(
            f"share of expected activation in the first {count} dimensions, NCL",
            "most",
            non_negative.leading_share,
            non_negative.leading_share > MOST,
            f"CL has {signed.leading_share:.2f}; see the remark on split dimensions",
        ),
        Claim(
            f"expected activation of dimension {min(SHOWN, len(signed.activation_D))} over that of the first, CL",
            "do not differ much",
            signed.evenness,
            signed.evenness > MOST,
            f"NCL has {non_negative.evenness:.2f}",
        ),
        Claim(
            "squared length on the dimensions of a sample's own class, NCL",
            "-",
            non_negative.own_share,
            None,
            f"CL has {signed.own_share:.2f}; 1 if every dimension belongs to one class",
        ),
    ]


def _activation_panel(signed: LearnedFeatures, non_negative: LearnedFeatures) -> LinePanel:
    """Draw Fig. 6a, with the dimensions of each class joined as a third line."""
    return LinePanel(
        f"{SHOWN} largest expected activations",
        "dimension, by expected activation",
        "expected activation",
        [
            _rank_series(SIGNED, signed.activation_D),
            _rank_series(NON_NEGATIVE, non_negative.activation_D),
            _rank_series(f"{NON_NEGATIVE}, dimensions of a class joined", non_negative.joined_C),
        ],
    )


def _spectrum_panel(signed: LearnedFeatures, non_negative: LearnedFeatures) -> LinePanel:
    """Draw Fig. 6b, with the spectra that theory expects of balanced classes."""
    count = signed.num_classes
    # unit vectors: eigenvalues sum to 1, and balanced classes make them equal
    simplex, orthogonal = (torch.full((size,), 1 / size) for size in (count - 1, count))
    return LinePanel(
        f"{SHOWN} largest eigenvalues",
        "eigenvalue, by size",
        "eigenvalue of E z z^T",
        [
            _rank_series(SIGNED, signed.eigenvalues_D),
            _rank_series(NON_NEGATIVE, non_negative.eigenvalues_D),
            _rank_series("simplex", simplex),
            _rank_series("orthogonal classes", orthogonal),
        ],
    )


def _rank_series(name: str, values_D: Tensor) -> Series:
    """The largest values by rank, from 1."""
    largest = values_D[:SHOWN].tolist()
    return Series(name, list(range(1, len(largest) + 1)), largest)
