"""`counterpoint evaluate`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from counterpoint.cli.arguments import add_fields, add_looking, fields_from, look_from, subject_from
from counterpoint.cli.outputs import add_forms, check_page, print_found
from counterpoint.cli.parsers import Parser, add_subject
from counterpoint.core.data_settings import LookSettings
from counterpoint.core.errors import UsageError
from counterpoint.core.ranks import part_of_ranks
from counterpoint.core.rundir import RunFolder
from counterpoint.evaluation.evaluation_settings import EvaluationSettings

ENDINGS = (".json", ".html")  # of what --out names
PLACE, SUMMARY = 30, "kNN and linear probe beside two baselines"
NOT_FLAGS = ("out", *LookSettings.model_fields)  # added by themselves
TEACH = """Evaluate a run, an encoder from elsewhere or a file of features on labelled samples: weighted kNN and a
linear probe on the representation and the embedding, beside raw input (PCA) and the untrained encoder on the same
split, with 95 % intervals. Of a folder with several seeds (train --seeds) each run is evaluated, and mean, deviation
and Student's interval over the seeds are printed.

examples:
  counterpoint evaluate runs/ncl
  counterpoint evaluate runs/mine --labels labels.csv --k 10
  counterpoint evaluate runs/ncl --metrics knn,linear-probe
  counterpoint evaluate runs/cifar --test-data cifar10
  counterpoint evaluate runs/cifar --test-data cifar10 --protocol all
  counterpoint evaluate runs/mine --data photos/train --test-data photos/val
  counterpoint evaluate --encoder timm:resnet18 --weights r18.pth --data photos
  counterpoint evaluate runs/photos --baseline timm:resnet18
  counterpoint evaluate features.npz --labels labels.npy
  counterpoint evaluate runs/photos --out photos.html --markdown
  counterpoint evaluate runs/cifar --corruptions all
  counterpoint evaluate runs/cifar --ood sketches --same-classes boat=ship
  counterpoint evaluate runs/ncl --selection all --metrics mAP@10
  counterpoint evaluate runs/ncl --checkpoint all --layers projected,embedding
  counterpoint evaluate runs/ncl --part 3/64"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    add_subject(parser, files="features (n, d) in a .npy, .npz, .csv or .parquet, as embed writes them")
    parser.add_argument("--data", help="other labelled data (default: the run's own)")
    parser.add_argument("--labels", metavar="FILE", help="labels for them: .csv (file,label) or .npy")
    parser.add_argument("--test-data", metavar="DATA", help="queries of their own; then all of --data is the bank")
    parser.add_argument("--test-labels", metavar="FILE", help="labels for them")
    add_fields(parser, EvaluationSettings, NOT_FLAGS)
    parser.add_argument(
        "--out",
        metavar="FILE",
        action="append",
        default=[],
        help="where the record goes (.json; default: by what is evaluated), or an HTML page that opens from disk; may "
        "be repeated",
    )
    parser.add_argument(
        "--part",
        metavar="I/N",
        help="encode only this share of the samples, for an evaluation without --part that measures then; the ranks "
        "of torchrun share a part",
    )
    add_forms(parser)
    add_looking(parser, "step of a kept checkpoint whose encoder is taken, or all (default: the last state)")


def run(flags: argparse.Namespace) -> int:
    """Evaluate, print the table, and write the page."""
    record, page = _targets(flags.out)
    seeds = None if flags.subject is None or flags.encoder is not None else RunFolder(Path(flags.subject))
    subject = None if seeds is not None and seeds.holds_seeds else subject_from(flags)
    asked = {
        "data": flags.data,
        "labels": flags.labels,
        "test_data": flags.test_data,
        "test_labels": flags.test_labels,
        **look_from(flags),
        **fields_from(flags, EvaluationSettings, NOT_FLAGS),
        **({} if record is None else {"out": record}),
        "quiet": flags.quiet,
    }
    part = part_of_ranks(flags.part)
    if seeds is not None and subject is None:
        if part.total > 1:
            raise UsageError("--part goes with one run; evaluate the runs of a folder of seeds one by one")
        from counterpoint.runs.seed_evaluation import evaluate_seeds  # deferred: loads torch and scikit-learn

        evaluation = evaluate_seeds(seeds.path, **asked)
    elif part.total > 1:
        from counterpoint.evaluation.part_evaluation import encode_part  # deferred: loads torch and scikit-learn

        encode_part(subject, part, **asked)
        return 0
    else:
        from counterpoint.evaluation.protocol import evaluate  # deferred: loads torch and scikit-learn

        evaluation = evaluate(subject, **asked)
    if page is not None:
        from counterpoint.report.document import write_page  # deferred: loads NumPy and Pillow
        from counterpoint.report.evaluation_page import (  # deferred: loads NumPy and Pillow
            EVALUATION_PAGE,
            render_evaluation,
        )

        write_page(EVALUATION_PAGE, page, lambda: render_evaluation(evaluation))
    print_found(evaluation, flags, page)
    return 0


def _targets(names: Sequence[str]) -> tuple[str | None, Path | None]:
    """Where record and page go, if that was said.

    Raises:
        UsageError: two of a kind, or another ending.
        RunError: a page that cannot be written there.
    """
    known: dict[str, str] = {}
    for name in names:
        ending = Path(name).suffix
        if ending not in ENDINGS or ending in known:
            raise UsageError(f"out must end in .json or .html, and have each once, got {name}")
        known[ending] = name
    page = Path(known[".html"]) if ".html" in known else None
    if page is not None:
        from counterpoint.report.evaluation_page import EVALUATION_PAGE  # deferred: loads NumPy and Pillow

        check_page(EVALUATION_PAGE, page)
    return known.get(".json"), page
