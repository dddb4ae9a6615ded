"""Pages that are made from records name everything there is; their programs, notebooks and all examples run."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from counterpoint.cli.arguments import build_parser
from counterpoint.cli.main import main
from counterpoint.cli.parsers import VERBS
from counterpoint.core.metric import described_metrics
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import leaf_fields
from counterpoint.losses import CATALOGUE

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))  # the programs that make the site are no package
pytest.importorskip("matplotlib", reason="pages with pictures need the extra docs")
catalogue_pages = pytest.importorskip("catalogue_pages")
verb_pages = pytest.importorskip("verb_pages")
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_every_verb_has_a_page_with_its_flags_and_every_setting_its_row() -> None:
    pages = dict(verb_pages.verb_pages())  # a call in Python that a function would not take raises here
    for verb in VERBS:
        flags = {flag for action in build_parser(verb)._actions for flag in action.option_strings} - {"-h", "--help"}
        page = pages[f"verbs/{verb}.md"]
        settings = {path.replace("_", "-") for path in build_parser(verb).settable}
        shown = set(re.findall(r"`(-[\w.-]+)`", page))
        assert {flag for flag in flags if flag[2:] not in settings} - {"--set"} <= shown, verb
    names = [path for path, _ in leaf_fields(TrainSettings)]
    rows = re.findall(r"^\| `([\w.]+)` \|", pages["settings.md"], flags=re.MULTILINE)
    assert sorted(rows) == sorted(names)


def test_every_page_of_a_loss_says_when_to_use_it_and_its_program_runs() -> None:
    for name in CATALOGUE:
        page = catalogue_pages.loss_page(name)  # runs the program, and reads the command as training does
        assert re.search(r"^## When to use it\n\nUse it \w+", page, flags=re.MULTILINE), name
        assert re.search(r"^```text\n-?\d+\.\d+\n```", page, flags=re.MULTILINE), name


@pytest.mark.thorough
@pytest.mark.parametrize("name", CATALOGUE)
def test_the_command_of_a_loss_trains(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    pictures = generator.integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)
    np.savez("pairs.npz", images=pictures, captions=generator.normal(size=(40, 8)).astype("float32"))
    words = shlex.split(catalogue_pages.command(name))[1:]
    assert main([*words, "--epochs", "1", "--source.holdout", "0.5", "-q"]) == 0


def test_every_metric_that_is_shown_has_a_page_of_its_own() -> None:
    shown = [(each, package) for package in ("evaluation", "diagnostics")
             for each in described_metrics(package).values() if each.is_shown]  # fmt: skip
    assert len({catalogue_pages.slug(metric.name) for metric, _ in shown}) == len(shown) > 15
    for metric, package in shown:
        page = catalogue_pages.metric_page(metric, package)
        assert f"`{metric.name}`" in page
        assert f"| source | {metric.source} (" in page, metric.source


def test_a_weight_that_grows_with_similarity_is_drawn_so() -> None:
    """InfoNCE at a low temperature looks at the nearest negatives, a linear loss at all alike."""
    figure, axes = catalogue_pages.plt.subplots()
    catalogue_pages.draw_weights(axes, "infonce")
    catalogue_pages.draw_weights(axes, "linear-triplet")
    *sharp, flat = ([float(value) for value in line.get_ydata()] for line in axes.lines)
    catalogue_pages.plt.close(figure)
    assert all(values == sorted(values) for values in sharp)
    assert [values[-1] for values in sharp] == sorted((values[-1] for values in sharp), reverse=True)
    assert max(flat) == pytest.approx(min(flat))


def test_notebooks_are_clean_and_examples_many() -> None:
    assert len(NOTEBOOKS) == 4
    assert len(EXAMPLES) >= 10
    for path in NOTEBOOKS:
        book = json.loads(path.read_text(encoding="utf-8"))
        assert (book["nbformat"], book["nbformat_minor"]) >= (4, 5)
        for cell in book["cells"]:
            assert cell["id"]
            assert cell["cell_type"] == "markdown" or (cell["outputs"], cell["execution_count"]) == ([], None), (
                path.name
            )


PROGRAMS = [pytest.param([path], id=path.stem) for path in EXAMPLES]
PROGRAMS += [pytest.param([ROOT / "docs" / "notebook_pages.py", path], id=path.stem) for path in NOTEBOOKS]


@pytest.mark.slow  # the site runs them, too
@pytest.mark.parametrize("words", PROGRAMS)
def test_an_example_or_notebook_runs_from_another_folder_and_leaves_nothing(words: list[Path], tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, *map(str, words)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip()
    assert words[-1] in EXAMPLES or ("```text" in done.stdout and "![what the cell draws]" in done.stdout)
    assert list(tmp_path.iterdir()) == []
