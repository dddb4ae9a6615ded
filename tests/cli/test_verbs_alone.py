"""Each verb opens by itself: it loads no other verb, and a mistake or a list is answered before torch is loaded."""

import contextlib
import json
import subprocess
import sys

import pytest

from counterpoint.cli.main import main
from counterpoint.cli.parsers import VERBS
from counterpoint.cli.verbs.list_verb import catalogue_sentences
from counterpoint.data.sources import CATALOGUE as SOURCES
from counterpoint.losses import CATALOGUE as LOSSES
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.nn.encoders import CATALOGUE as ENCODERS

LIBRARIES = ("torch", "numpy", "scipy", "sklearn", "PIL", "timm", "pyarrow", "ray")
VERB_MODULES = "counterpoint.cli.verbs."
MISTAKES = (
    "compare nosuch other",
    "report nosuch",
    "resume nosuch",
    "evaluate nosuch",
    "diagnose nosuch",
    "spectrum nosuch",
    "verify nosuch",
    "nosuch",
    "train --nosuch 3",
)
ANSWERED_AT_ONCE = (*MISTAKES, "embed nosuch --out x.npz", "list", "list losses")
HELP = tuple(f"{name} --help" for name in VERBS)
GEOMETRY = "geometry 0.5 0.5 --json"

# Each command in a process of its own, all forked from one that has loaded the command line and nothing else.
FORKS = """
import json, os, sys
from counterpoint.cli.main import main
for line in json.loads(sys.argv[1]):
    pid = os.fork()
    if pid == 0:
        out, sys.stdout = sys.stdout, open(os.devnull, "w")
        try:
            code = main(line.split())
        except SystemExit as stop:
            code = stop.code
        out.write(json.dumps([line, code, sorted(sys.modules)]) + "\\n")
        out.flush()
        os._exit(0)
    os.waitpid(pid, 0)
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, set[str]]]:
    """Exit code and loaded modules of each command."""
    lines = [*ANSWERED_AT_ONCE, GEOMETRY, *HELP]
    finished = subprocess.run(
        [sys.executable, "-c", FORKS, json.dumps(lines)],
        cwd=tmp_path_factory.mktemp("empty"),
        capture_output=True,
        text=True,
        check=True,
    )
    told = [json.loads(line) for line in finished.stdout.splitlines()]
    assert [line for line, _, _ in told] == lines, finished.stderr
    return {line: (code, set(modules)) for line, code, modules in told}


@pytest.mark.parametrize("line", ANSWERED_AT_ONCE)
@pytest.mark.sampled(28)
def test_a_mistake_or_a_list_is_answered_without_a_library(loaded: dict[str, tuple[int, set[str]]], line: str) -> None:
    code, modules = loaded[line]
    assert code == (2 if "nosuch" in line else 0)
    assert modules.isdisjoint(LIBRARIES)


def test_no_help_loads_torch(loaded: dict[str, tuple[int, set[str]]]) -> None:
    assert not [line for line in HELP if not loaded[line][1].isdisjoint(set(LIBRARIES) - {"numpy"})]


def test_no_verb_loads_another(loaded: dict[str, tuple[int, set[str]]]) -> None:
    for line in (line for line in loaded if line.split()[0] in VERBS):
        _, modules = loaded[line]
        verb = line.split()[0].replace("-", "_")  # as modules are named
        assert {name for name in modules if name.startswith(VERB_MODULES)} == {f"{VERB_MODULES}{verb}_verb"}


def test_geometry_loads_what_it_computes_with(loaded: dict[str, tuple[int, set[str]]]) -> None:
    code, modules = loaded[GEOMETRY]
    assert code == 0
    assert modules.isdisjoint(set(LIBRARIES) - {"torch", "numpy", "scipy", "PIL"})
    others = (
        "counterpoint.data.sources",
        "counterpoint.engine.engine",
        "counterpoint.engine.loop",
        "counterpoint.evaluation",
        "counterpoint.runs.training",
    )
    assert not {name for name in modules if name.startswith(others)}


def test_importing_the_package_loads_no_library() -> None:
    code = f"import sys, counterpoint; print(*set({LIBRARIES}) & set(sys.modules))"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.split() == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("losses", {name: str(loss.__doc__).splitlines()[0] for name, loss in LOSSES.items()}),
        ("nn/encoders.py", {name: entry.summary for name, entry in ENCODERS.items()}),
        ("data/sets", {name: source.summary for name, source in SOURCES.items() if name != "tiny-imagenet"}),
        ("data/formats", {"tiny-imagenet": SOURCES["tiny-imagenet"].summary}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_list_read_from_the_source_is_the_catalogue(path: str, expected: dict[str, str]) -> None:
    assert sorted(catalogue_sentences(path).items()) == sorted(expected.items())


@pytest.mark.parametrize("columns", [80, 120])
def test_names_stand_apart_from_their_sentences_and_lines_fit(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in (["list"], *([verb, "--help"] for verb in VERBS)):
        with contextlib.suppress(SystemExit):
            main(words)
        said = capsys.readouterr().out
        assert max(map(len, said.splitlines())) <= columns
        if words == ["list"]:
            assert all(f"\n  {name}  " in said for name in METHODS)
