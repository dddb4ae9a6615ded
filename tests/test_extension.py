"""What one addition touches: made in a copy of the package, used as a user would, and the touched files counted."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

VERB = """
import argparse
from counterpoint.cli.parsers import Parser

PLACE, SUMMARY = 55, "say hello"
TEACH = "Say hello."

def add_flags(parser: Parser) -> None:
    parser.add_argument("name")

def run(flags: argparse.Namespace) -> int:
    print("hello", flags.name)
    return 0
"""

LOSS = """
def Exponential(*, negatives: Negatives = "two-view", normalize: bool = True) -> PairLoss:
    pairing = Pairing(negatives, normalize=normalize)
    return member("Exponential", LINEAR, Psi(EXPONENTIAL, "exp(x)"), pairing=pairing, alpha="exp(gap_ij)")
"""


class Copy:
    """A copy of the repository's code in which files are changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.touched: set[str] = set()
        for name in ("src", "docs"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))

    def write(self, path: str, text: str) -> None:
        self.touched.add(path)
        (self.folder / path).write_text(text, encoding="utf-8")

    def replace(self, path: str, old: str, new: str) -> None:
        text = (self.folder / path).read_text(encoding="utf-8")
        assert text.count(old) == 1
        self.write(path, text.replace(old, new))

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
    assert copy.run("-m", "counterpoint", "hello", "you") == "hello you\n"
    lines = copy.run("-m", "counterpoint", "--help").splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  ") and len(line.split()) > 1]
    assert names[names.index("hello") - 1 : names.index("hello") + 2] == ["embed", "hello", "verify"]
    assert len(copy.touched) == 1


@pytest.mark.thorough
def test_a_loss_is_one_file_beside_its_oracle_and_its_source(copy: Copy) -> None:
    family = "src/counterpoint/losses/family.py"
    copy.replace(family, "\n\ndef member(", f"\n{LOSS}\n\ndef member(")
    last = '    "linear-triplet": LinearTriplet,\n'
    copy.replace(family, last, f'{last}    "exponential": Exponential,\n')
    program = (
        "import torch; from counterpoint import losses; z = torch.eye(3)\n"
        "loss = losses.Exponential(); print(round(float(loss(z, z)), 4), losses.explain(loss).splitlines()[0])"
    )
    assert copy.run("-c", program).split() == ["1.4715", "Exponential"]
    assert "exponential" in copy.run("-m", "counterpoint", "list", "losses")
    trained = "train --data digits --loss.name exponential --epochs 1 --out run -q"
    copy.run("-m", "counterpoint", *trained.split())
    copy.run("docs/tables.py")
    page = (copy.folder / "docs" / "losses.md").read_text(encoding="utf-8")
    assert "| `exponential` | Exponential | x | exp(x) | exp(gap_ij) |" in page
    assert len(copy.touched) == 1  # and tests/oracles/family_losses.py, docs/references.bib
