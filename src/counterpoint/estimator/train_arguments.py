"""From the parameters of the estimator to the arguments of ``cp.train``."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from counterpoint.core.errors import UsageError
from counterpoint.core.validation import nest

AUTO = "auto"
# Parameters, and the settings that they stand for.
SETTINGS: Mapping[str, str] = {
    "method": "method",
    "encoder": "encoder",
    "epochs": "epochs",
    "batch_size": "batch_size",
    "temperature": "temperature",
    "learning_rate": "optim.learning_rate",
    "views": "views",
    "device": "engine.device",
    "random_state": "seed",
    "out": "out",
}
OF_TRAIN_ALONE = ("data", "labels", "recipe", "resume", "overwrite", "quiet", "seeds")


def train_arguments(parameters: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The settings to train with, nested; what is left at ``auto`` is not among them.

    Args:
        parameters: of the estimator, by name.
        seed: see ``seed_of``.

    Raises:
        UsageError: ``settings`` is no mapping, or holds what is a parameter of its own; an encoder without a name.

    >>> parameters = {"method": "ncl", "learning_rate": 0.01, "settings": {"optim": {"name": "sgd"}}}
    >>> train_arguments(parameters, seed=3)
    {'optim': {'name': 'sgd', 'learning_rate': 0.01}, 'method': 'ncl', 'seed': 3}
    """
    further = _further(parameters.get("settings"))
    given = {name: _plain(parameters[name]) for name in SETTINGS if name in parameters}
    if not isinstance(given.get("encoder", AUTO), str):
        kind = type(given["encoder"]).__name__
        raise UsageError(f"encoder must be a name, got {kind}; cp.train takes a module of your own")
    if isinstance(given.get("views"), str):
        given["views"] = {"preset": given["views"]}  # its own default is auto, too
    asked = {SETTINGS[name]: value for name, value in given.items() if not _is_auto(value)}
    if asked.get("out") is None:
        asked.pop("out", None)
    return nest({**further, **asked, "seed": seed})


def seed_of(random_state: Any) -> int:
    """The seed of a run: a whole number as it is, or drawn from a generator as scikit-learn draws.

    Args:
        random_state: a whole number >= 0, a ``numpy.random.RandomState``, or None for numpy's global one.

    Raises:
        UsageError: a negative number.
        ValueError: it is none of these.

    >>> seed_of(7), seed_of(np.random.RandomState(0)) == seed_of(np.random.RandomState(0))
    (7, True)
    """
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        if not 0 <= random_state < 2**63:
            raise UsageError(f"random_state must be a whole number >= 0 and < 2**63, got {random_state}")
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def _further(settings: Any) -> dict[str, Any]:
    """The settings that have no parameter."""
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise UsageError(
            f"settings must be a mapping such as {{'optim': {{'name': 'sgd'}}}}, got {type(settings).__name__}"
        )
    nested = nest(_plain(settings))
    for name in OF_TRAIN_ALONE:
        if name in nested:
            raise UsageError(f"settings cannot hold {name}, which belongs to cp.train; leave it out")
    for name, path in SETTINGS.items():
        section, _, leaf = path.partition(".")
        place = nested.get(section)
        if section in nested and (not leaf or (isinstance(place, Mapping) and leaf in place)):
            raise UsageError(f"settings cannot hold {path}, which is the parameter {name}; give it there")
    return nested


def _plain(value: Any) -> Any:
    """Numbers of NumPy, as grids of parameters hold them, as those of Python."""
    if isinstance(value, Mapping):
        return {name: _plain(child) for name, child in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def _is_auto(value: Any) -> bool:
    """Whether a parameter is left to be chosen for the data; arrays and the like are not compared."""
    return isinstance(value, str) and value == AUTO
