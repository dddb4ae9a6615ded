"""What one addition touches: made in a copy of the package, used as a user would, and the touched files counted."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

VERB = '''
"""Say hello."""
from counterpoint.cli.arguments import VerbFlags, option

PLACE, SUMMARY = 55, "say hello"

class HelloFlags(VerbFlags):
    name: str = option("whom", ..., place="NAME")

def run(flags: HelloFlags) -> int:
    print("hello", flags.name)
    return 0
'''

SECTION = """
from collections.abc import Sequence
from counterpoint.report.markup import Markup, element
from counterpoint.report.run_reading import RunRecord
from counterpoint.report.sections import Section

def greeting_section(runs: Sequence[RunRecord]) -> Markup:
    return element("p", f"hello {runs[0].name}")

SECTION = Section(35, "greeting", "Greeting", "Who is there?", greeting_section)
"""

LOSS = """
from collections.abc import Callable, Mapping

from counterpoint.kernels.contract import EXPONENTIAL
from counterpoint.losses.pairs import Negatives, Pairing
from counterpoint.losses.family import LINEAR, member
from counterpoint.losses.loss import Loss
from counterpoint.losses.pair_loss import PairLoss
from counterpoint.losses.pairs import Psi


def Exponential(*, negatives: Negatives = "two-view", normalize: bool = True) -> PairLoss:
    \"\"\"The sum of exponential gaps (hinton2099, Eq. 1).\"\"\"
    pairing = Pairing(negatives, normalize=normalize)
    return member("Exponential", LINEAR, Psi(EXPONENTIAL, "exp(x)"), pairing=pairing, alpha="exp(gap_ij)")


CATALOGUE: Mapping[str, Callable[..., Loss]] = {"exponential": Exponential}
"""

ORACLE = """
import math


def exponential(unit_views: list[list[float]]) -> float:
    half, total = len(unit_views) // 2, 0.0
    for i, anchor in enumerate(unit_views):
        positive = unit_views[(i + half) % len(unit_views)]
        cosine = lambda a, b: sum(x * y for x, y in zip(a, b))
        for j, other in enumerate(unit_views):
            if j % half != i % half:
                total += math.exp(cosine(anchor, other) - cosine(anchor, positive))
    return total / len(unit_views)
"""


SOURCE = '''
"""Rings in the plane: drawn here, or raw float32 pairs in a file."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from counterpoint.core.settings import SourceSettings
from counterpoint.data.formats.labels import number_labels
from counterpoint.data.source import FileForm, NamedSource, Progress, Source, memory_source


def open_rings(settings: SourceSettings, progress: Progress) -> Source:
    """Open two rings of 32 points each."""
    angle, radius = torch.arange(64) * 0.2, 1.0 + torch.arange(64) % 2
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    return memory_source("rings", points, number_labels(radius, 64))


def open_pairs(path: Path, settings: SourceSettings, progress: Progress) -> Source:
    """Open raw float32 pairs."""
    return memory_source(str(path), torch.from_numpy(np.fromfile(path, dtype="<f4").reshape(-1, 2)), None)


CATALOGUE: Mapping[str, NamedSource] = {"rings": NamedSource("two rings of 32 points", open_rings, has_files=False)}
FORMS = (FileForm("raw pairs", (".pairs",), open_pairs, reads=("image_column",)),)
'''

USE_SOURCE = """
import numpy as np, counterpoint as cp
small = dict(epochs=1, batch_size=8, quiet=True)
run = cp.train("rings", out="a", **small)
np.random.default_rng(0).normal(size=(32, 2)).astype("<f4").tofile("x.pairs")
cp.train("x.pairs", out="b", source={"image_column": "x"}, **small)
print(cp.load(run).card.in_shape, run.folder.read_status().num_samples)
for data, source in (("nowhere", {}), ("rings", {"image_column": "x"})):
    try:
        cp.train(data, out="c", source=source, **small)
    except Exception as error:
        print(error)
"""


class Copy:
    """A copy of the repository's code in which files are changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.touched: set[str] = set()
        for name in ("src", "docs", "reproductions"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))

    def write(self, path: str, text: str) -> None:
        self.touched.add(path)
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text, encoding="utf-8")

    def replace(self, path: str, old: str, new: str) -> None:
        text = (self.folder / path).read_text(encoding="utf-8")
        assert text.count(old) == 1
        self.write(path, text.replace(old, new))

    def command(self, words: str) -> str:
        return self.run("-m", "counterpoint", *words.split())

    def run(self, *words: str) -> str:
        environment = {"PYTHONPATH": str(self.folder / "src"), "PATH": "", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_a_verb_is_one_file(copy: Copy) -> None:
    copy.write("src/counterpoint/cli/verbs/hello_verb.py", VERB)
    assert copy.command("hello you") == "hello you\n"
    lines = copy.command("--help").splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  ") and len(line.split()) > 1]
    assert names[names.index("hello") - 1 : names.index("hello") + 2] == ["search", "hello", "verify"]
    assert len(copy.touched) == 1


def test_a_report_section_is_one_file(copy: Copy) -> None:
    copy.write("src/counterpoint/report/sections/greeting_section.py", SECTION)
    run = copy.folder / "early"
    run.mkdir()
    (run / "run.json").write_text('{"format": 1, "status": "running"}', encoding="utf-8")
    copy.run("-m", "counterpoint", "report", "early", "--bare", "-q")
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "<p>hello early</p>" in page
    anchors = re.findall(r'<section id="(\w+)"', page)
    assert anchors[anchors.index("greeting") - 1 : anchors.index("greeting") + 2] == ["training", "greeting", "spectra"]
    assert '<a href="#greeting">Greeting</a>' in page
    assert len(copy.touched) == 1


@pytest.mark.thorough
def test_a_loss_is_one_file_beside_its_oracle_and_its_source(copy: Copy) -> None:
    copy.write("src/counterpoint/losses/exponential.py", LOSS)
    copy.write("tests/oracles/exponential_loss.py", ORACLE)
    copy.replace("docs/references.bib", "@inproceedings{roy2007,", "@misc{hinton2099}\n@inproceedings{roy2007,")
    program = (
        "import torch; from counterpoint import losses; z = torch.eye(3)\n"
        "import sys; sys.path.append('tests/oracles'); from exponential_loss import exponential\n"
        "loss = losses.Exponential(); print(losses.explain(loss).splitlines()[0])\n"
        "print(round(float(loss(z, z)), 4), round(exponential([*z.tolist(), *z.tolist()]), 4))"
    )
    assert copy.run("-c", program).split() == ["Exponential", "1.4715", "1.4715"]
    assert "exponential" in copy.command("list losses")
    copy.command("train --data digits --loss.name exponential --epochs 1 --out run -q")
    copy.run("docs/tables.py")
    page = (copy.folder / "docs" / "losses-reference.md").read_text(encoding="utf-8")
    assert "| `exponential` | Exponential | x | exp(x) | exp(gap_ij) |" in page
    assert len(copy.touched) == 3


@pytest.mark.thorough
def test_a_source_is_one_file_beside_its_test(copy: Copy) -> None:
    copy.write("src/counterpoint/data/sets/rings.py", SOURCE.lstrip())
    assert ["rings", "two", "rings", "of", "32", "points"] in (
        line.split() for line in copy.command("list data").splitlines()
    )
    shape, unknown, idle = copy.run("-c", USE_SOURCE).splitlines()
    assert shape == "(2,) 64"
    assert ".pairs" in unknown
    assert "source.image_column has no effect" in idle
    assert "raw pairs" in idle
    assert len(copy.touched) == 1  # and a test
