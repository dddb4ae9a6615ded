"""The samples that a search compares: features of a run's encoder, from the cache or computed, and their nearest rows.

Similarity is the cosine, and every row is compared. The similarities of the best are computed again in float64, so that
copies get the same bits.
"""

# N rows, Q queries, D features, K neighbours, W candidates

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.errors import DataError
from counterpoint.core.files import read_sealed
from counterpoint.core.numerics import unit_rows
from counterpoint.core.run import Run, as_run
from counterpoint.core.stored_rows import Rows, gather, load
from counterpoint.core.validation import build
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.embedding import layer_rows
from counterpoint.evaluation.knn import Neighbours, nearest
from counterpoint.evaluation.load_subject import Samples, one_checkpoint, open_subject
from counterpoint.evaluation.subject import Subject
from counterpoint.nn.layer_outputs import EMBEDDING, REPRESENTATION
from counterpoint.search import SearchSettings

SPARE = 8  # candidates beyond k: rounding may order the last ones otherwise
RESCORED = 256  # queries at a time


@dataclass(frozen=True)
class SearchedSamples:
    """Samples with their features.

    Attributes:
        run: name of the run's folder.
        subject: encoder and samples.
        layer: the layer that is compared.
        checkpoint: step of the encoder; None for the last state.
        rows_ND: features, as the encoder gives them.
        reporter: shows progress.
    """

    run: str
    subject: Subject
    layer: str
    checkpoint: str | None
    rows_ND: Rows
    reporter: Reporter

    def __len__(self) -> int:
        return len(self.rows_ND)

    @property
    def names(self) -> Sequence[str]:
        """Name of each row."""
        return self.subject.source.sample_names

    @cached_property
    def labels(self) -> tuple[str | None, ...]:
        """Class of each row; None if it is unknown."""
        return self.subject.source.classes() or (None,) * len(self)

    def facts(self) -> dict[str, str]:
        """Facts about the search by name: the collection, the layer, the checkpoint, and the method."""
        facts = {
            "collection": f"{len(self):,} samples of {self.subject.source.name}",
            "layer": f"{self.layer} ({self.rows_ND.shape[1]} dimensions)",
        }
        if self.checkpoint:
            facts["checkpoint"] = f"checkpoint {self.checkpoint}"
        return {**facts, "method": "every row compared"}

    def vectors(self, rows: Tensor | slice = slice(None)) -> Tensor:
        """Some rows at unit length."""
        return unit_rows(self.rows_ND[rows] if isinstance(rows, slice) else load(gather(self.rows_ND, rows)))

    def search(self, queries_QD: Tensor, k: int) -> Neighbours:
        """The rows with the largest cosines, largest first; of equal ones the first row.

        Args:
            queries_QD: finite vectors of the width of the rows.
            k: number of rows for each query, 1 <= k <= n.

        Returns:
            Cosines, float64, and positions of the rows.
        """
        unit_QD = unit_rows(queries_QD.float())
        candidates_QW = nearest(self.rows_ND, unit_QD, min(k + SPARE, len(self))).positions_QK.sort(dim=1).values
        similarities, positions = list[Tensor](), list[Tensor]()
        # Few queries at a time, so that the candidates of all of them fit into memory.
        for few_QD, row_QW in zip(unit_QD.split(RESCORED), candidates_QW.split(RESCORED), strict=True):
            # Row by row, so that copies get the same bits.
            rows_QWD = self.vectors(row_QW.flatten()).view(*row_QW.shape, -1).double()
            similarity_QW = (rows_QWD * few_QD.double()[:, None]).sum(dim=2)
            best_QK = similarity_QW.argsort(dim=1, descending=True, stable=True)[:, :k]
            similarities.append(similarity_QW.gather(1, best_QK))
            positions.append(row_QW.gather(1, best_QK))
        return Neighbours(torch.cat(similarities), torch.cat(positions))


def open_samples(
    run: Run | str | Path, data: Any, options: dict[str, Any], verb: str, *, quiet: bool
) -> SearchedSamples:
    """Open the samples that a search compares, with their features.

    Args:
        run: the run or its folder.
        data: other samples than the run's own; None for these.
        options: settings of the search; see ``SearchSettings``.
        verb: name of the command, for errors.
        quiet: show no progress.

    Raises:
        UsageError: an option is wrong.
        RunError: the run has no encoder yet.
        DataError: fewer than two samples.
    """
    settings, run, reporter = build(SearchSettings, options, verb), as_run(run), Reporter(quiet=quiet)
    subject = one_checkpoint(open_subject(run, Samples(data), settings, reporter), settings.checkpoint)
    if len(subject.source) < 2:
        raise DataError(f"{subject.source.name} holds 1 sample; a search needs 2 or more")
    layer = settings.layer
    if layer == "auto":  # the embedding if its dimensions have a meaning or pairs were trained
        has_meaning = read_sealed(run.folder.encoder_card).get("nonnegative", "none") != "none"
        layer = EMBEDDING if has_meaning or run.folder.second.encoder_card.exists() else REPRESENTATION
    rows_ND = layer_rows(subject, layer, settings.cache, reporter)
    return SearchedSamples(run.path.resolve().name, subject, layer, settings.checkpoint, rows_ND, reporter)
