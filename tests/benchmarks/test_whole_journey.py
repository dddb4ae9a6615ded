"""The journey: what it plants is there as listed, what it checks can fail, and with photographs at hand it is whole."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import planted_photos
import pytest
from PIL import Image, UnidentifiedImageError
from planted_photos import FORMS, NEAR, NUM_EACH, Planted, plant
from whole_journey import STEPS

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = "../shared/data"
NUM_TRAIN, NUM_TEST = 96, 20


def save_archive(path: Path, rng: np.random.Generator, number: int) -> None:
    """Smooth pictures of 48 x 48 in three classes, in the form of the archives."""
    files = []
    for _ in range(number):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        files.append(planted_photos._saved(coarse.resize((48, 48), Image.Resampling.BICUBIC), "JPEG", quality=90))
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        path,
        jpeg=np.frombuffer(b"".join(files), dtype=np.uint8),
        offsets=np.cumsum([0, *map(len, files)]),
        labels=rng.integers(0, 3, number).astype(np.uint8),
        class_names=np.array(["ant", "Faces", "lotus"]),
    )


@pytest.fixture
def planted(tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> Planted:
    monkeypatch.setattr(planted_photos, "NUM_TRAIN", NUM_TRAIN)
    monkeypatch.setattr(planted_photos, "NUM_TEST", NUM_TEST)
    save_archive(tmp_path / "archives" / "train.npz", rng, NUM_TRAIN)
    save_archive(tmp_path / "archives" / "test.npz", rng, NUM_TEST)
    return plant(tmp_path / "archives", tmp_path / "photos")


def is_picture(path: Path) -> bool:
    """Oracle: a suffix of a picture, and content that decodes to its end."""
    if path.suffix.lower() not in (".jpg", ".jpeg", ".png", ".gif"):
        return False
    try:
        with Image.open(path) as picture:
            picture.load()
    except (UnidentifiedImageError, OSError):
        return False
    return True


def test_every_fault_is_there_as_listed(planted: Planted) -> None:
    files = [path for path in planted.folder.rglob("*") if path.is_file()]
    assert sum(map(is_picture, files)) == planted.num_good
    assert len(planted.faults) == NUM_EACH * (1 + len(NEAR) + 1 + 3 + len(FORMS))
    named = [name for fault in planted.faults for name in fault.names]
    assert len(set(named)) == len(named)  # no file has two faults
    for fault in planted.faults:
        paths = [planted.folder / name for name in fault.names]
        assert all(path.is_file() for path in paths), fault
        if fault.kind == "copy, byte for byte":
            assert paths[0].read_bytes() == paths[1].read_bytes()
        assert is_picture(paths[0]) != (fault.codes == ("unreadable",)), fault
    assert {Path(name).parts[0] for name in named} == {"train", "test"}


@pytest.mark.slow
def test_the_whole_journey(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    if not Path(ARCHIVES, "caltech101-64").exists():
        pytest.skip("shared data are absent: caltech101-64")
    command = [sys.executable, "benchmarks/whole_journey.py", "--data", ARCHIVES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = re.findall(r"^\| (\w+) \| [\d.]+ \|", done.stdout, re.MULTILINE)
    assert steps == [step.__name__ for step in STEPS]
    assert "| NO |" not in done.stdout
