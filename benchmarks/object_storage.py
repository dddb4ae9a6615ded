"""Memory of listing and opening very many pictures at addresses, and by an index, each case in a fresh process.

The store is simulated: it answers what a store answers to a listing, and has no bytes; the table has names as pictures.
None is decoded but those of the index, which are one file under many names. Memory is what the process holds itself
(RssAnon of Linux, looked at every 10 ms): pages of the mapped listing, which the system takes back when it needs them,
are not counted.

    python benchmarks/object_storage.py --objects 1000000 --rows 10000000
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image
from pyarrow import fs

from counterpoint.audit.audited_data import BLOCK, AuditedData, collect
from counterpoint.audit.auditing import PIECE
from counterpoint.core import user_files
from counterpoint.core.arrow_files import GROUP_ROWS, write_groups
from counterpoint.core.settings import SourceSettings
from counterpoint.core.user_files import Address, as_path
from counterpoint.data.formats.listed_pictures import COLUMNS, NOTE, pictures_in, write_listing
from counterpoint.data.manifest import manifest_path
from counterpoint.data.sources import open_source
from counterpoint.data.stores import FileStore
from counterpoint.engine.progress import Reporter
from counterpoint.integrations.ray_jobs import RayEngine

FOLDER_ROWS = 1_000  # pictures of a folder, where they lie in folders
PLACE, MIB = "s3://simulated/photos", 1 << 10  # in KiB, as Linux has it
CASES = {
    "folders": "list, 1,000 objects in a folder",
    "flat": "list, all objects in one folder",
    "open": "open a listing, read all names once",
    "held": "beside it: names in memory",
    "table": "open a Parquet table at file:///, read all names once",
    "index": "beside it: index a folder by its path",  # so that every picture is read
    "ray": "audit it by two workers of Ray that decode nothing",
}


class SimulatedStore:
    """A store of pictures in folders, or in one, which answers as a file system of pyarrow."""

    type_name = "simulated"

    def __init__(self, num_objects: int, folder_rows: int) -> None:
        self.num_objects, self.folder_rows = num_objects, folder_rows

    def get_file_info(self, selector: Any) -> list[fs.FileInfo]:
        """Information on the one place that is named, or on all that lies in a folder."""
        if isinstance(selector, list):
            return [fs.FileInfo(selector[0], fs.FileType.Directory)]
        above, _, folder = selector.base_dir.rpartition("/photos")
        if not folder:
            folders = range(-(-self.num_objects // self.folder_rows))
            return [fs.FileInfo(f"{selector.base_dir}/{at:06d}", fs.FileType.Directory) for at in folders]
        if not folder[1:].isdecimal():  # a part such as train
            return []
        first = int(folder[1:]) * self.folder_rows
        rows = range(first, min(first + self.folder_rows, self.num_objects))
        return [
            fs.FileInfo(f"{above}/photos{folder}/{row:012d}.jpg", fs.FileType.File, mtime_ns=10**18, size=100_000)
            for row in rows
        ]


def made(num_rows: int) -> Iterator[Mapping[str, Sequence[Any]]]:
    """The row groups of a listing that no store was asked for."""
    for first in range(0, num_rows, GROUP_ROWS):
        rows = range(first, min(first + GROUP_ROWS, num_rows))
        names = [f"{row // FOLDER_ROWS:06d}/{row:012d}.jpg" for row in rows]
        yield {"name": names, "size": [100_000] * len(rows), "time": [10**18] * len(rows)}


def link_pictures(folder: Path, number: int) -> None:
    """Write one small picture under many names."""
    folder.mkdir()
    picture = folder / "picture"
    Image.new("RGB", (8, 8)).save(picture, "JPEG")
    for group in made(number):
        for name in group["name"]:
            (folder / name).parent.mkdir(exist_ok=True)
            os.link(picture, folder / name)


def held() -> int:
    """KiB that this process holds."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def watch(most: list[int], is_over: threading.Event) -> None:
    """Keep the largest figure of ``held``."""
    while not is_over.wait(0.01):
        most[0] = max(most[0], held())


def opened(folder: Path, number: int) -> tuple[int, AuditedData]:
    """KiB that this process holds before it opens the listing, and the listing, as the command or a worker opens it."""
    before = held()
    os.environ["COUNTERPOINT_CACHE"] = str(folder)
    store = SimulatedStore(number, FOLDER_ROWS)
    user_files._file_system = lambda root: (store, "simulated")  # pyright: ignore[reportAttributeAccessIssue]
    return before, collect(PLACE, SourceSettings())


def pass_over(state: tuple[int, AuditedData], piece: int) -> int:
    """Find the pictures of a piece, as a look at them does, and say what the worker holds above the libraries."""
    before, collection = state
    assert collection.listing
    for part, first in collection.blocks[piece * PIECE : (piece + 1) * PIECE]:
        content = collection.shares[part].content
        assert isinstance(content, FileStore)
        assert all(image.size is None for image in content.images[first : first + BLOCK])
    return held() - before


def audit_by_workers(folder: Path, number: int) -> int:
    """Give all pieces of an audit to two workers, and return the most that a worker holds above the libraries."""
    with RayEngine(workers=2).opened(partial(opened, folder, number)) as workers:
        _, collection = opened(folder, number)
        pieces = range(-(-len(collection.blocks) // PIECE))
        return max(result for _, result in workers.each(pass_over, pieces))


def run_case(case: str, number: int, folder: Path) -> None:
    """Run a case in this process, and print its seconds and its peak of memory above what the libraries take."""
    os.environ["COUNTERPOINT_CACHE"] = str(folder)
    path, quiet = folder / "listing.parquet", Reporter(quiet=True).bar
    store = SimulatedStore(number, number if case == "flat" else FOLDER_ROWS)
    if case != "table":
        user_files._file_system = lambda root: (store, "simulated")  # pyright: ignore[reportAttributeAccessIssue]
    if case in ("open", "ray"):
        path = manifest_path(PLACE, (), NOTE).with_suffix(".parquet")
        path.parent.mkdir(parents=True)
    # A process of its own: what writing takes is not to be counted here.
    if os.fork() == 0:
        if case in ("open", "ray"):
            write_groups(path, COLUMNS, made(number))
        elif case == "table":
            images = ({"image": [name.encode() for name in group["name"]]} for group in made(number))
            write_groups(path, {"image": "binary"}, images)
        elif case == "index":
            link_pictures(folder / "photos", number)
        os._exit(0)
    os.wait()
    worker, before, begun, most, is_over = 0, held(), time.perf_counter(), [0], threading.Event()
    watcher = threading.Thread(target=watch, args=(most, is_over), daemon=True)
    watcher.start()
    if case in ("folders", "flat"):
        place = as_path(PLACE)
        assert isinstance(place, Address)
        write_listing(place, pictures_in(place), path, COLUMNS)
    elif case in ("open", "table"):
        data = PLACE if case == "open" else f"file://{path}"
        source = open_source(data, SourceSettings(image_size=32), progress=quiet)
        assert sum(1 for _ in source.sample_names) == len(source) == number
    elif case == "index":
        settings = SourceSettings(image_size=1024)  # whose pixels are too many to be held
        assert len(open_source(str(folder / "photos"), settings, progress=quiet)) == number
    elif case == "ray":
        worker = audit_by_workers(folder, number)
    else:
        names = tuple(name for group in made(number) for name in group["name"])
        assert len(names) == number
    is_over.set()
    watcher.join()
    more = f" ({most[0] / MIB:.0f} in all; a worker {worker / MIB:.0f})" if case == "ray" else ""
    print(f"{(most[0] - before) / MIB:.0f}{more} {time.perf_counter() - begun:.0f}")


def main() -> None:
    """Print a table of all cases; or, with ``--case``, run one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--objects", type=int, default=1_000_000, help="that are listed")
    parser.add_argument("--rows", type=int, default=10_000_000, help="of a listing that is opened")
    parser.add_argument(
        "--files", type=int, default=50_000, help="that are indexed; a file system has a limit of names of a file"
    )
    parser.add_argument("--case", choices=list(CASES), help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.case is not None:
        with tempfile.TemporaryDirectory() as folder:
            run_case(flags.case, flags.rows, Path(folder))
        return
    print("| case | objects | MiB above the libraries | seconds |\n|---|---:|---:|---:|")
    for case, words in CASES.items():
        number = {"folders": flags.objects, "flat": flags.objects, "index": flags.files}.get(case, flags.rows)
        command = [sys.executable, __file__, "--case", case, "--rows", str(number)]
        peak, seconds = subprocess.run(command, capture_output=True, text=True, check=True).stdout.rsplit(maxsplit=1)
        print(f"| {words} | {number:,} | {peak} | {seconds} |", flush=True)


if __name__ == "__main__":
    main()
