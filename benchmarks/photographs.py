"""Photographs out of a folder of JPEG files: decoded and drawn in two views, and read alone, beside torchvision.

    python benchmarks/photographs.py                       # views at 64, 128, 256 and 512 px, two threads; minutes
    python benchmarks/photographs.py --files 100000        # instead: reading a folder of so many files of 32 px
    python benchmarks/photographs.py --decoders            # instead: decoding alone, by Pillow and by simplejpeg
    python benchmarks/photographs.py --sides 64 --images 64 --rounds 1    # seconds; shows that everything runs

Peers read with ImageFolder in a DataLoader with as many workers as we have threads, which live on. Views are lightly's
CIFAR-10 recipe. A folder is opened and indexed beforehand on all sides when views are timed, and within the time when
files are read. Peers come from `pip install torchvision kornia`. Exit code: 0; 2 for bad arguments.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from measuring import Plan, take_turns, wall_seconds
from PIL import Image
from result_tables import heading
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2
from view_peers import MEAN, OURS, STD, Work, kornia_recipe, torchvision_recipe
from views import table

from counterpoint.core.process_setup import at_work
from counterpoint.core.settings import SourceSettings, ViewSettings
from counterpoint.data.formats.image_files import decode
from counterpoint.data.formats.plain_jpegs import decode_plain
from counterpoint.data.loader import Batch, BatchLoader
from counterpoint.data.order import Order
from counterpoint.data.source import Source
from counterpoint.data.sources import open_source
from counterpoint.data.views.drawer import ViewDrawer
from counterpoint.data.views.presets import plan_views
from counterpoint.engine.progress import Reporter

BATCH, CLASSES = 64, 4
QUALITY = 90
FILES_SIDE = 32
TORCHVISION, KORNIA = "torchvision v2 on PIL, workers", "decoded by workers, kornia in batches"


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Arguments, or an error that says what to do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", type=int, nargs="+", default=[64, 128, 256, 512], help="pixels")
    parser.add_argument("--images", type=int, default=512, help="photographs, a multiple of 64 (default 512)")
    parser.add_argument("--files", type=int, default=None, help="instead: read a folder of so many files")
    parser.add_argument("--decoders", action="store_true", help="instead: decode by Pillow and by simplejpeg")
    parser.add_argument("--threads", type=int, default=2, help="threads, or processes of a loader (default 2)")
    parser.add_argument("--rounds", type=int, default=5, help="how often everyone takes a turn (default 5)")
    arguments = parser.parse_args(words)
    if arguments.images < BATCH or arguments.images % BATCH:
        parser.error(f"--images must be a multiple of {BATCH}, got {arguments.images}")
    return arguments


def write_photographs(folder: Path, number: int, side: int) -> None:
    """Write JPEG files in folders of classes: smooth colours with some noise, which compress as photographs do."""
    generator = np.random.default_rng(0)
    contents = []
    for _ in range(min(number, 256)):
        coarse = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)).astype(np.int16)
        noisy = (smooth + generator.integers(-12, 13, smooth.shape)).clip(0, 255).astype(np.uint8)
        file = folder / "one.jpg"
        Image.fromarray(noisy).save(file, quality=QUALITY)
        contents.append(file.read_bytes())
        file.unlink()
    for name in range(CLASSES):
        (folder / str(name)).mkdir()
    for place in range(number):
        (folder / str(place % CLASSES) / f"{place:07}.jpg").write_bytes(contents[place % len(contents)])


def opened(folder: Path, side: int) -> Source:
    """The folder as a run reads it."""
    return open_source(str(folder), SourceSettings(image_size=side), progress=Reporter(quiet=True).bar)


def our_batches(source: Source, threads: int) -> Iterator[Batch]:
    """Batches of decoded pictures, as training fetches them."""
    order = Order(torch.arange(len(source)), BATCH, 0)
    return BatchLoader(source.store, order, num_workers=threads).epoch(0)


def our_views(folder: Path, side: int, threads: int) -> Callable[[], None]:
    """A step that decodes and draws one epoch."""
    source = opened(folder, side)
    drawer = ViewDrawer(plan_views(ViewSettings(preset="lightly-cifar")), torch.tensor(MEAN), torch.tensor(STD), 0)

    def step() -> None:
        with at_work():  # as `cp.train` and the command draw views: what a batch has freed serves the next one
            for batch in our_batches(source, threads):
                drawer.two_views(batch.samples, batch.streams, 0)

    return step


def torchvision_views(folder: Path, side: int, threads: int) -> Callable[[], None]:
    """A step that draws both views of each picture in the workers."""
    recipe = torchvision_recipe(Work(torch.zeros(1, 3, side, side), BATCH, threads), is_tensor=False)
    loader = workers(ImageFolder(str(folder), lambda picture: (recipe(picture), recipe(picture))), threads)

    def step() -> None:
        for _ in loader:
            pass

    return step


def kornia_views(folder: Path, side: int, threads: int) -> Callable[[], None]:
    """A step that decodes in the workers, and draws batch by batch."""
    recipe = kornia_recipe(side)
    to_bytes = v2.Compose([v2.Resize((side, side)), v2.PILToTensor()])
    loader = workers(ImageFolder(str(folder), to_bytes), threads)

    def step() -> None:
        for samples, _ in loader:
            floats = samples.float() / 255
            _ = recipe(floats), recipe(floats)

    return step


def workers(data: ImageFolder, threads: int) -> DataLoader[tuple[torch.Tensor, int]]:
    """A loader as people write it."""
    return DataLoader(data, BATCH, num_workers=threads, persistent_workers=threads > 0)


def compare_views(side: int, arguments: argparse.Namespace) -> str:
    """A table of one side."""
    with tempfile.TemporaryDirectory() as place:
        write_photographs(Path(place), arguments.images, side)
        makers = {OURS: our_views, TORCHVISION: torchvision_views, KORNIA: kornia_views}
        steps = {name: make(Path(place), side, arguments.threads) for name, make in makers.items()}
        seconds = take_turns(steps, wall_seconds, Plan(1, arguments.rounds, arguments.rounds, 0.0))
    return f"### {side} px\n\n{table(seconds, dict.fromkeys(makers, '-'), 2 * arguments.images)}"


def compare_reading(arguments: argparse.Namespace) -> str:
    """A table of seconds from a path to the last batch of bytes, torchvision first and again last."""
    lines = ["| who | seconds | files/s |", "|---|---:|---:|"]
    with tempfile.TemporaryDirectory() as place:
        write_photographs(Path(place), arguments.files, FILES_SIDE)

        def ours() -> None:
            for _ in our_batches(opened(Path(place), FILES_SIDE), arguments.threads):
                pass

        def theirs() -> None:
            for _ in workers(ImageFolder(place, v2.PILToTensor()), arguments.threads):
                pass

        for name, read in (
            ("torchvision", theirs),
            (OURS, ours),
            (f"{OURS}, opened before", ours),
            ("torchvision", theirs),
        ):
            start = time.perf_counter()
            read()
            seconds = time.perf_counter() - start
            lines.append(f"| {name} | {seconds:.1f} | {arguments.files / seconds:,.0f} |")
    return "\n".join(lines)


def compare_decoders() -> str:
    """A table of microseconds of processor time a picture, by side: the least of five turns."""
    lines = ["| px | Pillow | simplejpeg |", "|---:|---:|---:|"]
    for side in (FILES_SIDE, 64, 128, 256, 512):
        with tempfile.TemporaryDirectory() as place:
            write_photographs(Path(place), 64, side)
            contents = [file.read_bytes() for file in Path(place).rglob("*.jpg")]
        spent: dict[str, list[float]] = {"Pillow": [], "simplejpeg": []}
        for _ in range(5):
            for name, read in (("Pillow", lambda content: decode(content, np.array, id)), ("simplejpeg", decode_plain)):
                start = time.process_time()
                for content in contents:
                    assert read(content) is not None
                spent[name].append(1e6 * (time.process_time() - start) / len(contents))
        lines.append(f"| {side} | {min(spent['Pillow']):.0f} | {min(spent['simplejpeg']):.0f} |")
    return "\n".join(lines)


def main(words: Sequence[str]) -> int:
    """Measure and print."""
    arguments = parse(words)
    torch.set_num_threads(arguments.threads)
    print(heading("cpu", "photographs.py"), flush=True)
    if arguments.decoders:
        print("", compare_decoders(), sep="\n")
        return 0
    if arguments.files:
        print("", compare_reading(arguments), sep="\n")
        return 0
    for side in arguments.sides:
        print("", compare_views(side, arguments), sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
