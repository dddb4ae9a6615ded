"""Types, argument checks, numerics, seeding and the run folder: the base of every other layer.

Systems and versions that Counterpoint does not run on are refused in one line as the package is imported.
"""

from __future__ import annotations  # an older Python must get as far as the check

import contextlib
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NoReturn

SYSTEMS = ("linux", "darwin", "win32")
PYTHON, TORCH = (3, 11), (2, 6)  # as in pyproject.toml
REMEDY = "docs/installation.md lists what Counterpoint runs on"
USAGE = 2  # exit code of bad input


def check_supported() -> None:
    """Refuse a system, a Python or a torch that Counterpoint does not run on.

    Raises:
        ImportError: one of them is not supported.
        SystemExit: the same if the command was started; its code is 2, and the line is on standard error.
    """
    python, torch = sys.version_info[:2], None
    with contextlib.suppress(PackageNotFoundError):  # its metadata: torch itself is not loaded
        if numbers := re.match(r"(\d+)\.(\d+)", version("torch") or ""):
            torch = tuple(map(int, numbers.groups()))
    if sys.platform not in SYSTEMS or sys.maxsize < 2**32:
        _refuse(f"Counterpoint runs on Linux, macOS and Windows of 64 bits, not on {sys.platform}; {REMEDY}")
    if python < PYTHON:
        _refuse(f"Counterpoint needs Python {_dotted(PYTHON)} or newer, this is {_dotted(python)}; {REMEDY}")
    if torch is not None and torch < TORCH:
        _refuse(
            f"Counterpoint needs torch {_dotted(TORCH)} or newer, this is {_dotted(torch)}; "
            f'install one with: python -m pip install "torch>={_dotted(TORCH)}"'
        )


def _refuse(why: str) -> NoReturn:
    """End the command with one line; a program that imports the package gets an exception."""
    started = next((word for word in getattr(sys, "orig_argv", sys.argv)[1:] if not word.startswith("-")), "")
    if Path(started).stem != "counterpoint":  # the script, or the word after `python -m`
        raise ImportError(why)
    sys.stderr.write(f"counterpoint: error: {why}\n")
    raise SystemExit(USAGE)


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


check_supported()

__version__ = version("counterpoint")
