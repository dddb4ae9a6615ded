"""Fixtures of the tests that start the command many times."""

from collections.abc import Iterator

import pytest
from kill_server import KillServer


@pytest.fixture(scope="session")
def server() -> Iterator[KillServer]:
    """Starts processes that have torch imported already."""
    with KillServer() as started:
        yield started
