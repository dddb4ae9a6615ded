"""`counterpoint evaluate`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from counterpoint.cli.arguments import add_looking, look_from, subject_from
from counterpoint.cli.outputs import add_forms, check_page, print_found
from counterpoint.cli.parsers import Parser, add_subject
from counterpoint.core.errors import UsageError
from counterpoint.core.own_parts import from_flag
from counterpoint.core.rundir import RunFolder
from counterpoint.core.work_parts import part_of_ranks

ENDINGS = (".json", ".html")  # of what --out names
PLACE, SUMMARY = 30, "kNN and linear probe beside two baselines"
# Settings of `evaluate`: names that commas separate, and single values.
LISTS = ("metrics", "protocol", "layers", "corruptions", "selection")
SINGLE = (
    "k", "temperature", "similarity", "weighting", "inverse_penalty", "absent_classes", "severities", "reference",
    "selection_step", "rank_on",
)  # fmt: skip
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
    parser.add_argument(
        "--metrics", metavar="NAMES", default="", help="of `counterpoint list metrics`, separated by commas; or all"
    )
    parser.add_argument(
        "--protocol",
        metavar="NAMES",
        default="",
        help="of `counterpoint list protocols`, as published tables were measured; or all that apply",
    )
    _add_votes(parser)
    parser.add_argument(
        "--layers",
        metavar="NAMES",
        default="",
        help="representation, embedding, projected (embedding before its output map), subvector, or modules of the "
        "backbone, separated by commas",
    )
    _add_conditions(parser)
    parser.add_argument(
        "--selection",
        metavar="ORDERS",
        default="",
        help="measure with the first features of these orders: first, random, expected-activation, "
        "non-negative-expected-activation, variance, pca, or all",
    )
    parser.add_argument(
        "--selection-step", metavar="N", type=int, help="keep multiples of N features (default: 1, 2, 4, ...)"
    )
    parser.add_argument(
        "--rank-on", metavar="DATA", help="data that the orders are made from (default: the labelled samples)"
    )
    _add_baselines(parser)
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
        help="encode with other processes, which share the cache; part 1 measures; slurm takes the index of the job's "
        "array, and the ranks of torchrun share a part",
    )
    add_forms(parser)
    add_looking(parser, "step of a kept checkpoint whose encoder is taken, or all (default: the last state)")


def _add_votes(parser: Parser) -> None:
    """Add the settings of votes and probes, and who is asked."""
    parser.add_argument("--k", type=int, help="neighbours that vote in kNN (default 20)")
    parser.add_argument(
        "--temperature", type=float, help="of the kNN vote: small trusts only the nearest (default 0.1)"
    )
    parser.add_argument("--similarity", help="by which neighbours are near: cosine (default) or euclidean")
    parser.add_argument("--weighting", help="of their votes: exp (default), uniform or inverse")
    parser.add_argument("--inverse-penalty", type=float, help="C of the linear probe's squared penalty (default 0.1)")
    parser.add_argument("--absent-classes", help="queries of classes that the bank lacks: refuse (default) or exclude")
    parser.add_argument(
        "--same-classes",
        metavar="NAMES",
        default="",
        help="what classes of --test-data and --ood are called in the bank, such as car=automobile,boat=ship",
    )


def _add_conditions(parser: Parser) -> None:
    """Add corruptions and other sources."""
    parser.add_argument(
        "--corruptions",
        metavar="NAMES",
        default="",
        help="ask a classifier fitted to clean samples about corrupted queries: all, noise, blur, weather, digital, or "
        "names of `counterpoint list corruptions`",
    )
    parser.add_argument("--severities", help="of the corruptions, such as 3 or 1-5 (default 1-5)")
    parser.add_argument("--reference", help="whose errors divide in mCE: pixels (default), untrained or none")
    parser.add_argument(
        "--ood",
        metavar="DATA",
        action="append",
        default=[],
        help="ask the same classifier about another source of the same classes, by name; may be repeated",
    )


def _add_baselines(parser: Parser) -> None:
    """Add the encoders to compare with."""
    parser.add_argument(
        "--baseline",
        metavar="ENCODER",
        action="append",
        default=[],
        help="an encoder from elsewhere to compare with, named as for --encoder; may be repeated",
    )
    parser.add_argument(
        "--baseline-weights",
        metavar="FILE",
        action="append",
        default=[],
        help="its weights (default: random ones); of several, in the order of --baseline",
    )


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
        **_given(flags),
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
        from counterpoint.evaluation.part_evaluation import evaluate_part  # deferred: loads torch and scikit-learn

        evaluation = evaluate_part(subject, part, **asked)
        if evaluation is None:
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


def _given(flags: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given; what was not is left to `evaluate`."""
    lists = {name: tuple(filter(None, map(str.strip, getattr(flags, name).split(",")))) for name in LISTS}
    repeated = {"ood": flags.ood, "baselines": from_flag(flags.baseline), "baseline_weights": flags.baseline_weights}
    pairs = [pair.partition("=") for pair in filter(None, flags.same_classes.split(","))]
    if wrong := ["".join(pair) for pair in pairs if not all(map(str.strip, pair))]:
        raise UsageError(f"same-classes must be pairs such as car=automobile, got {wrong[0]!r}")
    known = {
        **lists,
        "same_classes": {theirs.strip(): ours.strip() for theirs, _, ours in pairs},
        **{name: tuple(values) for name, values in repeated.items()},
        **{name: getattr(flags, name) for name in SINGLE},
    }
    return {name: value for name, value in known.items() if value not in (None, (), {})}
