"""Counterpoint learns representations by contrast and shows what it learned.

Everything public is loaded when first used, so that ``import counterpoint`` and ``counterpoint --help`` are instant::

    import counterpoint as cp

    run = cp.train(data="digits", method="ncl", out="runs/ncl", epochs=30, seed=0)
    enc = cp.load(run.path)
    cp.evaluate(run), cp.diagnose(run), cp.report(run)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from counterpoint.core import __version__ as __version__
from counterpoint.core.errors import CounterpointError as CounterpointError
from counterpoint.core.errors import DataError as DataError
from counterpoint.core.errors import InterruptedRunError as InterruptedRunError
from counterpoint.core.errors import RunError as RunError
from counterpoint.core.errors import TrainingError as TrainingError
from counterpoint.core.errors import UsageError as UsageError
from counterpoint.core.errors import gone
from counterpoint.core.process_setup import prepare_process
from counterpoint.core.run import Run as Run
from counterpoint.core.run import SeedRuns as SeedRuns

if TYPE_CHECKING:
    from counterpoint import losses as losses
    from counterpoint import theory as theory
    from counterpoint.audit.audit_record import Audit as Audit
    from counterpoint.audit.auditing import audit as audit
    from counterpoint.audit.recommending import Recommendation as Recommendation
    from counterpoint.audit.recommending import recommend as recommend
    from counterpoint.diagnostics.findings import Findings as Findings
    from counterpoint.estimator.contrastive_encoder import ContrastiveEncoder as ContrastiveEncoder
    from counterpoint.evaluation.embedding import embed as embed
    from counterpoint.evaluation.protocol import Evaluation as Evaluation
    from counterpoint.evaluation.protocol import evaluate as evaluate
    from counterpoint.evaluation.search_records import Copies as Copies
    from counterpoint.evaluation.search_records import SearchAnswer as SearchAnswer
    from counterpoint.evaluation.vector_table import Table as Table
    from counterpoint.export.export_record import Exported as Exported
    from counterpoint.export.exporting import export as export
    from counterpoint.export.hub import push_to_hub as push_to_hub
    from counterpoint.nn.trained import Encoder as Encoder
    from counterpoint.nn.trained import load as load
    from counterpoint.report.reporting import report as report
    from counterpoint.runs.comparison import compare as compare
    from counterpoint.runs.comparison_record import Comparison as Comparison
    from counterpoint.runs.curvature_record import HessianSpectrum as HessianSpectrum
    from counterpoint.runs.fine_tuning import FineTuned as FineTuned
    from counterpoint.runs.fine_tuning import fine_tune as fine_tune
    from counterpoint.runs.hessian_spectra import hessian_spectrum as hessian_spectrum
    from counterpoint.runs.inspection import diagnose as diagnose
    from counterpoint.runs.preview import preview as preview
    from counterpoint.runs.seed_evaluation import SeedEvaluation as SeedEvaluation
    from counterpoint.runs.seed_evaluation import evaluate_seeds as evaluate_seeds
    from counterpoint.runs.selection import Selection as Selection
    from counterpoint.runs.selection import select as select
    from counterpoint.runs.sparsifying import Sparsified as Sparsified
    from counterpoint.runs.sparsifying import sparsify as sparsify
    from counterpoint.runs.training import resume as resume
    from counterpoint.runs.training import train as train
    from counterpoint.runs.verification import Verification as Verification
    from counterpoint.runs.verification import verify as verify
    from counterpoint.search.duplicates import duplicates as duplicates
    from counterpoint.search.searching import search as search

prepare_process()  # before torch is loaded, where that can be

_DEFERRED = {
    "Audit": "counterpoint.audit.audit_record",
    "Comparison": "counterpoint.runs.comparison_record",
    "Copies": "counterpoint.evaluation.search_records",
    "ContrastiveEncoder": "counterpoint.estimator.contrastive_encoder",
    "Encoder": "counterpoint.nn.trained",
    "Evaluation": "counterpoint.evaluation.protocol",
    "Exported": "counterpoint.export.export_record",
    "Findings": "counterpoint.diagnostics.findings",
    "FineTuned": "counterpoint.runs.fine_tuning",
    "HessianSpectrum": "counterpoint.runs.curvature_record",
    "SearchAnswer": "counterpoint.evaluation.search_records",
    "SeedEvaluation": "counterpoint.runs.seed_evaluation",
    "Selection": "counterpoint.runs.selection",
    "Sparsified": "counterpoint.runs.sparsifying",
    "Recommendation": "counterpoint.audit.recommending",
    "Table": "counterpoint.evaluation.vector_table",
    "Verification": "counterpoint.runs.verification",
    "audit": "counterpoint.audit.auditing",
    "compare": "counterpoint.runs.comparison",
    "diagnose": "counterpoint.runs.inspection",
    "duplicates": "counterpoint.search.duplicates",
    "embed": "counterpoint.evaluation.embedding",
    "evaluate": "counterpoint.evaluation.protocol",
    "evaluate_seeds": "counterpoint.runs.seed_evaluation",
    "export": "counterpoint.export.exporting",
    "fine_tune": "counterpoint.runs.fine_tuning",
    "hessian_spectrum": "counterpoint.runs.hessian_spectra",
    "load": "counterpoint.nn.trained",
    "preview": "counterpoint.runs.preview",
    "push_to_hub": "counterpoint.export.hub",
    "recommend": "counterpoint.audit.recommending",
    "report": "counterpoint.report.reporting",
    "resume": "counterpoint.runs.training",
    "search": "counterpoint.search.searching",
    "select": "counterpoint.runs.selection",
    "sparsify": "counterpoint.runs.sparsifying",
    "train": "counterpoint.runs.training",
    "verify": "counterpoint.runs.verification",
}

_HERE = ("CounterpointError", "DataError", "InterruptedRunError", "Run", "RunError", "SeedRuns", "TrainingError")
_HERE += ("UsageError", "__version__", "losses", "theory")
__all__ = [*_DEFERRED, *_HERE]  # noqa: PLE0604 # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Import a public name from its module at first use."""
    if name in ("losses", "theory"):
        return import_module(f"counterpoint.{name}")
    if name not in _DEFERRED:
        raise AttributeError(gone(name) or f"module 'counterpoint' has no attribute {name!r}")
    value = getattr(import_module(_DEFERRED[name]), name)
    globals()[name] = value  # a sub-package of the same name, once imported, must not hide the function
    return value


def __dir__() -> list[str]:
    """List public names, whether loaded or not."""
    return __all__
