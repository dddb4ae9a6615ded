"""Counterpoint learns representations by contrast and shows what it learned.

Everything below is loaded when first used, so that ``import counterpoint`` and ``counterpoint --help`` are instant.

    run = cp.train(data="digits", method="ncl", out="runs/ncl", epochs=30, seed=0)
    enc = cp.load(run.path)
    cp.evaluate(run), cp.diagnose(run), cp.report(run)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterpoint.diagnostics.findings import Findings as Findings
    from counterpoint.recipes.training import resume as resume
    from counterpoint.recipes.training import train as train

_WHERE = {
    "train": "counterpoint.recipes.training",
    "resume": "counterpoint.recipes.training",
}

__all__ = ["train", "resume"]


def __getattr__(name: str) -> Any:
    """Import a public name from its module at first use."""
    if name not in _WHERE:
        raise AttributeError(f"module 'counterpoint' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
