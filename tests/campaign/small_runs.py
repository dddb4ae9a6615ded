"""Runs of a second, their data, and all that they compute: what the tries of a campaign work on."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from campaign.processes import run_command

NUM_SAMPLES, BATCH, EPOCHS = 60, 16, 2
SAVE_EVERY = 2  # steps
SEEDS = (0, 1)
DATA, PICTURES = "vectors.npz", "pictures.npy"
MOCO, SIMCLR = ["--method", "moco", "--target.queue-size", "16"], ["--method", "simclr"]
WORDS = ["--encoder", "mlp"]
WORDS += ["--projector.hidden", "16", "--projector.features", "8"]
WORDS += ["--epochs", str(EPOCHS), "--batch-size", str(BATCH), "--engine.device", "cpu", "-q"]
WORDS += ["--engine.checkpoint-steps", str(SAVE_EVERY), "--engine.checkpoint-every", "1"]
COMPUTED = ("metrics.jsonl", "resolved.yaml", "encoder.safetensors", "encoder.json")


def write_data(folder: Path) -> None:
    """Labelled vectors, and some pictures."""
    draw = np.random.default_rng(5)
    labels = np.arange(NUM_SAMPLES) % 3
    vectors = draw.standard_normal((NUM_SAMPLES, 6)) + 3 * np.eye(6)[labels]
    np.savez(folder / DATA, x=vectors.astype(np.float32), labels=labels)
    np.save(folder / PICTURES, draw.integers(0, 256, (8, 8, 8), dtype=np.uint8))


def train_words(material: Path, run: Path, *more: str, seed: int = 0, method: Sequence[str] = MOCO) -> list[str]:
    """The command line of a run."""
    return ["train", "--data", str(material / DATA), "--out", str(run), "--seed", str(seed), *method, *WORDS, *more]


def make_runs(material: Path, method: Sequence[str] = MOCO) -> None:
    """Data, and a whole run for each seed."""
    write_data(material)
    for seed in SEEDS:
        must(train_words(material, whole(material, seed), seed=seed, method=method), material)


def make_whole_runs(material: Path) -> None:
    """Runs of each seed with all that verbs write to a run folder: every derived file is there."""
    make_runs(material, SIMCLR)  # whose loss has a Hessian
    for run in (str(whole(material, seed)) for seed in SEEDS):
        page = str(material / "page.html")
        spectrum = ["spectrum", run, "--steps", "2", "--batch-size", "8"]
        for words in (["evaluate", run], ["diagnose", run], ["search", run, "0"], spectrum):
            must([*words, "-q"], material)
        must(["report", run, "--out", page, "-q"], material)  # writes the map


def whole(material: Path, seed: int = 0) -> Path:
    """A run that nothing disturbed."""
    return material / f"whole-{seed}"


def must(words: list[str], material: Path) -> None:
    """Run a command that nothing attacks."""
    outcome = run_command(words, material / "said")
    assert outcome.code == 0, outcome


def content_of(run: Path) -> dict[str, bytes]:
    """All that a run computed: every file of its checkpoints, encoder, settings, metrics; nothing of the clock."""
    kept = sorted(path for path in run.glob("checkpoints/step-*/*"))
    found = {
        os.fspath(path.relative_to(run)): path.read_bytes()
        for path in [*kept, *(run / name for name in COMPUTED)]
        if path.is_file()
    }
    settings = found.get("resolved.yaml", b"").splitlines(keepends=True)
    # Where a run and its data lie, and the seal over that, are no part of what it computed.
    return {
        **found,
        "resolved.yaml": b"".join(line for line in settings if not line.startswith((b"out:", b"data:", b"#"))),
    }


def difference(run: Path, expected: Path, *, may_have_more: bool = False) -> str:
    """Names of the files in which two runs differ; empty where there are none."""
    found, wanted = content_of(run), content_of(expected)
    names = wanted if may_have_more else found | wanted
    return ", ".join(name for name in sorted(names) if found.get(name) != wanted.get(name))
