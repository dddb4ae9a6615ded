"""Typed reading of plain JSON data into frozen records; a wrong type is an error that names the file and the field."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from counterpoint.core.errors import RunError
from counterpoint.report.markup import printable

Record = TypeVar("Record")
NUMBER = float | None


@dataclass(frozen=True)
class Fields:
    """One JSON object and its place in a file, such as ``findings.json: places.embedding``."""

    values: Mapping[str, Any]
    origin: str

    def text(self, name: str) -> str:
        """Read text, fit to print; a number becomes text, a missing or null value is empty."""
        value = self.values.get(name)
        if value is None:
            return ""
        if isinstance(value, Mapping | list):
            raise self.wrong_type(name, "text")
        return printable(str(value))

    def number(self, name: str) -> float | None:
        """Read a finite number; missing, null and non-finite values are None."""
        return self._finite(self.values.get(name), name)

    def texts(self, name: str) -> tuple[str, ...]:
        """Read a list of texts; null is empty."""
        return tuple("" if value is None else printable(str(value)) for value in self.items(name))

    def numbers(self, name: str) -> tuple[float | None, ...]:
        """Read a list of numbers."""
        return tuple(self._finite(value, name) for value in self.items(name))

    def items(self, name: str) -> list[Any]:
        """Read a list; a missing or null one is empty."""
        value = self.values.get(name)
        if not isinstance(value, list | None):
            raise self.wrong_type(name, "a list")
        return value or []

    def section(self, name: str) -> "Fields":
        """Read an object; a missing or null one is empty."""
        return fields_of(self.values.get(name) or {}, f"{self.origin}: {name}")

    def sections(self, name: str) -> Iterator["Fields"]:
        """Read a list of objects."""
        for place, value in enumerate(self.items(name)):
            yield fields_of(value, f"{self.origin}: {name}[{place}]")

    def wrong_type(self, name: str, expected: str) -> RunError:
        """Build the error for a value of the wrong type."""
        value = repr(self.values.get(name))
        return RunError(f"{self.origin}: {name} must be {expected}, got {value[:80]}")

    def _finite(self, value: Any, name: str) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong_type(name, "a number or null")
        # Beyond these sizes no measurement is meant, and the arithmetic of axes would break down.
        if not abs(value) < 1e300:  # so written, NaN is caught too
            return None
        return float(value) if abs(value) > 1e-300 else 0.0


def fields_of(value: Any, origin: str) -> Fields:
    """Wrap a JSON object.

    Raises:
        RunError: the value is not an object.
    """
    if not isinstance(value, Mapping):
        raise RunError(f"{origin} must hold named values, got {type(value).__name__}")
    return Fields({str(key): child for key, child in value.items()}, origin)


def fill(kind: type[Record], fields: Fields) -> Record:
    """Read a record whose fields are ``str``, ``float | None``, another record, or a tuple of one of these.

    >>> @dataclass(frozen=True)
    ... class Row:
    ...     protocol: str
    ...     accuracy: float | None
    >>> fill(Row, fields_of({"protocol": "knn", "accuracy": 0.98}, "evaluation.json"))
    Row(protocol='knn', accuracy=0.98)
    """
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]  # pyright: ignore[reportArgumentType]
    return kind(**{name: _read(hints[name], fields, name) for name in names})


def _read(hint: Any, fields: Fields, name: str) -> Any:
    """Read one field as its type hint says."""
    if hint is str:
        return fields.text(name)
    if hint == NUMBER:
        return fields.number(name)
    if dataclasses.is_dataclass(hint):
        return fill(hint, fields.section(name))  # pyright: ignore[reportArgumentType]
    item = get_args(hint)[0]
    if item is str:
        return fields.texts(name)
    if item == NUMBER:
        return fields.numbers(name)
    return tuple(fill(item, section) for section in fields.sections(name))
