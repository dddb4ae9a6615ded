"""What is recommended trains as it is, leaves out what it says, and each line has its reason."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import counterpoint as cp
from audit.planted_faults import recompressed, save_clean, scene
from counterpoint.audit import recommending, step_timing
from counterpoint.audit.audit_record import Cue
from counterpoint.audit.recommending import ConfigLine, Recommendation
from counterpoint.cli.main import main
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build, parse_yaml

LARGE_ENCODERS = (("resnet9", 64), ("convnet", 32))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """One small encoder, few steps: what is recommended is tested, not what is fast."""
    monkeypatch.setattr(recommending, "ON_CPU", (("convnet", 16),))
    monkeypatch.setattr(step_timing, "MOST_STEPS", 2)
    monkeypatch.setattr(step_timing, "FEWEST_EPOCHS", 1)
    monkeypatch.setattr(step_timing, "FEWEST_UPDATES", 1)


@pytest.fixture
def photos(tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Clean pictures with one copy, one blank and one broken file; the working folder is theirs."""
    monkeypatch.chdir(tmp_path)
    files = save_clean(tmp_path / "photos", rng, 8)
    Image.open(files[0]).save(files[0].with_name("copy.png"))
    recompressed(Image.open(files[1]), 40).save(files[1].with_name("near.jpg"))
    Image.new("RGB", (96, 96)).save(files[0].with_name("black.png"))
    files[0].with_name("broken.jpg").write_bytes(b"no")
    return Path("photos")


def values_of(found: Recommendation) -> dict[str, Any]:
    return {line.path: line.value for line in found.lines}


def test_train_runs_the_config_as_it_is_and_leaves_out_what_it_says(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recommend", str(photos), "--minutes", "0.002", "-q"]) == 0
    said = capsys.readouterr().out
    assert "run it: counterpoint train --config recommended.yaml" in said
    text = Path("recommended.yaml").read_text(encoding="utf-8")
    build(TrainSettings, parse_yaml(text, "recommended"), "recommended")
    names = Path("recommended-exclude.txt").read_text(encoding="utf-8").splitlines()[1:]
    assert names == ["cats/copy.png"]  # a picture that shows nothing stays
    assert main(["train", "--config", "recommended.yaml", "--out", "run", "-q"]) == 0
    status = cp.Run(Path("run")).folder.read_status()
    assert status.num_samples == 18
    # The run's own data are opened with the list, other data without it.
    assert len(cp.embed("run", str(photos), out="photos.npz", quiet=True)) == 18
    assert len(cp.embed("run", str(photos / "dogs"), out="dogs.npz", quiet=True)) == 8


def test_every_line_has_a_reason_a_confidence_and_a_basis(photos: Path) -> None:
    found = cp.recommend(photos, minutes=1, quiet=True)
    values = values_of(found)
    assert values["method"] == "simclr"
    assert values["source.max_bad"] == 0.05
    assert {"encoder", "epochs", "batch_size", "temperature", "views.preset", "source.image_size"} <= set(values)
    assert all(line.reason and line.basis and line.confidence in ("high", "medium", "low") for line in found.lines)
    assert all("# " in line or ":" in line for line in found.yaml.splitlines())
    assert all(line.reason in found.yaml for line in found.lines)
    assert found.low is not None
    assert 0 <= found.low < (found.seconds or 0) < (found.high or 0)
    assert max(map(len, str(found).splitlines())) <= 100


def test_near_copies_stay_unless_it_is_asked_for(photos: Path) -> None:
    known = cp.audit(photos, quiet=True)
    assert cp.recommend(photos, known=known, minutes=1, quiet=True).exclude == ("cats/copy.png",)
    dropped = cp.recommend(photos, known=known, minutes=1, quiet=True, drop_near_copies=True)
    assert dropped.exclude == ("cats/copy.png", "cats/near.jpg")


def test_timing_ends_with_its_share_and_takes_one_candidate_at_least(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recommending, "ON_CPU", LARGE_ENCODERS)
    monkeypatch.setattr(step_timing, "SHARE_FOR_TIMING", 0.0)
    found = cp.recommend(photos, known=cp.audit(photos, quiet=True), minutes=500, quiet=True)
    assert values_of(found)["encoder"] == "convnet"
    assert found.seconds


def test_only_the_bad_files_of_the_part_that_is_trained_on_count(tmp_path: Path, rng: np.random.Generator) -> None:
    save_clean(tmp_path / "train", rng, 8)
    (tmp_path / "test" / "cats").mkdir(parents=True)
    for number in range(4):
        (tmp_path / "test" / "cats" / f"{number}.jpg").write_bytes(b"no")
    assert "source.max_bad" not in values_of(cp.recommend(tmp_path, minutes=1, quiet=True))


@pytest.mark.parametrize(
    ("options", "method"),
    [
        ({"want": "readable"}, "ncl"),
        ({"use_labels": True}, "supcon"),
        ({"want": "readable", "use_labels": True}, "nonnegative-supervised"),
    ],
)
def test_the_method_follows_what_is_wanted(photos: Path, options: dict[str, Any], method: str) -> None:
    known = cp.audit(photos, quiet=True)
    found = cp.recommend(photos, known=known, minutes=0.01, quiet=True, **options)
    assert values_of(found)["method"] == method


def test_time_decides_between_encoders(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommending, "ON_CPU", LARGE_ENCODERS)
    known = cp.audit(photos, quiet=True)
    roomy = cp.recommend(photos, known=known, minutes=500, quiet=True)
    hurried = cp.recommend(photos, known=known, minutes=1e-5, quiet=True)
    assert values_of(roomy)["encoder"] == "resnet9"
    assert values_of(hurried)["encoder"] == "convnet"
    assert values_of(roomy)["epochs"] == recommending.MOST_EPOCHS
    assert "too slow" in next(line.reason for line in hurried.lines if line.path == "encoder")


def test_colour_is_kept_where_it_tells_the_class(tmp_path: Path, rng: np.random.Generator) -> None:
    for name, tint in (("red", (60, 0, 0)), ("blue", (0, 0, 60))):
        (tmp_path / name).mkdir()
        for number in range(20):
            pixels = np.asarray(scene(rng, 48)).astype(int) + tint
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(tmp_path / name / f"{number}.png")
    found = cp.recommend(tmp_path, minutes=0.01, quiet=True)
    assert values_of(found)["views.jitter_strength"] == recommending.MILD_JITTER
    assert values_of(found)["views.grayscale"] == 0.0


def test_vectors(tmp_path: Path, rng: np.random.Generator) -> None:
    np.save(tmp_path / "x.npy", rng.normal(size=(64, 5)).astype(np.float32))
    values = values_of(cp.recommend(tmp_path / "x.npy", minutes=0.01, quiet=True))
    assert (values["encoder"], values["views.preset"]) == ("mlp", "vectors")
    assert "source.image_size" not in values


def test_a_comment_cannot_become_a_setting() -> None:
    line = ConfigLine(path="method", value="ncl", reason="a\nseed: 7", confidence="high", basis="given")
    assert parse_yaml(Recommendation(lines=(line,), minutes=1.0).yaml, "x") == {"method": "ncl"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "no such file or folder"),
        (["photos", "--minutes", "0"], "minutes must be > 0"),
        (["photos", "--minutes", "nan"], "minutes must be a number"),
        (["photos", "--out", "x.txt"], "--out must end in .yaml"),
        (["photos/cats", "--labels"], "has no labels of two classes"),
        (["photos", "--audit", "nowhere.json"], "nowhere.json is missing"),
        (["one"], "training needs at least 4"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], said: str, photos: Path, capsys: pytest.CaptureFixture[str], rng: np.random.Generator
) -> None:
    Path("one").mkdir()
    scene(rng, 24).save("one/a.png")
    assert main(["recommend", *words, "-q"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert said in line


def test_the_skill_of_a_cue() -> None:
    assert Cue(accuracy=0.6, majority=0.2).skill == pytest.approx(0.5)
