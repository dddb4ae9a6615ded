"""`counterpoint reproduce`: a figure of a paper made again, as a table on standard output and on a page."""

import argparse
import json
from pathlib import Path

from counterpoint.core.files import finite_or_null
from counterpoint.recipes.theory_runs import CATALOGUE as FIGURES
from counterpoint.recipes.theory_runs import reproduce
from counterpoint.report.theory_document import check_theory_target
from counterpoint.report.theory_page import write_reproduction


def run_reproduce(flags: argparse.Namespace) -> int:
    """Make a figure again, print what came out and draw it; without a figure, list them."""
    if flags.figure is None:
        for name, figure in FIGURES.items():
            print(f"{name:<16} {figure.summary}")
        return 0
    page = Path(flags.out) / f"{flags.figure}.html"
    if flags.figure in FIGURES:
        check_theory_target(page)
    made = reproduce(
        flags.figure, out=flags.out, seed=flags.seed, quick=flags.quick, data=flags.data, quiet=flags.quiet
    )
    write_reproduction(made, page)
    print(json.dumps(finite_or_null(made.to_dict()), indent=1) if flags.json else f"{made}\n\nDrawn in {page}.")
    return 0
