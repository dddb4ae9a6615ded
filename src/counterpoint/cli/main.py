"""Entry point: choose the verb, run it, turn errors into one line and an exit code. Help loads no torch."""

import argparse
import contextlib
import errno
import io
import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from counterpoint.cli.parsers import VERBS, load_verb, overview
from counterpoint.core import __version__
from counterpoint.core.errors import (
    CounterpointError,
    InterruptedRunError,
    LoneTrainingError,
    TrainingError,
    UsageError,
    gone,
    unknown_name,
)
from counterpoint.core.process_setup import at_work
from counterpoint.core.ranks import Ranks, read_ranks
from counterpoint.core.terminal_text import shown
from counterpoint.engine.stop_signals import is_sigterm, sigterm_as_exception

OK, FAILED, USAGE, KEYBOARD, TERMINATED = 0, 1, 2, 130, 143
TRAINING = ("train", "resume", "fine-tune")  # verbs that handle signals themselves: `stop_on_signals`
VERSION = ("-V", "--version")
NO_MEMORY = "not enough memory for this; close other programs, or use fewer samples"
NO_THREAD = "can't start new thread"  # message of CPython without memory for the stack
TOLD = ("-h", "--help", "help", *VERSION)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; exit codes: 0 fine, 1 failed, 2 bad input, 3 unhealthy, 128 + n stopped by signal n."""
    words = list(sys.argv[1:] if words is None else words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names in any script reach a terminal that knows ASCII only
    if not words:
        sys.stdout.write(overview())
        return USAGE
    if words[0] in TOLD:
        sys.stdout.write(f"counterpoint {__version__}\n" if words[0] in VERSION else overview())
        return OK
    if words[0] == "--print-completion":
        return exit_code("counterpoint", lambda: _print_completion(words[1:]))
    name = words[0]
    if name not in VERBS:
        return _complain("counterpoint", gone(name) or unknown_name("verb", name, VERBS), USAGE)
    return exit_code(f"counterpoint {name}", lambda: _run(name, words[1:]), trains=name in TRAINING)


def exit_code(prog: str, act: Callable[[], int], *, trains: bool = False) -> int:
    """Run the action; an error becomes one line on standard error and the exit code that ``main`` names.

    Args:
        prog: name of the program, with which the line begins.
        act: function that does the work and returns the exit code.
        trains: whether the action has signal handlers of its own, and a broken pipe is an error.
    """
    try:
        with contextlib.nullcontext() if trains else sigterm_as_exception():
            return act()
    except InterruptedRunError as error:
        return _complain(prog, error, error.exit_code)
    except CounterpointError as error:
        return _complain(prog, error, FAILED if isinstance(error, TrainingError) else USAGE)
    except BrokenPipeError as error:
        # Otherwise the interpreter flushes standard output again at its end, and reports the same pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if trains:  # some other pipe: a run that is broken off has failed
            return _complain(prog, error, FAILED)
        return OK  # the reader left, as with `| head`
    except OSError as error:
        code = USAGE if error.errno == errno.ENAMETOOLONG else FAILED  # the fault of a given path, not of the disk
        return _complain(prog, error, code)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and str(error) != NO_THREAD:
            raise
        return _complain(prog, NO_MEMORY, FAILED)
    except KeyboardInterrupt as stopped:
        code = TERMINATED if is_sigterm(stopped) else KEYBOARD
        return _complain(prog, "terminated" if code == TERMINATED else "interrupted", code)


def entry() -> None:
    """Run the command line as a console script."""
    raise SystemExit(main())


def _run(name: str, words: Sequence[str]) -> int:
    from counterpoint.cli.arguments import RunFlags, read_words  # deferred: loads pydantic; the overview does without
    from counterpoint.core.rundir import open_run  # deferred: likewise

    settings = read_words(name, words)
    if isinstance(settings[0], RunFlags):
        open_run(Path(settings[0].run), may_be_mixed=True)  # before torch is loaded; the verb itself looks closer
    # Libraries print no warnings of their own; torch reads the variable when it is loaded.
    if _ranks().world_size > 1:  # about our use of DDP (engine/engine.py), and about lost ranks
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    warnings.filterwarnings("ignore", category=FutureWarning)  # libraries warn of their own future
    warnings.filterwarnings("ignore", module="PIL")  # the run's own messages name a faulty picture
    logging.getLogger("PIL").setLevel(logging.CRITICAL)  # for the same reason
    with at_work():
        return load_verb(name).run(*settings) or OK  # most verbs return nothing


def _print_completion(words: Sequence[str]) -> int:
    """Print a shell script that completes verbs, flags and choices; shtab writes it from the parsers."""
    from counterpoint.cli.arguments import build_parser  # deferred: loads pydantic

    try:
        import shtab  # deferred: an extra
    except ImportError:
        raise UsageError("completion needs shtab: pip install shtab") from None
    if len(words) != 1:
        raise UsageError("give a shell: counterpoint --print-completion bash (or zsh, fish, tcsh)")
    if words[0] not in shtab.SUPPORTED_SHELLS:
        raise unknown_name("shell", words[0], shtab.SUPPORTED_SHELLS)
    parser = argparse.ArgumentParser("counterpoint")
    verbs = parser.add_subparsers()
    for name, summary in VERBS.items():
        verbs.add_parser(name, parents=[build_parser(name)], add_help=False, help=summary)
    print(shtab.complete(parser, words[0]))
    return OK


def _complain(prog: str, error: object, code: int) -> int:
    """Print one line, and return the code; if several ranks fail alike, only the first one prints."""
    number = _ranks().rank
    is_shared = isinstance(error, CounterpointError) and not isinstance(error, LoneTrainingError)
    if number > 0 and is_shared:
        return code
    word = "error: " if code in (FAILED, USAGE) else ""
    who = f"rank {number}: " if number > 0 else ""
    with contextlib.suppress(OSError):  # a reader that has left
        sys.stdout.flush()  # keeps the order of the two streams
    sys.stderr.write(f"{prog}: {word}{who}{shown(' '.join(str(error).split()))}\n")
    return code


def _ranks() -> Ranks:
    try:
        return read_ranks(os.environ)
    except UsageError:  # the error itself is on its way
        return Ranks()
