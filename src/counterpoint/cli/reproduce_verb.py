"""`counterpoint reproduce`: a figure of a paper made again, as a table on standard output and on a page."""

import argparse
import json

from counterpoint.core.files import finite_or_null
from counterpoint.recipes.theory_runs import CATALOGUE as FIGURES
from counterpoint.recipes.theory_runs import numbers_file, reproduce
from counterpoint.report.theory_document import check_theory_target
from counterpoint.report.theory_page import write_reproduction


def run_reproduce(flags: argparse.Namespace) -> int:
    """Make a figure again, print what came out and draw it; without a figure, list them."""
    if flags.figure is None:
        print(_listed(as_json=flags.json))
        return 0
    page = numbers_file(flags.figure, flags.out, quick=flags.quick).with_suffix(".html")
    if flags.figure in FIGURES:
        check_theory_target(page)
    made = reproduce(
        flags.figure, out=flags.out, seed=flags.seed, quick=flags.quick, data=flags.data, quiet=flags.quiet
    )
    write_reproduction(made, page)
    print(json.dumps(finite_or_null(made.to_dict()), indent=1) if flags.json else f"{made}\n\nDrawn in {page}.")
    return 0


def _listed(*, as_json: bool) -> str:
    """All figures with their sentences."""
    if as_json:
        return json.dumps([{"name": name, "summary": figure.summary} for name, figure in FIGURES.items()], indent=1)
    width = max(map(len, FIGURES))
    return "\n".join(f"{name:<{width}} {figure.summary}" for name, figure in FIGURES.items())
