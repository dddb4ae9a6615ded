"""Moved to ``engine.interface``."""

from counterpoint.engine.interface import Engine, FullState, Update

__all__ = ["Engine", "FullState", "Update"]
