"""What of a run can be changed, so that the remedies of a diagnosis name only settings that its method has."""

from counterpoint.core.array_layout import Kind
from counterpoint.core.settings import TrainSettings
from counterpoint.diagnostics.evidence import Lever
from counterpoint.losses.build import CUSTOM, parameters_of
from counterpoint.methods.catalogue import CATALOGUE as METHODS


def levers_of(settings: TrainSettings, kind: Kind) -> frozenset[Lever]:
    """The levers of a run.

    Args:
        settings: with every ``auto`` filled in.
        kind: of its samples; only pictures can be previewed.
    """
    method, projector = METHODS[settings.method], settings.projector.kind
    has_views, is_joint = settings.views.preset != "none", method.wiring == "joint" and not method.needs_labels
    is_there: dict[Lever, bool] = {
        "learning rate": True,
        "temperature": settings.loss.name != CUSTOM and "temperature" in parameters_of(settings.loss.name),
        "views": has_views,
        "preview": has_views and kind == "images",
        "epochs": True,
        "representation": projector != "none" or settings.output.d0 != "all",
        "projector": projector != "mlp" and method.d0_share is None,
        "features": projector in ("linear", "mlp"),
        "relu-gelu": settings.output.nonnegative == "relu",
        "directclr": is_joint and method.d0_share is None and projector != "none",
    }
    return frozenset(lever for lever, is_available in is_there.items() if is_available)
