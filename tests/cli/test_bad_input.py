"""Bad input gets one clear line and exit code 2, never a traceback; nothing is created or overwritten."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import counterpoint as cp
from counterpoint.cli.main import main
from data import picture_files as pictures
from evaluated_folders import REPRESENTATION, write_evaluated
from runs.folder_snapshot import snapshot


def write_world(folder: Path) -> None:
    """Files and folders as a user may have them: good ones, and every kind of bad."""
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (60, 8, 8), dtype=np.uint8), np.arange(60) % 3
    np.savez(folder / "images.npz", images=images, labels=labels)
    np.save(folder / "plain.npy", images)
    np.save(folder / "few.npy", images[:2])
    np.save(folder / "vectors.npy", rng.normal(size=(60, 5)))
    np.save(folder / "nan.npy", np.where(np.arange(60) == 7, np.nan, 0.5)[:, None, None] * np.ones((60, 8, 8)))
    np.save(folder / "huge.npy", np.where(np.arange(60) == 7, 1e300, 0.5)[:, None] * np.ones(5))
    np.save(folder / "vanishing.npy", np.full((60, 5), 1e-300))
    np.save(folder / "bright.npy", np.full((60, 8, 8), 3.0))
    np.save(folder / "wide.npy", rng.normal(size=(60, 6)))
    np.save(folder / "labels59.npy", labels[:59])
    np.save(folder / "labels60.npy", labels)
    np.save(folder / "pickled.npy", np.array([{}, {}], dtype=object), allow_pickle=True)
    np.savez(folder / "short.npz", images=images, labels=labels[:59])
    np.savez(folder / "odd.npz", pictures=images)
    (folder / "damaged.npz").write_bytes((folder / "images.npz").read_bytes()[:500])
    (folder / "notes.md").write_text("hello")
    (folder / "kept.png").write_bytes(b"a drawing of last year")
    for name in ("empty", "folder.png"):
        (folder / name).mkdir()
    (folder / "thesis").mkdir()
    (folder / "thesis" / "chapter.txt").write_text("years of work")
    pictures.save_plain(folder / "photos", [f"{i}.png" for i in range(8)], rng, side=8)
    pictures.save_plain(folder / "spoilt", [f"{i}.png" for i in range(8)], rng, side=8)
    pictures.save_bad(folder / "spoilt", rng)
    (folder / "labels.csv").write_text("file,label\nelsewhere.png,x\n")
    (folder / "range.yaml").write_text("data: images.npz\ntemperature: -1\n")


def write_runs(folder: Path) -> None:
    """A finished run, and runs with damage of every kind."""
    settings: dict[str, Any] = {"data": "images.npz", "epochs": 1, "batch_size": 16, "quiet": True}
    for name in ("run", "hollow", "broken", "nameless"):
        cp.train(out=name, **settings)
    for path in (folder / "hollow").glob("checkpoints/*/model.safetensors"):
        path.write_bytes(b"")
    (folder / "hollow" / "encoder.json").unlink()
    cp.Run(folder / "hollow").folder.update_status(status="interrupted")
    weights = folder / "broken" / "encoder.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    (folder / "nameless" / "run.json").write_text("{}")
    for name, correct in (("ncl", 90), ("simclr", 70)):
        write_evaluated(folder / name, {REPRESENTATION: range(correct)}, method=name)
    (folder / "stranger").mkdir()
    (folder / "stranger" / "run.json").write_text("{}")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_world(folder)
        write_runs(folder)
    return folder


VERBS = {"evaluate": ("--data", ""), "diagnose": ("--data", ""), "embed": ("", "--out new.csv")}  # data, and the rest
LOOKING: dict[str, tuple[str, list[str]]] = {
    "neither run nor encoder": ("VERB OUT", ["give RUN (a run folder), a file of features, or --encoder NAME"]),
    "no samples": ("VERB --encoder mlp OUT", ["--data", "SAMPLES"]),
    "samples of another kind": ("-q VERB --encoder convnet DATA vectors.npy OUT", ["convnet"]),
    "a checkpoint of no run": ("-q VERB --encoder mlp DATA vectors.npy --checkpoint 3 OUT", ["checkpoint"]),
    "a mean too long": ("-q VERB --encoder mlp DATA vectors.npy --mean 0,1 OUT", ["mean"]),
    "a checkpoint that is not kept": ("-q VERB run --checkpoint 77 OUT", ["77"]),
}


def each(line: str) -> list[str]:
    """A line for each of the verbs that look at samples."""
    return [line.replace("VERB", verb).replace("DATA", data).replace("OUT", out) for verb, (data, out) in VERBS.items()]


OPENERS = (
    "resume RUN", "evaluate RUN", "diagnose RUN", "embed RUN --out new.csv", "report RUN", "verify RUN", "spectrum RUN",
    "geometry --run RUN",
)  # fmt: skip
MIO = "mio-cifar10-resnet18"
TRAIN = "train --data images.npz --out new --epochs 1 --batch-size 16"
UNREAD = "train --data empty --out new"  # what else is wrong is said before that the folder has no images
CASES: dict[str, tuple[str, list[str]]] = {
    # verbs and flags
    "unknown verb": ("trian --data digits", ["unknown verb 'trian'", "'train'"]),
    "named set of an earlier version": ("train --data svhn", ["--data svhn is gone", "a folder of its pictures"]),
    "flag of an earlier version": (f"{TRAIN} --engine.backend torch", ["engine.backend is gone"]),
    "flag without value": ("train --data", ["--data", "expected one argument"]),
    "stray word": (f"{TRAIN} 30", ["unexpected word '30'", "or --epochs 30"]),
    "data without its flag": ("train images.npz", ["unexpected word 'images.npz'", "as in --data images.npz"]),
    "run left out": ("evaluate", ["RUN"]),
    # data
    "no data": ("train", ["no data", "--data digits", "FOLDER", ".npy"]),
    "missing path": ("train --data nowhere --out new", ["no such file or folder", "'nowhere'"]),
    "mistyped source": ("train --data digist --out new", ["'digits'"]),
    "not data at all": ("train --data notes.md --out new", ["notes.md is neither"]),
    "empty folder": ("train --data empty --out new", ["no images in empty"]),
    "too many bad images": ("-q train --data spoilt --out new", ["2 of 10", "truncated.jpg", "--source.max-bad 0.2"]),
    "non-finite array": ("train --data nan.npy --out new", ["nan.npy", "finite", "sample 7 "]),
    "values out of range": ("train --data bright.npy --out new", ["bright.npy", "[0, 1]"]),
    "pickled array": ("train --data pickled.npy --out new", ["pickled.npy"]),
    "damaged archive": ("train --data damaged.npz --out new", ["damaged.npz"]),
    "archive of other names": ("train --data odd.npz --out new", ["pictures", "images"]),
    "too few samples": ("train --data few.npy --out new", ["2 usable samples", "at least 4"]),
    "a name too long": (f"train --data {'x' * 300} --out new", ["xxx"]),
    # labels
    "labels of another length inside": ("train --data short.npz --out new", ["60 samples", "(59,)"]),
    "labels of another length beside": (f"{TRAIN} --source.labels labels59.npy", ["60 samples", "(59,)"]),
    "labels of other files": ("-q train --data photos --out new --source.labels labels.csv", ["labels.csv"]),
    "labels file missing for a folder": ("-q train --data photos --out new --source.labels gone.csv", ["gone.csv"]),
    "labels for the digits": ("train --data digits --out new --source.labels labels59.npy", ["source.labels"]),
    # names
    "unknown method": (f"{UNREAD} --method simcrl", ["'simclr'", "ncl"]),
    "unknown encoder": (f"{UNREAD} --encoder resnet81", ["'resnet18'"]),
    "unknown encoder of timm": (f"{UNREAD} --encoder timm:resnt18", ["timm"]),
    "encoder for other data": ("train --data vectors.npy --out new --encoder convnet", ["convnet", "mlp"]),
    "unknown loss": (f"{UNREAD} --loss.name infonec", ["'infonce'"]),
    "loss of another method": (f"{UNREAD} --method byol --loss.name infonce", ["method byol takes regression only"]),
    "unknown preset": (f"{UNREAD} --views.preset digist", ["unknown views.preset", "did you mean 'digits'"]),
    "unknown recipe": (f"{TRAIN} --recipe {MIO[:-2]}81", [f"unknown recipe '{MIO[:-2]}81'; did you mean '{MIO}'?"]),
    "unknown setting above a recipe": (f"{TRAIN} --recipe {MIO} --set epoch=3", ["did you mean 'epochs'?"]),
    "a setting without its value": (f"{TRAIN} --recipe {MIO} --set epochs", ["--set takes NAME=VALUE"]),
    # code of the user's by its name
    "a loss of no module": (f"{TRAIN} --loss.name nosuch:make", ["No module named 'nosuch'"]),
    "a loss that is not there": (f"{TRAIN} --loss.name math:no", ["no attribute 'no'; give it as package.module:name"]),
    "a loss that cannot be called": (f"{TRAIN} --loss.name math:pi", ["not callable"]),
    "a function that makes no loss": (f"{TRAIN} --loss.name builtins:len", ["len() takes"]),
    "views of no module": (f"{TRAIN} --views.preset nosuch:make", ["views.preset nosuch:make: No module named"]),
    "a function that makes no views": (f"{TRAIN} --views.preset builtins:dict", ["views"]),
    "a preview by views that are none": ("-q preview --data images.npz --views.preset math:pi", ["not callable"]),
    "preset for other data": (f"{TRAIN} --views.preset vectors", ["views.preset"]),
    # ranges
    "batch larger than the data": (f"{TRAIN} --batch-size 61", ["batch_size", "48", "got 61"]),
    "d0 larger than the embedding": (f"{TRAIN} --output.d0 129", ["output.d0", "128", "129"]),
    "d0 larger than the width": (f"{TRAIN} --method directclr --output.d0 257", ["output.d0", "256", "got 257"]),
    "image size of an array": (f"{TRAIN} --source.image-size 32", ["source.image_size", "8 px"]),
    "pair the wrong way round": (f"{TRAIN} --views.crop-scale 0.9,0.1", ["views.crop_scale", "[0.9, 0.1]"]),
    "a GPU that is not there": (f"{TRAIN} --engine.device cuda", ["engine.device is cuda", "--engine.device cpu"]),
    "a hidden layer too wide": (
        f"{TRAIN} --projector.hidden 1000000000",
        ["to 1000000000 features needs", "lower projector.hidden"],
    ),
    "an embedding too wide": (f"{TRAIN} --projector.features 1000000000", ["projector.features or target"]),
    # files of settings
    "settings that are no text": ("train --config damaged.npz --out new", ["damaged.npz"]),
    "wrong range in YAML": ("train --config range.yaml --out new", ["range.yaml: temperature", "> 0", "-1"]),
    # output folders
    "run exists": (TRAIN.replace("new", "run"), ["run exists", "counterpoint resume", "--overwrite"]),
    "folder exists": (TRAIN.replace("new", "thesis"), ["thesis", "--out"]),
    "file exists": (f"{TRAIN.replace('new', 'notes.md')} --overwrite", ["notes.md"]),
    "overwrite what is no run": (f"{TRAIN.replace('new', 'thesis')} --overwrite", ["thesis"]),
    "resume what is no run": (f"{TRAIN.replace('new', 'thesis')} --resume", ["thesis exists"]),
    "both": (f"{TRAIN.replace('new', 'run')} --resume --overwrite", ["exclude each other"]),
    "below a file": (TRAIN.replace("new", "notes.md/new"), ["notes.md/new"]),
    "other settings": (f"{TRAIN.replace('new', 'run')} --resume --seed 3", ["seed 3", "the run has 0"]),
    # what is no run
    **{f"{line} a missing run": (line.replace("RUN", "nowhere"), ["nowhere"]) for line in OPENERS},
    **{f"{line} what is no run": (line.replace("RUN", "thesis"), ["thesis"]) for line in OPENERS},
    "resume of a stranger's run.json": ("resume stranger", ["stranger"]),
    "overwrite a stranger's run.json": (f"{TRAIN.replace('new', 'stranger')} --overwrite", ["stranger exists"]),
    "evaluate a damaged run.json": ("evaluate nameless", ["run.json", "counterpoint resume nameless"]),
    "train --resume of a damaged run.json": (
        f"{TRAIN.replace('new', 'nameless')} --resume",
        ["nameless/run.json", "counterpoint resume nameless"],
    ),
    "evaluate a run without encoder": ("evaluate hollow", ["hollow", "counterpoint resume"]),
    "evaluate a damaged encoder": ("evaluate broken", ["broken/encoder.safetensors"]),
    # other verbs
    "no number of seeds": (f"{TRAIN} --seeds two", ["seeds must be a whole number, got 'two'"]),
    "seeds of no epochs": (f"{TRAIN} --seeds 2 --set epochs=0", ["epochs must be"]),
    "evaluate into a page": ("-q evaluate run --out page.html", ["page.html"]),
    "k too large": ("-q evaluate run --k 100", ["48", "got 100"]),
    "kNN temperature nan": ("-q evaluate run --temperature nan", ["temperature", "'nan'"]),
    "kNN temperature that vanishes": ("-q evaluate run --temperature 1e-320", ["temperature"]),
    "no value behind the sign": ("-q evaluate run --k=--", ["argument --k: expected one argument, got '--'"]),
    "evaluate without labels": ("-q evaluate run --data plain.npy", ["plain.npy", "--labels"]),
    "diagnose a missing file": ("diagnose gone.npy", ["gone.npy"]),
    "diagnose another file": ("diagnose notes.md", ["notes.md"]),
    "diagnose a damaged file": ("diagnose pickled.npy", ["pickled.npy"]),
    "diagnose other labels": ("diagnose vectors.npy --labels labels59.npy", ["60 samples", "(59,)"]),
    "diagnose other views": ("diagnose vectors.npy --views labels59.npy", ["views"]),
    "diagnose threshold": ("diagnose vectors.npy --threshold -1", ["threshold"]),
    "diagnose numbers beyond float32": ("diagnose huge.npy", ["sample 7"]),
    "diagnose numbers that vanish": ("diagnose vanishing.npy", ["sample 0"]),
    "train on numbers beyond float32": ("train --data huge.npy --out new", ["huge.npy", "sample 7"]),
    "diagnose a level that is none": ("diagnose vectors.npy --fail-on bad", ["fail_on must be", "'bad'"]),
    "diagnose --fix of features": ("diagnose vectors.npy --fix", ["--fix"]),
    "embed another format": ("embed run --out table.xlsx", [".npz, .csv, .parquet", "'table.xlsx'"]),
    "embed over a table": ("embed run --out images.npz", ["images.npz exists", "--overwrite"]),
    "embed another layer": ("embed run --out new.csv --layer embeding", ["'embedding'"]),
    "embed another kind of data": ("-q embed run vectors.npy --out new.csv", ["images", "(60, 5)"]),
    "embed missing data": ("embed run nowhere --out new.csv", ["nowhere"]),
    # encoders from elsewhere, and features
    **{f"{line}: {fault}": (line, said) for fault, (lines, said) in LOOKING.items() for line in each(lines)},
    "evaluate a run and an encoder": ("evaluate run --encoder mlp", ["one of them only"]),
    "evaluate features without labels": ("-q evaluate vectors.npy", ["vectors.npy"]),
    "evaluate features of another kind": ("-q evaluate notes.md", ["notes.md"]),
    "evaluate features of pictures": ("-q evaluate plain.npy", ["plain.npy must hold vectors (n, d)"]),
    "evaluate features beside others": (
        "-q evaluate vectors.npy --labels labels60.npy --test-data wide.npy --test-labels labels60.npy",
        ["wide.npy has 6 features and vectors.npy 5"],
    ),
    "preview without data": ("preview --out new.png", ["no data"]),
    "preview of vectors": ("preview --data vectors.npy --out new.png", ["preview draws images"]),
    "preview into another format": ("preview --data images.npz --out new.jpg", [".png"]),
    "preview into a missing folder": ("preview --data images.npz --out nowhere/new.png", ["folder nowhere"]),
    "report into a missing folder": ("report run --out nowhere/new.html", ["folder nowhere"]),
    "preview of nothing": ("preview --data images.npz --out new.png --samples 0", ["--samples", "between 1 and 64"]),
    "preview over a file": ("preview --data images.npz --out kept.png", ["kept.png exists", "--overwrite"]),
    "preview of too many": ("preview --data images.npz --out new.png --columns 65", ["--columns", "between 1 and 64"]),
    "preview over a folder": ("preview --data images.npz --out folder.png --overwrite", ["folder.png exists"]),
    "list of what is none": ("list encoder", ["did you mean 'encoders'"]),
    "demo over a folder": ("demo --out thesis", ["thesis exists", "--overwrite"]),
    "fine-tune new weights": ("fine-tune --encoder mlp", ["--encoder NAME --weights FILE, and one of them only"]),
    "fine-tune two": ("fine-tune run --weights net.ckpt", ["--encoder NAME --weights FILE, and one of them only"]),
    "fine-tune missing weights": (
        "fine-tune --encoder mlp --weights no.pth --data digits",
        ["no.pth"],
    ),
    "compare one run": ("compare ncl", ["compare needs at least two runs, got 1"]),
    "compare a run with itself": ("compare ncl ncl", ["compare got the same run or file twice"]),
    "compare with a missing run": ("compare ncl nowhere", ["nowhere"]),
    "compare by an unknown metric": ("compare ncl simclr --metrics kmn", ["'knn'"]),
    "compare unknown features": ("compare ncl simclr --features pixls", ["unknown features 'pixls'"]),
    "compare into a page": ("compare ncl simclr --out page.html", ["compare --out is gone: "]),
    "compare as a table": ("compare ncl simclr --csv", ["csv is gone: "]),
    "compare by name": ("compare ncl simclr --evaluation other", ["compare --evaluation is gone: name the files"]),
    "spectrum of no steps": ("-q spectrum run --steps 0", ["steps"]),
    "spectrum of another checkpoint": ("-q spectrum run --checkpoint 99", ["99"]),
    "spectrum of too many": ("-q spectrum run --batch-size 10000", ["batch_size"]),
    "spectrum in half precision": ("-q spectrum run --precision bf16", ["precision must be"]),
    "spectrum with another norm": ("-q spectrum run --batch-norm eval", ["batch_norm must be"]),
    "spectrum of a threshold": ("-q spectrum run --threshold -1", ["threshold"]),
    "spectrum without a top": ("-q spectrum run --top 0", ["top"]),
    "geometry of shares and a run": ("-q geometry 0.5 0.5 --run run", ["one of them only"]),
    "geometry of run and loss": ("-q geometry --run run --loss infonce", ["--loss has no effect here: the run has"]),
    "geometry of a run in space": ("-q geometry --run run --dimension 3", ["--dimension has no effect here"]),
    # what is asked of theory
    "shares too far apart": (
        "geometry 10 0.177 1e30 --negatives 512 --normalize --rebalance",
        ["proportions from 1.77e-31 to 1", "leave out the smallest classes"],
    ),
    "no shares": ("geometry", ["SHARE"]),
    "one share": ("geometry 1", ["2"]),
    "shares in words": ("geometry half half", ["0.25 or 1/4", "'half half'"]),
    "shares of nothing": ("geometry 1/0 1/2", ["'1/0 1/2'"]),
    "counts beyond all bounds": ("geometry 1e308 1e308 --normalize", ["finite"]),
    "dimensions without number": (f"geometry 1/2 1/2 --dimension 1{25 * '0'}", ["dimension must be at most 1,000,000"]),
    "negatives in words": ("geometry 0.5 0.5 --negatives many", ["--negatives", "'many'", "512"]),
    "more negatives than count": (f"geometry 0.5 0.5 --negatives {20 * '9'}", ["--negatives", "or inf"]),
    "an unknown loss of theory": ("geometry 0.5 0.5 --loss infonec", ["'infonec'"]),
    "a loss without a theory": ("geometry 0.5 0.5 --loss barlow-twins", ["InfoNCE"]),
    "a loss without temperature": ("geometry 0.5 0.5 --loss spectral --temperature 1", ["takes no temperature"]),
    "a loss without its option": ("geometry 1/2 1/2 --loss triplet --loss-options {margni:1}", ["takes no margni"]),
    "options of no shape": ("geometry 1/2 1/2 --loss triplet --loss-options 3", ["loss_options", "{margin: 0.5}"]),
    "options that are not YAML": ("geometry 0.5 0.5 --loss triplet --loss-options {", ["loss_options", "YAML"]),
    "phases without shares": ("geometry --phase-diagram", ["SHARE"]),
    "phases of two classes": ("geometry 0.5 0.5 --phase-diagram", [">= 3", "2"]),
    "phases without temperature": ("geometry 0.5 0.3 0.2 --phase-diagram --loss spectral", ["takes no temperature"]),
    "phases in a plane": ("geometry 0.5 0.3 0.2 --phase-diagram --dimension 2", ["leave out --dimension"]),
    "balance without signs": ("geometry 0.5 0.3 0.2 --rebalance --nonnegative", ["leave out --nonnegative"]),
    "a deviation of 0": ("geometry 0.5 0.3 0.2 --rebalance --deviation 0", ["deviation"]),
    "a deviation in words": ("geometry 1/2 1/2 --rebalance --deviation no", ["deviation", "'no'"]),
    "a deviation of nothing": ("geometry 0.5 0.3 0.2 --deviation 0", ["add --rebalance"]),
}  # fmt: skip


def run_command(words: list[str]) -> int:
    try:
        return main(words)
    except SystemExit as stop:  # argparse leaves so
        return int(stop.code or 0)


@pytest.mark.parametrize(("line", "complaints"), CASES.values(), ids=CASES)
@pytest.mark.sampled(20)
def test_one_line_exit_code_2_and_nothing_touched(
    world: Path,
    line: str,
    complaints: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(world)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    before = snapshot(world)
    words = line.split()
    if words[0] == "-q":  # reading a folder or a run shows progress first
        words = [*words[1:], "-q"]
    capsys.readouterr()
    code = run_command(words)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    assert captured.err.startswith("counterpoint")
    assert ": error: " in captured.err
    for complaint in complaints:
        assert complaint in captured.err
    assert code == 2
    assert snapshot(world) == before


def test_a_run_without_a_whole_checkpoint_cannot_go_on(
    world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(world)
    before = snapshot(world)
    assert run_command(["resume", "hollow", "-q"]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    for complaint in ("no usable checkpoint", "step-00000000: model.safetensors", "step-00000003: ", "--overwrite"):
        assert complaint in captured.err
    after = snapshot(world)
    assert {path for path in after if after[path] != before.get(path)} <= {"hollow/run.json"}  # that it was tried
    assert cp.Run(Path("hollow")).folder.read_status().status == "interrupted"


def test_the_world_is_sound(world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What the cases vary works when nothing is wrong with it: they are refused for their mistake alone."""
    monkeypatch.chdir(world)
    lines = (
        f"{TRAIN.replace('new', 'OUT/new')} -q",
        "train --data photos --out OUT/other --epochs 1 -q",
        "evaluate run -q",
        "evaluate vectors.npy --labels labels60.npy -q --out OUT/features.json",
        "evaluate --encoder mlp --data vectors.npy --labels labels60.npy -q --out OUT/encoder.json",
        "diagnose --encoder mlp --data vectors.npy -q",
        "embed --encoder mlp vectors.npy -q --out OUT/encoder.csv",
        "diagnose vectors.npy -q",
        "embed run --out OUT/new.csv -q",
        "preview --data images.npz --out OUT/new.png -q",
        "compare ncl simclr -q",
    )
    outside = world.parent / f"{world.name}-results"
    outside.mkdir()
    for line in lines:
        assert run_command(line.replace("OUT", str(outside)).split()) == 0, (line, capsys.readouterr().err)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")], ids=type)
def test_too_little_memory_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(words: object) -> int:
        raise error

    monkeypatch.setattr("counterpoint.cli.main._run", lambda *words: refuse(words))
    assert main(["runs"]) == 1
    assert capsys.readouterr().err.startswith("counterpoint runs: error: not enough memory for this;")
