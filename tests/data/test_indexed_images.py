"""A folder of pictures as a source: every format upright and in colour, bad files named, nothing damaged taken."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from counterpoint.data.formats import image_files, indexed_images
from counterpoint.data.formats.image_files import decode, decode_square, read_size
from data import picture_files as pictures
from data.opened_data import labels_of, open_data, refusal
from data.shard_files import write_shard


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "photos"
    path.mkdir()
    return path


# --- good files


def test_pictures_of_every_format_and_mode_become_square_colour_bytes(folder: Path, rng: np.random.Generator) -> None:
    modes = pictures.save_mixed(folder, rng)
    for name, mode in modes.items():
        with Image.open(folder / name) as image:
            assert image.mode == mode, name  # the test's own files are what they claim
    source = open_data(folder, image_size=16)
    assert (source.kind, source.shape) == ("images", (3, 16, 16))
    assert source.sample_names == tuple(sorted(modes, key=lambda name: Path(name).parts))
    assert source.skipped == ()
    samples = source.store.fetch(range(len(source)))
    assert samples.dtype == torch.uint8
    assert samples.shape == (len(modes), 3, 16, 16)
    for name, sample in zip(source.sample_names, samples, strict=True):
        is_grey = name in ("a/grey.png", "b/sixteen.png")
        assert bool((sample[0] == sample[1]).all()) == is_grey, name
        assert float(sample.float().std()) > 20, name


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_a_turned_photograph_is_turned_back(folder: Path, orientation: int) -> None:
    upright = pictures.halves(48, 32)
    pictures.save_turned(folder / "photo.jpg", orientation, upright)
    image = decode((folder / "photo.jpg").read_bytes(), Image.Image.copy)
    assert image.size == (32, 48)
    assert read_size(folder / "photo.jpg") == image_files.ImageSize(48, 32)
    difference = np.abs(np.asarray(image).astype(int) - np.asarray(upright).astype(int))
    assert difference.mean() < 3  # JPEG is not exact; a wrong turn is off by more than 80
    square = decode_square((folder / "photo.jpg").read_bytes(), 16).float()
    above, below = square[:, :6].mean(dim=(1, 2)), square[:, -6:].mean(dim=(1, 2))
    assert float(above[0] - above[2]) > 150  # red
    assert float(below[2] - below[0]) > 150  # blue


def test_transparent_pixels_become_white(folder: Path) -> None:
    pixels = np.zeros((8, 8, 4), np.uint8)
    pixels[:, :4, 3] = 255  # the left half is opaque black
    Image.fromarray(pixels).save(folder / "half.png")
    black = Image.new("P", (8, 8), 0)
    black.putpalette([0, 0, 0, 255, 0, 0])
    black.save(folder / "palette.png", transparency=0)
    for name, left in (("half.png", 0), ("palette.png", 255)):
        image = decode((folder / name).read_bytes(), np.asarray)
        assert (image[:, :4] == left).all()
        assert (image[:, 4:] == 255).all()


def test_sixteen_bit_levels_are_scaled_to_eight(folder: Path) -> None:
    levels = np.array([[0, 128, 129, 257, 385, 386, 50_000, 65_406, 65_407, 65_535]], np.uint16)
    Image.fromarray(levels).save(folder / "deep.png")
    nearest = [0, 0, 1, 1, 1, 2, 195, 254, 255, 255]  # white is 65,535 = 255 x 257
    assert decode((folder / "deep.png").read_bytes(), np.asarray)[0, :, 0].tolist() == nearest


# --- files that are passed over


def test_hidden_files_and_folders_are_not_seen(folder: Path, rng: np.random.Generator) -> None:
    pictures.save_plain(folder, ["a.png", "b.png", ".c.png", ".cache/d.png", "sub/.e.png"], rng)
    source = open_data(folder)
    assert source.sample_names == ("a.png", "b.png")
    assert source.skipped == ()


def test_up_to_one_per_cent_of_bad_files_is_skipped_and_each_is_named(folder: Path, rng: np.random.Generator) -> None:
    names = [f"{i // 50}/{i:03d}.png" for i in range(199)]
    pictures.save_plain(folder, names, rng, side=8)
    reasons = pictures.save_bad(folder, rng)
    (folder / "text.jpg").unlink()
    source = open_data(folder)
    assert len(source) == 199
    assert source.sample_names == tuple(names)
    assert [item.name for item in source.skipped] == ["truncated.jpg"]
    assert reasons["truncated.jpg"] in source.skipped[0].reason


def test_more_bad_files_stop_with_the_flag_that_allows_them(folder: Path, rng: np.random.Generator) -> None:
    pictures.save_mixed(folder, rng)
    reasons = pictures.save_bad(folder, rng)
    message = refusal(folder)
    assert "2 of 11" in message
    assert "--source.max-bad 0.19" in message
    for name, reason in reasons.items():
        assert f"{name} ({reason}" in message or (name in message and reason in message)
    source = open_data(folder, max_bad=0.19)
    assert len(source) == 9
    assert {item.name for item in source.skipped} == set(reasons)


def test_an_image_of_too_many_pixels_is_refused(
    folder: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures.save_plain(folder, ["a.png"], rng, side=17)
    monkeypatch.setattr(image_files, "MAX_PIXELS", 16 * 16)
    with pytest.raises(ValueError, match="larger than 256 pixels"):
        decode((folder / "a.png").read_bytes(), np.asarray)


def damage(path: Path) -> str | None:
    """Why a file is refused; None when it still decodes to a whole picture."""
    try:
        assert decode(path.read_bytes(), lambda image: image.mode) == "RGB"
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.filterwarnings("ignore")  # Pillow warns of much on its way
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".bmp", ".gif", ".tif", ".ppm"])
def test_damage_of_any_kind_is_a_reason_and_never_another_error(
    folder: Path, suffix: str, rng: np.random.Generator
) -> None:
    whole = pictures.encoded(pictures.noise(rng, 24, 20), Image.registered_extensions()[suffix])
    path = folder / f"x{suffix}"
    damaged = [whole[:length] for length in range(0, len(whole), max(1, len(whole) // 25))]
    for _ in range(60):
        changed = bytearray(whole)
        reach = int(rng.choice([32, 200, len(changed)]))
        for place in rng.integers(0, min(reach, len(changed)), 3):
            changed[place] = rng.integers(256)
        damaged.append(bytes(changed))
    num_refused = 0
    for content in damaged:
        path.write_bytes(content)
        read_size(path)
        reason = damage(path)
        num_refused += reason is not None
        assert reason is None or (reason and "\n" not in reason)
    assert num_refused >= 15


# --- sizes


@pytest.mark.parametrize(
    ("sides", "expected"), [([(40, 60), (30, 30), (90, 33)], 32), ([(500, 400)], 64), ([(5, 9)], 8), ([(50, 47)], 40)]
)
def test_the_side_is_chosen_from_the_pictures(
    folder: Path, sides: list[tuple[int, int]], expected: int, rng: np.random.Generator
) -> None:
    for number, (height, width) in enumerate(sides):
        Image.fromarray(pictures.noise(rng, height, width)).save(folder / f"{number}.png")
    source = open_data(folder)
    assert source.shape == (3, expected, expected)
    assert "px" in source.notes["source.image_size"]
    assert open_data(folder, image_size=24).shape == (3, 24, 24)
    assert "source.image_size" not in open_data(folder, image_size=24).notes


# --- labels


def test_sub_folders_are_classes(folder: Path, rng: np.random.Generator) -> None:
    pictures.save_plain(folder, ["cat/1.png", "cat/old/2.png", "dog/3.png", "ant/4.png"], rng)
    source = open_data(folder)
    assert source.class_names == ("ant", "cat", "dog")
    assert labels_of(source) == {"ant/4.png": "ant", "cat/1.png": "cat", "cat/old/2.png": "cat", "dog/3.png": "dog"}
    assert open_data(folder, labels="none").labels is None


@pytest.mark.parametrize("names", [["1.png", "2.png"], ["a/1.png", "a/2.png"], ["a/1.png", "b/2.png", "3.png"]])
def test_folders_that_do_not_divide_all_files_are_no_classes(
    folder: Path, names: list[str], rng: np.random.Generator
) -> None:
    pictures.save_plain(folder, names, rng)
    source = open_data(folder)
    assert source.labels is None
    assert source.class_names == ()


CSV_TEXTS = {
    "header": "file,label\ncat/1.png,x\n2.png,y\ncat/3.png,x\n",
    "other columns and order": "label,size,file\nx,4,cat/1.png\ny,5,2.png\nx,9,cat/3.png\n",
    "base names": "file,label\n1.png,x\n2.png,y\n3.png,x\n",
    "byte-order mark, blanks, empty lines": "\ufefflabel, file\n\nx, 1.png \ny,2.png\n\nx,3.png\n",
    "backslashes": "file,label\ncat\\1.png,x\n2.png,y\ncat\\3.png,x\n",
    "another file": "file,label\n1.png,x\n2.png,y\n3.png,x\nelsewhere.png,z\n",
}


@pytest.mark.parametrize("text", CSV_TEXTS.values(), ids=CSV_TEXTS)
def test_labels_from_a_csv(folder: Path, tmp_path: Path, text: str, rng: np.random.Generator) -> None:
    pictures.save_plain(folder, ["cat/1.png", "2.png", "cat/3.png"], rng)
    csv = tmp_path / "labels.csv"
    csv.write_text(text, encoding="utf-8")
    source = open_data(folder, labels=str(csv))
    assert labels_of(source) == {"2.png": "y", "cat/1.png": "x", "cat/3.png": "x"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("file,label\nelsewhere.png,x\n", "no row names a file"),
        ("1.png\n2.png\n", "file,label"),
        ("", "file,label"),
        ("size,label,file\n4,x\n", "file,label"),
        ("file,label\n1.png,\0\n", "line 2"),
    ],
)
def test_a_csv_that_does_not_fit_is_refused(
    folder: Path, tmp_path: Path, text: str, complaint: str, rng: np.random.Generator
) -> None:
    pictures.save_plain(folder, ["1.png", "2.png"], rng)
    csv = tmp_path / "labels.csv"
    csv.write_text(text, encoding="utf-8")
    message = refusal(folder, labels=str(csv))
    assert complaint in message
    assert str(csv) in message


# --- content


def test_the_fingerprint_follows_names_pixels_labels_and_size(folder: Path, rng: np.random.Generator) -> None:
    pictures.save_plain(folder, ["a/1.bmp", "a/2.bmp", "b/3.bmp"], rng)
    prints = [open_data(folder).fingerprint]
    assert open_data(folder).fingerprint == prints[0]
    prints.append(open_data(folder, image_size=8).fingerprint)
    prints.append(open_data(folder, labels="none").fingerprint)
    pictures.save_plain(folder, ["a/2.bmp"], rng)  # other pixels, as many bytes
    prints.append(open_data(folder, altered="reindex").fingerprint)
    (folder / "b" / "3.bmp").rename(folder / "b" / "4.bmp")
    prints.append(open_data(folder).fingerprint)
    assert len(set(prints)) == len(prints)


@pytest.mark.parametrize("form", ["folder", "shard", "pack"])
def test_images_too_large_for_memory_are_read_again_where_they_lie(
    folder: Path, form: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {name: (folder / name).read_bytes() for name in pictures.save_mixed(folder, rng)}
    data = {"folder": folder, "shard": folder / "x.tar", "pack": folder / "x.npz"}[form]
    write_shard(folder / "x.tar", contents)
    jpeg = np.frombuffer(b"".join(contents.values()), np.uint8)
    np.savez(folder / "x.npz", jpeg=jpeg, offsets=np.cumsum([0, *map(len, contents.values())]))
    in_memory = open_data(data, image_size=16)
    monkeypatch.setattr(indexed_images, "MEMORY_BUDGET_BYTES", 0)
    on_disk = open_data(data, image_size=16)
    assert type(in_memory.store) is not type(on_disk.store)
    assert in_memory.fingerprint == on_disk.fingerprint
    positions = [4, 0, 7, 4]
    assert torch.equal(in_memory.store.fetch(positions), on_disk.store.fetch(positions))
