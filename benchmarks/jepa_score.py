"""JEPA-score beside the distance to neighbours: which finds pictures that do not belong to the training data?

    python benchmarks/jepa_score.py RUN PICTURES --bank BANK --others OTHERS [OTHERS ...]

RUN is a trained run, BANK its training pictures, PICTURES others like them that it has not seen. Outliers are pictures
of OTHERS, pictures of noise, and PICTURES with less contrast, inverted, or with shuffled tiles. For each kind the table
has the area under the ROC curve of three scores, and the difference of the first two with a 95 % interval: outliers
and inliers are drawn anew 2,000 times, the same for both scores.

- JEPA-score: the sum of the logarithms of the singular values of the encoder's Jacobian at a picture (at least 1e-6).
  An encoder that makes its features Gaussian has more of it where data are dense; outliers have less.
- sketch: the same of 32 random combinations of the features, at an eighth of the products (of 256 features).
- neighbours: mean cosine distance to the 10 nearest features of BANK; outliers have more of it.
"""

import argparse
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from result_tables import heading
from torch import Tensor
from torch.func import jacrev

from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.numerics import evenly_spaced, unit_rows
from counterpoint.core.settings import SourceSettings
from counterpoint.core.terminal_text import TextTable
from counterpoint.data.sources import open_source
from counterpoint.engine.progress import Reporter
from counterpoint.nn.resizing import fit_images
from counterpoint.nn.trained import Encoder, load

LEAST = 1e-6  # singular value
NUM_SKETCHED, NUM_NEAREST, NUM_DRAWS = 32, 10, 2000
Scores = dict[str, dict[str, NDArray[np.float64]]]  # by layer, then by score; outliers have more


def pictures(data: str, most: int, encoder: Encoder) -> Tensor:
    """Evenly spaced pictures in the encoder's size, floats in [0, 1]."""
    source = open_source(data, SourceSettings(), progress=Reporter(quiet=True).bar)
    chosen = evenly_spaced(torch.arange(len(source)), most)
    return fit_images(to_unit_float(source.store.fetch(chosen.tolist())), encoder.card.in_shape)


def changed(images: Tensor, draws: torch.Generator) -> dict[str, Tensor]:
    """Outliers that are made of inliers or of nothing."""
    size = images.shape[-1] // 4
    tiles = images.unfold(2, size, size).unfold(3, size, size).flatten(2, 3)
    order = torch.randperm(tiles.shape[2], generator=draws)
    shuffled = tiles[:, :, order].unflatten(2, (4, 4)).permute(0, 1, 2, 4, 3, 5).reshape(images.shape)
    return {
        "noise": torch.rand(images.shape, generator=draws),
        "a third of the contrast": (images - 1 / 2) / 3 + 1 / 2,
        "inverted": 1 - images,
        "shuffled tiles": shuffled,
    }


@torch.no_grad()
def features(encoder: Encoder, images: Tensor) -> dict[str, Tensor]:
    """Representation and projector's output of pictures."""
    inner = torch.cat([encoder.backbone(encoder.prepare(part)) for part in images.split(256)])
    return {"representation": inner, "embedding": encoder.projector(inner)}


def scores(encoder: Encoder, images: Tensor, bank: dict[str, Tensor]) -> Scores:
    """Three scores of each picture by layer."""

    def outer(value: Tensor) -> Tensor:
        return encoder.projector(value[None])[0]

    by_layer: Scores = {}
    logs: dict[str, list[Tensor]] = {}
    draws = torch.Generator().manual_seed(0)
    seen = features(encoder, images)
    for image, value in zip(images, seen["representation"], strict=True):
        # One copy of the picture for each feature: convolutions of a batch are faster than mapped ones.
        copies = image.expand(len(value), *image.shape).clone().requires_grad_()
        (jacobian,) = torch.autograd.grad(encoder.backbone(encoder.prepare(copies)).diagonal().sum(), copies)
        jacobian, head = jacobian.flatten(1).double(), jacrev(outer)(value).detach().double()
        for layer, own_jacobian in (("representation", jacobian), ("embedding", head @ jacobian)):
            sketched = torch.randn(NUM_SKETCHED, len(own_jacobian), generator=draws, dtype=torch.float64)
            for name, matrix in (("JEPA-score", own_jacobian), ("sketch", sketched @ own_jacobian)):
                sizes = torch.linalg.eigvalsh(matrix @ matrix.mT).clamp(min=LEAST**2).log() / 2
                logs.setdefault(f"{layer} {name}", []).append(-sizes.sum())
    for layer, features_ND in seen.items():
        nearest = (unit_rows(features_ND) @ unit_rows(bank[layer]).mT).topk(NUM_NEAREST, dim=1).values
        own = {name: torch.stack(logs[f"{layer} {name}"]).numpy() for name in ("JEPA-score", "sketch")}
        by_layer[layer] = {**own, "neighbours": 1 - nearest.double().mean(dim=1).numpy()}
    return by_layer


def auroc(inliers: NDArray[np.float64], outliers: NDArray[np.float64]) -> float:
    """Share of pairs in which the outlier has more."""
    apart = outliers[:, None] - inliers
    return float(np.mean(apart > 0) + np.mean(apart == 0) / 2)


def row(kind: str, layer: str, inside: Scores, outside: Scores) -> list[str]:
    """Areas of one kind of outliers, and the difference of two in pairs."""
    ours, theirs = inside[layer], outside[layer]
    areas = {name: auroc(ours[name], theirs[name]) for name in ours}
    draws = np.random.default_rng(0)
    differences = []
    for _ in range(NUM_DRAWS):
        first, second = (draws.integers(0, len(part["sketch"]), len(part["sketch"])) for part in (ours, theirs))
        jepa, near = (auroc(ours[name][first], theirs[name][second]) for name in ("JEPA-score", "neighbours"))
        differences.append(jepa - near)
    low, high = np.quantile(differences, [0.025, 0.975])
    difference = areas["JEPA-score"] - areas["neighbours"]
    return [kind, layer, *(f"{area:.3f}" for area in areas.values()), f"{difference:+.3f} ({low:+.3f} to {high:+.3f})"]


def main(words: Sequence[str] | None = None) -> None:
    """Score inliers and each kind of outliers, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="folder of a run on pictures")
    parser.add_argument("pictures", help="pictures like those of the training")
    parser.add_argument("--bank", required=True, help="training pictures")
    parser.add_argument("--others", nargs="*", default=[], help="sets of other pictures")
    parser.add_argument("--number", type=int, default=300, help="pictures of each kind (default 300)")
    flags = parser.parse_args(words)
    encoder, draws = load(flags.run), torch.Generator().manual_seed(0)
    inliers = pictures(flags.pictures, 2 * flags.number, encoder)
    # Pictures that are changed are not among the inliers.
    kinds = changed(inliers[1::2], draws) | {name: pictures(name, flags.number, encoder) for name in flags.others}
    bank = features(encoder, pictures(flags.bank, 10_000, encoder))
    inside = scores(encoder, inliers[::2], bank)
    rows = []
    for kind, images in kinds.items():
        outside = scores(encoder, images, bank)
        rows += [row(kind.rpartition("/")[2], layer, inside, outside) for layer in inside]
    head = ["outliers", "features", "JEPA-score", "sketch", "neighbours", "JEPA-score less neighbours (95 % interval)"]
    print(
        heading("cpu", "jepa_score.py"), f"{flags.number} pictures of each kind; areas under the ROC curve.", sep="\n"
    )
    print(TextTable(head, rows, "llrrrl").to_markdown())


if __name__ == "__main__":
    main()
