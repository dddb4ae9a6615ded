"""Each verb that writes, killed or terminated before each rename in turn: nothing half made stays, nothing is torn."""

import hashlib
import shutil
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from counterpoint.core.files import read_json
from runs.kill_server import KillServer, SignalAt, said_by

pytestmark = pytest.mark.thorough

SECONDS = 300  # for one process; far more than it needs
TRAIN = ["--method", "simclr", "--epochs", "1", "--batch-size", "16", "--projector.hidden", "16"]
TRAIN += ["--projector.features", "8", "--engine.device", "cpu"]
# By verb: words, and how many renames there are at least.
VERBS = {
    "evaluate": (["evaluate", "@run"], 3),
    "diagnose": (["diagnose", "@run"], 3),
    "spectrum": (["spectrum", "@run", "--steps", "3"], 1),
    "report": (["report", "@run"], 1),
    "embed": (["embed", "@run", "--out", "@table.npz", "--overwrite"], 1),
    "search": (["search", "@run", "0", "--out", "@hits.html"], 2),
    "export": (["export", "@run", "--to", "safetensors", "--out", "@exported", "--overwrite"], 3),
    "audit": (["audit", "@data", "--out", "@audit.html", "--json", "@audit.json", "--overwrite"], 2),
}


@pytest.fixture(scope="module")
def server() -> Iterator[KillServer]:
    """Starts processes that have all verbs imported already."""
    with KillServer("all") as started:
        yield started


class Desk:
    """A folder with data and a run, in which commands are run.

    Args:
        place: of the folder.
        server: starts them.
    """

    def __init__(self, place: Path, server: KillServer) -> None:
        self.place, self._server = place, server
        self.cache, self._files = place.with_name("cache"), place.with_name("process")

    def run(self, words: list[str], fate: SignalAt | None = None) -> int | None:
        """Exit code of a command; what begins with @ is below the folder."""
        paths = [str(self.place / word[1:]) if word.startswith("@") else word for word in words]
        environment = {"COUNTERPOINT_CACHE": str(self.cache)}
        pid = self._server.start([*paths, "-q"], self._files, environment=environment, fate=fate)
        return self._server.wait(pid, SECONDS)

    def hidden(self) -> list[str]:
        """What has a hidden name, but for the marker of a run."""
        places = [*self.place.rglob(".*"), *self.cache.rglob(".*")]
        return sorted(str(path.relative_to(self.place.parent)) for path in places if path.name != ".counterpoint")

    def torn(self) -> list[str]:
        """Visible files that cannot be read."""
        return [path.name for path in (*self.place.rglob("*"), *self.cache.rglob("*")) if not is_whole(path)]

    @property
    def said(self) -> str:
        """What the last command printed."""
        return said_by([self._files])


def is_whole(path: Path) -> bool:
    """Whether a file of a kind that can be read is."""
    if path.name.startswith(".") or path.suffix not in (".json", ".npz", ".html"):
        return True
    if path.suffix == ".html":
        return path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    if path.parent.name == "manifests":  # a hash before the JSON
        seal, _, body = path.read_bytes().partition(b"\n")
        return hashlib.sha256(body).hexdigest().encode() == seal
    if path.suffix == ".json":
        read_json(path)
        return True
    with np.load(path) as arrays:
        return all(arrays[name] is not None for name in arrays.files)


@pytest.fixture(scope="module")
def trained(server: KillServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures in three folders, and a run of them."""
    place, draw = tmp_path_factory.mktemp("trained") / "desk", np.random.default_rng(3)
    for number in range(60):
        folder = place / "data" / f"class-{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / f"{number:02d}.png")
    desk = Desk(place, server)
    assert desk.run(["train", "--data", "@data", "--out", "@run", *TRAIN]) == 0, desk.said
    return place


@pytest.fixture
def desk(trained: Path, server: KillServer, tmp_path: Path) -> Desk:
    """A desk of its own, with an empty cache."""
    return Desk(Path(shutil.copytree(trained, tmp_path / "desk")), server)


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_killed_before_each_rename_in_turn_leaves_nothing_in_the_end(desk: Desk, verb: str) -> None:
    words, least = VERBS[verb]
    left: set[str] = set()
    call = 0
    for call in count(1):
        code = desk.run(words, SignalAt(call, signal.SIGKILL))
        if code == 0:
            break
        assert code == -signal.SIGKILL, desk.said
        left |= set(desk.hidden())
        assert desk.torn() == []
    assert call > least
    assert len(left) >= least
    assert desk.run(words) == 0, desk.said
    assert desk.hidden() == []


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_terminated_leaves_with_143_and_nothing_half_made(desk: Desk, verb: str) -> None:
    words, least = VERBS[verb]
    call = 0
    for call in count(1):
        code = desk.run(words, SignalAt(call, signal.SIGTERM))
        assert desk.torn() == []
        assert desk.hidden() == []
        if code == 0:
            break
        assert code == 143, desk.said
        assert desk.said.endswith(f"counterpoint {verb}: terminated\n")
    assert call > least
