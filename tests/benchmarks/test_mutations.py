"""Faults are put where they may change a result, and a fault is found by the tier that has its test."""

from pathlib import Path

import faults
import mutations
import pytest

PROGRAM = '''"""Not 1 word of this."""
LEAST: int = 3

def rule(x: float, *, is_open: bool = True) -> bool:
    if x is not None and x >= LEAST:
        raise ValueError(f"at most {LEAST - 1}")
    return -x**2 not in (0.5, max(x, 0))
'''
TESTS = """import pytest
from counterpoint.small.rule import bound, size

def test_bound():
    assert bound(4) == 8

@pytest.mark.thorough
def test_size():
    assert size(3) == 4
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a package in a repository of its own."""
    source = tmp_path / "src" / "counterpoint"
    (source / "small").mkdir(parents=True)
    (tmp_path / "tests" / "small").mkdir(parents=True)
    for folder in (source, source / "small"):
        (folder / "__init__.py").touch()
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    thorough\n    slow\naddopts = -ra -q\n")
    monkeypatch.setattr(faults, "SOURCE", source)
    monkeypatch.setattr(mutations, "SOURCE", source)
    monkeypatch.setattr(mutations, "ROOT", tmp_path)
    monkeypatch.setattr(mutations, "PACKAGES", ("small",))
    monkeypatch.setenv("PYTHONPATH", str(source.parent))
    return source / "small"


def test_every_kind_of_fault_is_made_and_words_and_types_stay(package: Path) -> None:
    (package / "rule.py").write_text(PROGRAM)
    lines = PROGRAM.split("\n")
    found = {(fault.line, fault.after.strip()) for group in faults.faults_of(package / "rule.py") for fault in group}
    assert all(fault.before == lines[fault.line - 1] for fault in faults.draw("small", 9, 0))
    assert {line for line, _ in found} == {2, 4, 5, 7}
    assert {after.replace("  ", " ") for line, after in found if line == 7} == {
        "return +x**2 not in (0.5, max(x, 0))",
        "return -x*2 not in (0.5, max(x, 0))",
        "return -x**3 not in (0.5, max(x, 0))",
        "return -x**1 not in (0.5, max(x, 0))",
        "return -x**2 in (0.5, max(x, 0))",
        "return -x**2 not in (1.0, max(x, 0))",
        "return -x**2 not in (0.5, min(x, 0))",
        "return -x**2 not in (0.5, max(x, 1))",
        "return -x**2 not in (0.5, max(x, -1))",
    }


@pytest.mark.slow
def test_each_tier_finds_its_faults_and_a_second_run_knows_them(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = "def bound(x):\n    return 2 * x\n\ndef size(x):\n    return x + 1\n\ndef unused(x):\n    return x * x\n"
    (package / "rule.py").write_text(program)
    (tmp_path / "tests" / "small" / "test_rule.py").write_text(TESTS)
    words = ["--packages", "small", "--number", "9", "--record", str(tmp_path / "record")]
    words += ["--trace", str(tmp_path / "trace")]
    before = {path: path.read_bytes() for path in (tmp_path / "src").rglob("*.py")}
    assert mutations.main(words) == 1
    said = capsys.readouterr()
    assert "| small | 3 | 1 | 2 |" in said.out
    assert "small/rule.py:5, found by tests/small/test_rule.py::test_size\n    return x + 1\n" in said.out
    assert "small/rule.py:8, found by nothing\n    return x * x\n    return x / x" in said.out
    assert "small/rule.py:2: tests/small/test_rule.py::test_bound" in said.err
    assert {path: path.read_bytes() for path in (tmp_path / "src").rglob("*.py")} == before
    assert mutations.main(words) == 1
    again = capsys.readouterr()
    assert (again.out, again.err) == (said.out, "")
    (tmp_path / "tests" / "small" / "test_rule.py").write_text("def test_nothing():\n    assert False\n")
    (package / "rule.py").write_text(program.replace("2 * x", "3 * x"))
    with pytest.raises(SystemExit, match=r"the tests fail without a fault: .*test_nothing"):
        mutations.main(words)
