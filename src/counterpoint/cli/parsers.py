"""The verbs' flags and help texts. Loads without torch, so that help is instant."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from counterpoint.cli.arguments import Parser, add_settings
from counterpoint.cli.theory_flags import GEOMETRY, REPRODUCE, geometry_flags, reproduce_flags
from counterpoint.methods.catalogue import CATALOGUE as METHODS

LEVELS = ("note", "warning", "severe")


@dataclass(frozen=True)
class Verb:
    """One command.

    Attributes:
        summary: a line for the overview.
        teach: what it does and examples, for its own help.
        add_flags: adds its arguments.
    """

    summary: str
    teach: str
    add_flags: Callable[[Parser], None]


def build_parser(name: str) -> Parser:
    """Parser of one verb."""
    verb = VERBS[name]
    parser = Parser(prog=f"counterpoint {name}", description=verb.teach)
    verb.add_flags(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    return parser


def overview() -> str:
    """Help of the command itself."""
    lines = [f"  {name:<11}{verb.summary}" for name, verb in VERBS.items()]
    return "\n".join(
        [
            "usage: counterpoint VERB ...",
            "",
            "Learns representations by contrast and shows what it learned.",
            "",
            *lines,
            "",
            "Start with:",
            "  counterpoint train --data digits --method ncl --out runs/ncl",
            "  counterpoint evaluate runs/ncl && counterpoint diagnose runs/ncl && counterpoint report runs/ncl",
            "",
            "counterpoint VERB --help explains each.",
            "",
        ]
    )


def _train(parser: Parser) -> None:
    parser.add_argument("--config", metavar="FILE", help="YAML file with any of the settings below; flags win over it")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out if there is one")
    parser.add_argument("--overwrite", action="store_true", help="replace the run in --out if there is one")
    parser.add_argument(
        "--allow-changed", action="store_true", help="with --resume: take over changed settings that touch no weight"
    )
    add_settings(parser)


def _resume(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="run folder")


def _evaluate(parser: Parser) -> None:
    _resume(parser)
    parser.add_argument("--data", help="other labelled data (default: the run's own)")
    parser.add_argument("--labels", metavar="FILE", help="labels for them: .csv (file,label) or .npy")
    parser.add_argument("--k", type=int, default=20, help="neighbours that vote in kNN (default 20)")
    parser.add_argument(
        "--temperature", type=float, default=0.1, help="of the kNN vote: small trusts only the nearest (default 0.1)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")


def _diagnose(parser: Parser) -> None:
    parser.add_argument("subject", metavar="RUN|FILE", help="run folder, or features (n, d) in a .npy file")
    parser.add_argument("--labels", metavar="FILE", help="one label per sample: .npy; for a run on a folder also .csv")
    parser.add_argument("--views", metavar="FILE", help="with a .npy: features of another view of the same samples")
    parser.add_argument(
        "--threshold", type=float, default=1e-5, help="value above which a feature counts as active (default 1e-5)"
    )
    parser.add_argument(
        "--fail-on", choices=LEVELS, help="leave with code 3 if a finding is at least this bad (for scripts)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")


def _embed(parser: Parser) -> None:
    _resume(parser)
    parser.add_argument("data", metavar="DATA", nargs="?", help="samples to embed (default: the run's own)")
    parser.add_argument("--out", required=True, metavar="FILE", help=".npz, .csv or .parquet")
    parser.add_argument("--layer", default="representation", help="representation (default) or embedding")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")


def _verify(parser: Parser) -> None:
    _resume(parser)
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")


def _report(parser: Parser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="one or more run folders; several stand side by side")
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="HTML file (default: report.html in the run folder, or in the folder above several)",
    )


def _preview(parser: Parser) -> None:
    parser.add_argument("--config", metavar="FILE", help="YAML file with settings; flags win over it")
    parser.add_argument("--out", default="preview.png", metavar="FILE", help="PNG file (default preview.png)")
    parser.add_argument("--samples", type=int, default=8, help="rows (default 8)")
    parser.add_argument("--columns", type=int, default=6, help="views per row (default 6)")
    add_settings(parser, ["data", "seed", "source", "views"])


def _list(parser: Parser) -> None:
    parser.add_argument(
        "what",
        nargs="?",
        metavar="WHAT",
        help="data, methods, encoders, losses, views, checks or figures (default: all)",
    )


def _demo(parser: Parser) -> None:
    parser.add_argument(
        "--out", default="runs/demo", metavar="FOLDER", help="where both runs and the report go (default runs/demo)"
    )
    parser.add_argument("--epochs", type=int, metavar="N", help="train for fewer or more epochs than by default")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier demo there")


_METHOD_LINES = "\n".join(f"  {name:<11}{method.summary}" for name, method in METHODS.items())

VERBS: Mapping[str, Verb] = {
    "train": Verb(
        "train an encoder by contrast",
        "Train an encoder by contrast: two views of a sample are pulled together, samples are pushed apart.\n"
        f"Labels are used by supervised methods only.\n\nmethods:\n{_METHOD_LINES}\n\nexamples:\n"
        "  counterpoint train --data digits --method ncl --out runs/ncl\n"
        "  counterpoint train --data photos/ --encoder resnet18 --epochs 100 --batch-size 512\n"
        "  counterpoint train --data vectors.npy --optim.learning-rate 1e-3 --views.noise 0.1\n"
        "  counterpoint train --config run.yaml --seed 1\n"
        "  torchrun --nproc-per-node 2 -m counterpoint train --data photos/ --batch-size 512\n\n"
        "Every setting has a flag; what is left at auto is chosen for the data and written, with its reason, to\n"
        "RUN/resolved.yaml. The last line printed names the run folder.",
        _train,
    ),
    "resume": Verb(
        "continue an interrupted run",
        "Continue an interrupted run from its newest undamaged checkpoint. The result is the same, bit for bit,\n"
        "as if it had never stopped (same machine, same number of threads).\n\nexample:\n  counterpoint resume "
        "runs/ncl",
        _resume,
    ),
    "evaluate": Verb(
        "kNN and linear probe beside two baselines",
        "Evaluate a run on labelled samples: weighted kNN and a linear probe on the representation and the embedding,\n"
        "beside raw input (PCA) and the untrained encoder on the same split, with 95 % intervals.\n\nexamples:\n"
        "  counterpoint evaluate runs/ncl\n  counterpoint evaluate runs/mine --labels labels.csv --k 10",
        _evaluate,
    ),
    "diagnose": Verb(
        "say whether a representation is healthy, and why not",
        "Look inside a run, or inside features from anywhere: collapse, effective rank, alignment, uniformity, "
        "sparsity, and\n"
        "what single dimensions mean. Needs no labels. Findings are printed worst first, each with something to "
        "try.\n\n"
        "examples:\n  counterpoint diagnose runs/ncl\n  counterpoint diagnose features.npy --labels labels.npy "
        "--fail-on severe",
        _diagnose,
    ),
    "embed": Verb(
        "write embeddings as a table",
        "Embed samples with a trained encoder and write one row per sample, with names and labels where "
        "known.\n\nexamples:\n"
        "  counterpoint embed runs/ncl --out digits.npz\n  counterpoint embed runs/mine new_photos/ --out new.parquet",
        _embed,
    ),
    "verify": Verb(
        "re-hash a run and replay one saved step",
        "Verify a run: every checkpoint and the encoder against their hashes, settings and data against what the run\n"
        "began with, and one saved step taken again and compared bit for bit. Leaves with code 1 if anything differs.\n"
        "Nothing in the run is changed.\n\nexamples:\n  counterpoint verify runs/ncl\n"
        "  counterpoint verify runs/ncl --json",
        _verify,
    ),
    "report": Verb(
        "one HTML file that shows what was learned",
        "Write one self-contained HTML file from one or more run folders: verdict, curves, spectra, concept gallery,\n"
        "evaluation, configuration. It opens from disk, without a network, and can be mailed.\n\nexamples:\n"
        "  counterpoint report runs/ncl\n  counterpoint report runs/simclr runs/ncl --out side_by_side.html",
        _report,
    ),
    "preview": Verb(
        "draw originals beside their views",
        "Draw what training will see: originals beside their views. What differs between views of one row is what the\n"
        "encoder learns to ignore.\n\nexamples:\n  counterpoint preview --data digits\n"
        "  counterpoint preview --data photos/ --views.crop-scale 0.5,1 --out views.png",
        _preview,
    ),
    "geometry": Verb("the geometry that minimises a loss for your class proportions", GEOMETRY, geometry_flags),
    "reproduce": Verb("make a figure of one of the papers again", REPRODUCE, reproduce_flags),
    "list": Verb(
        "list data sets, methods, encoders, losses, view presets, checks, figures",
        "List what can be chosen by name.\n\nexample:\n  counterpoint list encoders",
        _list,
    ),
    "demo": Verb(
        "train SimCLR and NCL on the digits and compare them",
        "Train SimCLR and NCL (non-negative contrastive learning) on scikit-learn's handwritten digits, evaluate and\n"
        "diagnose both, and write one report that sets them side by side. Takes about a minute on two "
        "cores.\n\nexample:\n"
        "  counterpoint demo --out runs/demo",
        _demo,
    ),
}
