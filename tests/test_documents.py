"""Documents tell the truth: README's commands run, cited keys are in the bibliography, help names every choice."""

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import pytest

from counterpoint import theory
from counterpoint.cli.arguments import build_parser
from counterpoint.cli.main import main
from counterpoint.core.settings import TrainSettings
from counterpoint.data.sources import CATALOGUE as SOURCES
from counterpoint.data.views.presets import PRESETS
from counterpoint.diagnostics.findings import CATALOGUE as CHECKS
from counterpoint.diagnostics.remedies import TRIED
from counterpoint.losses import CATALOGUE as LOSSES
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.nn.encoders import CATALOGUE as ENCODERS
from reproductions.catalogue import CATALOGUE as FIGURES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE_TO_DIAGNOSIS, DIAGNOSIS, *THEORY_PAGES = (
    (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("diagnosis", "diagnosis-reference", "theory", "theory-reference")
)
THEORY = "".join(THEORY_PAGES)
ERRATA = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
PAPERS = sorted((ROOT / "reproductions").glob("*/README.md"))
PARTS = ["Measured", "Why", "Test", "Try", "Open"]  # of a section on a check
ON_PAPERS = "".join(path.read_text(encoding="utf-8") for path in PAPERS)


def test_what_remedies_gave_is_what_the_published_table_says() -> None:
    rows = re.findall(r"^\| ([a-z-]+) \| (\d+) of (\d+) \| ([+-][\d.]+) \|$", DIAGNOSIS, flags=re.MULTILINE)
    published = {name: (int(tried), int(helped), float(points)) for name, helped, tried, points in rows}
    assert published == TRIED
    assert set(TRIED) <= set(CHECKS)


def anchors(document: Path) -> set[str]:
    """What a heading can be linked by: lower case, without punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_of_the_documents_lead_to_a_file_and_a_heading() -> None:
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *PAPERS]:
        for target, section in re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", document.read_text(encoding="utf-8")):
            page = document.parent / target if target else document
            assert "://" in target or page.exists(), f"{document.name}: {target}"
            has_section = not section or "://" in target or section in anchors(page)
            assert has_section, f"{document.name}: {target}#{section}"


def test_every_cited_key_is_in_the_bibliography_and_every_entry_is_cited() -> None:
    bibliography = (ROOT / "docs" / "references.bib").read_text(encoding="utf-8")
    keys = set(re.findall(r"^@\w+\{(\w+),", bibliography, flags=re.MULTILINE))
    cited: dict[str, str] = {}
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "reproductions").rglob("*.py")]
    for path in (path for path in sources if not path.name.startswith("test_")):
        for key in re.findall(r"\b[a-z]{2,}(?:19|20)\d\d\b", path.read_text(encoding="utf-8")):
            cited[key] = path.name
    assert set(cited) == keys, {"not in the bibliography": set(cited) - keys, "never cited": keys - set(cited)}


def test_every_code_of_a_finding_has_its_section_with_a_picture_and_every_section_is_a_code() -> None:
    (checks,) = re.findall(r"^## The checks\n(.*?)^## ", DIAGNOSIS, flags=re.MULTILINE | re.DOTALL)
    sections = re.findall(r"^### (.+)\n((?:(?!###).*\n)*)", checks, flags=re.MULTILINE)
    assert [code for code, _ in sections] == list(CHECKS)
    assert [code for code in CHECKS if f"(diagnosis-reference.md#{code})" not in GUIDE_TO_DIAGNOSIS] == []
    for code, text in sections:
        (picture,) = re.findall(r"^```text\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
        assert len(picture.splitlines()) <= 6, code
        assert max(map(len, picture.splitlines())) <= 90, code
        assert re.findall(r"^- \*\*(\w+)\*\*: ", text, flags=re.MULTILINE) == PARTS, code


def test_commands_of_diagnosis_findings_and_errata_have_flags_that_exist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    checks = (ROOT / "src" / "counterpoint" / "diagnostics" / "checks").glob("*.py")
    text = GUIDE_TO_DIAGNOSIS + DIAGNOSIS + ERRATA + "".join(path.read_text(encoding="utf-8") for path in checks)
    commands = set(re.findall(r"\bcounterpoint ([a-z][a-z-]*)\b([^`#\n\"]*)", text))
    assert len(commands) > 20
    for verb, words in commands:
        with pytest.raises(SystemExit) as left:
            main([verb, "--help"])
        assert left.value.code == 0, verb
        settable = (f"--{path.replace('_', '-')}" for path in build_parser(verb).settable)
        known = capsys.readouterr().out + " ".join(settable)
        assert [flag for flag in re.findall(r"--[a-z][\w.-]*", words) if flag not in known] == [], (verb, words)


def defined_tests() -> Counter[str]:
    """How many files of tests define a test of this name."""
    folders = (ROOT / "tests", ROOT / "reproductions" / "tests")
    files = (path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py"))
    return Counter(name for text in files for name in set(re.findall(r"^def (test_\w+)\(", text, flags=re.MULTILINE)))


def test_every_check_that_the_page_on_theory_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", THEORY + ON_PAPERS))
    assert len(named) > 20
    assert named <= set(defined_tests()), named - set(defined_tests())


def test_every_erratum_is_shown_by_a_test_of_its_own_name_or_by_a_command() -> None:
    """Names are unique, so that `pytest -k NAME` runs what is meant; commands make a figure that there is."""
    defined = defined_tests()
    tables = re.findall(r"^\|.*\| shown by \|\n\|[-|]+\n((?:\|.*\n)+)", ERRATA, flags=re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(tables) == 2 * len(PAPERS)
    for row in rows:
        shown_by = re.findall(r"`([^`]+)`", row.removesuffix(" |").rpartition(" | ")[2])
        assert shown_by, row
        assert all(re.fullmatch(r"test_\w+|python -m reproductions [\w-]+", one) for one in shown_by), row
    for name in re.findall(r"`(test_\w+)`", ERRATA):
        assert defined[name] == 1, f"{name} is defined in {defined[name]} files"
    assert set(re.findall(r"`python -m reproductions ([\w-]+)`", ERRATA)) <= set(FIGURES)


def test_every_module_of_theory_that_a_document_names_exists() -> None:
    source = ROOT / "src" / "counterpoint"
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        text = document.read_text(encoding="utf-8")
        for path in re.findall(r"(?<![\w/])theory/[\w/]*", text.replace(".py", "")):
            is_there = (source / path).is_dir() or (source / f"{path}.py").is_file()
            assert is_there, f"{document.name}: {path}"
        for module, names in re.findall(r"\bfrom ((?:counterpoint|reproductions)[\w.]*) import (\w+(?:, \w+)*)", text):
            missing = [name for name in names.split(", ") if not hasattr(import_module(module), name)]
            assert missing == [], f"{document.name}: {module}"


def test_every_function_in_the_first_table_on_theory_is_in_the_module_beside_it() -> None:
    rows = re.findall(r"^\| [^|]+\? \| ([^|]+) \| ([^|]+) \| \[", THEORY, flags=re.MULTILINE)
    assert len(rows) == 10
    for answer, place in rows:
        functions = re.findall(r"`([a-z]\w+)(?=[`(])", answer)
        room, *names = re.findall(r"[\w.]+", place) or [""]
        package = "" if room.startswith("reproductions") else "counterpoint."
        modules = [import_module(f"{package}{room}{name}") for name in names] or ([theory] if room else [])
        assert bool(functions) == bool(modules), answer
        for function in functions:
            assert any(callable(getattr(module, function, None)) for module in modules), f"{function}: {place}"
        for module in modules:
            assert any(hasattr(module, function) for function in functions), f"{module.__name__}: {answer}"


def test_every_function_in_a_table_on_a_paper_exists() -> None:
    tables = re.findall(
        r"^\| function \(`reproductions/(\w+)/`\) \|.*\n\|[-|]+\n((?:\|.*\n)+)", THEORY, flags=re.MULTILINE
    )
    assert len(tables) == 1
    for room, rows in tables:
        for cell in re.findall(r"^\| (.*?) \|", rows, flags=re.MULTILINE):
            module = ""
            for named, function in re.findall(r"`(?:(\w+)\.)?(\w+)", cell):
                module = named or module  # names after the first are of its module
                assert hasattr(import_module(f"reproductions.{room}.{module}"), function), cell


def test_every_figure_is_on_the_page_of_its_paper() -> None:
    assert [name for name in FIGURES if f"| `{name}` |" not in ON_PAPERS] == []


def test_every_paper_has_a_page_whose_files_exist() -> None:
    rooms = [path for path in (ROOT / "reproductions").iterdir() if (path / "__init__.py").exists()]
    assert len(PAPERS) == len(rooms) == 5
    for page in PAPERS:
        text = page.read_text(encoding="utf-8")
        assert [line for line in text.splitlines() if line.startswith("## ")][:2] == [
            "## What it claims",
            "## Where each claim lives",
        ]
        named = re.findall(r"`((?:\w+/)*\w+\.py)", text)
        assert len(named) >= 3
        missing = [
            name
            for name in named
            if not any([*ROOT.glob(f"src/counterpoint/**/{name}"), *ROOT.glob(f"reproductions/**/{name}")])
        ]
        assert missing == [], page
        assert len(text.splitlines()) <= 60


@pytest.mark.parametrize(
    ("title", "catalogue"),
    [
        ("data", SOURCES),
        ("methods", METHODS),
        ("encoders", ENCODERS),
        ("losses", LOSSES),
        ("views", PRESETS),
        ("checks", CHECKS),
    ],
)
def test_every_choice_is_listed(
    title: str, catalogue: Mapping[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", title]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert set(listed) >= set(catalogue)


def test_the_help_of_encoders_names_every_choice() -> None:
    description = str(TrainSettings.model_fields["encoder"].description)
    assert all(name in description for name in ENCODERS), description


def test_the_version_is_the_newest_dated_one_of_the_changelog_and_of_the_citation() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$", changelog, flags=re.MULTILINE)
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert releases[0] == (version, *re.findall(r"^date-released: (\S+)$", cited, flags=re.MULTILINE))
    assert re.findall(r"^version: (\S+)$", cited, flags=re.MULTILINE) == [version]
