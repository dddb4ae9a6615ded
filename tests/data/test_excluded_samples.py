"""Samples that a list names are left out of any form of data; a list that does nothing is refused."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from counterpoint.core.errors import UsageError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.source import Source
from counterpoint.data.sources import open_source
from data.opened_data import silent
from data.picture_files import noise


def opened(data: object, names: str, folder: Path) -> Source:
    file = folder / "exclude.txt"
    file.write_text(names, encoding="utf-8")
    return open_source(data, SourceSettings(exclude=str(file)), progress=silent)


@pytest.fixture
def photos(tmp_path: Path, rng: np.random.Generator) -> Path:
    for name in ("a/1.png", "a/2.png", "b/1.png", "b/2.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise(rng, 16, 16)).save(tmp_path / "photos" / name)
    return tmp_path / "photos"


def test_files_are_left_out_with_their_labels(photos: Path, tmp_path: Path) -> None:
    whole = open_source(str(photos), SourceSettings(), progress=silent)
    source = opened(str(photos), "# copies\nb/1.png\n\na/2.png\n", tmp_path)
    assert source.sample_names == ("a/1.png", "b/2.png")
    assert source.labels is not None
    assert source.labels.tolist() == [0, 1]
    assert source.class_names == whole.class_names
    assert (source.store.fetch([1]) == whole.store.fetch([3])).all()
    assert source.fingerprint != whole.fingerprint


def test_a_file_that_cannot_be_read_may_be_on_the_list(photos: Path, tmp_path: Path) -> None:
    (photos / "a" / "broken.png").write_bytes(b"no")
    (tmp_path / "exclude.txt").write_text("a/broken.png\na/1.png\n", encoding="utf-8")
    settings = SourceSettings(exclude=str(tmp_path / "exclude.txt"), max_bad=0.5)
    assert len(open_source(str(photos), settings, progress=silent)) == 3


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("", "names no sample"),
        ("a/3.png\n", "has no sample 'a/3.png'"),
        ("a/1.png\na/2.png\nb/1.png\nb/2.png\n", "names all 4 samples"),
    ],
)
def test_a_list_without_effect_is_refused(names: str, said: str, photos: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        opened(str(photos), names, tmp_path)
