"""Runs of a second, their data, and all that they compute: what the tries of a campaign work on."""

import os
from pathlib import Path

import numpy as np

from campaign.processes import run_command

NUM_SAMPLES, BATCH, EPOCHS = 60, 16, 2
SAVE_EVERY = 2  # steps
SEEDS = (0, 1)
DATA, PICTURES = "vectors.npz", "pictures.npy"
WORDS = ["--method", "moco", "--encoder", "mlp", "--target.queue-size", "16", "--engine.average", "0.9"]
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


def train_words(material: Path, run: Path, *more: str, seed: int = 0) -> list[str]:
    """The command line of a run."""
    return ["train", "--data", str(material / DATA), "--out", str(run), "--seed", str(seed), *WORDS, *more]


def make_runs(material: Path) -> None:
    """Data, and a whole run for each seed."""
    write_data(material)
    for seed in SEEDS:
        must(train_words(material, whole(material, seed), seed=seed), material)


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
