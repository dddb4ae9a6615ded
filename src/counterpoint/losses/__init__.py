"""Contrastive losses. Each is called as ``loss(z0, z1, labels=None)`` and can say what it does to each pair."""

from counterpoint.losses.family import CATALOGUE, InfoNCE

__all__ = ["CATALOGUE", "InfoNCE"]
