"""What a kind of attack is: it draws cases, and tries one against what README promises (docs/promises.md)."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Case = dict[str, Any]  # plain values: a failing case is kept as JSON and tried again from that alone


@dataclass(frozen=True)
class Place:
    """Where a case is tried.

    Attributes:
        folder: empty, of this try alone.
        material: what the kind has prepared for all of its tries; only read.
    """

    folder: Path
    material: Path


@dataclass(frozen=True)
class Verdict:
    """What became of a promise.

    Attributes:
        fault: how it was broken, in a word or two (traceback, hang, silent, lost, ...); empty where it was kept.
        detail: what was seen.
        case: where the case is better kept in another form, such as with the content that was drawn.
    """

    fault: str = ""
    detail: str = ""
    case: Case | None = None


KEPT = Verdict()


@dataclass(frozen=True)
class Kind:
    """One kind of attack.

    Attributes:
        name: as ``--kinds`` takes it.
        next_case: draws a case.
        run: tries it, in a process of its own.
        prepare: fills the folder that all tries read, in a process of its own, once.
        share: of the time, beside other kinds.
        material: name of that folder where kinds share it; empty: their own.
        seconds: what takes longer hangs; each process of the command has a bound of its own.
    """

    name: str
    next_case: Callable[[np.random.Generator], Case]
    run: Callable[[Case, Place], Verdict]
    prepare: Callable[[Path], None]
    share: float = 1
    material: str = ""
    seconds: float = 900


def kind_of(name: str) -> Kind:
    """The kind in the module of that name."""
    return importlib.import_module(f"campaign.kinds.{name}").KIND
