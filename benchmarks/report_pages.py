"""A report of a run with 5,000 pictures: what each step takes on one core, its bytes, and how soon a browser shows it.

    python benchmarks/report_pages.py            # about a minute
    python benchmarks/report_pages.py --quick    # seconds; shows that everything runs, not how fast

The run is made up: rendered pictures of 64 pixels with grain, and an embedding that is not trained. Times are those of
the processor with one thread; a browser is measured where Chromium and playwright are found. The exit code is 1 where
the page is above its 8 MB.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from counterpoint.core.files import sha256_of, write_sealed
from counterpoint.data.formats.labels import Labels
from counterpoint.data.source import memory_source
from counterpoint.evaluation.map_samples import write_collection
from counterpoint.report.map_layout import make_map
from counterpoint.report.page import MAX_BYTES
from counterpoint.report.reporting import report
from counterpoint.runs.run_files import create_run
from counterpoint.runs.sample_collection import collect

NUM_CLASSES, SIDE = 20, 64
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SHOWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"
Result = TypeVar("Result")


def pictures(num: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Waves whose direction and colour tell the class, with grain; and the classes."""
    labels = torch.arange(num) % NUM_CLASSES
    angle = labels / NUM_CLASSES * torch.pi + 0.1 * torch.randn(num, generator=generator)
    line = torch.linspace(-3, 3, SIDE)
    along = angle.cos()[:, None, None] * line + angle.sin()[:, None, None] * line[:, None]
    phase = torch.rand(num, 3, 1, 1, generator=generator) * 6
    waves = 0.5 + 0.35 * torch.sin(3 * along[:, None] + phase)
    return (waves + 0.05 * torch.randn(waves.shape, generator=generator)).clamp(0, 1), labels


def timed(title: str, work: Callable[[], Result]) -> Result:
    """Do one step and print its time."""
    began = time.process_time()
    result = work()
    print(f"| {title} | {time.process_time() - began:.1f} s |")
    return result


def opened(page: Path) -> float | None:
    """Seconds until a browser has drawn the page; None without a browser."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    try:
        from playwright.sync_api import sync_playwright  # deferred: measured only where it is installed
    except ImportError:
        return None
    if executable is None:
        return None
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.goto(page.as_uri())
        shown = tab.evaluate(SHOWN) / 1000
        browser.close()
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the run, its map and its page, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few samples")
    parser.add_argument("--dims", type=int, default=512, help="of the embedding")
    flags = parser.parse_args(arguments)
    torch.set_num_threads(1)
    generator, num = torch.Generator().manual_seed(0), 200 if flags.quick else 5000
    images, labels = pictures(num, generator)
    small = torch.nn.functional.avg_pool2d(images, 8).flatten(1) - 0.5
    embedding = (small @ torch.randn(small.shape[1], flags.dims, generator=generator) - 1).relu()
    names = tuple(map(str, range(NUM_CLASSES)))
    source = memory_source("waves", images, Labels(labels, names))
    with tempfile.TemporaryDirectory() as place:
        folder = create_run(Path(place) / "run", overwrite=False)
        print(f"{num} pictures, {flags.dims} dimensions\n\n| step | processor, one thread |\n|---|---|")
        features = {"embedding": embedding, "representation": small}
        collection = timed(
            "choose, decompose, shrink pictures", lambda: collect(source, features, is_nonnegative=True, threshold=1e-5)
        )
        write_collection(folder, collection)
        write_sealed(folder.findings, {"collection": {"sha256": sha256_of(folder.collection)}})
        timed("lay out the map", lambda: make_map(folder, quiet=True))
        page = timed("write the page", lambda: report(folder.path, bare=True))
        seconds, size = opened(page), page.stat().st_size
        print(f"| open in Chromium, by the clock | {'no browser' if seconds is None else f'{seconds:.2f} s'} |")
        size_mb = folder.collection.stat().st_size / 1e6
        print(f"\nPage {size / 1e6:.2f} MB of 8, samples kept {size_mb:.2f} MB.")
    return int(size > MAX_BYTES)


if __name__ == "__main__":
    raise SystemExit(main())
