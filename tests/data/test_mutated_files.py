"""Mutations of a small file of every form: each is data or one line, and the file's neighbours are not lost."""

import zlib
from pathlib import Path

import numpy as np
import pytest

from campaign.data_files import EMBEDDINGS, NAMED, SEEDS, damage
from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.sources import open_source
from counterpoint.evaluation.vector_table import read_table
from data.opened_data import silent

NUM_MUTATIONS = 40


def read(kind: str, path: Path) -> None:
    """Open a seed and fetch a sample, as a verb does."""
    if kind in EMBEDDINGS:
        read_table(path)
        return
    settings = SourceSettings(split="test", root=str(path)) if kind in NAMED else SourceSettings(max_bad=0.9)
    source = open_source(NAMED.get(kind, path), settings, progress=silent)
    source.store.fetch([0, len(source) - 1])


@pytest.mark.parametrize("kind", SEEDS)
@pytest.mark.sampled(8)
@pytest.mark.filterwarnings("ignore")  # Pillow warns of much on its way
def test_a_mutated_file_is_data_or_one_line(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "parquet" in kind or "arrow" in kind or kind == "feather":
        pytest.importorskip("pyarrow", reason="pyarrow (extra `search`) is not installed")
    path = SEEDS[kind](tmp_path)
    read(kind, path)
    contents = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    for number in range(NUM_MUTATIONS):
        monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "caches" / str(number)))
        chosen = damage(path, np.random.default_rng([zlib.crc32(kind.encode()), number]))
        try:
            read(kind, path)
        except (DataError, UsageError) as error:
            assert "\n" not in str(error)
        chosen.write_bytes(contents[chosen])
