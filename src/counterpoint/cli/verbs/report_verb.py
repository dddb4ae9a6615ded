"""Write one self-contained HTML file from one or more run folders: verdict, curves, spectra, dimensions,
evaluation, configuration. It evaluates and diagnoses runs first where needed. The file opens from disk, without
a network, and can be mailed.

examples:
  counterpoint report runs/ncl
  counterpoint report runs/simclr runs/ncl --out side_by_side.html"""

from pathlib import Path

import counterpoint as cp
from counterpoint.cli.arguments import Names, VerbFlags, option
from counterpoint.core.rundir import open_run
from counterpoint.core.terminal_text import shown

PLACE, SUMMARY = 70, "one HTML file that shows what was learned"


class ReportFlags(VerbFlags):
    """Settings of ``report``: the runs, and the file for the page."""

    runs: Names = option("one or more run folders; several are shown side by side", ..., place="RUN")
    out: str | None = option("HTML file (default: report.html in the run folder, or in the folder above several)")
    bare: bool = option("show what is there; evaluate and diagnose nothing first", False)


def run(flags: ReportFlags) -> None:
    """Write the page, and name it."""
    for path in flags.runs:
        open_run(Path(path))
    print(shown(cp.report(flags.runs, out=flags.out, bare=flags.bare, quiet=flags.quiet)))
