"""Nested plain data with tensors in it, such as an optimiser's state, as strict JSON beside named tensors, and back."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

# What JSON has no word for is an object with one key that begins with $; dictionaries with such keys become pairs.


def pack(value: Any, tensors: dict[str, Tensor], name: str = "") -> Any:
    """Turn nested data into JSON values; ``unpack`` gives exactly the same data back.

    Args:
        value: dictionaries with keys of plain types, lists, tuples, tensors, texts, numbers, None.
        tensors: takes the tensors found, each under the dotted path that leads to it.
        name: path of ``value`` itself.

    Raises:
        TypeError: something else is in it; its path is named.

    >>> found = {}
    >>> pack({"state": {0: {"sum": Tensor([1.0])}}, "betas": (0.9, math.inf)}, found)
    {'state': {'$pairs': [[0, {'sum': {'$tensor': 'state.0.sum'}}]]}, 'betas': {'$tuple': [0.9, {'$number': 'inf'}]}}
    >>> list(found)
    ['state.0.sum']
    """
    if isinstance(value, Tensor):
        free = name if name not in tensors else f"{name}#{len(tensors)}"  # "a.b" may be a key beside "a"
        tensors[free] = value
        return {"$tensor": free}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$number": repr(value)}
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Mapping):
        children = [(key, pack(child, tensors, _join(name, key))) for key, child in value.items()]
        is_plain = all(isinstance(key, str) and not key.startswith("$") for key in value)
        return dict(children) if is_plain else {"$pairs": [[_checked_key(key, name), child] for key, child in children]}
    if isinstance(value, list | tuple):
        packed = [pack(child, tensors, _join(name, index)) for index, child in enumerate(value)]
        return packed if isinstance(value, list) else {"$tuple": packed}
    raise TypeError(f"{name or 'the state'} is of type {type(value).__name__}, which a checkpoint cannot hold")


def unpack(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Inverse of ``pack``.

    Raises:
        KeyError: a tensor that is spoken of is not there.

    >>> unpack({"$pairs": [[0, {"$tuple": [1, {"$number": "inf"}]}]]}, {})
    {0: (1, inf)}
    """
    match value:
        case list():
            return [unpack(child, tensors) for child in value]
        case {"$tensor": name}:
            return tensors[name]
        case {"$number": text}:
            return float(text)
        case {"$tuple": members}:
            return tuple(unpack(child, tensors) for child in members)
        case {"$pairs": pairs}:
            return {key: unpack(child, tensors) for key, child in pairs}
        case dict():
            return {key: unpack(child, tensors) for key, child in value.items()}
    return value


def _join(name: str, key: Any) -> str:
    """Path of a child."""
    return f"{name}.{key}" if name else str(key)


def _checked_key(key: Any, name: str) -> Any:
    """A key as JSON keeps it."""
    if type(key) not in (bool, int, str):
        raise TypeError(f"{name or 'the state'} has a key of type {type(key).__name__}, which a checkpoint cannot hold")
    return key
