"""`counterpoint watch`."""

import argparse
import sys
import webbrowser
from pathlib import Path

from counterpoint.cli.parsers import Parser, add_run
from counterpoint.core.errors import RunError
from counterpoint.core.rundir import RunFolder, open_run
from counterpoint.core.shown import shown

PLACE, SUMMARY = 22, "a live page of a run in progress"
TEACH = """Serve the report of a run in progress on this machine: loss, kNN, spectra, findings and concepts, new at
each epoch. Only this machine can open it, and only who knows the address that is printed; it can change nothing.

The run is left alone: its folder is read, never its model. What needs features is computed from its newest checkpoint
by one thread of the lowest priority, on 1,000 samples and on the CPU; --bare leaves that out. Train with
--engine.checkpoint-every 1 for one checkpoint each epoch. Ctrl-C ends it.

examples:
  counterpoint watch runs/ncl
  counterpoint watch runs/ncl --wait --open"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    add_run(parser)
    parser.add_argument("--wait", action="store_true", help="the run has not begun yet")
    parser.add_argument("--port", type=int, metavar="N", help="port (default: the first free one from 8765 on)")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument("--bare", action="store_true", help="curves only: open neither data nor checkpoints")


def run(flags: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    path = Path(flags.run)
    _check(path, waits=flags.wait)
    from counterpoint.report.live.live_page import Watched  # deferred: loads NumPy and Pillow
    from counterpoint.report.live.live_sampling import Sampler  # deferred: as above
    from counterpoint.report.live.live_server import LiveServer  # deferred: as above

    sampler = None if flags.bare else Sampler()
    with LiveServer(Watched(path, sampler), flags.port) as server:
        print(shown(server.address), flush=True)
        if not flags.quiet:
            sys.stderr.write(f"watching {shown(str(path))}; Ctrl-C ends it, and leaves the run alone\n")
        if flags.open:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            if sampler is not None:
                sampler.close()
    return 0


def _check(path: Path, *, waits: bool) -> None:
    """Require a run, or with ``--wait`` a place where one can begin.

    Raises:
        RunError: it is something else.
    """
    if RunFolder(path).holds_seeds:
        return
    is_empty = not path.exists() or (path.is_dir() and not RunFolder(path).status.exists() and RunFolder(path).is_ours)
    if waits and (is_empty or (path.is_dir() and not any(path.iterdir()))):
        return
    if not path.exists():
        raise RunError(f"run folder {path} does not exist; with --wait the page waits for it")
    open_run(path)
