"""What is said where something is refused: one line."""

from collections.abc import Callable
from typing import Any

import pytest


def refused(
    kind: type[Exception] | tuple[type[Exception], ...], function: Callable[..., object], *args: Any, **options: Any
) -> str:
    with pytest.raises(kind) as caught:
        function(*args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)
