"""Planted copies among very many pictures: how many are found by `audit`, and by `search --duplicates --buckets`.

    python benchmarks/near_duplicates.py                                           100,000 rendered pictures
    python benchmarks/near_duplicates.py --data DATA/cifar10-pack --workers 2      half of them of CIFAR-10
    python benchmarks/near_duplicates.py --pictures 10000 --copies 200 --buckets 20

A fifth of the copies have the bytes of their pictures; the others differ by noise, compression, brightness or a crop.
An encoder that was trained for an epoch embeds the pictures. With ``--workers N`` all is done once more by workers of
Ray, which must find the same.
"""

import argparse
import io
import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from audit_checks import COPIES, Change, encoded
from killed_embedding import Plan, render, run
from PIL import Image

import counterpoint as cp
from counterpoint.evaluation.metric_types import Proportion, wilson
from counterpoint.integrations.ray_jobs import RayEngine
from counterpoint.search.duplicates import Buckets

TRAINED_ON = 2048
Planted = Mapping[str, list[tuple[int, int]]]  # rows of pictures and of their copies, by what was changed


def noisy(image: Image.Image, rng: np.random.Generator) -> bytes:
    """The picture with noise of at most 2 levels."""
    pixels = np.asarray(image) + rng.integers(-2, 3, (image.height, image.width, 3))
    return encoded(Image.fromarray(pixels.clip(0, 255).astype(np.uint8)), "PNG")


CHANGES: Mapping[str, Change] = {
    "the same bytes": lambda image, rng: image,
    "noise of 2 levels": noisy,
    "JPEG, quality 40": COPIES["copy: JPEG, quality 40"][1],
    "20 % brighter": COPIES["copy: 20 % brighter"][1],
    "crop to 92 %": COPIES["copy: crop to 92 %"][1],
}


def files_of(folder: Path, number: int, pack: Path | None) -> list[bytes]:
    """Picture files: half of them from a pack, if one is named, and the others rendered."""
    files = list[bytes]()
    if pack is not None:
        with np.load(pack / "train.npz") as archive:
            content, offsets = archive["jpeg"].tobytes(), archive["offsets"][: number // 2 + 1].tolist()
        files = [content[start:stop] for start, stop in pairwise(offsets)]
    render(Plan(folder, number - len(files), 0))
    return files + [encoded(Image.fromarray(pixels)) for pixels in np.load(folder / "pictures.npz")["images"]]


def plant(folder: Path, files: list[bytes], num_copies: int) -> Planted:
    """Put copies in place of the last pictures, and write all of them, and some to train on, as packs."""
    rng, num_others = np.random.default_rng(0), len(files) - num_copies
    planted: dict[str, list[tuple[int, int]]] = {name: [] for name in CHANGES}
    for copy, row in enumerate(sorted(rng.choice(num_others, num_copies, replace=False).tolist()), num_others):
        name = list(CHANGES)[copy % len(CHANGES)]
        image = Image.open(io.BytesIO(files[row])).convert("RGB")
        made = CHANGES[name](image, rng)
        if made is image:
            made = files[row]
        files[copy] = made if isinstance(made, bytes) else encoded(made, quality=95)
        planted[name].append((row, copy))
    few = range(0, num_others, max(1, num_others // TRAINED_ON))
    for name, rows in (("pictures", range(len(files))), ("few", few)):
        offsets = np.cumsum([0, *(len(files[row]) for row in rows)])
        np.savez(folder / name, jpeg=np.frombuffer(b"".join(files[row] for row in rows), np.uint8), offsets=offsets)
    return planted


def found_by(groups: Iterable[set[int]], pairs: Iterable[tuple[int, int]]) -> Proportion:
    """Share of the copies that are in a group with their picture."""
    groups_by_row = dict[int, list[set[int]]]()
    for group in groups:
        for row in group:
            groups_by_row.setdefault(row, []).append(group)
    is_together = [any(row in group for group in groups_by_row.get(copy, [])) for row, copy in pairs]
    return wilson(sum(is_together), len(is_together))


def groups_of(answer: cp.Audit | cp.Copies) -> list[set[int]]:
    """Rows of each group of copies that an answer names."""
    if isinstance(answer, cp.Copies):
        return [set(group.rows) for group in answer.groups]
    observations = [entry for entry in answer.observations if entry.code in ("same-pixels", "near-copies")]
    return [set(map(int, group.names)) for entry in observations for group in entry.groups]


def told(share: Proportion) -> str:
    """A share with its interval."""
    return f"{share.value:.3f} ({share.low:.3f} to {share.high:.3f})"


def look(flags: argparse.Namespace, data: Path, planted: Planted) -> None:
    """Look for copies in each way, and print what is found."""
    run_folder, engine = data.parent / "run", RayEngine(workers=flags.workers)
    search = partial(cp.duplicates, run_folder, to=str(data), threshold=flags.threshold, quiet=True)
    ways = {
        "audit": lambda: cp.audit(str(data), quiet=True),
        "audit, Ray": lambda: cp.audit(str(data), engine=engine, quiet=True),
        "all rows": lambda: search(buckets=Buckets(1)),
        f"{flags.buckets} buckets": lambda: search(buckets=Buckets(flags.buckets)),
        f"{flags.buckets} buckets, Ray": lambda: search(buckets=Buckets(flags.buckets, engine)),
    }
    answers = dict[str, cp.Audit | cp.Copies]()
    cp.embed(run_folder, str(data), quiet=True)  # its features go to the cache
    print(f"| looked at by | seconds | groups | without a planted copy | all copies | {' | '.join(CHANGES)} |")
    print(f"|{'---|' * (5 + len(CHANGES))}")
    for way, find in ways.items():
        if way.endswith("Ray") and not flags.workers:
            continue
        begun = time.perf_counter()
        answer = find()
        seconds, groups = time.perf_counter() - begun, groups_of(answer)
        answers[way] = answer.model_copy(update={"seconds": 0}) if isinstance(answer, cp.Audit) else answer
        copies = {copy for pairs in planted.values() for _, copy in pairs}
        shares = [found_by(groups, pairs) for pairs in planted.values()]
        every = wilson(sum(share.correct for share in shares), sum(share.total for share in shares))
        cells = [f"{seconds:.0f}", f"{len(groups):,}", f"{sum(not copies & group for group in groups):,}"]
        print(f"| {' | '.join([way, *cells, *map(told, (every, *shares))])} |", flush=True)
    for way in [way for way in answers if f"{way}, Ray" in answers]:
        if answers[way] != answers[f"{way}, Ray"]:
            raise SystemExit(f"{way}: workers of Ray found something else")
    print()
    for way, answer in answers.items():
        if isinstance(answer, cp.Copies):
            print(f"{way}: {' '.join(answer.reading)}")


def main() -> None:
    """Plant, train, and look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=100_000, help="how many (default 100,000)")
    parser.add_argument("--copies", type=int, default=2_000, help="of them are copies (default 2,000)")
    parser.add_argument(
        "--data", type=Path, help="folder of a pack, train.npz: half of the pictures are its first ones"
    )
    parser.add_argument("--buckets", type=int, default=100, help="of k-means (default 100)")
    parser.add_argument("--threshold", type=float, default=0.9999, help="least cosine of a pair (default 0.9999)")
    parser.add_argument("--workers", type=int, default=0, help="of Ray (default: none)")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["COUNTERPOINT_CACHE"] = str(folder / "cache")
        planted = plant(folder, files_of(folder, flags.pictures, flags.data), flags.copies)
        run(Plan(folder, 0, 0), "train --data few.npz --encoder convnet --epochs 1 --out run")
        print(f"{flags.pictures:,} pictures, {flags.copies:,} copies; embeddings: cosine >= {flags.threshold}\n")
        look(flags, folder / "pictures.npz", planted)


if __name__ == "__main__":
    main()
