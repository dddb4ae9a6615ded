"""Projectors: the head between representation and output map."""

from torch import nn


def build_projector(kind: str, width: int, *, hidden: int, features: int) -> nn.Module:
    """Build a projector without normalisation layers, so that several ranks need no synchronisation.

    Args:
        kind: ``none`` (identity), ``linear``, or ``mlp`` (one hidden layer with ReLU, as ncl2024's).
        width: dimensions of the representation.
        hidden: hidden width of the mlp.
        features: dimensions of the embedding; ignored for ``none``.

    Raises:
        ValueError: unknown kind.
    """
    if kind == "none":
        return nn.Identity()
    if kind == "linear":
        return nn.Linear(width, features, bias=False)
    if kind == "mlp":
        return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, features))
    raise ValueError(f"projector kind must be none, linear or mlp, got {kind!r}")
