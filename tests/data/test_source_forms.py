"""What opens a path is chosen by its suffix or by what the folder holds."""

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from counterpoint.core.errors import UsageError
from counterpoint.data.source import FOLDER
from counterpoint.data.sources import FORMS
from data.opened_data import open_data
from data.picture_files import encoded, noise

arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra `search`)")


@pytest.fixture
def pictures(rng: np.random.Generator) -> list[bytes]:
    return [encoded(noise(rng, 16, 16), "PNG") for _ in range(4)]


def save_shard(path: Path, pictures: list[bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for number, content in enumerate(pictures):
            for suffix, part in ((".png", content), (".cls", str(number % 2).encode())):
                member = tarfile.TarInfo(f"{number}{suffix}")
                member.size = len(part)
                archive.addfile(member, io.BytesIO(part))
    return path


def table(pictures: list[bytes]) -> Any:
    return arrow.table({"image": pictures, "label": [0, 1, 0, 1]})


def test_shards_are_opened_alone_and_in_folders(tmp_path: Path, pictures: list[bytes]) -> None:
    shard = save_shard(tmp_path / "shards" / "a.tar", pictures)
    alone, folder = open_data(shard), open_data(tmp_path / "shards")
    assert len(alone) == len(folder) == 4
    assert alone.class_names == folder.class_names == ("0", "1")
    with pytest.raises(UsageError, match="one part only"):
        open_data(shard, split="train")


def test_an_archive_beside_the_images_it_held_is_no_shard(tmp_path: Path, pictures: list[bytes]) -> None:
    save_shard(tmp_path / "a.tar", pictures)
    for number, content in enumerate(pictures[:3]):
        (tmp_path / f"{number}.png").write_bytes(content)
    source = open_data(tmp_path)
    assert len(source) == 3
    assert [item.name for item in source.skipped] == ["a.tar"]


def test_tables_are_opened_by_suffix(tmp_path: Path, pictures: list[bytes]) -> None:
    from pyarrow import feather, parquet

    rows = table(pictures)
    parquet.write_table(rows, tmp_path / "a.parquet")
    feather.write_feather(rows, str(tmp_path / "a.feather"))
    sources = [open_data(path) for path in (tmp_path / "a.parquet", tmp_path / "a.feather")]
    assert [len(source) for source in sources] == [4, 4]
    assert all(source.class_names == ("0", "1") for source in sources)


def test_the_list_of_forms_names_every_suffix(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        open_data(tmp_path / "nowhere")
    suffixes = {suffix for form in FORMS for suffix in form.suffixes} - {FOLDER}
    assert suffixes >= {".npy", ".npz", ".tar", ".parquet", ".arrow", ".feather"}
    assert all(suffix in str(caught.value) for suffix in suffixes)
