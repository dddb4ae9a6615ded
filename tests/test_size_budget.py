"""The package stays small: lines, files and imports of each of its packages are at most those of size_budget.toml."""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "counterpoint"
BUDGET = tomllib.loads((Path(__file__).parent / "size_budget.toml").read_text(encoding="utf-8"))
TOP = "top"  # modules that lie in no package


def module_of(path: Path) -> str:
    """The name of a module, or of a package, by its file."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path) for path in PACKAGE.rglob("*.py")}


def imported(source: str) -> set[str]:
    """The modules of the package that a module imports, also deferred and for types alone."""
    modules = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            modules |= {name if name in MODULES else node.module for name in names}
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    return {name for name in modules if name.split(".")[0] == "counterpoint"}


def measured(package: Path = PACKAGE) -> Mapping[str, Mapping[str, int]]:
    """Lines, files and the 90th percentile of the fan-out of each package, and of all."""
    sizes: dict[str, list[tuple[str, int, int]]] = defaultdict(list)  # of files: name, lines, fan-out
    for path in sorted(package.rglob("*.py")):
        first, *rest = path.relative_to(package).parts
        text = path.read_text(encoding="utf-8")
        size = (path.name, text.count("\n"), len(imported(text)))
        for name in (first if rest else TOP, "all"):
            sizes[name].append(size)
    found = {}
    for name, files in sizes.items():
        fans = sorted(fan for file, _, fan in files if file != "__init__.py") or [0]
        lines = sum(number for _, number, _ in files)
        found[name] = {"lines": lines, "files": len(files), "fan_out": fans[int(0.9 * len(fans))], "most": fans[-1]}
    return found


def test_no_package_is_above_its_budget() -> None:
    found = measured()
    assert set(found) == set(BUDGET), "a package is new or has left: write its budget"
    above = [
        f"{name}: {found[name][what]} {what}, at most {most}"
        for name, budget in BUDGET.items()
        for what, most in budget.items()
        if what != "reason" and found[name][what] > most
    ]
    assert above == []


def test_no_imports_go_round() -> None:
    """Not even those that are deferred, or for types alone."""
    graph = {module_of(path): imported(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}
    assert len(graph) > 100
    TopologicalSorter(graph).prepare()  # raises CycleError, with the names
