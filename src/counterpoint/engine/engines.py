"""Engines by name."""

from collections.abc import Callable, Mapping

from counterpoint.core.settings import EngineSettings
from counterpoint.engine.fabric_adapter import FabricEngine
from counterpoint.engine.interface import Engine
from counterpoint.engine.placement import Placement
from counterpoint.engine.plain_engine import PlainEngine


def build_engine(placement: Placement, settings: EngineSettings) -> Engine:
    """The engine that settings ask for.

    Args:
        placement: device, precision and ranks; several ranks have met already (``core.dist.join_ranks``).
        settings: backend, strategy and compilation.
    """
    build = CATALOGUE[settings.backend]
    return build(placement, compiles=settings.compile, shards=settings.strategy == "fsdp")


CATALOGUE: Mapping[str, Callable[..., Engine]] = {"fabric": FabricEngine, "torch": PlainEngine}
