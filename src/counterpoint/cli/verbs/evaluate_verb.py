"""Evaluate a run, an encoder from elsewhere or a file of features on labelled samples: weighted kNN and a
linear probe on the representation and the embedding, beside raw input (PCA) and the untrained encoder on the same
split, with 95 % intervals. Of a folder with several seeds (train --seeds) each run is evaluated, and mean, deviation
and Student's interval over the seeds are printed.

examples:
  counterpoint evaluate runs/ncl
  counterpoint evaluate runs/ncl --metrics knn,linear-probe
  counterpoint evaluate runs/cifar --test-data cifar10
  counterpoint evaluate --encoder timm:resnet18 --weights r18.pth --data photos
  counterpoint evaluate features.npz --labels labels.npy
  counterpoint evaluate runs/cifar --corruptions all
  counterpoint evaluate runs/ncl --selection all --metrics mAP@10
  counterpoint evaluate runs/ncl --checkpoint all --layers projected,embedding"""

from pathlib import Path

import counterpoint as cp
from counterpoint.cli.arguments import EncodingFlags, JsonFlags, SubjectFlags, chosen, engine_from, option, subject_from
from counterpoint.cli.outputs import print_found
from counterpoint.core.errors import UsageError
from counterpoint.core.ranks import HERE
from counterpoint.core.rundir import RunFolder
from counterpoint.core.user_files import is_file_or_shards
from counterpoint.evaluation.evaluation_settings import EvaluationSettings

PLACE, SUMMARY = 30, "kNN and linear probe beside two baselines"
SAMPLES = ("data", "labels", "test_data", "test_labels")


class EvaluateFlags(JsonFlags, EncodingFlags, SubjectFlags, EvaluationSettings):
    """Settings of ``evaluate``: the samples, and the file for the results."""

    data: str | None = option("other labelled data (default: the run's own)")
    labels: str | None = option("file with labels for them: .csv (file,label) or .npy")
    test_data: str | None = option("separate queries; all of --data is then the bank")
    test_labels: str | None = option("file with labels for them")
    out: str | None = option("where the record goes (.json; default: the run folder; without a run nowhere)")


def run(flags: EvaluateFlags) -> None:
    """Evaluate, and print the table."""
    if flags.out is not None and Path(flags.out).suffix != ".json":
        raise UsageError(
            f"out must end in .json, got {flags.out}; `counterpoint report RUN` draws a run; --json has every figure"
        )
    folder = RunFolder(Path(flags.subject)) if flags.subject is not None and flags.encoder is None else None
    has_seeds = folder is not None and folder.holds_seeds
    subject = flags.subject if has_seeds else subject_from(flags.subject, flags.encoder)
    options = {name: getattr(flags, name) for name in (*SAMPLES, "quiet")} | chosen(flags, EvaluationSettings)
    engine = engine_from(flags)
    if engine is not HERE and subject is not None and flags.encoder is None and is_file_or_shards(subject):
        raise UsageError("--engine ray passes samples through an encoder; features are evaluated by one process")
    from counterpoint.evaluation.features import encoded_by  # deferred: loads torch and scikit-learn

    with encoded_by(engine):
        evaluation = cp.evaluate_seeds(str(subject), **options) if has_seeds else cp.evaluate(subject, **options)
    print_found(evaluation, as_json=flags.as_json)
