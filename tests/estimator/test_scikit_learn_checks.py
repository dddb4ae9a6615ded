"""scikit-learn's own checks of estimators, none of them expected to fail."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from counterpoint import ContrastiveEncoder

# Needs a variable that SciPy reads when it is imported: see the test in a process of its own.
BY_ITSELF = "check_array_api_input"
NUM_CHECKS = 46  # of scikit-learn 1.9; other versions have others
OTHER = {"method": "supervised", "layer": "embedding"}


def name_of(check: Callable[[Any], None]) -> str:
    plain = check.func if isinstance(check, partial) else check
    further = check.keywords.keys() - {"name"} if isinstance(check, partial) else ()
    return "-".join([plain.__name__, *sorted(further)])


def checks(*marks: pytest.MarkDecorator, **parameters: Any) -> Iterator[Any]:
    # Typed as what pytest may be given, marks included.
    generated = cast(Iterator[Any], estimator_checks_generator(ContrastiveEncoder(epochs=1, **parameters)))
    for estimator, check in generated:
        if BY_ITSELF not in name_of(check):
            label = "-".join([*map(str, parameters.values()), name_of(check)])
            yield pytest.param(estimator, check, id=label, marks=marks)


@pytest.mark.parametrize(("estimator", "check"), [*checks(), *checks(pytest.mark.thorough, **OTHER)])
def test_check(estimator: ContrastiveEncoder, check: Callable[[ContrastiveEncoder], None]) -> None:
    check(estimator)


def test_all_checks_are_run() -> None:
    assert len(list(checks())) >= NUM_CHECKS - 1
    assert "check_estimators_pickle" in {parameter.id for parameter in checks()}


@pytest.mark.thorough
def test_the_check_that_needs_array_api_dispatch() -> None:
    code = (
        "from sklearn.utils.estimator_checks import estimator_checks_generator\n"
        "from counterpoint import ContrastiveEncoder\n"
        "found = estimator_checks_generator(ContrastiveEncoder(epochs=1))\n"
        f"found = [each for each in found if '{BY_ITSELF}' in str(each[1])]\n"
        "[check(estimator) for estimator, check in found]\n"
        "print(len(found))\n"
    )
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    finished = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert int(finished.stdout) >= 1
