"""Measurements of the pairs of a run: weights of the negatives, temperature, and samples that are too close.

Plain records that load without torch.
"""

from typing import Annotated

from counterpoint.core.schemas import Figure, Listed, Record, Text


class NearPair(Record):
    """Two samples whose views are close.

    Attributes:
        cosine: cosine of the samples, the mean over the views of the one and of the other.
        own: cosine of the two views of one sample, the mean over both samples.
        names: names of both samples.
        classes: classes of both samples; empty if one is not known.
        is_copy: whether they are near-copies.
    """

    cosine: Figure = None
    own: Figure = None
    names: Annotated[tuple[Text, ...], Listed] = ()
    classes: Annotated[tuple[Text, ...], Listed] = ()
    is_copy: bool = False


class PairRecord(Record):
    """Pairs of a run, in batches of its own size. Figures of alpha are None if the loss weighs no pairs.

    Attributes:
        loss: name of the loss.
        why: reason why nothing is known of alpha; empty if it is known.
        temperature: temperature of the loss; None for a loss without one.
        run_batch: number of samples that one call of the loss has in training.
        batch_size: number of samples of each batch that was measured.
        num_negatives: number of vectors that repel each anchor.
        effective_negatives: exp of the entropy of an anchor's weights, mean over anchors and batches.
        effective_low: lower end of its 95 % interval, over batches; None for a single batch.
        effective_high: upper end.
        hardest_share: share of the weight that one in a hundred negatives have, those that weigh most.
        copy_share: share of samples that have a near-copy.
        copy_mass: share of the weight of negatives that falls on near-copies of the anchor's sample.
        copy_low: lower end of its 95 % interval, over batches; None for a single batch.
        copy_high: upper end.
        copy_chance: value that ``copy_mass`` would have if all negatives weighed alike.
        class_mass: share of the weight of negatives that falls on the anchor's own class; None without labels.
        class_chance: value that ``class_mass`` would have if all negatives weighed alike.
        nearest: the closest pairs of different samples, exact copies left out.
    """

    loss: str = ""
    why: str = ""
    temperature: Figure = None
    run_batch: Figure = None
    batch_size: Figure = None
    num_negatives: Figure = None
    effective_negatives: Figure = None
    effective_low: Figure = None
    effective_high: Figure = None
    hardest_share: Figure = None
    copy_share: Figure = None
    copy_mass: Figure = None
    copy_low: Figure = None
    copy_high: Figure = None
    copy_chance: Figure = None
    class_mass: Figure = None
    class_chance: Figure = None
    nearest: Annotated[tuple[NearPair, ...], Listed] = ()

    def __str__(self) -> str:
        if self.why:
            return f"pairs: {self.why}"
        lines = [
            f"pairs: an anchor weighs {_text(self.effective_negatives)} of {_text(self.num_negatives)} negatives "
            f"({self.loss}, batches of {_text(self.batch_size)})"
        ]
        if self.nearest:
            lines.append("  closest pairs of different samples:")
        lines += [
            f"    cosine {_text(pair.cosine)} (own views {_text(pair.own)})  {'  '.join(pair.names)}"
            + (f"  ({', '.join(pair.classes)})" if pair.classes else "")
            for pair in self.nearest
        ]
        return "\n".join(lines)


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
