"""Run folders made up for tests: seeded samples and features, with every number computed from them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.core.files import write_sealed
from hit_rows import FINGERPRINT, hit_values

THRESHOLD = 1e-5
ATTACK = "</script><img src=x onerror=alert(1)>"


@dataclass(frozen=True)
class Samples:
    """Images (or none), labels (or none) and names."""

    images: np.ndarray | None
    labels: np.ndarray | None
    names: list[str]
    class_names: list[str]


def toy_samples(num_samples: int = 120, num_classes: int = 4, *, kind: str = "grey") -> Samples:
    """One blurry pattern per class plus noise; ``kind`` is grey, colour or vectors."""
    generator = np.random.default_rng(0)
    labels = np.arange(num_samples) % num_classes
    names = [f"{place:04d}.png" for place in range(num_samples)]
    class_names = [f"class {place}" for place in range(num_classes)]
    if kind == "vectors":
        return Samples(None, labels, names, class_names)
    shape = (8, 8) if kind == "grey" else (16, 16, 3)
    patterns = generator.uniform(0, 255, (num_classes, *shape))
    images = np.clip(patterns[labels] + generator.normal(0, 30, (num_samples, *shape)), 0, 255).astype(np.uint8)
    return Samples(images, labels, names, class_names)


def sparse_embedding(samples: Samples, num_dims: int = 16) -> np.ndarray:
    """Non-negative features, each of which answers to one class."""
    generator = np.random.default_rng(1)
    classes = np.zeros(len(samples.names), int) if samples.labels is None else samples.labels
    prefers = np.arange(num_dims) % max(len(samples.class_names), 1)
    drive = 1.4 * (classes[:, None] == prefers) + generator.normal(-0.9, 0.5, (len(classes), num_dims))
    return np.maximum(drive, 0.0)


def dense_embedding(samples: Samples, num_dims: int = 16) -> np.ndarray:
    """Features of both signs, in which every class is spread over all dimensions."""
    generator = np.random.default_rng(1)
    rotation = np.linalg.qr(generator.normal(size=(num_dims, num_dims)))[0]
    return sparse_embedding(samples, num_dims) @ rotation + generator.normal(0, 0.05, num_dims)


def write_run(
    path: Path, samples: Samples, embedding: np.ndarray, *, method: str = "ncl", num_epochs: int = 20
) -> Path:
    """Write a whole run folder."""
    path.mkdir(parents=True)
    generator = np.random.default_rng(7)
    untrained = generator.normal(size=embedding.shape) @ np.diag(0.7 ** np.arange(embedding.shape[1])) + 1.0
    rotation = np.linalg.qr(generator.normal(size=(embedding.shape[1],) * 2))[0]
    representation = embedding @ rotation * 0.96 ** np.arange(embedding.shape[1]) + 0.1
    places = {"representation": representation, "embedding": embedding, "untrained representation": untrained}
    _write_json(path / "run.json", run_card(samples, embedding, method))
    (path / "config.yaml").write_text(f"data: digits\nmethod: {method}\nepochs: {num_epochs}\n", encoding="utf-8")
    (path / "resolved.yaml").write_text(_resolved(method, num_epochs), encoding="utf-8")
    (path / "metrics.jsonl").write_text(metrics(num_epochs), encoding="utf-8")
    if samples.labels is not None:
        _write_json(path / "evaluation.json", evaluation(samples, method))
    _write_json(path / "findings.json", diagnosis(samples, places))
    np.savez(path / "arrays.npz", **arrays(places))
    return path


def edit_json(path: Path, change: Callable[[Any], Any]) -> None:
    """Change a JSON file; ``change`` may edit in place or return the new content."""
    content = json.loads(path.read_text(encoding="utf-8"))
    is_sealed = isinstance(content, dict) and content.pop("sha256", None) is not None
    changed = change(content)
    (write_sealed if is_sealed else _write_json)(path, content if changed is None else changed)


def attack_everything(folder: Path) -> None:
    """Put hostile text into every text of every file, as value and as name."""

    def poison(value):
        if isinstance(value, dict):
            # Bits and levels are checked, and a page of a run whose own are damaged is refused.
            return {key: child if key in ("hits", "level") else poison(child) for key, child in value.items()}
        if isinstance(value, list):
            return [poison(child) for child in value]
        return ATTACK if isinstance(value, str) else value

    for file in ("run.json", "findings.json", "evaluation.json"):
        edit_json(folder / file, poison)
    edit_json(folder / "evaluation.json", lambda c: c["rows"][0].update(features="representation", protocol="knn"))
    edit_json(folder / "evaluation.json", lambda c: c["rows"][0]["settings"].update({ATTACK: ATTACK}))
    edit_json(folder / "findings.json", lambda c: c["places"].update({ATTACK: c["places"]["embedding"]}))
    settings = json.dumps({ATTACK: ATTACK, "a": {ATTACK: [ATTACK]}, "reasons": {ATTACK: ATTACK}})
    (folder / "resolved.yaml").write_text(settings)
    (folder / "config.yaml").write_text(settings)


def run_card(samples: Samples, embedding: np.ndarray, method: str) -> dict[str, Any]:
    num_samples = len(samples.names)
    return {
        "format": 1, "status": "finished", "seed": 0, "version": "0.1.0",
        "command": f"counterpoint train --data digits --method {method}", "method": method, "data": "digits",
        "data_fingerprint": "ab12cd34", "num_samples": num_samples, "num_train": round(0.8 * num_samples),
        "device": "cpu", "precision": "fp32", "num_parameters": 123456, "negatives_per_anchor": 510, "width": 128,
        "embedding_dims": embedding.shape[1], "started": "2026-11-20T10:00:00+00:00",
        "seconds": 21.3 if method == "ncl" else 18.9, "peak_memory_mb": 812.0, "torch": "2.15.0",
        "skipped": [{"name": "bad.jpg", "reason": "truncated"}],
    }  # fmt: skip


def metrics(num_epochs: int) -> str:
    """A loss that decays from chance towards its floor, with some noise."""
    generator = np.random.default_rng(3)
    lines = []
    for epoch in range(1, num_epochs + 1):
        share = epoch / num_epochs
        loss = 3.4 + 2.4 * np.exp(-4.5 * share) + 0.03 * generator.normal()
        rate = 2e-3 * min(1.0, 20 * share) * 0.5 * (1 + np.cos(np.pi * share))
        speed = 9000 + 200 * generator.normal()
        record = {"epoch": epoch, "step": 5 * epoch, "loss": loss, "chance": 6.236, "floor": 1.31}
        lines.append(json.dumps({**record, "learning_rate": rate, "images_per_second": speed, "seconds": 1.2 * epoch}))
    return "".join(line + "\n" for line in lines)


def evaluation(samples: Samples, method: str) -> dict[str, Any]:
    num_classes, total = len(samples.class_names), 360
    features = ("representation", "embedding", "untrained encoder", "pixels (PCA)")
    is_ncl = method == "ncl"
    correct = dict(zip(features, (354 if is_ncl else 351, 340, 300, 347), strict=True))
    probe = dict(zip(features, (352 if is_ncl else 353, 331, 310, 339), strict=True))
    knn, ridge = {"k": 20, "temperature": 0.1, "similarity": "cosine"}, {"l2": 1e-3}
    rows = [_accuracy(name, "knn", knn, num, total) for name, num in correct.items()]
    rows += [_accuracy(name, "linear probe", ridge, num, total) for name, num in probe.items()]
    split = {"num_bank": 1437, "num_queries": total, "num_classes": num_classes, "class_names": samples.class_names}
    how = "20 % of each class, held out of training"
    return {"split": {**split, "how": how, "query_fingerprint": FINGERPRINT}, "rows": rows}


def diagnosis(samples: Samples, places: dict[str, np.ndarray]) -> dict[str, Any]:
    measured = {name: figures(vectors) for name, vectors in places.items()}
    embedding = measured["embedding"]
    settings = {"sparsity_threshold": THRESHOLD, "num_samples": len(samples.names)}
    verdict = {"level": "warning", "sentence": "With a warning: No clear gain over raw pixels."}
    return {
        "verdict": verdict, "findings": findings(embedding), "places": measured,
        "settings": settings,
    }  # fmt: skip


def findings(embedding: dict[str, Any]) -> list[dict[str, Any]]:
    rank, ceiling = embedding["effective_rank"], embedding["rank_ceiling"]
    told = [
        ("dimensional-collapse", "good", f"Embedding uses {rank:.0f} of {ceiling:.0f} dimensions", rank, ceiling, ""),
        ("dead-dimensions", "note", "4 embedding dimensions never fire", 4.0, 0.0, "try output.nonnegative=relu-gelu"),
        ("gain-over-pixels", "warning", "No clear gain over raw pixels", 0.983, 0.964, "Use a harder data set."),
    ]
    names = ("name", "level", "title", "measured", "reference", "remedy")
    rest = {"text": "The reason.", "reference_name": "what is known"}
    return [{**dict(zip(names, each, strict=True)), **rest} for each in told]


def figures(vectors: np.ndarray) -> dict[str, Any]:
    """Measurements of one set of vectors, made up but for their sizes and zeros."""
    num_samples, num_dims = vectors.shape
    firing = np.abs(vectors) > THRESHOLD
    return {
        "num_samples": num_samples, "num_dims": num_dims, "effective_rank": 0.6 * num_dims,
        "rank_ceiling": 0.97 * min(num_dims, num_samples), "alignment": 0.3, "uniformity": -2.5,
        "class_consistency": 0.8, "sparsity": float(1 - firing.mean()), "feature_correlation": 0.2,
        "dead_dims": int((~firing.any(0)).sum()), "positive_cosine": 0.9, "negative_cosine": 0.1,
    }  # fmt: skip


def arrays(places: dict[str, np.ndarray]) -> dict[str, Any]:
    generator = np.random.default_rng(5)
    stored = {f"spectrum/{name}": np.linalg.svd(np.cov(rows.T), compute_uv=False) for name, rows in places.items()}
    values = stored["spectrum/embedding"]
    stored["band/embedding"] = values.mean() * np.ones((2, len(values))) * [[0.9], [1.1]]
    edges = np.linspace(-1, 1, 81)
    unit = places["embedding"] / np.maximum(np.linalg.norm(places["embedding"], axis=1, keepdims=True), 1e-12)
    positive = np.clip(1 - np.abs(generator.normal(0, 0.16, 2000)), -1, 1)
    stored |= {
        "cosines/edges": edges,
        "cosines/positive": np.histogram(positive, edges)[0],
        "cosines/negative": np.histogram(np.clip((unit @ unit.T)[np.triu_indices(len(unit), 1)], -1, 1), edges)[0],
    }
    return stored


def _accuracy(features: str, protocol: str, settings: dict[str, Any], correct: int, total: int) -> dict[str, Any]:
    # Each gets other queries wrong.
    right = np.random.default_rng(len(features) + correct).permutation(total)[:correct]
    return {**hit_values(features, protocol, right.tolist(), total), "settings": settings}


def _resolved(method: str, num_epochs: int) -> str:
    nonnegative = "relu" if method == "ncl" else "none"
    return f"""\
data: digits
method: {method}
epochs: {num_epochs}
seed: 0
views:
  crop: [0.5, 1.0]
  flip: false
output:
  nonnegative: {nonnegative}
optim:
  name: adamw
  learning_rate: 0.002
  weight_decay: 1e-4
reasons:
  output.nonnegative: method {method}
  optim.learning_rate: adamw default
"""


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
