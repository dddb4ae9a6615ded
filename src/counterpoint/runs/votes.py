"""What the nearest labelled samples say of the classes of held-out ones, for each set of features of a diagnosis."""

# N samples, D features

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.derived_files import read_derived
from counterpoint.core.run_records import BASELINES, EvaluationRecord, EvaluationRow, read_record
from counterpoint.data.order import Split
from counterpoint.diagnostics.evidence import GREY_INPUT, RAW_INPUT, REPRESENTATION, UNTRAINED
from counterpoint.evaluation.evaluation_result import CATALOGUE, KNN
from counterpoint.evaluation.features import evenly_spaced
from counterpoint.evaluation.protocol import MIN_QUERIES
from counterpoint.evaluation.scoring import Labelled, row_of
from counterpoint.evaluation.subject import Subject

MOST_BANK, MOST_QUERIES = 8000, 2000  # samples that vote, and that are asked about
NEAREST, TEMPERATURE = 20, 0.1
_, _, UNTRAINED_VOTE, _ = BASELINES

Votes = tuple[EvaluationRow, ...]


def votes_of_subject(judged: Subject, seen: Mapping[str, Tensor]) -> Votes:
    """KNN accuracies of a subject: those of its evaluation, or measured beside the raw input.

    Args:
        judged: an encoder beside samples; without labels there are no votes.
        seen: features of all samples by place.
    """
    if judged.folder is not None and judged.is_own_record and judged.folder.evaluation.exists():
        file = judged.folder.evaluation
        return read_record(EvaluationRecord, read_derived(judged.folder, file), str(file)).rows
    source = judged.source
    if source.labels is None:
        return ()
    bank, queries = _asked(source.labels, judged.split)
    named = {UNTRAINED_VOTE if name == UNTRAINED else name: (z_ND[bank], z_ND[queries]) for name, z_ND in seen.items()}
    raw = [to_unit_float(source.store.fetch(part.tolist())) for part in (bank, queries)]
    named[RAW_INPUT] = (raw[0].flatten(1), raw[1].flatten(1))
    if source.kind == "images" and raw[0].shape[1] > 1:
        named[GREY_INPUT] = (raw[0].mean(dim=1).flatten(1), raw[1].mean(dim=1).flatten(1))
    return votes(named, (source.labels[bank], source.labels[queries]), source.class_names)


def votes_of_features(z_ND: Tensor, labels_N: Tensor, class_names: tuple[str, ...], split: Split) -> Votes:
    """The kNN accuracy of features from anywhere."""
    bank, queries = _asked(labels_N, split)
    return votes({REPRESENTATION: (z_ND[bank], z_ND[queries])}, (labels_N[bank], labels_N[queries]), class_names)


def votes(
    features: Mapping[str, tuple[Tensor, Tensor]], labels: tuple[Tensor, Tensor], class_names: tuple[str, ...]
) -> Votes:
    """One row for each set of features, all of the same queries.

    Args:
        features: of bank and queries, by name.
        labels: of bank and queries.
        class_names: of all classes.

    Returns:
        Nothing where there are fewer queries than ``MIN_QUERIES``, or fewer than two classes.
    """
    if len(labels[1]) < MIN_QUERIES or len(labels[0].unique()) < 2:
        return ()
    rows = []
    for name, (bank_ND, queries_QD) in features.items():
        k = min(NEAREST, len(bank_ND))
        asked = Labelled(bank_ND, labels[0], queries_QD, labels[1], k=k, temperature=TEMPERATURE)
        score = replace(CATALOGUE[KNN].measure(asked), settings={"k": k})
        rows.append(row_of(name, KNN, score, class_names))
    return tuple(rows)


def _asked(labels_N: Tensor, split: Split) -> tuple[Tensor, Tensor]:
    """Positions of labelled samples that vote and that are asked about, evenly spaced where there are many."""
    bank, queries = (part[labels_N[part] >= 0] for part in (split.train, split.held_out))
    return evenly_spaced(bank, MOST_BANK), evenly_spaced(queries, MOST_QUERIES)
