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


class _StrictDumper(yaml.SafeDumper):
    """SafeDumper whose output the loader reads back: no aliases, and text that looks like a number is quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write a value out each time it occurs."""
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Escape line ends of Unicode, which PyYAML folds into blanks outside double quotes."""
        style = '"' if set(data) & {"\x85", "\u2028", "\u2029"} else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_StrictDumper.add_representer(str, _StrictDumper.represent_str)

# PyYAML follows YAML 1.1, in which 1e-3 is text: the dot and the exponent's sign become optional here.
for _kind in (_StrictLoader, _StrictDumper):
    _kind.add_implicit_resolver(
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
        value = yaml.load(text, Loader=_StrictLoader)
    except UsageError as error:
        raise UsageError(f"{origin}: {error}") from None
    # PyYAML lets other errors escape when a value does not fit its explicit tag (!!bool maybe, !!int "").
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UsageError(f"{origin} is not valid YAML{where}: {problem}") from None
    _refuse_non_finite(value, origin)
    return value


def dump_yaml(value: Any) -> str:
    """Write plain data as YAML in the order given."""
    return yaml.dump(value, Dumper=_StrictDumper, sort_keys=False, allow_unicode=True, width=120)


def _refuse_non_finite(value: Any, origin: str) -> None:
    """Raise for NaN or infinity anywhere in plain data."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{origin}: {value} is not a usable number")
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        _refuse_non_finite(child, origin)
