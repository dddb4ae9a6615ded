"""Entry point: choose the verb, run it, turn errors into one line and an exit code. Help loads no torch."""

import ctypes
import errno
import io
import logging
import os
import sys
import warnings
from collections.abc import Sequence

from counterpoint.cli.guide import ask, decision, is_asked
from counterpoint.cli.parsers import VERBS, build_parser, overview
from counterpoint.core import __version__
from counterpoint.core.errors import (
    CounterpointError,
    InterruptedRunError,
    LoneTrainingError,
    TrainingError,
    UsageError,
    unknown_name,
)
from counterpoint.core.ranks import Ranks, read_ranks
from counterpoint.core.shown import shown

OK, FAILED, USAGE, KEYBOARD = 0, 1, 2, 130
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of malloc.h
NEVER = -1
VERSION = ("-V", "--version")
TOLD = ("-h", "--help", "help", *VERSION)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; exit codes: 0 fine, 1 failed, 2 bad input, 3 unhealthy, 128 + n stopped by signal n."""
    words = list(sys.argv[1:] if words is None else words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names in any script reach a terminal that knows ASCII only
    if not words:
        return _guide()
    if words[0] in TOLD:
        sys.stdout.write(f"counterpoint {__version__}\n" if words[0] in VERSION else overview())
        return OK
    name = words[0]
    if name not in VERBS:
        return _complain("counterpoint", unknown_name("verb", name, VERBS), USAGE)
    if any("\0" in word for word in words):  # no shell passes one on, and every call on such a path would raise
        return _complain(f"counterpoint {name}", "a word holds the character NUL, which no path or name can", USAGE)
    try:
        return _run(name, words[1:])
    except InterruptedRunError as error:
        return _complain(f"counterpoint {name}", error, error.exit_code)
    except CounterpointError as error:
        return _complain(f"counterpoint {name}", error, FAILED if isinstance(error, TrainingError) else USAGE)
    except BrokenPipeError as error:
        # Else the interpreter flushes standard output once more as it ends, and complains of the same pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if name in ("train", "resume"):  # some other pipe: a run that is broken off has failed
            return _complain(f"counterpoint {name}", error, FAILED)
        return OK  # the reader left, as with `| head`
    except OSError as error:
        code = USAGE if error.errno == errno.ENAMETOOLONG else FAILED  # a path that was given, not the disk
        return _complain(f"counterpoint {name}", error, code)
    except KeyboardInterrupt:
        return _complain(f"counterpoint {name}", "interrupted", KEYBOARD)


def keep_freed_memory() -> bool:
    """Ask glibc's allocator to keep freed blocks; for this process, from now on. Changes no result.

    Every step allocates its activations anew. By default large blocks are mapped from the system each time and their
    pages filled with zeros one fault at a time (figures in ``docs/architecture.md``).

    Returns:
        Whether the allocator was asked: there is another one outside of Linux, and in musl's Linux.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    # No block is mapped on its own, and the heap is never given back to the system.
    return bool(libc.mallopt(M_MMAP_MAX, 0)) and bool(libc.mallopt(M_TRIM_THRESHOLD, NEVER))


def entry() -> None:
    """Console script."""
    raise SystemExit(main())


def _run(name: str, words: Sequence[str]) -> int:
    """Parse, then load what the verb needs and do the work."""
    namespace = build_parser(name).parse_strictly(words)
    # Threads that wait by spinning stall each other as soon as another program wants a core; read when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    keep_freed_memory()
    if _ranks().world_size > 1:  # of what we ask of DDP on purpose (engine/engine.py), and of ranks that are gone
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    warnings.filterwarnings("ignore", category=FutureWarning)  # of libraries, about their own future
    warnings.filterwarnings("ignore", module="PIL")  # what is wrong with a picture is said by name
    logging.getLogger("PIL").setLevel(logging.CRITICAL)  # as above
    return VERBS[name].load().run(namespace)


def _guide() -> int:
    """Ask what the person has and answer with commands; where nobody can be asked, print help and the same answers."""
    if not is_asked():
        sys.stdout.write(f"{overview()}\n{decision()}")
        return USAGE
    try:
        return ask(main)
    except KeyboardInterrupt:
        sys.stdout.write("\n")
        return KEYBOARD


def _complain(prog: str, error: object, code: int) -> int:
    """Print one line; of several ranks that fail alike, the first one does."""
    number = _ranks().rank
    is_shared = isinstance(error, CounterpointError) and not isinstance(error, LoneTrainingError)
    if number > 0 and is_shared:
        return code
    word = "error: " if code in (FAILED, USAGE) else ""
    who = f"rank {number}: " if number > 0 else ""
    sys.stderr.write(f"{prog}: {word}{who}{shown(' '.join(str(error).split()))}\n")
    return code


def _ranks() -> Ranks:
    """This process among those started together."""
    try:
        return read_ranks(os.environ)
    except UsageError:  # the error itself is on its way
        return Ranks()
