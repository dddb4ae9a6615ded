"""How often an audit names planted damage, by kind, and what it says of photographs in which nothing was planted.

    python benchmarks/audit_checks.py PACK.npz [--pictures 3000] [--each 15]
    python benchmarks/audit_checks.py PACK.npz --side 500 --pictures 600 --each 0    # time alone, of larger pictures

So many photographs of the pack are written into folders by class; so many of each kind of damage are planted
among them, each in photographs of its own. Cues are planted into one class each. The table has recall, and how many
other photographs (or classes) are named by the same check; the same is told of the folder before anything was planted.
"""

import argparse
import io
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

import counterpoint as cp
from counterpoint.audit.audit_record import Audit
from counterpoint.audit.audited_data import collect
from counterpoint.audit.class_cues import class_cues
from counterpoint.audit.picture_pass import PictureStatistics, Seen, look_through
from counterpoint.core.settings import SourceSettings
from counterpoint.evaluation.metric_types import wilson

SEED = 1
MOST_CUED = 20  # classes into which a cue is planted, one at a time
Change = Callable[[Image.Image, np.random.Generator], Image.Image | bytes]


def recompressed(image: Image.Image, quality: int) -> Image.Image:
    """The picture after a pass through JPEG."""
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return Image.open(stream).convert("RGB")


def cropped(image: Image.Image, share: float, rng: np.random.Generator) -> Image.Image:
    """A part of the picture at a random place."""
    width, height = (max(1, round(side * share)) for side in image.size)
    left, top = int(rng.integers(0, image.width - width + 1)), int(rng.integers(0, image.height - height + 1))
    return image.crop((left, top, left + width, top + height))


def resized(image: Image.Image, share: float) -> Image.Image:
    """The picture at another size."""
    return image.resize((round(image.width * share), round(image.height * share)), Image.Resampling.BICUBIC)


def marked(image: Image.Image) -> Image.Image:
    """The picture with a half-transparent mark near its lower edge."""
    copy, (width, height) = image.copy(), image.size
    box = (width // 10, height * 3 // 4, width * 6 // 10, height * 9 // 10)
    copy.paste(Image.blend(image.crop(box), Image.new("RGB", (box[2] - box[0], box[3] - box[1]), "white"), 0.6), box)
    return copy


def half_grey(image: Image.Image) -> Image.Image:
    """The picture with a grey lower half, as a file that broke off decodes."""
    copy = image.copy()
    copy.paste((128, 128, 128), (0, image.height // 2, image.width, image.height))
    return copy


def noise(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Noise of the picture's size."""
    return Image.fromarray(rng.integers(0, 256, (image.height, image.width, 3), dtype=np.uint8))


def turned_by_tag(image: Image.Image) -> bytes:
    """The same pixels in a file that is turned when it is read."""
    exif = Image.Exif()
    exif[0x0112] = 3
    return encoded(image.rotate(180), "PNG", exif=exif)


def encoded(image: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    """The bytes of the picture's file."""
    stream = io.BytesIO()
    image.save(stream, kind, **({"quality": 90} if kind == "JPEG" else {}) | options)
    return stream.getvalue()


# Copies that are put beside a photograph, and the check that has to name both.
COPIES: Mapping[str, tuple[str, Change]] = {
    "equal pixels, another format": ("same-pixels", lambda image, rng: image),
    "equal pixels, turned by EXIF": ("same-pixels", lambda image, rng: turned_by_tag(image)),
    "copy: JPEG, quality 40": ("near-copies", lambda image, rng: recompressed(image, 40)),
    "copy: 3/4 of the size": ("near-copies", lambda image, rng: resized(image, 0.75)),
    "copy: 20 % brighter": ("near-copies", lambda image, rng: ImageEnhance.Brightness(image).enhance(1.2)),
    "copy: 30 % less contrast": ("near-copies", lambda image, rng: ImageEnhance.Contrast(image).enhance(0.7)),
    "copy: crop to 92 %": ("near-copies", lambda image, rng: cropped(image, 0.92, rng)),
    "copy: mirrored": ("near-copies", lambda image, rng: ImageOps.mirror(image)),
    "copy: turned by 90 degrees": ("near-copies", lambda image, rng: image.rotate(90)),
    "copy: turned by 180 degrees": ("near-copies", lambda image, rng: image.rotate(180)),
    "copy: border of 10 %": ("near-copies", lambda image, rng: ImageOps.expand(image, image.width // 10, "navy")),
    "copy: watermark": ("near-copies", lambda image, rng: marked(image)),
    "copy: upside down": ("near-copies", lambda image, rng: ImageOps.flip(image)),
    "copy: without colour": ("near-copies", lambda image, rng: image.convert("L").convert("RGB")),
}
# Damage that replaces a photograph.
DAMAGE: Mapping[str, tuple[str, Change]] = {
    "file cut off": ("unreadable", lambda image, rng: encoded(image)[:600]),
    "no bytes": ("unreadable", lambda image, rng: b""),
    "text": ("unreadable", lambda image, rng: b"no picture"),
    "one colour": ("blank", lambda image, rng: Image.new("RGB", image.size, tuple(rng.integers(0, 256, 3).tolist()))),
    "grey lower half": ("cut-short", lambda image, rng: half_grey(image)),
    "noise": ("noise", noise),
    "nearly black": ("blank", lambda image, rng: ImageEnhance.Brightness(image).enhance(0.04)),
}
# Changes to all photographs of one class.
CUES: Mapping[str, Change] = {
    "watermark": lambda image, rng: marked(image),
    "border": lambda image, rng: ImageOps.expand(image, 4, "black").resize(image.size),
    "size": lambda image, rng: resized(image, 0.8),
    "JPEG quality": lambda image, rng: encoded(image, quality=60),
    "darkness": lambda image, rng: ImageEnhance.Brightness(image).enhance(0.3),
    "blur": lambda image, rng: image.filter(ImageFilter.GaussianBlur(2)),
}
CHECK_OF_CUE = {"size": "resolution"}


def write(path: Path, made: Image.Image | bytes, kind: str = "PNG") -> str:
    """Write a picture, or bytes; returns its name below the folder of classes."""
    path.write_bytes(made if isinstance(made, bytes) else encoded(made, kind))
    return path.relative_to(path.parents[1]).as_posix()


def enlarged(image: Image.Image, side: int, rng: np.random.Generator) -> Image.Image:
    """The picture at another side, with noise as of a camera: a smooth one would decode faster than a photograph."""
    pixels = np.asarray(image.resize((side, side), Image.Resampling.BICUBIC)).astype(np.int16)
    return Image.fromarray((pixels + rng.integers(-8, 9, pixels.shape)).clip(0, 255).astype(np.uint8))


def write_clean(pack: str, folder: Path, number: int, side: int | None) -> list[Path]:
    """Write photographs of a pack into folders by class, in one form and random order, perhaps enlarged."""
    with np.load(pack) as opened:
        offsets, labels = opened["offsets"], opened["labels"]
        jpeg, classes = opened["jpeg"].tobytes(), [str(name) for name in opened["class_names"]]
    files, rng = [], np.random.default_rng(SEED)
    for place in rng.permutation(len(labels))[:number]:
        image = Image.open(io.BytesIO(jpeg[offsets[place] : offsets[place + 1]])).convert("RGB")
        if side is not None:
            image = enlarged(image, side, rng)
        path = folder / classes[labels[place]] / f"{place:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(image))
        files.append(path)
    return files


def names_in(audit: Audit, code: str) -> set[str]:
    """Names of all samples in an audit's finding of a code."""
    finding = audit.found(code)
    if finding is None:
        return set()
    return {*finding.names, *(name for group in finding.groups for name in group.names)}


def row(kind: str, code: str, right: int, number: int, others: int, before: int) -> str:
    share = wilson(right, number)
    interval = f"{share.value:.0%} [{share.low:.0%}, {share.high:.0%}]"
    return f"| {kind} | `{code}` | {right} of {number}: {interval} | {others} | {before} |"


def plant_pictures(files: list[Path], num_each: int, rng: np.random.Generator) -> dict[str, tuple[str, set[str]]]:
    """Plant copies and damage; returns the check and the names of what was planted, by kind."""
    planted: dict[str, tuple[str, set[str]]] = {}
    for kind, (code, change) in COPIES.items():
        names = set()
        for _ in range(num_each):
            path = files.pop()
            image = Image.open(path).convert("RGB")
            names.add(write(path.with_name(f"{path.stem}-{len(planted)}.png"), change(image, rng)))
        planted[kind] = (code, names)
    names = set()
    for _ in range(num_each):
        path = files.pop()
        other = next(file for file in files if file.parent != path.parent)
        names.add(write(other.with_name(f"{path.stem}-label.jpg"), path.read_bytes()))
    planted["copy in another class"] = ("label-conflict", names)
    names = set()
    for _ in range(num_each):
        path = files.pop()
        other = next(file for file in files if file.parent != path.parent)
        names.add(write(other.with_name(f"{path.stem}-moved.jpg"), path.read_bytes()))
        path.unlink()
    planted["wrong label"] = ("wrong-label", names)
    for kind, (code, change) in DAMAGE.items():
        paths = [files.pop() for _ in range(num_each)]
        planted[kind] = (code, {write(path, change(Image.open(path).convert("RGB"), rng), "JPEG") for path in paths})
    return planted


def cue_rows(folder: Path, num_classes: int, rng: np.random.Generator) -> None:
    """Print a row for each cue, planted into one class at a time, of so many classes."""
    collection = collect(folder, SourceSettings())
    seen, labels_N = look_through(collection, collection.blocks), collection.labels_N
    assert labels_N is not None
    chosen = rng.permutation(len(collection.class_names))[:num_classes]
    ids = np.flatnonzero(np.isin(labels_N, chosen))
    started = time.process_time()
    cues_before = {(cue.name, cue.label) for cue in class_cues(seen, labels_N, ids, collection.class_names)[1]}
    seconds = time.process_time() - started
    for cue, change in CUES.items():
        name, right, others = CHECK_OF_CUE.get(cue, cue), 0, 0
        for label in chosen[:MOST_CUED]:
            own = np.flatnonzero(labels_N == label)
            changed = splice(seen, own, changed_alone(folder, [collection.shares[0].names[at] for at in own], change))
            cues_after = {(c.name, c.label) for c in class_cues(changed, labels_N, ids, collection.class_names)[1]}
            right += (name, collection.class_names[label]) in cues_after
            others += sum(pair[1] != collection.class_names[label] for pair in cues_after - cues_before)
        before = sum(pair[0] == name for pair in cues_before)
        kind, number = f"cue of one class of {len(chosen)}: {cue}", min(MOST_CUED, len(chosen))
        print(row(kind, "class-cue", right, number, others, before))
    print(f"{len(ids)} pictures, {len(chosen)} classes: cues in {seconds:.1f} s of one core", flush=True)


def changed_alone(folder: Path, names: list[str], change: Change) -> Seen:
    """Statistics of one class's pictures after a change, looked at alone."""
    with TemporaryDirectory() as place:
        for number, name in enumerate(names):
            path = Path(place) / "one" / f"{number:05}.jpg"
            path.parent.mkdir(exist_ok=True)
            write(path, change(Image.open(folder / name).convert("RGB"), np.random.default_rng(number)), "JPEG")
        collection = collect(place, SourceSettings())
        return look_through(collection, collection.blocks)


def splice(seen: Seen, own: np.ndarray, changed: Seen) -> Seen:
    """Statistics of all pictures, with those of some replaced."""
    headers, looks = np.array(seen.headers, object), {}
    headers[own] = changed.headers
    for field in fields(seen.looks):
        looks[field.name] = getattr(seen.looks, field.name).copy()
        looks[field.name][own] = getattr(changed.looks, field.name)
    return Seen(tuple(headers), PictureStatistics(**looks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack")
    parser.add_argument("--pictures", type=int, default=3000)
    parser.add_argument("--each", type=int, default=15)
    parser.add_argument("--side", type=int, help="pixels to which the photographs are enlarged (default: as they are)")
    parser.add_argument("--cues", action="store_true", help="cues of one class, too")
    flags = parser.parse_args()
    rng, started = np.random.default_rng(SEED), time.perf_counter()
    with TemporaryDirectory() as place:
        folder = Path(place) / "photos"
        files = write_clean(flags.pack, folder, flags.pictures, flags.side)
        print("| damage | check | named | others named | named before |\n|---|---|---|---|---|", flush=True)
        for num_classes in (20, 1000) if flags.cues else ():
            cue_rows(folder, num_classes, rng)
        spent = time.process_time()
        before = cp.audit(folder, quiet=True)
        spent = time.process_time() - spent
        planted = plant_pictures(files, flags.each, rng) if flags.each else {}
        audit = cp.audit(folder, quiet=True) if planted else before
        for kind, (code, names) in planted.items():
            told = names_in(audit, code)
            codes = (code, "label-conflict") if code == "same-pixels" else (code,)  # those are equal, too
            meant = {name for other, its in planted.values() if other in codes for name in its}
            copied = {re.sub(r"-(\d+|label)\.\w+$", ".jpg", name).split("/")[-1] for name in meant}
            others = {name for name in told - meant if name.split("/")[-1] not in copied} - names_in(before, code)
            print(row(kind, code, len(names & told), len(names), len(others), len(names_in(before, code))))
        gone = audit.left_out()
        equal = {name for kind in planted if kind.startswith("equal") for name in planted[kind][1]}
        if planted:
            equal |= planted["copy in another class"][1]
        made = {re.sub(r"-(\d+|label)\.\w+$", ".jpg", name).split("/")[-1] for name in equal}
        odd = [name for name in gone if name not in equal and name.split("/")[-1] not in made]
        near = before.found("near-copies")
        pairs, number = len(near.groups) if near else 0, before.passport.num_good or 1
        print(f"\n{pairs} pairs of near copies before, {1000 * pairs / number:.1f} of 1,000 pictures.")
        print(f"{1000 * spent / number:.2f} ms of processor time a picture, before anything was planted.")
        print(f"{len(gone)} pictures are left out by default; {len(odd)} of them differ in their pixels.")
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
