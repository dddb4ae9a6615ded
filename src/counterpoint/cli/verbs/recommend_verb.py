"""`counterpoint recommend`."""

import argparse
import json
from pathlib import Path

from counterpoint.cli.parsers import Parser
from counterpoint.core.output_paths import check_new_file
from counterpoint.core.terminal_text import shown, shown_lines

WANTS = ("features", "readable")

PLACE, SUMMARY = 6, "write a config for data, with reasons, and times measured here"
TEACH = """Look at data, or take what `audit --json` found, time a few steps of candidate encoders on this machine, and
write a config with a reason and a confidence for each line. `train --config` runs it as it is.

examples:
  counterpoint recommend photos/
  counterpoint recommend photos/ --minutes 30 --want readable --out photos.yaml
  counterpoint recommend photos/ --audit audit.json"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    parser.add_argument("data", metavar="DATA", help="a folder, a file, or a named set, as `train --data` takes them")
    parser.add_argument("--audit", metavar="FILE", help="what `audit DATA --json FILE` wrote (default: look again)")
    parser.add_argument(
        "--want",
        choices=WANTS,
        default=WANTS[0],
        help="features for search and classifiers, or readable: each dimension has a meaning (default features)",
    )
    parser.add_argument("--labels", action="store_true", help="labels may be used in training, too")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long training may take here (default 10)")
    parser.add_argument(
        "--out", default="recommended.yaml", metavar="FILE", help="config to write (default recommended.yaml)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the config if it exists")
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")


def run(flags: argparse.Namespace) -> int:
    """Look, measure, write, and say what was written."""
    out = Path(flags.out)
    check_new_file(out, [".yaml", ".yml"], overwrite=flags.overwrite)
    from counterpoint.audit.recommending import recommend  # deferred: loads torch

    found = recommend(
        flags.data,
        want=flags.want,
        use_labels=flags.labels,
        minutes=flags.minutes,
        known=flags.audit,
        quiet=flags.quiet,
    ).beside(out)
    found.save(out)
    if flags.json:
        print(json.dumps(found.to_dict(), indent=1))
        return 0
    print(shown_lines(found))
    print(f"run it: {shown(f'counterpoint train --config {out}')}")
    return 0
