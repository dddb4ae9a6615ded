"""Contents of each table and figure of the five papers, and the parts that are left out here, with the reason.

The sets that are used, and the stand-ins of the small scale, follow from the studies; a test holds this list to them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from reproductions.catalogue import CATALOGUE, DRAWINGS
from reproductions.study import studies


@dataclass(frozen=True)
class PaperItem:
    """A table or figure as it is printed.

    Attributes:
        data: sets, by their names in ``study_data``; empty for computed figures.
        rows: methods or settings that are compared.
        columns: what is shown of each.
        left_out: what is not made again, by name, with the reason.
    """

    data: tuple[str, ...]
    rows: int
    columns: str
    left_out: Mapping[str, str]


def item(data: str, rows: int, columns: str, **left_out: str) -> PaperItem:
    """Make an item from sets separated by spaces and left-out parts that have underscores for hyphens."""
    return PaperItem(
        tuple(data.split()), rows, columns, {name.replace("_", "-"): why for name, why in left_out.items()}
    )


ITEMS: Mapping[str, PaperItem] = {
    "alphacl-table1": item("cifar10 stl10", 7, "accuracy after 100, 300 and 500 epochs"),
    "alphacl-table2": item(
        "cifar10 cifar100 stl10",
        4,
        "accuracy after 100, 300 and 500 epochs of two backbones",
    ),
    "alphacl-table3": item("cifar10 cifar100 stl10", 3, "accuracy after 100, 300 and 500 epochs"),
    "alphacl-table4": item("stl10", 5, "accuracy after 500 epochs"),
    "alphacl-fig2": item("", 0, "objective and singular values of five layers"),
    "alphacl-fig3": item("", 0, "weights of two layers"),
    "mio-table2": item(
        "cifar10 cifar100 stl10 tiny-imagenet",
        9,
        "200-NN accuracy",
    ),
    "mio-table3": item(
        "cifar10 cifar100",
        8,
        "200-NN accuracy of two backbones, and the drop",
    ),
    "mio-fig2": item("cifar10", 2, "Ritz values"),
    "mio-fig3": item("cifar10", 3, "spectrum of the Hessian"),
    "mio-fig4": item("cifar10", 6, "spectrum of the Hessian"),
    "mio-fig5": item("cifar100 tiny-imagenet", 4, "spectrum of the Hessian"),
    "mio-fig6": item("cifar10", 2, "spectrum of the Hessian from the 100th to the 500th epoch"),
    "mio-supplement-fig3": item("cifar10", 4, "spectra from the 100th to the 500th epoch"),
    "directclr-table1": item("imagenet", 6, "accuracy of a linear probe"),
    "directclr-section6": item("imagenet", 1, "accuracy of a linear probe, of all and of the sub-vector"),
    "directclr-fig2": item("imagenet", 1, "spectrum of the embedding"),
    "directclr-fig4": item("", 0, "alignment matrix"),
    "directclr-fig5": item("", 0, "singular values along training"),
    "directclr-fig6": item("", 0, "spectrum by depth, and with ReLU"),
    "directclr-section4": item("", 0, "spectrum by strength of augmentation"),
    "directclr-fig7": item("imagenet", 1, "spectra of representation and embedding"),
    "directclr-fig9": item("imagenet", 4, "spectra of the representation"),
    "ncl-table1": item(
        "imagenet100",
        2,
        "probe, retrieval and transfer with all, a random half, and EA halves with and without ReLU",
    ),
    "ncl-table2": item("imagenet100", 2, "SEPIN@1, 10, 100 and all"),
    "ncl-table3": item(
        "cifar10 cifar100 imagenet100", 2, "probe, fine-tuning; stylised, corrupted and sketched pictures"
    ),
    "ncl-table4": item("imagenet100", 4, "accuracy from scratch"),
    "ncl-table4-finetune": item("imagenet100", 4, "accuracy after fine-tuning"),
    "ncl-table5": item("cifar10", 3, "probe of encoder and projector, sparsity"),
    "ncl-table6": item("dsprites", 2, "MIG"),
    "ncl-table7": item(
        "cifar10 cifar100",
        2,
        "probe and fine-tuning of projector outputs",
    ),
    "ncl-fig1": item("cifar10", 2, "pictures and activations by dimension"),
    "ncl-fig3": item("cifar10", 2, "consistency, sparsity, correlation"),
    "ncl-fig4": item("imagenet100", 2, "accuracy along training"),
    "ncl-fig5": item("cifar10", 2, "accuracy, consistency, sparsity, correlation"),
    "ncl-fig6": item("", 0, "expected activation and eigenvalues"),
    "ncl-fig7": item("cifar10", 2, "activated dimensions of each sample"),
    "ncl-fig8": item("cifar100", 2, "pictures by dimension"),
    "ncl-fig9": item("imagenet100", 2, "pictures by dimension"),
    "ncl-fig10": item("imagenet100", 2, "retrieval by number of features"),
    "imbalanced-fig1": item("", 0, "points in the plane, class means"),
    "imbalanced-fig2": item("", 0, "points in the plane, class means"),
}


def item_rows() -> list[list[str]]:
    """A row for each item: what is printed, the sets at both scales, and what is left out."""
    return [[f"`{name}`", *_item_cells(name, entry)] for name, entry in ITEMS.items()] + [
        [f"`{name}`", "no measurement", "-", "-", why] for name, why in DRAWINGS.items()
    ]


def _item_cells(name: str, entry: PaperItem) -> list[str]:
    """Cells of an item: what is printed, the sets at the paper's and at the small scale, and what is left out."""
    printed = f"{', '.join(entry.data) or 'toy data'}; {f'{entry.rows} rows; ' if entry.rows else ''}{entry.columns}"
    left_out = "; ".join(f"{part}: {why}" for part, why in entry.left_out.items()) or "-"
    if name in CATALOGUE:
        return [printed, "computed", "computed", left_out]
    return [printed, *(", ".join(sorted(sets_of(name, scale))) or "-" for scale in ("paper", "small")), left_out]


def sets_of(name: str, scale: str) -> set[str]:
    """The sets of the studies that show an item; empty if no study shows it."""
    study_scale = "small" if scale == "small" else "paper"
    matching = [study for study in studies(study_scale).values() if name == study.name or name in study.also]
    return {study.data_of(arm, study_scale) for study in matching for arm in study.arms}
