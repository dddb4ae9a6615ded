"""`counterpoint evaluate`."""

import argparse
import json

from counterpoint.cli.arguments import add_looking, look_from, subject_from
from counterpoint.cli.parsers import Parser, add_subject
from counterpoint.core.shown import shown_lines

PLACE, SUMMARY = 30, "kNN and linear probe beside two baselines"
TEACH = """Evaluate a run, an encoder from elsewhere or a file of features on labelled samples: weighted kNN and a
linear probe on the representation and the embedding, beside raw input (PCA) and the untrained encoder on the same
split, with 95 % intervals.

examples:
  counterpoint evaluate runs/ncl
  counterpoint evaluate runs/mine --labels labels.csv --k 10
  counterpoint evaluate runs/ncl --metrics knn,linear-probe
  counterpoint evaluate runs/cifar --test-data cifar10
  counterpoint evaluate runs/mine --data photos/train --test-data photos/val
  counterpoint evaluate --encoder timm:resnet18 --weights resnet18.safetensors --data photos
  counterpoint evaluate runs/photos --baseline timm:resnet18 --baseline-weights resnet18.safetensors
  counterpoint evaluate features.npz --labels labels.npy
  counterpoint evaluate runs/cifar --test-data cifar10 --corruptions all --ood sketches
  counterpoint evaluate runs/ncl --selection all --metrics mAP@10
  counterpoint evaluate runs/ncl --checkpoint all --layers representation,projected,embedding"""


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
    parser.add_argument("--k", type=int, default=20, help="neighbours that vote in kNN (default 20)")
    parser.add_argument(
        "--temperature", type=float, default=0.1, help="of the kNN vote: small trusts only the nearest (default 0.1)"
    )
    parser.add_argument("--similarity", default="cosine", help="by which neighbours are near: cosine or euclidean")
    parser.add_argument("--weighting", default="exp", help="of their votes: exp (default), uniform or inverse")
    parser.add_argument(
        "--inverse-penalty", type=float, default=0.1, help="C of the linear probe's squared penalty (default 0.1)"
    )
    parser.add_argument(
        "--layers",
        metavar="NAMES",
        default="",
        help="representation, embedding, projected (embedding before its output map), subvector, or modules of the "
        "backbone, separated by commas",
    )
    parser.add_argument(
        "--corruptions",
        metavar="NAMES",
        default="",
        help="ask a classifier fitted to clean samples about corrupted queries: all, noise, blur, weather, digital, or "
        "names of `counterpoint list corruptions`",
    )
    parser.add_argument("--severities", default="1-5", help="of the corruptions, such as 3 or 1-5 (default 1-5)")
    parser.add_argument(
        "--reference", default="pixels", help="whose errors divide in mCE: pixels (default), untrained or none"
    )
    parser.add_argument(
        "--ood",
        metavar="DATA",
        action="append",
        default=[],
        help="ask the same classifier about another source of the same classes, by name; may be repeated",
    )
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
    parser.add_argument("--out", metavar="FILE", help="JSON file to write (default: by what is evaluated)")
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")
    add_looking(parser, "step of a kept checkpoint whose encoder is taken, or all (default: the last state)")


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
    """Evaluate, and print the table."""
    subject = subject_from(flags)
    from counterpoint.evaluation.protocol import evaluate  # deferred: loads torch and scikit-learn

    evaluation = evaluate(
        subject,
        data=flags.data,
        labels=flags.labels,
        test_data=flags.test_data,
        test_labels=flags.test_labels,
        **look_from(flags),
        metrics=_listed(flags.metrics),
        layers=_listed(flags.layers),
        out=flags.out,
        k=flags.k,
        temperature=flags.temperature,
        similarity=flags.similarity,
        weighting=flags.weighting,
        inverse_penalty=flags.inverse_penalty,
        corruptions=_listed(flags.corruptions),
        severities=flags.severities,
        reference=flags.reference,
        ood=tuple(flags.ood),
        selection=_listed(flags.selection),
        selection_step=flags.selection_step,
        rank_on=flags.rank_on,
        baselines=tuple(flags.baseline),
        baseline_weights=tuple(flags.baseline_weights),
        quiet=flags.quiet,
    )
    print(json.dumps(evaluation.to_dict(), indent=1) if flags.json else shown_lines(evaluation))
    return 0


def _listed(text: str) -> tuple[str, ...]:
    """Names that commas separate."""
    return tuple(filter(None, map(str.strip, text.split(","))))
