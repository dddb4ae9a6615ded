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
NUM_TOP = 12
VIEW_NOISE = {"representation": 0.06, "embedding": 0.04, "untrained representation": 0.09}


@dataclass(frozen=True)
class Samples:
    """Images (or none), labels (or none) and names."""

    images: np.ndarray | None
    labels: np.ndarray | None
    names: list[str]
    class_names: list[str]


def toy_samples(num_samples: int = 120, num_classes: int = 4, *, kind: str = "grey", seed: int = 0) -> Samples:
    """One blurry pattern per class plus noise; ``kind`` is grey, colour or vectors."""
    generator = np.random.default_rng(seed)
    labels = np.arange(num_samples) % num_classes
    names = [f"{place:04d}.png" for place in range(num_samples)]
    class_names = [f"class {place}" for place in range(num_classes)]
    if kind == "vectors":
        return Samples(None, labels, names, class_names)
    shape = (8, 8) if kind == "grey" else (16, 16, 3)
    patterns = generator.uniform(0, 255, (num_classes, *shape))
    images = np.clip(patterns[labels] + generator.normal(0, 30, (num_samples, *shape)), 0, 255).astype(np.uint8)
    return Samples(images, labels, names, class_names)


def sparse_embedding(samples: Samples, num_dims: int = 16, seed: int = 1) -> np.ndarray:
    """Non-negative features, each of which answers to one class."""
    generator = np.random.default_rng(seed)
    classes = np.zeros(len(samples.names), int) if samples.labels is None else samples.labels
    prefers = np.arange(num_dims) % max(len(samples.class_names), 1)
    drive = 1.4 * (classes[:, None] == prefers) + generator.normal(-0.9, 0.5, (len(classes), num_dims))
    return np.maximum(drive, 0.0)


def dense_embedding(samples: Samples, num_dims: int = 16, seed: int = 1) -> np.ndarray:
    """Features of both signs, in which every class is spread over all dimensions."""
    generator = np.random.default_rng(seed)
    rotation = np.linalg.qr(generator.normal(size=(num_dims, num_dims)))[0]
    return sparse_embedding(samples, num_dims, seed) @ rotation + generator.normal(0, 0.05, num_dims)


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
    np.savez(path / "arrays.npz", **arrays(samples, places))
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
    measured = {name: measure(vectors, samples.labels, VIEW_NOISE[name]) for name, vectors in places.items()}
    embedding = measured["embedding"]
    settings = {"sparsity_threshold": THRESHOLD, "num_samples": len(samples.names)}
    verdict = {"level": "warning", "sentence": "With a warning: No clear gain over raw pixels."}
    return {
        "verdict": verdict, "findings": findings(embedding), "places": measured,
        "concepts": concepts(samples, places["embedding"]), "settings": settings, "layers": layers(samples, places),
    }  # fmt: skip


def layers(samples: Samples, places: dict[str, np.ndarray]) -> dict[str, Any]:
    """A wide layer before the representation and the embedding, which loses half of it; the same at two steps."""
    found = [
        {
            "name": name, "kind": kind, "num_dims": vectors.shape[1], "is_pooled": kind == "ReLU",
            "resolved": vectors.shape[1], "vanished": vanished, "effective_rank": vectors.shape[1] - vanished - 0.5,
            "null_rank": float(vectors.shape[1]), "largest": 1.5, "median": 0.5, "least": 1e-3, "floor": 1e-13,
        }
        for name, kind, vectors, vanished in (
            ("0", "ReLU", places["representation"], 0),
            ("representation", "Linear", places["representation"], 0),
            ("embedding", "output map", places["embedding"], places["embedding"].shape[1] // 2),
        )
    ]  # fmt: skip
    joint = {
        "below": "0", "above": "2", "width": 4, "live_below": 2, "live_above": 2, "overlap": 0.9, "chance": 0.5,
    }  # fmt: skip
    course = [{"step": 5, "layers": found}, {"step": 100, "layers": found}]
    remarks = ["Left out, as wider than 4,096 dimensions: wide (5,000)."]
    return {
        "num_samples": len(samples.names), "layers": found, "joints": [joint], "course": course, "remarks": remarks,
    }  # fmt: skip


def findings(embedding: dict[str, Any]) -> list[dict[str, Any]]:
    rank, ceiling = embedding["effective_rank"], embedding["rank_ceiling"]
    return [
        {
            "name": "dimensional-collapse",
            "level": "good",
            "title": f"Embedding uses {rank:.0f} of {ceiling:.0f} possible dimensions",
            "measured": rank,
            "reference": ceiling,
            "reference_name": "isotropic Gaussian of the same shape",
            "text": "Singular values fall gently, so no direction is wasted.",
            "remedy": "",
        },
        {
            "name": "alignment",
            "level": "good",
            "title": "Two views of one sample stay together",
            "measured": embedding["positive_cosine"],
            "reference": embedding["negative_cosine"],
            "reference_name": "different samples",
            "text": "Views of one sample are far closer than different samples are.",
            "remedy": "",
        },
        {
            "name": "dead-dimensions",
            "level": "note",
            "title": "4 embedding dimensions never fire",
            "measured": 4.0,
            "reference": 0.0,
            "reference_name": "none",
            "text": "Non-negative outputs can die when their bias drifts below zero. The rest carries the information.",
            "remedy": "Nothing is needed below a tenth of the width; else try output.nonnegative=relu-gelu.",
        },
        {
            "name": "gain-over-pixels",
            "level": "warning",
            "title": "No clear gain over raw pixels",
            "measured": 0.983,
            "reference": 0.964,
            "reference_name": "kNN accuracy of pixels (PCA)",
            "text": "The intervals overlap: on these samples, nearest neighbours of raw pixels do almost as well.",
            "remedy": "Use a harder data set, or read this run as a check of the method rather than as a gain.",
        },
    ]


def measure(vectors: np.ndarray, labels: np.ndarray | None, view_noise: float) -> dict[str, Any]:
    """Measure one set of vectors; small and slow on purpose."""
    num_samples, num_dims = vectors.shape
    generator = np.random.default_rng(11)
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    view = unit + view_noise * generator.normal(size=unit.shape)
    view /= np.linalg.norm(view, axis=1, keepdims=True)
    values = np.linalg.svd(vectors - vectors.mean(0), compute_uv=False)
    shares = values / max(values.sum(), 1e-12)
    distances = ((unit[:, None] - unit[None]) ** 2).sum(-1)
    others = ~np.eye(num_samples, dtype=bool)
    firing = np.abs(vectors) > THRESHOLD
    cosine = unit @ unit.T
    columns = vectors / np.maximum(np.linalg.norm(vectors, axis=0), 1e-12)
    purities = [purity for dim in range(num_dims) if (purity := _purity(labels, firing[:, dim])[0]) is not None]
    return {
        "num_samples": num_samples, "num_dims": num_dims,
        "effective_rank": float(np.exp(-(shares * np.log(shares + 1e-12)).sum())),
        "rank_ceiling": 0.97 * min(num_dims, num_samples), "alignment": float(((unit - view) ** 2).sum(1).mean()),
        "uniformity": float(np.log(np.exp(-2 * distances[others]).mean())),
        "class_consistency": float(np.mean(purities)) if purities else None, "sparsity": float(1 - firing.mean()),
        "feature_correlation": float(np.abs(columns.T @ columns)[~np.eye(num_dims, dtype=bool)].mean()),
        "dead_dims": int((~firing.any(0)).sum()), "positive_cosine": float((unit * view).sum(1).mean()),
        "negative_cosine": float(cosine[others].mean()),
    }  # fmt: skip


def concepts(samples: Samples, embedding: np.ndarray) -> list[dict[str, Any]]:
    unit = embedding / np.maximum(np.linalg.norm(embedding, axis=1, keepdims=True), 1e-12)
    expected = unit.mean(0)
    firing = np.abs(embedding) > THRESHOLD
    found = []
    for dim in np.argsort(-expected):
        top = np.argsort(-embedding[:, dim])[:NUM_TOP]
        purity, top_class = _purity(samples.labels, firing[:, dim])
        found.append({
            "dim": int(dim), "fires": float(firing[:, dim].mean()), "mean_activation": float(embedding[:, dim].mean()),
            "expected_activation": float(expected[dim]), "purity": purity,
            "top_class": None if top_class is None else samples.class_names[top_class],
            "thumbnails": [] if samples.images is None else [int(index) for index in top],
            "values": [float(value) for value in embedding[top, dim]], "names": [samples.names[index] for index in top],
        })  # fmt: skip
    return found


def arrays(samples: Samples, places: dict[str, np.ndarray]) -> dict[str, Any]:
    generator = np.random.default_rng(5)
    stored = {f"spectrum/{name}": np.linalg.svd(np.cov(rows.T), compute_uv=False) for name, rows in places.items()}
    for place, name in enumerate(("representation", "representation", "embedding")):
        values = stored[f"spectrum/{name}"].copy()
        if name == "embedding":
            values[len(values) // 2 :] = 0.0
        stored[f"layer/{place}"] = values
        stored[f"band/{place}"] = stored[f"band/{name}"] = values.mean() * np.ones((2, len(values))) * [[0.9], [1.1]]
    stored["joint/0"] = np.eye(4)
    edges = np.linspace(-1, 1, 81)
    unit = places["embedding"] / np.maximum(np.linalg.norm(places["embedding"], axis=1, keepdims=True), 1e-12)
    positive = np.clip(1 - np.abs(generator.normal(0, 0.16, 2000)), -1, 1)
    stored |= {
        "cosines/edges": edges,
        "cosines/positive": np.histogram(positive, edges)[0],
        "cosines/negative": np.histogram(np.clip((unit @ unit.T)[np.triu_indices(len(unit), 1)], -1, 1), edges)[0],
    }
    return stored if samples.images is None else {**stored, "thumbnails": samples.images}


def _accuracy(features: str, protocol: str, settings: dict[str, Any], correct: int, total: int) -> dict[str, Any]:
    # Each gets other queries wrong.
    right = np.random.default_rng(len(features) + correct).permutation(total)[:correct]
    return {**hit_values(features, protocol, right.tolist(), total), "settings": settings}


def _purity(labels: np.ndarray | None, firing: np.ndarray) -> tuple[float | None, int | None]:
    if labels is None or not firing.any():
        return None, None
    counts = np.bincount(labels[firing])
    return float(counts.max() / counts.sum()), int(counts.argmax())


def _resolved(method: str, num_epochs: int) -> str:
    nonnegative = "relu" if method == "ncl" else "none"
    return f"""\
data: digits
method: {method}
encoder: convnet
epochs: {num_epochs}
batch_size: 256
temperature: 0.2
seed: 0
views:
  crop: [0.5, 1.0]
  flip: false
  noise: 0.05
projector:
  kind: mlp
  hidden: 256
  features: 128
output:
  nonnegative: {nonnegative}
  d0: all
loss:
  name: infonce
  epsilon: 1.0
  negatives: two-view
optim:
  name: adamw
  learning_rate: 0.002
  weight_decay: 1e-4
  momentum: 0.9
  warmup_epochs: 1
engine:
  device: cpu
  precision: fp32
  workers: 0
  checkpoint_every: 2
  keep: 2
reasons:
  encoder: images of 8 pixels need no deep network
  batch_size: the largest power of two below a fifth of the samples
  temperature: the method's usual value
  output.nonnegative: method {method}
  optim.learning_rate: adamw default
  engine.device: no GPU found
  engine.precision: the CPU computes in fp32
"""


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
