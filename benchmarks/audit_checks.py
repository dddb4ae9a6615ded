"""How often an audit finds planted copies, and how often it takes pictures for copies that are none.

    python benchmarks/audit_checks.py FOLDER... [--pictures 1000] [--others FOLDER]

Each FOLDER (or pack of pictures, .npz) is changed in the ways of ``CHANGES``; 300 of its pictures are looked for among
all of it. With ``--others``, every candidate pair of a picture of FOLDER and one of other data is a false one: the two
sets share no picture. Thresholds were chosen on Caltech-101 (64 px); docs/audit.md has the figures of other data.
"""

import argparse
import io
import time
from collections.abc import Callable, Mapping

import numpy as np
from PIL import Image, ImageEnhance

from counterpoint.audit.audited_data import collect
from counterpoint.audit.picture_copies import DETAIL, SIDE, STRUCTURE, near_copies
from counterpoint.audit.picture_pass import looks_of
from counterpoint.core.data_settings import SourceSettings
from counterpoint.data.formats.image_files import decode
from counterpoint.data.stores import FileStore
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.metric_types import wilson

NUM_CHANGED, SEED = 300, 1
Change = Callable[[Image.Image, np.random.Generator], Image.Image]


def recompressed(image: Image.Image, quality: int) -> Image.Image:
    """The picture after a pass through JPEG."""
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return Image.open(stream).convert("RGB")


def cropped(image: Image.Image, share: float, rng: np.random.Generator) -> Image.Image:
    """A part of it, anywhere."""
    width, height = (max(1, round(side * share)) for side in image.size)
    left, top = int(rng.integers(0, image.width - width + 1)), int(rng.integers(0, image.height - height + 1))
    return image.crop((left, top, left + width, top + height))


def resized(image: Image.Image, share: float) -> Image.Image:
    """At another size."""
    return image.resize((round(image.width * share), round(image.height * share)), Image.Resampling.BICUBIC)


CHANGES: Mapping[str, Change] = {
    "JPEG, quality 70": lambda image, rng: recompressed(image, 70),
    "JPEG, quality 30": lambda image, rng: recompressed(image, 30),
    "half the size": lambda image, rng: resized(image, 0.5),
    "twice the size": lambda image, rng: resized(image, 2.0),
    "25 % brighter": lambda image, rng: ImageEnhance.Brightness(image).enhance(1.25),
    "30 % less contrast": lambda image, rng: ImageEnhance.Contrast(image).enhance(0.7),
    "crop to 95 % of each side": lambda image, rng: cropped(image, 0.95, rng),
    "crop to 90 %": lambda image, rng: cropped(image, 0.90, rng),
    "crop to 85 %": lambda image, rng: cropped(image, 0.85, rng),
    "crop to 92 %, 15 % darker, JPEG 60": lambda image, rng: recompressed(
        ImageEnhance.Brightness(cropped(image, 0.92, rng)).enhance(0.85), 60
    ),
    "mirrored (not looked for)": lambda image, rng: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
}


def read(data: str, number: int) -> list[Image.Image]:
    """Some pictures of a folder or pack, drawn at random."""
    content = collect(data, SourceSettings(), progress=Reporter(quiet=True).bar).shares[0].content
    assert isinstance(content, FileStore)
    chosen = np.random.default_rng(0).permutation(len(content.images))[:number]
    return [decode(content.read(content.images[place]), lambda image: image.copy()) for place in chosen]


def grey(images: list[Image.Image]) -> np.ndarray:
    """As the audit compares them."""
    box = Image.Resampling.BOX
    return looks_of(np.stack([np.asarray(image.resize((2 * SIDE, 2 * SIDE), box)) for image in images])).grey_NSS


def detection(images: list[Image.Image]) -> dict[str, str]:
    """Share of changed copies that are found, by change."""
    rng, plain = np.random.default_rng(SEED), grey(images)
    changed = images[:NUM_CHANGED]
    found = {}
    for name, change in CHANGES.items():
        both = np.concatenate([plain, grey([change(image, rng) for image in changed])])
        pairs = {tuple(pair) for pair in near_copies(both, np.ones(len(both), bool)).pairs_P2.tolist()}
        right = sum((place, len(plain) + place) in pairs for place in range(len(changed)))
        share = wilson(right, len(changed))
        found[name] = f"{share.value:.1%} [{share.low:.1%}, {share.high:.1%}]"
    return found


def false_alarms(images: list[Image.Image], others: list[Image.Image]) -> str:
    """Pictures of one set that are taken for copies of another's."""
    both = grey([*images, *others])
    pairs_P2 = near_copies(both, np.ones(len(both), bool)).pairs_P2
    across = pairs_P2[(pairs_P2[:, 0] < len(images)) & (pairs_P2[:, 1] >= len(images))]
    share = wilson(len(set(across[:, 0].tolist())), len(images))
    return f"{share.correct} of {share.total} ({share.value:.2%} [{share.low:.2%}, {share.high:.2%}])"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--pictures", type=int, default=1000)
    parser.add_argument("--others")
    flags = parser.parse_args()
    print(f"structure >= {STRUCTURE}, detail >= {DETAIL}; {NUM_CHANGED} changed pictures among {flags.pictures}\n")
    others = None if flags.others is None else read(flags.others, flags.pictures)
    for data in flags.data:
        started = time.perf_counter()
        images = read(data, flags.pictures)
        print(f"### {data}\n\n| change | found |\n|---|---|")
        for name, share in detection(images).items():
            print(f"| {name} | {share} |")
        own = near_copies(grey(images), np.ones(len(images), bool)).pairs_P2
        print(f"\nPairs among its own pictures: {len(own)}.")
        if others is not None:
            print(f"Taken for copies of pictures of {flags.others}: {false_alarms(images, others)}.")
        print(f"{time.perf_counter() - started:.0f} s\n", flush=True)


if __name__ == "__main__":
    main()
