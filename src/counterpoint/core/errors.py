"""Errors a user can act on, and the nearest known name to a mistyped one."""

import difflib
from collections.abc import Iterable, Sequence

from counterpoint.core.terminal_text import shown

MOST_NAMED = 5  # names in one message, if nothing else is said
MAX_LINE = 300  # characters of another's message in ours
# Settings, verbs, data and encoders of released versions, and their replacements.
GONE = {
    "engine.backend": "training runs on plain torch alone, which gave the same results",
    "geometry --out": "the answer is text, or JSON with --json; cp.theory returns the records to draw from",
    "engine.average": "the encoder has the weights of the last update",
    "engine.accumulate": "--engine.chunk-size N takes as little memory, and the loss sees the whole batch",
    "engine.sync_norm": "several ranks always have the BatchNorm of one process",
    "optim.layer_decay": "all layers have one learning rate; requires_grad_(False) keeps layers of an own encoder",
    "resume --allow-changed": "what no weight depends on is taken over, and named",
    "train --allow-changed": "what no weight depends on is taken over, and named",
    "reproduce": "`python -m reproductions` in the source tree takes the same words",
    "--data mnist": "torchvision.datasets.MNIST has its arrays (data, targets), which cp.train takes",
    "--data fashion-mnist": "torchvision.datasets.FashionMNIST has its arrays (data, targets), which cp.train takes",
    "--data dsprites": "numpy.load reads its arrays: cp.train(imgs * 255)",
    "--data dsprites-rendered": "reproductions/ncl2024/sprites.py in the source tree draws it; or patterns-rendered",
    "--data svhn": "a folder of its pictures with a sub-folder per digit takes its place",
    "--encoder FILE.onnx": "onnxruntime computes features, which evaluate and diagnose take (docs/foreign-encoders.md)",
    "--encoder solo-learn:NAME": "torchvision:NAME takes its weights; docs/foreign-encoders.md has its stem for small "
    "images as a function",
}


class CounterpointError(Exception):
    """Any failure with a cause the user can remove; its text is one line and says how."""

    def __str__(self) -> str:
        """The line, with what names in it would do to a terminal made visible."""
        return shown(super().__str__())


class UsageError(CounterpointError, ValueError):
    """A setting, argument or flag is wrong."""


class DataError(CounterpointError, ValueError):
    """The data cannot be used as asked."""


class StoreError(CounterpointError):
    """An object store refuses, is away, or has another object; no ValueError, which readers take for damaged data."""


class RunError(CounterpointError):
    """A run folder, checkpoint or output cannot be used as asked."""


class StaleFileError(RunError):
    """A file of a run folder is of another run, or of weights that the run no longer has."""


class TrainingError(CounterpointError):
    """Training cannot continue."""


class LoneTrainingError(TrainingError):
    """Training cannot continue for a reason that only this rank knows."""


class InterruptedRunError(CounterpointError):
    """The user or the system asked training to stop; the run was saved first."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class NonFiniteError(CounterpointError, ValueError):
    """A tensor holds NaN or infinity."""


def gone(name: str) -> str:
    """Why a setting, verb or data set of an earlier version was removed; empty for any other name.

    >>> gone("engine.backend")
    'engine.backend is gone: training runs on plain torch alone, which gave the same results'
    """
    return f"{name} is gone: {GONE[name]}" if name in GONE else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest known name, or nothing when none is close.

    >>> nearest("simclrr", ["simclr", "ncl"])
    "; did you mean 'simclr'?"
    >>> nearest("zzz", ["simclr", "ncl"])
    ''
    """
    matches = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return f"; did you mean '{matches[0]}'?" if matches else ""


def first_line(error: Exception) -> str:
    """The first line of an error's text, cut where it quotes a file at length, or its kind when it has no text."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]} ..."


def some(names: Sequence[str], most: int = MOST_NAMED) -> str:
    """A limited number of names in one text.

    >>> some(list("abcdefg"))
    'a, b, c, d, e and 2 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Build the error for a name that no catalogue holds.

    >>> print(unknown_name("method", "simcrl", ["ncl", "simclr"]))
    unknown method 'simcrl'; did you mean 'simclr'? (known: ncl, simclr)
    """
    names = list(known)
    return UsageError(f"unknown {kind} {name!r}{nearest(name, names)} (known: {', '.join(names)})")
