"""`counterpoint audit`."""

import argparse
import json
from pathlib import Path

from counterpoint.cli.arguments import add_settings, settings_from
from counterpoint.cli.parsers import Parser
from counterpoint.core.output_paths import check_new_file
from counterpoint.core.terminal_text import shown, shown_lines

UNHEALTHY = 3  # exit code
LEVELS = ("note", "warning", "severe")
SETTINGS = ["source.labels", "source.split", "source.root", "source.image_column", "source.label_column"]

PLACE, SUMMARY = 4, "look at data before training: what is there, what is wrong"
TEACH = """Look at data before anything is trained on them: formats and sizes, broken files, classes and their
counts, copies and near copies (also between training and test part), pictures that show nothing or look like no
other, classes that colours or file formats give away, and whether there are enough samples for a verdict.

examples:
  counterpoint audit photos/
  counterpoint audit photos/ --out audit.html --json audit.json
  counterpoint audit photos/train --against photos/test --fail-on severe
  counterpoint audit vectors.npy"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    parser.add_argument("data", metavar="DATA", help="a folder, a file, or a named set, as `train --data` takes them")
    parser.add_argument("--against", metavar="DATA", help="other data in which copies are looked for, as a test set")
    parser.add_argument("--out", metavar="FILE", help="also write a page, such as audit.html")
    parser.add_argument("--json", metavar="FILE", help="also write the findings, with all names; - prints them instead")
    parser.add_argument("--overwrite", action="store_true", help="replace the file of --json if it exists")
    parser.add_argument(
        "--fail-on", choices=LEVELS, help="leave with code 3 if a finding is at least this bad (for scripts)"
    )
    add_settings(parser, SETTINGS)


def run(flags: argparse.Namespace) -> int:
    """Look, and print what was found."""
    data, flags.data = flags.data, None
    out, flags.out = flags.out, None
    asked = settings_from(flags, None)
    if flags.json not in (None, "-"):
        check_new_file(Path(flags.json), [".json"], overwrite=flags.overwrite, flag="--json")
    from counterpoint.audit.auditing import audit  # deferred: loads torch
    from counterpoint.report.audit_page import AUDIT_PAGE, render_audit  # deferred: not without a page
    from counterpoint.report.document import check_target, write_page  # deferred: not without a page

    if out is not None:
        check_target(AUDIT_PAGE, Path(out))
    found = audit(data, against=flags.against, quiet=flags.quiet, **asked.get("source", {}))
    print(json.dumps(found.to_dict(), indent=1) if flags.json == "-" else shown_lines(found))
    if flags.json not in (None, "-"):
        print(shown(found.save(flags.json)))
    if out is not None:
        print(shown(write_page(AUDIT_PAGE, out, lambda: render_audit(found))))
    is_unhealthy = flags.fail_on is not None and found.level in LEVELS[LEVELS.index(flags.fail_on) :]
    return UNHEALTHY if is_unhealthy else 0
