"""What is installed: a small wheel without tests, and the same dependencies and minimums wherever they are written."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from counterpoint.core import PYTHON, TORCH

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RECIPE = yaml.safe_load((ROOT / "packaging" / "recipe.yaml").read_text(encoding="utf-8"))
FOR_USERS = ("vision", "search", "onnx", "lightning")  # extras whose lowest versions are tested
MOST_BYTES, MOST_FILES = 1_300_000, 450  # of the wheel
BUILD = "import sys; from hatchling import build; print(getattr(build, sys.argv[1])(sys.argv[2]))"
SAYS = "import counterpoint as cp; print(cp.__file__, cp.__version__, cp.losses.InfoNCE)"


def minimums(lines: list[str]) -> dict[str, str]:
    """Names of packages, and their lowest versions without zeros at the end."""
    parts = [re.split(r"\s*[>=]=\s*", line.strip(), maxsplit=1) for line in lines]
    return {name.lower(): re.sub(r"(\.0)+$", "", version) for name, version in parts}


def built(kind: str, folder: Path) -> Path:
    """A wheel or an archive of the source, as ``python -m build`` has it made."""
    finished = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{kind}", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return folder / finished.stdout.split()[-1]


def run_in(folder: Path, words: list[str], place: Path) -> subprocess.CompletedProcess[str]:
    """Run words in a folder where modules of one place are found first."""
    environment = {**os.environ, "PYTHONPATH": str(place)}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_wheel_is_small_and_what_it_installs_runs(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="the extra dev builds wheels")
    wheel = built("wheel", tmp_path)
    assert wheel.stat().st_size < MOST_BYTES
    names = zipfile.ZipFile(wheel).namelist()
    assert len(names) < MOST_FILES
    assert {name.split("/")[0].split("-")[0] for name in names} == {"counterpoint"}
    assert not [name for name in names if re.search(r"test_|\.pyc$|reproductions|benchmarks", name)]
    assert {"counterpoint/py.typed", "counterpoint/__main__.py"} <= set(names)
    place = tmp_path / "place"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(place)]
    assert run_in(tmp_path, [*install, str(wheel)], tmp_path).returncode == 0
    said = run_in(tmp_path, [sys.executable, "-c", SAYS], place)
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith(str(place))
    (command,) = (place / "bin").glob("counterpoint*")
    assert run_in(tmp_path, [str(command), "--version"], place).stdout == f"counterpoint {PROJECT['version']}\n"


def test_the_archive_of_the_source_has_the_package_and_no_tests(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="the extra dev builds archives")
    archive = built("sdist", tmp_path)
    assert archive.stat().st_size < MOST_BYTES
    with tarfile.open(archive) as stream:
        names = {name.partition("/")[2] for name in stream.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/counterpoint/__init__.py"} <= names
    assert not [name for name in names if name.split("/")[0] in ("tests", "reproductions", "benchmarks", "docs")]


def test_the_lowest_versions_that_are_tested_are_those_that_are_allowed() -> None:
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    tested = minimums([line for line in lines if not line.startswith("#")])
    extras = PROJECT["optional-dependencies"]
    allowed = minimums([*PROJECT["dependencies"], *(line for extra in FOR_USERS for line in extras[extra])])
    assert {name: tested[name] for name in allowed} == allowed


def test_the_conda_recipe_needs_what_the_wheel_needs() -> None:
    needed = minimums([line.replace("pytorch", "torch") for line in RECIPE["requirements"]["run"]])
    assert needed == minimums([*PROJECT["dependencies"], f"python{PROJECT['requires-python']}"])
    assert RECIPE["context"]["version"] == PROJECT["version"]
    assert RECIPE["build"]["python"]["entry_points"] == [f"counterpoint = {PROJECT['scripts']['counterpoint']}"]
    assert RECIPE["about"]["homepage"] == PROJECT["urls"]["Homepage"]


def test_what_is_refused_at_import_is_what_the_installer_refuses() -> None:
    needed = minimums(PROJECT["dependencies"])
    assert ".".join(map(str, TORCH)) == needed["torch"]
    assert ".".join(map(str, PYTHON)) == PROJECT["requires-python"].removeprefix(">=")
