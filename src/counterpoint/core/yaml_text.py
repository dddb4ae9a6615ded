"""YAML that means what it says: 1e-3 is a number; duplicate keys, aliases and NaN are refused."""

import math
import re
from typing import Any

import yaml

from counterpoint.core.errors import UsageError


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2 floats, and without aliases and silent duplicate keys."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse aliases: they let a few bytes expand without bound."""
        if self.check_event(yaml.AliasEvent):
            raise UsageError("YAML aliases (*name) are not supported; write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that stands twice."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]  # pyright: ignore[reportUnknownMemberType]
        doubled = sorted({str(key) for key in keys if keys.count(key) > 1})
        if doubled:
            raise UsageError(f"YAML key {doubled[0]!r} stands twice; keep one")
        return super().construct_mapping(node, deep=deep)


# PyYAML follows YAML 1.1, in which 1e-3 is text: the dot and the exponent's sign become optional here.
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)$"),
    list("-+0123456789."),
)


def parse_yaml(text: str, origin: str) -> Any:
    """Parse YAML text; ``origin`` names it in errors.

    Raises:
        UsageError: not YAML, an alias, a duplicate key, or a number that is not finite.

    >>> parse_yaml("rate: 1e-3", "example")
    {'rate': 0.001}
    """
    try:
        value = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 (a SafeLoader)
    except UsageError as error:
        raise UsageError(f"{origin}: {error}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UsageError(f"{origin} is not valid YAML{where}: {problem}") from None
    _refuse_non_finite(value, origin)
    return value


def dump_yaml(value: Any) -> str:
    """Write plain data as YAML in the order given."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)


def _refuse_non_finite(value: Any, origin: str) -> None:
    """Raise for NaN or infinity anywhere in plain data."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{origin}: {value} is not a usable number")
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        _refuse_non_finite(child, origin)
