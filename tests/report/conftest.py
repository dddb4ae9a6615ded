"""Run folders for the report's tests."""

from collections.abc import Callable
from pathlib import Path

import pytest
from run_folders import dense_embedding, sparse_embedding, toy_samples, write_run


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """Write a small run folder; ``method`` ncl has sparse features, any other dense ones."""

    def make(name: str = "digits-ncl", *, method: str = "ncl", num_epochs: int = 20, **samples) -> Path:
        toy = toy_samples(**samples)
        embedding = sparse_embedding(toy) if method == "ncl" else dense_embedding(toy)
        return write_run(tmp_path / name, toy, embedding, method=method, num_epochs=num_epochs)

    return make
