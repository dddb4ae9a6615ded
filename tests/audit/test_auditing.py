"""Planted faults are named, clean data raise no warning, and no input, however odd, ends in a traceback."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from sklearn.datasets import load_digits

import counterpoint as cp
from audit.planted_faults import plant, save_clean, scene
from counterpoint.audit import audited_data, auditing, picture_pass
from counterpoint.audit.audit_record import Audit, Observation
from counterpoint.audit.audited_data import AuditedData, Share
from counterpoint.cli.main import main
from counterpoint.core.arrow_files import TableFile, TextColumn, write_columns
from counterpoint.core.errors import UsageError
from counterpoint.core.files import read_json
from counterpoint.core.schemas import read_record
from failing_disk import FAULTS, FailingDisk

EXPECTED_OF_FEW = {"few-samples"}  # of tests, whose folders are small


def look(data: object, **options: Any) -> Audit:
    return cp.audit(data, quiet=True, **options)


def observed(found: Audit, code: str) -> Observation:
    each = found.found(code)
    assert each is not None, f"{code} not among {[other.code for other in found.observations]}"
    return each


def named(found: Audit, code: str) -> str:
    each = observed(found, code)
    return "\n".join([*each.names, *(name for group in each.groups for name in group.names)])


def warned(found: Audit) -> set[str]:
    return {each.code for each in found.observations if each.level in ("warning", "severe")} - EXPECTED_OF_FEW


def test_every_planted_fault_is_named_and_nothing_else_is_warned_of(tmp_path: Path, rng: np.random.Generator) -> None:
    faults = plant(save_clean(tmp_path / "photos", rng), rng)
    found = look(tmp_path / "photos")
    for code, names in faults.items():
        told = named(found, code)
        assert all(name in told for name in names), (code, told)
    assert warned(found) == {"same-pixels", "near-copies", "label-conflict", "blank", "noise", "unreadable"}
    assert len(observed(found, "near-copies").groups) == 3
    assert found.passport.num_found == 60 + 12
    assert found.passport.classes == {"cats": 34, "dogs": 36}
    assert found.passport.modes.items() >= {"RGBA": 1, "I;16": 1, "CMYK": 1}.items()
    assert found.passport.formats["GIF"] == 1
    text = str(found)
    assert max(map(len, text.splitlines())) <= 100
    assert "dogs/truncated.jpg" in text


def test_clean_pictures_raise_no_warning(tmp_path: Path, rng: np.random.Generator) -> None:
    save_clean(tmp_path / "photos", rng)
    found = look(tmp_path / "photos")
    assert warned(found) == set()
    assert found.left_out() == ()


def test_copies_across_parts_are_leakage(tmp_path: Path, rng: np.random.Generator) -> None:
    train = save_clean(tmp_path / "photos" / "train", rng, 12)
    test = save_clean(tmp_path / "photos" / "test", rng, 12)
    Image.open(train[3]).save(test[0].with_name("seen.png"))
    for found in (look(tmp_path / "photos"), look(tmp_path / "photos" / "train", against=tmp_path / "photos" / "test")):
        leak = observed(found, "leakage")
        assert leak.level == "severe"
        assert leak.count == 1
        assert leak.names[0].endswith("cats/seen.png")
        # The test part stays whole.
        assert found.left_out() == (leak.groups[0].names[0],)
    assert found.passport.splits == {"": 24, "against": 25}


def in_pieces(data: Path, pieces: Path) -> dict[str, Any]:
    return {**look(data, pieces=pieces).to_dict(), "seconds": 0}


def test_an_audit_that_was_killed_continues_with_the_pieces_that_it_kept(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, pieces = tmp_path / "photos", tmp_path / "pieces"
    plant(save_clean(photos, rng), rng)
    np.save(photos / "vectors.npy", np.eye(5, dtype=np.float32))
    expected = {**look(photos).to_dict(), "seconds": 0}
    monkeypatch.setattr(audited_data, "BLOCK", 20)
    monkeypatch.setattr(picture_pass, "BLOCK", 20)
    monkeypatch.setattr(auditing, "PIECE", 1)
    pass_over, seen = auditing.look_through, list[Any]()

    def dies(collection: Any, blocks: Any) -> Any:
        seen.append(blocks)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return pass_over(collection, blocks)

    monkeypatch.setattr(auditing, "look_through", dies)
    with pytest.raises(KeyboardInterrupt):
        in_pieces(photos, pieces)
    assert len(list(pieces.glob("shard-*.json"))) == 2
    assert in_pieces(photos, pieces) == expected
    assert seen == [[(0, first)] for first in (0, 20, 40, 40, 60)]
    # One that is damaged is made again, alone.
    damaged = pieces / "shard-000001.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert in_pieces(photos, pieces) == expected
    assert seen[5:] == [[(0, 20)]]
    # Of other pictures, although they have the same names, or of none.
    before = {path: path.read_bytes() for path in pieces.iterdir()}
    next(photos.rglob("*.jpg")).write_bytes(b"another")
    for name, message in (("", "data "), ("vectors.npy", "--pieces are for pictures")):
        assert main(["audit", str(photos / name), "--pieces", str(pieces), "-q"]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert before == {path: path.read_bytes() for path in pieces.iterdir()}


def test_a_full_disk_under_pieces_is_one_line_and_what_is_there_stays(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, pieces = tmp_path / "photos", tmp_path / "pieces"
    save_clean(photos, rng, 12)
    expected = {**look(photos).to_dict(), "seconds": 0}
    monkeypatch.setattr(auditing, "PIECE", 1)
    monkeypatch.setattr(audited_data, "BLOCK", 8)
    monkeypatch.setattr(picture_pass, "BLOCK", 8)
    with monkeypatch.context() as patch:
        FailingDisk(FAULTS["disk full"], first=50, is_lasting=True).install(patch)
        assert main(["audit", str(photos), "--pieces", str(pieces), "-q"]) == 2
    error = capsys.readouterr().err
    assert "No space left on device" in error
    assert error.count("\n") == 1
    kept = {path: path.stat().st_mtime_ns for path in pieces.glob("shard-*.json")}
    assert 1 <= len(kept) < 3
    assert in_pieces(photos, pieces) == expected
    assert kept == {path: path.stat().st_mtime_ns for path in kept}


def test_samples_are_known_by_their_names_however_these_are_held(tmp_path: Path) -> None:
    def listing(names: Sequence[str]) -> bytes:
        return AuditedData("images", (Share("", torch.zeros(2, 3, 8, 8), names),), None, ()).listing

    path = tmp_path / "names.parquet"
    write_columns(path, {"name": ["a.jpg", "b.jpg"]})
    held = listing(("a.jpg", "b.jpg"))
    assert held == listing(TextColumn(TableFile(path), "name"))
    assert held != listing(("a.jpg", "c.jpg"))
    assert held != listing(("a.jpgb", ".jpg"))


def test_a_file_format_that_tells_the_class_is_a_shortcut(tmp_path: Path, rng: np.random.Generator) -> None:
    for name, quality in (("cats", 60), ("dogs", 90)):
        (tmp_path / name).mkdir()
        for number in range(20):
            scene(rng).save(tmp_path / name / f"{number}.jpg", quality=quality)
    told = observed(look(tmp_path), "class-shortcut")
    assert "JPEG quality" in told.names
    assert told.measured == 1.0
    assert "colours" not in told.names


def test_a_picture_that_is_turned_when_it_is_read_counts_upright(tmp_path: Path, rng: np.random.Generator) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    scene(rng).crop((0, 0, 96, 48)).save(tmp_path / "turned.jpg", exif=exif)
    found = look(tmp_path).passport
    assert (found.widths[2], found.heights[2]) == (48, 96)


def test_a_bad_file_beside_class_folders_leaves_their_labels(tmp_path: Path, rng: np.random.Generator) -> None:
    save_clean(tmp_path, rng, 6)
    (tmp_path / "stray.jpg").write_bytes(b"no picture")
    assert look(tmp_path).passport.classes == {"cats": 6, "dogs": 6}
    scene(rng, 24).save(tmp_path / "stray.png")  # a good one: training takes no classes either
    assert look(tmp_path).passport.classes == {}


def test_pictures_cut_short_and_classes_of_one_name_are_named(tmp_path: Path, rng: np.random.Generator) -> None:
    for name in ("dog", "Dogs", "horse"):
        (tmp_path / name).mkdir()
        for number in range(6):
            scene(rng, 64).save(tmp_path / name / f"{number}.png")
    image = scene(rng, 64)
    image.paste((128, 128, 128), (0, 30, 64, 64))
    image.save(tmp_path / "horse" / "cut.jpg")
    found = look(tmp_path)
    assert named(found, "cut-short") == "horse/cut.jpg"
    assert named(found, "alike-classes") in ("Dogs and dog", "dog and Dogs")


@pytest.mark.parametrize("change", ["border", "darkness", "blur", "JPEG quality", "watermark"])
def test_a_cue_of_one_class_among_many_is_named(change: str, tmp_path: Path, rng: np.random.Generator) -> None:
    for label in range(20):
        (tmp_path / f"class {label}").mkdir()
        for number in range(12):
            image = scene(rng, 64)
            if label == 7 and change == "border":
                image = ImageOps.expand(image, 4, "black").resize(image.size)
            elif label == 7 and change == "darkness":
                image = ImageEnhance.Brightness(image).enhance(0.3)
            elif label == 7 and change == "blur":
                image = image.filter(ImageFilter.GaussianBlur(2))
            elif label == 7 and change == "watermark":
                image = Image.composite(Image.new("RGB", image.size, "white"), image, stamp())
            quality = 60 if label == 7 and change == "JPEG quality" else 90
            image.save(tmp_path / f"class {label}" / f"{number}.jpg", quality=quality)
    told = observed(look(tmp_path), "class-cue")
    cue = "watermark or common background" if change == "watermark" else change
    assert f"{cue}: class 7" in "\n".join(told.names)
    assert told.remedy.startswith("convert the files" if change == "JPEG quality" else "collect pictures")
    assert all("class 7" in name for name in told.names)


def stamp() -> Image.Image:
    """Where a watermark covers a picture of 64 pixels, and how much of it."""
    mask = Image.new("L", (64, 64))
    mask.paste(150, (6, 48, 38, 57))
    return mask


def with_wrong(labels: np.ndarray, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Labels of which some are replaced by others, and which."""
    places = rng.permutation(len(labels))[: round(share * len(labels))]
    wrong, number = labels.copy(), labels.max() + 1
    wrong[places] = (wrong[places] + rng.integers(1, number, len(places))) % number
    return wrong, places


@pytest.mark.parametrize("kind", ["pictures", "vectors"])
def test_wrong_labels_are_named_with_the_class_that_they_look_like(kind: str, rng: np.random.Generator) -> None:
    rows, target = map(np.asarray, load_digits(return_X_y=True))
    data = rows.reshape(-1, 8, 8).astype(np.float32) / 16 if kind == "pictures" else rows
    labels, places = with_wrong(target, 0.05, rng)
    found = observed(look(data, labels=labels), "wrong-label")
    assert found.level == "warning"
    told = {int(name): words for name, words in found.said}
    right = told.keys() & set(places.tolist())
    assert len(right) >= 0.5 * len(places)
    assert len(right) >= 0.9 * len(told)
    assert all(told[at] == f"{labels[at]}; most similar: {target[at]}" for at in right)
    clean = look(data, labels=target).found("wrong-label")
    assert clean is None or (clean.level == "note" and len(clean.names) <= 3)


@pytest.mark.thorough
def test_one_class_in_two_folders_is_told(rng: np.random.Generator) -> None:
    rows, target = map(np.asarray, load_digits(return_X_y=True))
    whole = np.array([f"class {'abcdefghij'[number]}" for number in target], object)
    parted = np.where((whole == "class c") & (rng.random(len(whole)) < 0.5), "two", whole)
    for labels, pairs in ((whole, 0), (parted, 1)):
        found = look(rows.reshape(-1, 8, 8).astype(np.float32) / 16, labels=labels.tolist()).found("alike-classes")
        told = [] if found is None else [name for name in found.names if "not told apart" in name]
        assert len(told) == pairs
        assert all("class c" in name and "two" in name for name in told)


def test_labels_that_nothing_tells_are_not_called_wrong(rng: np.random.Generator) -> None:
    pictures = np.stack([np.asarray(scene(rng, 32)) for _ in range(200)])
    values = rng.normal(size=(500, 8))
    values[:, 3] = 1e300  # one value that float32 does not have
    for data in (pictures, values):
        for num_classes in (1, 4, len(data)):
            assert look(data, labels=np.arange(len(data)) % num_classes).found("wrong-label") is None


def test_broken_files_are_no_copies_of_each_other(tmp_path: Path, rng: np.random.Generator) -> None:
    photos = tmp_path / "photos"
    save_clean(photos, rng)
    for name in ("cats/empty.jpg", "dogs/empty.jpg", "dogs/other.jpg"):
        (photos / name).write_bytes(b"")
    found = look(photos)
    assert warned(found) == {"unreadable"}
    assert found.left_out() == ()


def test_a_folder_of_broken_files_is_an_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(5):
        (tmp_path / f"{number}.jpg").write_bytes(b"\xff\xd8\xff" + bytes(number))
    found = look(tmp_path)
    assert found.level == "severe"
    assert found.passport.num_good == 0
    assert named(found, "unreadable").count(".jpg") == 5
    assert main(["audit", str(tmp_path), "-q", "--fail-on", "severe"]) == 3
    assert "unreadable: 5 files of 5" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["noise", "constant", "one", "five", "one class"])
def test_few_and_odd_pictures(kind: str, tmp_path: Path, rng: np.random.Generator) -> None:
    number = {"one": 1, "five": 5}.get(kind, 12)
    for place in range(number):
        folder = tmp_path / ("only" if kind == "one class" else "a" if place % 2 else "b")
        folder.mkdir(exist_ok=True)
        pixels = np.full((40, 40, 3), 9) if kind == "constant" else rng.integers(0, 256, (40, 40, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{place}.png")
    labels = tmp_path / "labels.csv"
    labels.write_text("file,label\n" + "".join(f"only/{at}.png,x\n" for at in range(number)), encoding="utf-8")
    found = look(tmp_path)
    assert observed(found, "few-samples").level == "severe"
    if kind == "constant":
        assert found.found("blank") is not None
        assert found.passport.num_unique == 0
    if kind == "one class":
        assert found.found("no-labels") is not None
        main_found = json.loads(_json_of(tmp_path, labels))
        assert "one-class" in [each["code"] for each in main_found["observations"]]


def _json_of(folder: Path, labels: Path) -> str:
    out = folder / "audit.json"
    assert main(["audit", str(folder), "-q", "--source.labels", str(labels), "--json", str(out)]) == 0
    return out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "nowhere"),
        (["empty"], "empty"),
        (["notes.txt"], "notes.txt"),
        (["photos", "--against", "nowhere"], "nowhere"),
        (["photos", "--against", "vectors.npy"], "must be of the kind"),
        (["photos", "--json", "audit.txt"], "audit.txt"),
        (["photos", "--out", "photos"], "is a folder"),
        (["scalars.npy"], "scalars.npy"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    (tmp_path / "empty").mkdir()
    (tmp_path / "photos").mkdir()
    scene(rng, 24).save(tmp_path / "photos" / "a.png")
    (tmp_path / "notes.txt").write_text("\0", encoding="utf-8")
    np.save("vectors.npy", rng.normal(size=(8, 3)))
    np.save("scalars.npy", np.float32(3))
    assert main(["audit", *words, "-q"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("counterpoint audit: error: ")
    assert said in line


def test_vectors(tmp_path: Path, rng: np.random.Generator) -> None:
    values = rng.normal(size=(600, 6))
    values[:, 2] = 4.0
    values[7] = values[5]
    assert warned(look(values)) == {"same-pixels"}
    values[3, 1] = np.nan
    values[9, 0] = np.inf
    np.save(tmp_path / "x.npy", values)
    np.savez(tmp_path / "x.npz", x=values, labels=rng.integers(0, 2, 600))
    for data in (values, tmp_path / "x.npy", tmp_path / "x.npz"):
        found = look(data)
        assert named(found, "not-finite").split() == ["3", "9"]
        assert named(found, "constant-columns") == "column 2"
        assert {"5", "7"} <= set(named(found, "same-pixels").split())
        assert found.passport.shape == (6,)
    assert list(found.passport.classes) == ["0", "1"]


def test_copies_among_other_vectors_are_leakage(rng: np.random.Generator) -> None:
    train, test = rng.normal(size=(60, 5)), rng.normal(size=(30, 5))
    test[3] = train[4]
    found = look(train, labels=np.arange(60) % 2, against=test)
    assert named(found, "leakage").split("\n") == ["against: 3", "4", "against: 3"]
    assert found.left_out() == ("4",)
    assert found.passport.splits == {"": 60, "against": 30}
    assert found.passport.classes == {"0": 30, "1": 30}
    assert found.passport.num_unlabelled == 30
    with pytest.raises(UsageError, match=r"as many features as the data, got shapes \(5,\), \(4,\)"):
        look(train, against=test[:, :4])


def test_copies_among_other_tables_as_embed_writes_them_are_leakage(tmp_path: Path, rng: np.random.Generator) -> None:
    rows = [",".join(map(str, row)) for row in rng.normal(size=(50, 2)).round(3)]
    for name, own in (("train", rows[:30]), ("test", [*rows[30:], rows[4]])):
        lines = ["name,label,v0,v1", *(f"{name} {at},x,{row}" for at, row in enumerate(own))]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines), encoding="utf-8")
    found = look(tmp_path / "train.csv", against=tmp_path / "test.csv")
    assert named(found, "leakage").split("\n") == ["against: test 20", "train 4", "against: test 20"]


def test_rows_without_a_label_are_no_class(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("name,label,v0\na,x,1\nb,,2\nc,y,3\nd,y,4\n", encoding="utf-8")
    for found in (look(tmp_path / "x.csv"), look(np.arange(4.0)[:, None], labels=["x", None, "y", "y"])):
        assert found.passport.classes == {"x": 1, "y": 2}
        assert found.passport.num_unlabelled == 1


@pytest.mark.parametrize("name", ["table.csv", "TABLE.CSV", "archive.NPZ"])
def test_tables_of_vectors_are_read_whatever_the_case_of_their_suffix(name: str, tmp_path: Path) -> None:
    if name.endswith("NPZ"):
        with (tmp_path / name).open("wb") as stream:
            np.savez(stream, vectors=np.eye(3))
    else:
        (tmp_path / name).write_text("name,label,v0,v1\na,x,1,2\nb,y,2,3\nc,x,3,5\n", encoding="utf-8")
    found = look(tmp_path / name)
    assert found.kind == "vectors"
    assert found.passport.num_good == 3
    assert found.passport.classes == ({} if name.endswith("NPZ") else {"x": 2, "y": 1})


def test_the_record_is_read_again_as_it_was_written(tmp_path: Path, rng: np.random.Generator) -> None:
    plant(save_clean(tmp_path / "photos", rng, 8), rng)
    found = look(tmp_path / "photos")
    assert found.pictures
    path = found.save(tmp_path / "audit.json")
    again = read_record(Audit, read_json(path), str(path))
    assert again == found.model_copy(update={"pictures": {}})
    assert again.left_out() == found.left_out()


def test_small_drawings_are_not_taken_for_copies_of_each_other() -> None:
    found = look("digits")  # 8 x 8 pixels: hundreds agree in structure and detail
    assert warned(found) == set()
    assert found.passport.num_unique == 1797


def test_pictures_in_memory_have_the_findings_of_their_files(rng: np.random.Generator) -> None:
    pictures = np.stack([np.asarray(scene(rng, 40)) for _ in range(30)])
    pictures[4] = pictures[2]
    pictures[6] = 0
    found = look(pictures, labels=np.arange(30) % 3)
    assert {"2", "4"} <= set(named(found, "same-pixels").split())
    assert named(found, "blank") == "6"
    assert list(found.passport.classes) == ["0", "1", "2"]


def test_a_table_whose_columns_are_called_like_those_of_embed_is_opened_as_training_does(tmp_path: Path) -> None:
    rows = [f"r{place},c{place % 2},{place}.5,{place * 3 % 7}" for place in range(40)]
    gap = tmp_path / "gap.csv"
    gap.write_text("\n".join(["name,label,v0,v1", *rows[:-1], "r39,c1,39.5,"]))
    assert "by the median" in str(look(gap))
    # One row that can be used: nothing is left to compare labels by.
    bad = tmp_path / "bad.csv"
    bad.write_text("name,label,v0,v1\na,x,1,nan\nb,y,2,inf\nc,x,1e300,1\nd,y,3,4\n")
    assert named(look(bad), "not-finite").split() == ["a", "b", "c"]
