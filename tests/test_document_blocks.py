"""Every block of the documentation is of a known kind; what can run here runs, and what cannot says why."""

import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from counterpoint.cli.arguments import build_parser
from counterpoint.cli.main import main
from counterpoint.cli.parsers import VERBS, load_verb
from data import published_files
from document_blocks import (
    LANGUAGES,
    PAGES,
    ROOT,
    Block,
    blocks_of,
    check_yaml,
    commands_of,
    name_of,
    run_blocks,
    run_command,
    run_python,
    run_shell,
)

BLOCKS = {name_of(page): blocks_of(page) for page in PAGES}
REASONS = sorted({block.reason for blocks in BLOCKS.values() for block in blocks if block.reason})
RUNNABLE = {name: [one for one in blocks if one.language in ("sh", "python") and not one.reason]
            for name, blocks in BLOCKS.items()}  # fmt: skip
QUICK_START = "docs/quick-start.md"
NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
FAR = 10.0  # percentage points between a page and a run, which differ by machine and version
CHEAP = {"docs/losses.md", "docs/theory.md", "docs/theory-reference.md", "docs/recipes/which-loss.md"}

TRAIN = "train -q --epochs 1 --data"
DIGITS = f"{TRAIN} digits --out"
# What has been done before a page begins.
BEFORE: Mapping[str, list[str]] = {
    "README.md": [f"{DIGITS} runs/simclr"],
    "docs/curvature.md": [f"{DIGITS} runs/ncl --method ncl"],
    "docs/diagnosis.md": [f"{DIGITS} runs/ncl --method ncl"],
    "docs/evaluation.md": [
        f"{DIGITS} runs/ncl --method ncl",
        f"{DIGITS} runs/seeds --seeds 2",
        f"{TRAIN} cifar10 --out runs/cifar",
        f"{TRAIN} photos/train --out runs/mine",
        f"{TRAIN} stl10 --out runs/stl",
    ],
    "docs/export.md": [f"{DIGITS} runs/ncl --method ncl"],
    "docs/report.md": [f"{DIGITS} runs/ncl --method ncl", f"{DIGITS} runs/simclr"],
    "docs/search.md": [
        f"{TRAIN} photos --out runs/photos",
        f"{TRAIN} pairs.npz --out runs/pairs --method cross-modal",
    ],
    "docs/sparse-codes.md": [f"{DIGITS} runs/ncl --method ncl"],
    "docs/training.md": [f"{DIGITS} runs/digits-ncl --method ncl", f"{DIGITS} experiments/first"],
    "docs/foreign-encoders.md": [f"{TRAIN} photos --out runs/photos"],
}


@pytest.fixture(scope="session")
def run_before(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], None]:
    """Run what has been done before; a training on digits runs once, and is copied where it is named again."""
    folders: dict[str, Path] = {}

    def run(command: str) -> None:
        out, _, settings = command.removeprefix(f"{DIGITS} ").partition(" ")
        is_training = command.startswith(DIGITS)
        if is_training and settings in folders:
            shutil.copytree(folders[settings], out)
            return
        code, output = run_command(shlex.split(command))
        assert code == 0, f"{command}\n{output}"
        if is_training:
            folders[settings] = tmp_path_factory.mktemp("run") / "run"
            shutil.copytree(out, folders[settings])

    return run


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> Path:
    """A folder with pictures in several layouts, small named sets, features and weights, as the pages name them."""
    monkeypatch.chdir(tmp_path)
    for folder, count in (("photos/cats", 30), ("photos/dogs", 30)):
        draw_pictures(tmp_path / folder, count, rng)
    published_files.save_cifar(tmp_path / "data", rng, num_classes=10, per_batch=40)
    return tmp_path


def draw_pictures(folder: Path, count: int, rng: np.random.Generator) -> None:
    """Small pictures without anything on them."""
    folder.mkdir(parents=True)
    for number in range(count):
        Image.fromarray(rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(folder / f"{number}.png")


@pytest.mark.parametrize("page", sorted(BLOCKS))
def test_every_block_is_of_a_known_kind_and_python_compiles_and_yaml_is_valid(page: str) -> None:
    for block in BLOCKS[page]:
        assert block.language in LANGUAGES or block.is_directive, f"{block.place}: {block.language or 'indented'}"
        if block.language == "python":
            compile(block.text, block.place, "exec")
        if block.language == "yaml":
            check_yaml(block)


@pytest.mark.parametrize("reason", REASONS)
def test_what_cannot_run_here_names_what_exists(reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = [block for found in BLOCKS.values() for block in found if block.reason == reason]
    for block in blocks:
        assert block.language in ("sh", "python"), block.place
        if block.language == "sh":
            check_words(block, capsys)
    pytest.skip(f"{len(blocks)} block(s) of the documentation: {reason}")


def check_words(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    """Targets of make, scripts, verbs and flags of a block that is not run."""
    for words in commands_of(block):
        if words[0] == "make":
            assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text(encoding="utf-8"), block.place
        for word in words:
            assert not word.startswith("benchmarks/") or (ROOT / word).is_file(), f"{block.place}: {word}"
        if "counterpoint" in words and words.index("counterpoint") + 1 < len(words):
            check_flags(words[words.index("counterpoint") + 1 :], block, capsys)


def check_flags(words: list[str], block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    """The verb and the flags of a command exist."""
    with pytest.raises(SystemExit) as left:
        main([words[0], "--help"])
    assert left.value.code == 0, f"{block.place}: {words[0]}"
    rare = [f"--{path.replace('_', '-')}" for path in build_parser(words[0]).settable]
    known = capsys.readouterr().out + " ".join(rare)
    unknown = [word for word in words if word.startswith("--") and word not in known]
    assert unknown == [], f"{block.place}: {shlex.join(words)}"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(name, marks=[] if name in CHEAP else pytest.mark.thorough)
        for name, blocks in RUNNABLE.items()
        if blocks and name != QUICK_START
    ],
)
def test_the_blocks_of_a_page_run(
    page: str, workplace: Path, rng: np.random.Generator, run_before: Callable[[str], None]
) -> None:
    prepare(page, workplace, rng)
    for command in BEFORE.get(page, []):
        run_before(command)
    names = run_blocks(ROOT / page)
    if page == "README.md":
        assert Path(str(names["page"])).stat().st_size > 10_000
        assert np.shape(names["z"]) == (1, 128)


def prepare(page: str, workplace: Path, rng: np.random.Generator) -> None:
    """Files that one page alone names."""
    if page == "docs/evaluation.md":
        published_files.save_stl10(workplace / "data", rng)
        enlarge_stl10(workplace / "data" / "stl10_binary", rng)
        for part in ("photos/train", "photos/val"):
            for name in ("boat", "cat", "dog"):
                draw_pictures(workplace / part / name, 8, rng)
        for name in ("boat", "cat"):
            draw_pictures(workplace / "sketches" / name, 8, rng)
    if page == "docs/text.md":
        pytest.importorskip("sentence_transformers", reason="the extra text has it")
        from tiny_text import tiny_model  # deferred: it imports what the extra text has

        tiny_model().save("my-model")
    if page == "docs/audit.md":
        draw_pictures(workplace / "new-photos", 20, rng)
    if page == "docs/search.md":
        draw_pictures(workplace / "new_photos", 3, rng)
        draw_pictures(workplace / "archive", 20, rng)
        with Image.open(workplace / "photos" / "cats" / "4.png") as picture:
            for path in ("holiday.jpg", "photos/cats/IMG 4.jpg"):
                picture.save(workplace / path)
        captions = rng.normal(size=(40, 8)).astype("float32")
        np.savez("pairs.npz", images=rng.integers(0, 256, (40, 16, 16, 3), dtype=np.uint8), captions=captions)
        np.save("captions.npy", captions[:3])
    if page == "docs/foreign-encoders.md":
        for name in ("cats", "dogs"):
            draw_pictures(workplace / "photos-val" / name, 6, rng)
        save_weights("r50.pth", "resnet50")
    if page in ("README.md", "docs/foreign-encoders.md", "docs/diagnosis.md", "docs/recipes/encoder-from-elsewhere.md"):
        save_weights("r18.pth", "resnet18")
    if page in ("README.md", "docs/diagnosis.md", "docs/sparse-codes.md"):
        np.save("features.npy", rng.normal(size=(200, 16)).astype("float32"))
        np.save("other-view.npy", rng.normal(size=(200, 16)).astype("float32"))
        np.save("labels.npy", np.arange(200) % 4)


def is_printed(line: str, output: str) -> bool:
    """Whether a line of a page is in an output, with other numbers, and near percentages; `...` stands for anything."""
    words = re.split(rf"({NUMBER}|\.\.\.|\s+)", line.strip())
    number = {True: f"({NUMBER})"}
    kinds = [{"...": ".*?"}.get(one) or number.get(bool(re.fullmatch(NUMBER, one))) for one in words]
    kinds = [kind or (r"\s+" if one.isspace() else re.escape(one)) for kind, one in zip(kinds, words, strict=True)]
    pattern = "".join(kinds)
    shown = re.findall(rf"({NUMBER})(%?)", line)
    return any(
        all(not percent or abs(float(number) - float(real)) <= FAR
            for (number, percent), real in zip(shown, found.groups(), strict=True))
        for found in re.finditer(pattern, output)
    )  # fmt: skip


def test_a_line_that_was_not_printed_is_seen() -> None:
    output = "epoch 7/50  loss 4.1\nknn   51.0%  (pixels)"
    assert is_printed("epoch 3/50 loss 4.112", output)
    assert is_printed("knn  55.5% ...", output)
    assert not is_printed("knn  71.0%  (pixels)", output)
    assert not is_printed("probe  51.0%", output)


@pytest.mark.thorough
def test_the_quick_start_shows_what_its_commands_print(workplace: Path) -> None:
    output, names = "", dict[str, object]()
    for block in BLOCKS[QUICK_START]:
        if block.language == "sh" and not block.reason:
            output = ""
            for words in commands_of(block):
                code, printed = run_command(words[1:])
                assert code == 0, f"{block.place}: {shlex.join(words)}\n{printed[-3000:]}"
                output += printed
        elif block.language == "python":
            run_python(block, names)
        for line in block.text.splitlines() if block.language == "text" else ():
            assert not line or is_printed(line, output), f"{block.place}: {line}\n{output}"


# Runs that examples of verbs name, and what trains them; of some, steps 100, 200 and 300 are asked for.
MANY_STEPS = " --batch-size 4 --engine.checkpoint-steps 100 --engine.keep 4"
TRAINED = {
    "ncl": f"{DIGITS} runs/ncl --method ncl",
    "simclr": f"{DIGITS} runs/simclr",
    "photos": f"{TRAIN} photos --out runs/photos",
    "mine": f"{TRAIN} photos --out runs/mine",
    "cifar": f"{TRAIN} cifar10 --out runs/cifar",
}
BEFORE_EXAMPLES: Mapping[str, list[str]] = {
    "recommend": ["audit photos/ --json audit.json"],
    "compare": ["evaluate runs/simclr", "evaluate runs/ncl",
                "evaluate --encoder convnet --data digits --out resnet18.json",
                "evaluate --encoder resnet18 --data digits --out evaluations/timm-resnet18-digits.json"],
    "runs": [f"{DIGITS} {room}/first" for room in ("runs", "experiments")],
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "demo"])  # tests/cli/test_verbs.py has it
def test_the_examples_of_a_verb_run(
    verb: str, workplace: Path, rng: np.random.Generator, run_before: Callable[[str], None]
) -> None:
    """Those of its help, which its page of the reference shows."""
    text = str(load_verb(verb).__doc__).partition("example")[2]
    lines = re.findall(r"^  (counterpoint .+)$", text, flags=re.MULTILINE)
    assert lines, verb
    for name in sorted(set(re.findall(r"runs/(\w+)", re.sub(r"--out \S+", "", text))) & TRAINED.keys()):
        run_before(TRAINED[name] + (MANY_STEPS if name == "ncl" and verb in ("diagnose", "select") else ""))
    prepare_examples(verb, text, workplace, rng)
    for command in BEFORE_EXAMPLES.get(verb, []):
        run_before(command)
    again = " --overwrite" if "--overwrite" in build_parser(verb)._option_string_actions else ""
    # A hub needs a network, labels of some samples a set that has none of its own, workers of Ray a collection that is
    # worth them (tests/integrations has small ones); shards are never replaced.
    elsewhere = ("--push-to-hub", "some.csv", "--engine ray")
    lines = [line for line in lines if not any(word in line for word in elsewhere)]
    commands = [line if "--shards" in line else line + again for line in lines]
    run_shell(Block(f"counterpoint {verb} --help", "sh", "", "\n".join(commands)))


def prepare_examples(verb: str, text: str, workplace: Path, rng: np.random.Generator) -> None:
    """Files that the examples of verbs name."""
    labels, features = np.arange(200) % 4, rng.normal(size=(200, 16)).astype("float32")
    np.save("labels.npy", labels)
    for name in ("features", "vectors"):
        np.save(f"{name}.npy", features)
    np.savez("features.npz", vectors=features, names=np.array([f"{number}" for number in range(200)]))
    (workplace / "run.yaml").write_text("data: digits\n", encoding="utf-8")
    for folder in ("pets/cats", "pets/dogs", "other_photos"):
        draw_pictures(workplace / folder, 30, rng)
    rows = [f"{x:.3f},{('Bern', 'Oslo')[number % 2]},{number % 3 == 0}" for number, x in enumerate(features[:, 0])]
    (workplace / "customers.csv").write_text("\n".join(["age,city,churned", *rows]) + "\n", encoding="utf-8")
    shutil.copytree("photos", "moved/photos")
    for name in ("holiday.jpg", "new.jpg", "photos/cats/4.jpg"):
        if verb == "search":
            shutil.copy("other_photos/4.png", name)
    if verb == "audit":  # parts of the same pictures
        shutil.copytree("photos", "parts/train")
        shutil.copytree("pets", "parts/test")
        for part in ("train", "test"):
            shutil.move(f"parts/{part}", f"photos/{part}")
    for name in ("r18.pth", "m.pth"):
        if name in text:
            save_weights(name, "resnet18")


def enlarge_stl10(folder: Path, rng: np.random.Generator) -> None:
    """Pictures of two classes, enough to be evaluated with."""
    for part, count in (("train", 40), ("test", 12)):
        (folder / f"{part}_X.bin").write_bytes(rng.integers(0, 256, (count, 3, 96, 96), dtype=np.uint8).tobytes())
        (folder / f"{part}_y.bin").write_bytes(bytes([1, 2] * (count // 2)))
    fold = " ".join(str(number) for number in range(30))
    (folder / "fold_indices.txt").write_text(f"{fold} \n" * 10, encoding="utf-8")


def save_weights(file: str, architecture: str) -> None:
    """Random weights of a timm model, in a file as frameworks write it."""
    timm = pytest.importorskip("timm", reason="the blocks on encoders from elsewhere need the extra vision")
    torch.save(timm.create_model(architecture, num_classes=0).state_dict(), file)
