"""Exports of a run: opened again, equal to the bit where weights are written, and refused in one line otherwise."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.errors import CounterpointError, DataError, RunError, UsageError
from counterpoint.core.files import read_sealed, sha256_of, write_sealed
from counterpoint.export import exporting
from counterpoint.export.exporting import BATCHES, TOLERANCE, compare, row_differences
from counterpoint.export.onnx_format import FOLLOWS_SIZES
from untrained_encoders import make_encoder

WITHOUT_ONNX = "safetensors,folder"


@pytest.fixture(scope="module")
def exported(run: cp.Run, tmp_path_factory: pytest.TempPathFactory) -> cp.Exported:
    """What takes no seconds to write."""
    return cp.export(run, WITHOUT_ONNX, out=tmp_path_factory.mktemp("exported") / "all", licence="mit", quiet=True)


def folder_of(exported: cp.Exported) -> Path:
    assert exported.path is not None
    return exported.path


def pictures(size: tuple[int, int] = (12, 12)) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (5, *size, 3), dtype=np.uint8)


def snippet(folder: Path, word: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    return next(block for block in blocks if word in block)


def run_snippet(folder: Path, word: str, hidden: str, samples: np.ndarray) -> list[np.ndarray]:
    """Run a snippet of the card in a process of its own, in which some modules are not to be had."""
    np.save(folder.parent / "samples.npy", samples)
    code = re.sub(r"^samples = .*", "samples = np.load('../samples.npy')", snippet(folder, word), flags=re.MULTILINE)
    before = f"import sys\nfor name in {hidden.split()!r}: sys.modules[name] = None\n"
    after = "names = [name for name in ('representation', 'embedding') if name in globals()]"
    whole = f"{before}{code}\n{after}\nnp.savez('../found.npz', *(np.asarray(globals()[name]) for name in names))\n"
    done = subprocess.run([sys.executable, "-c", whole], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(folder.parent / "found.npz") as stored:
        return [stored[name] for name in sorted(stored.files)]


def assert_answers(found: list[np.ndarray], run: cp.Run, images: np.ndarray, tolerance: float = 1e-4) -> None:
    encoder = cp.load(run)
    for own, expected in zip(found, (encoder.represent(images), encoder.embed(images)), strict=False):
        assert np.abs(own - expected).max() <= tolerance * np.abs(expected).max()


def test_the_record_names_every_file_with_its_hash_and_what_was_compared(exported: cp.Exported) -> None:
    folder = folder_of(exported)
    record = read_sealed(folder / "export.json", must_be_sealed=True)
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    assert {*record["sha256s"], "export.json"} == names
    assert all(sha256_of(folder / name) == digest for name, digest in record["sha256s"].items())
    assert exported.format("safetensors").difference == 0.0
    assert exported.format("folder").difference <= 1e-6
    assert len(exported.format("folder").sizes) == 3
    assert json.loads(json.dumps(exported.to_dict()))["path"] == str(folder)
    for text in (str(exported), exported.table.to_markdown()):
        assert "model.safetensors" in text


def test_cp_load_gives_the_bits_of_the_run(exported: cp.Exported, run: cp.Run) -> None:
    own, loaded = cp.load(run), cp.load(folder_of(exported))
    images = pictures((17, 13))
    assert np.array_equal(own.represent(images), loaded.represent(images))
    assert np.array_equal(own.embed(images), loaded.embed(images))


def test_the_loader_of_the_folder_needs_no_counterpoint(exported: cp.Exported, run: cp.Run) -> None:
    images = pictures()
    found = run_snippet(folder_of(exported), "modeling_counterpoint", "counterpoint timm", images.transpose(0, 3, 1, 2))
    assert_answers(found, run, images)


@pytest.mark.parametrize(
    "error", [SafetensorError("I/O error"), RuntimeError("unable to mmap"), MemoryError()], ids=type
)
def test_weights_that_cannot_be_opened_are_one_line(
    error: Exception, run: cp.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever opening of a file of weights fails: those of the run, those that were written, those of the loader."""
    original, opened, fails_at = safetensors.safe_open, [0], 0

    def failing(*given: Any, **named: Any) -> Any:
        opened[0] += 1
        if opened[0] == fails_at:
            raise error
        return original(*given, **named)

    monkeypatch.setattr(safetensors.torch, "safe_open", failing)
    words, code = ["export", str(run.path), "--to", "safetensors,folder", "--out", str(tmp_path / "out"), "-q"], 2
    while code == 2:
        fails_at, opened[0] = fails_at + 1, 0
        code = main(words)
        message = capsys.readouterr().err
        assert message.count("\n") == (code == 2), message
        assert [path.name for path in tmp_path.iterdir()] == (["out"] if code == 0 else [])
    assert (code, fails_at) == (0, 5)


@pytest.mark.thorough
def test_every_format_of_a_run_answers_as_torch_does(run: cp.Run, tmp_path: Path) -> None:
    made = cp.export(run, out=tmp_path / "all", quiet=True)
    folder = tmp_path / "all"
    assert {each.name for each in made.formats} == {"onnx", "safetensors", "folder"}
    assert all(each.difference <= 1e-4 for each in made.formats)
    assert made.format("onnx").opset == 18
    assert not made.left_out
    images = pictures((15, 20))
    assert_answers(run_snippet(folder, "onnxruntime", "counterpoint torch", images), run, images)
    for file in folder.iterdir():  # nothing of this machine's folders leaves it
        assert str(Path(cp.__file__).parents[1]).encode() not in file.read_bytes()


@pytest.mark.skipif(not FOLLOWS_SIZES, reason="ONNX of pictures of any size needs a newer torch (2.11 does)")
@pytest.mark.thorough
def test_one_layer_and_a_checkpoint_can_be_asked_for(run: cp.Run, tmp_path: Path) -> None:
    step = max(int(path.name.removeprefix("step-")) for path in run.folder.checkpoints.glob("step-*"))
    made = cp.export(run, "onnx,safetensors", out=tmp_path / "x", layer="embedding", checkpoint=str(step), quiet=True)
    assert made.format("onnx").outputs == ("embedding",)
    text = (tmp_path / "x" / "README.md").read_text(encoding="utf-8")
    assert f"at step {step}" in text
    assert f"--checkpoint {step}" in text
    with pytest.raises(UsageError, match="999"):
        cp.export(run, "safetensors", out=tmp_path / "y", checkpoint="999", quiet=True)


def test_a_format_that_differs_is_refused_and_leaves_nothing(
    run: cp.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = exporting.write_folder

    def wrong(encoder: Any, folder: Path) -> Any:
        answer = usual(encoder, folder)
        return lambda samples: {name: 1.001 * rows for name, rows in answer(samples).items()}

    monkeypatch.setattr(exporting, "write_folder", wrong)
    with pytest.raises(RunError, match=r"folder: its representation of .* differs from torch's by 0.001"):
        cp.export(run, "folder", out=tmp_path / "x", quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_weights_that_are_damaged_after_the_export_are_not_loaded(exported: cp.Exported, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder_of(exported), copy)
    content = bytearray((copy / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (copy / "model.safetensors").write_bytes(content)
    with pytest.raises(RunError, match=r"damaged .* export the run again"):
        cp.load(copy)
    (copy / "encoder.json").unlink()
    with pytest.raises(RunError, match="exported without its weights"):
        cp.load(copy)


def test_a_second_encoder_is_said_to_be_left_out(run: cp.Run, tmp_path: Path) -> None:
    cross_modal = cp.Run(Path(shutil.copytree(run.path, tmp_path / "run")))
    second = cross_modal.folder.second.encoder_card
    second.parent.mkdir()
    shutil.copy(cross_modal.folder.encoder_card, second)
    made = cp.export(cross_modal, "safetensors", out=tmp_path / "x", quiet=True)
    assert "cp.load(run, second=True)" in read_sealed(tmp_path / "x" / "export.json")["left_out"]["second"]
    assert "- second was left out" in (tmp_path / "x" / "README.md").read_text(encoding="utf-8")
    assert "Left out: second" in str(made)


def test_a_module_of_ones_own_is_exported_as_it_can_be(tmp_path: Path, photos: Path) -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(3, 8, 3)

        def forward(self, images: Tensor) -> Tensor:
            return self.layer(images) if images.sum() > 0 else self.layer(-images)

    settings = {"epochs": 1, "batch_size": 8, "source": {"image_size": 12}}
    run = cp.train(photos, encoder=Branching(), out=tmp_path / "own", quiet=True, **settings)
    made = cp.export(run, "safetensors", out=tmp_path / "weights", quiet=True)
    assert made.format("safetensors").difference == 0.0
    again = cp.load(tmp_path / "weights", encoder=Branching())
    assert np.array_equal(again.represent(pictures()), cp.load(run).represent(pictures()))
    with pytest.raises(UsageError, match=r"cannot describe module backbone.body .Branching"):
        cp.export(run, "folder", out=tmp_path / "folder", quiet=True)
    with pytest.raises(UsageError, match="ONNX cannot express this encoder: "):
        cp.export(run, "onnx", out=tmp_path / "graph", quiet=True)
    with pytest.raises(UsageError, match="encoder="):
        cp.load(tmp_path / "weights")
    assert {path.name for path in tmp_path.iterdir()} == {"own", "weights"}


def test_bad_input_is_one_line_and_leaves_nothing(run: cp.Run, tmp_path: Path, photos: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("no picture", encoding="utf-8")
    vectors = np.zeros((30, 4), np.float32)
    cases: list[tuple[Any, dict[str, Any], type[CounterpointError], str]] = [
        (tmp_path / "no", {}, RunError, "/no"),
        (tmp_path / "empty", {}, RunError, "empty"),
        (run, {"to": "onx"}, UsageError, "unknown format 'onx'; did you mean 'onnx'"),
        (run, {"to": ()}, UsageError, "no format"),
        (run, {"data": vectors}, DataError, "samples must be images"),
        (run, {"data": tmp_path / "empty"}, CounterpointError, "empty"),
        (run, {"data": tmp_path / "text.txt"}, CounterpointError, "text.txt"),
        (run, {"layers": "x"}, UsageError, "did you mean 'layer'"),
        (run, {"out": photos}, RunError, "--out"),
        (run, {"out": run.path}, RunError, "--out"),
        (run, {"out": tmp_path / "no" / "x"}, RunError, "/no"),
    ]
    for subject, changes, kind, words in cases:
        with pytest.raises(kind, match=re.escape(words)) as caught:
            cp.export(subject, **{"to": "safetensors", "out": tmp_path / "x", "quiet": True, **changes})
        assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "text.txt"]


def test_the_command_prints_the_table_and_json(run: cp.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", str(run.path), "--to", "safetensors", "--out", str(tmp_path / "x"), "-q"]
    assert main(words) == 0
    assert "bits" in capsys.readouterr().out
    assert main(words) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main([*words, "--overwrite", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["formats"][0]["name"] == "safetensors"


def test_an_encoder_of_0_2_0_which_shrinks_otherwise_is_exported(run: cp.Run, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run.path, tmp_path / "run"))
    card = read_sealed(folder / "encoder.json")
    del card["resizing"]
    write_sealed(folder / "encoder.json", card)
    assert cp.export(folder, WITHOUT_ONNX, out=tmp_path / "x", quiet=True).format("safetensors").difference == 0


# --- the comparison


def test_differences_are_relative_to_the_largest_value_of_each_row() -> None:
    expected = torch.tensor([[100.0, 1.0], [0.01, -0.001], [0.0, 0.0]])
    found = expected + torch.tensor([[0.0, 1.0], [0.001, 0.0], [0.5, 0.0]])
    assert row_differences(found, expected).tolist() == pytest.approx([0.01, 0.1, 0.5])


@pytest.mark.parametrize("count", [1, 3, 12])
def test_each_size_of_a_batch_is_tried_and_each_sample_seen(count: int) -> None:
    encoder, seen = make_encoder(), list[Tensor]()
    samples = torch.randint(0, 256, (count, 3, 8, 8), dtype=torch.uint8)

    def answer(part: Tensor) -> dict[str, Tensor]:
        seen.append(part)
        return {"representation": encoder.both(part)[0]}

    found = compare(answer, encoder, samples, list(map(str, range(count))), 0.0)
    assert found.difference == 0.0
    own = [part for part in seen if part.shape[2:] == (8, 8)]
    assert {len(part) for part in own} >= set(BATCHES)
    assert {tuple(image.flatten().tolist()) for part in own for image in part} == {
        tuple(image.flatten().tolist()) for image in samples
    }
    assert len(found.sizes) == 3
    assert found.num_rows == sum(map(len, seen))


@pytest.mark.parametrize("wrong", [2 * TOLERANCE, float("nan")])
def test_what_differs_is_refused_with_the_name_of_the_sample(wrong: float) -> None:
    encoder = make_encoder()
    samples = torch.randint(0, 256, (3, 3, 8, 8), dtype=torch.uint8)

    def answer(part: Tensor) -> dict[str, Tensor]:
        r = encoder.both(part)[0].clone()
        is_last = (part == samples[2]).flatten(1).all(dim=1) if part.shape[2:] == (8, 8) else torch.zeros(len(r)) > 0
        r[is_last, 0] += wrong * r[is_last].abs().amax(dim=1)
        return {"representation": r}

    with pytest.raises(RunError, match=r"representation of third differs .* nothing was kept"):
        compare(answer, encoder, samples, ["first", "second", "third"], TOLERANCE)


def test_another_shape_and_a_failing_runtime_are_refused() -> None:
    encoder, samples = make_encoder(), torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    with pytest.raises(RunError, match="it returns"):
        compare(lambda part: {"embedding": torch.zeros(1)}, encoder, samples, ["a", "b"], TOLERANCE)

    def broken(part: Tensor) -> dict[str, Tensor]:
        raise ValueError("no such size")

    with pytest.raises(RunError, match="fails on a batch of 1: no such size"):
        compare(broken, encoder, samples, ["a", "b"], TOLERANCE)
