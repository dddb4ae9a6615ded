"""`counterpoint fine-tune`."""

import argparse
import json

from counterpoint.cli.arguments import add_settings, settings_from
from counterpoint.cli.parsers import Parser, print_folder
from counterpoint.core.errors import UsageError
from counterpoint.core.terminal_text import shown_lines

PLACE, SUMMARY = 25, "train a run's encoder further, with labels"
TEACH = """Fine-tune: train the whole encoder of a run, or one trained elsewhere, on labelled samples, with a
classifier on top, and set the classifier's accuracy beside that of a linear probe on the frozen encoder, on the same
queries.

Where nothing else is asked for, 30 epochs with LARS (learning rate 0.4 x batch / 256, a third of warm-up, then a
cosine, weight decay 1e-4), on crops and flips. The new run is like any other: `counterpoint resume` goes on with it
after a stop, and `counterpoint evaluate` has its classifier in the table.

examples:
  counterpoint fine-tune runs/ncl
  counterpoint fine-tune runs/ncl --label-share 0.1 --seed 1
  counterpoint fine-tune runs/photos --data pets/ --optim.layer-decay 0.8
  counterpoint fine-tune runs/ncl --method nonnegative-supervised
  counterpoint fine-tune --encoder timm:resnet18 --weights m.pth --data pets/"""

SECTIONS = ("method", "out", "encoder", "stem", "pretrained_weights", "epochs", "batch_size", "seed", "source", "views")
SECTIONS += ("projector", "optim", "engine")


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    parser.add_argument("run", metavar="RUN", nargs="?", help="run folder; or what else --init of train takes")
    parser.add_argument(
        "--weights",
        metavar="FILE",
        help="instead of a run, with --encoder: weights of any framework, as evaluate takes",
    )
    parser.add_argument("--data", help="labelled data (default: the run's own)")
    parser.add_argument("--test-data", metavar="DATA", help="queries of their own; then all of --data is trained on")
    parser.add_argument("--test-labels", metavar="FILE", help="labels for them: .csv (file,label) or .npy")
    parser.add_argument(
        "--label-share", dest="source.label_share", metavar="X", help="the same as --source.label-share"
    )
    parser.add_argument("--config", metavar="FILE", help="YAML file with any of the settings below; flags win over it")
    parser.add_argument("--overwrite", action="store_true", help="replace the run in --out if there is one")
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")
    add_settings(parser, SECTIONS)


def run(flags: argparse.Namespace) -> int:
    """Fine-tune, print the table, and name the run folder."""
    if (flags.run is None) == (flags.weights is None):
        raise UsageError("give a run folder, or --encoder NAME --weights FILE, and one of them only")
    asked = settings_from(flags, flags.config)
    from counterpoint.runs.fine_tuning import fine_tune  # deferred: loads torch and scikit-learn

    done = fine_tune(
        flags.run or flags.weights,
        test_data=flags.test_data,
        test_labels=flags.test_labels,
        overwrite=flags.overwrite,
        quiet=flags.quiet,
        **asked,
    )
    if flags.json:
        print(json.dumps(done.to_dict(), indent=1))
        return 0
    print(shown_lines(done))
    print_folder(done.run.path)
    return 0
