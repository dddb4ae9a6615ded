"""Lists of images: paths are relative to the list, columns are found by name, missing files are bad files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.source import Source
from counterpoint.data.sources import open_source


@contextmanager
def silent(title: str, total: int) -> Iterator[Callable[[], None]]:
    yield lambda: None


def open_list(path: Path, **settings: Any) -> Source:
    return open_source(path, SourceSettings(image_size=16, **settings), progress=silent)


def refusal(path: Path, **settings: Any) -> str:
    with pytest.raises((DataError, UsageError)) as caught:
        open_list(path, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path, rng: np.random.Generator) -> Path:
    """Five pictures in two folders."""
    for name in ("a/0.png", "a/1.png", "b c/2.png", "b c/3, old.png", "ä.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(tmp_path / name)
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def assert_holds(source: Source, folder: Path, names: list[str]) -> None:
    assert source.sample_names == tuple(names)
    for sample, name in zip(source.store.fetch(range(len(names))), names, strict=True):
        expected = torch.from_numpy(np.array(Image.open(folder / name))).permute(2, 0, 1)
        assert torch.equal(sample, expected), name


def test_a_text_file_lists_paths_in_order(folder: Path) -> None:
    path = write(folder / "list.txt", "\ufeffb c/3, old.png\n\na/1.png  \r\nä.png\n")
    source = open_list(path)
    assert_holds(source, folder, ["b c/3, old.png", "a/1.png", "ä.png"])
    assert source.labels is None
    assert source.name == str(path)


@pytest.mark.parametrize("path_column", ["file", "path", "image", "Filename"])
@pytest.mark.parametrize("label_column", ["label", "class", "TARGET"])
def test_columns_are_found_by_their_usual_names(path_column: str, label_column: str, folder: Path) -> None:
    text = f'id,{label_column}, {path_column} \n1,cat,a/0.png\n2,dog,"b c/3, old.png"\n3,,ä.png\n4,cat,a/1.png\n'
    source = open_list(write(folder / "list.csv", text))
    assert_holds(source, folder, ["a/0.png", "b c/3, old.png", "ä.png", "a/1.png"])
    assert source.class_names == ("cat", "dog")
    assert source.labels is not None
    assert source.labels.tolist() == [0, 1, -1, 0]
    assert open_list(folder / "list.csv", labels="none").labels is None


def test_other_columns_can_be_named(folder: Path) -> None:
    path = write(folder / "list.csv", "file,where,label,breed\nx,a/0.png,cat,10\ny,a/1.png,cat,9\n")
    source = open_list(path, image_column="where", label_column="breed")
    assert_holds(source, folder, ["a/0.png", "a/1.png"])
    assert source.class_names == ("9", "10")
    assert "no column 'bred'; did you mean 'breed'?" in refusal(path, image_column="where", label_column="bred")
    assert "no column 'wher'" in refusal(path, image_column="wher")


def test_absolute_paths_and_paths_above_the_list_are_followed(folder: Path) -> None:
    (folder / "lists").mkdir()
    path = write(folder / "lists" / "list.txt", f"../a/0.png\n{folder / 'a' / '1.png'}\n")
    assert len(open_list(path)) == 2


def test_listed_files_that_are_missing_count_as_bad_and_are_named(folder: Path) -> None:
    path = write(folder / "list.txt", "a/0.png\na/missing.png\na/1.png\n")
    assert "a/missing.png" in refusal(path)
    source = open_list(path, max_bad=0.4)
    assert [item.name for item in source.skipped] == ["a/missing.png"]
    assert_holds(source, folder, ["a/0.png", "a/1.png"])


def test_the_fingerprint_follows_content_order_and_labels(folder: Path) -> None:
    texts = ("file,label\na/0.png,1\na/1.png,2\n", "file,label\na/0.png,2\na/1.png,1\n", "file\na/1.png\na/0.png\n")
    prints = {open_list(write(folder / "list.csv", text)).fingerprint for text in texts}
    assert len(prints) == 3


BAD: dict[str, tuple[str, str]] = {
    "empty": ("", "lists no image"),
    "header only": ("file,label\n", "lists no image"),
    "no paths": ("id,label\n1,2\n", "paths must be in one named file, path"),
    "short row": ("file,label\na/0.png\n", "row 2 must have 2 cells"),
    "long row": ("file,label\na/0.png,1\na/1.png,2,3\n", "row 3 must have 2 cells"),
    "empty path": ("file,label\n ,1\n", "row 2"),
    "open quote": ('file,label\n"a/0.png,1\n', "as a table"),
}


@pytest.mark.parametrize(("text", "complaint"), BAD.values(), ids=BAD)
def test_lists_that_are_none_are_refused(text: str, complaint: str, folder: Path) -> None:
    assert complaint in refusal(write(folder / "list.csv", text))


def test_an_empty_list_and_bytes_that_are_no_text_are_refused(folder: Path) -> None:
    assert "lists no image" in refusal(write(folder / "list.txt", "\n\n"))
    (folder / "list.txt").write_bytes(b"\xff\xfe\x00a")
    assert "as text" in refusal(folder / "list.txt")
    assert "one part only" in refusal(write(folder / "list.txt", "a/0.png"), split="train")
