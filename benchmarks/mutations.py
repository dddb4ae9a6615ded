"""How many one-line faults the tests find: those of `make test` beside all but the slow ones.

    python benchmarks/mutations.py                                # 160 faults over four packages: hours on two cores
    python benchmarks/mutations.py --packages losses --number 40  # a part; parts with one --record add up
    python benchmarks/mutations.py --fast-only                    # what `make test` finds, an hour
    python benchmarks/mutations.py --show                         # the faults that would be drawn; nothing is run

A first run of `make test` under coverage keeps in --trace which test executes which line. Each fault is then put into a
copy of the package, and the tests that execute its line run; of a line that runs at import, those that execute any line
of its file or of one that imports it. A line that runs only in processes that tests start counts as missed. Where no
test fails, the thorough ones run that stand beside tests of the faulty file. Findings are kept in --record, and not
made again while the faulty file stays as it is. Nothing is written in the repository. Exit code: 0; 1 if `make test`
misses what the thorough tests find.

Own code: mutmut and cosmic-ray know one set of tests, work within the repository and run all of it for each fault.
"""

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue

from coverage import CoverageData
from faults import SOURCE, Fault, draw

ROOT = SOURCE.parents[1]
PACKAGES = ("losses", "kernels", "engine", "theory")
NOT_RUN = "not run"
TIERS = {"fast": "not slow and not thorough", "thorough": "thorough and not slow"}


@dataclass(frozen=True)
class Finding:
    """The test that failed in each tier; None: all passed, empty: not needed, as a faster tier found the fault."""

    fault: Fault
    source: str
    fast: str | None
    thorough: str | None


def trace_tests(path: Path, workers: int) -> None:
    """Run the fast tier under coverage, and keep which test executes which line."""
    words = [f"--cov={SOURCE.name}", "--cov-context=test", "--cov-report=", "-n", str(workers), "--dist", "loadfile"]
    command = [sys.executable, "-m", "pytest", "-m", TIERS["fast"], "--tb=no", "-p", "no:cacheprovider", *words]
    fresh = path.with_suffix(".fresh")
    environment = {**os.environ, "COVERAGE_FILE": str(fresh)}
    said = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    if said.returncode:
        failures = re.findall(r"^(?:FAILED|ERROR) (\S+)", said.stdout, re.MULTILINE)
        raise SystemExit(f"the tests fail without a fault: {', '.join(failures) or said.stdout[-2000:] + said.stderr}")
    fresh.replace(path)


def is_up_to_date(path: Path) -> bool:
    """Tell whether a trace is newer than all sources and tests."""
    files = (file for folder in (SOURCE, ROOT / "tests") for file in folder.rglob("*.py"))
    return path.exists() and path.stat().st_mtime > max(file.stat().st_mtime for file in files)


def tests_of(fault: Fault, trace: CoverageData) -> list[str]:
    """The tests that execute the statement of a fault, those first whose file is named like the faulty one.

    At import a line runs in no test, or in the one that happened to import first: all that execute the file, or one
    that imports it, count.
    """
    path = SOURCE / fault.file
    contexts = trace.contexts_by_lineno(str(path))
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    of_functions = [each for node in nodes if isinstance(node, ast.FunctionDef) for each in node.body]
    if any(_lies_in(fault.line, statement) for statement in of_functions):
        around = [node for node in nodes if isinstance(node, ast.stmt) and _lies_in(fault.line, node)]
        inner = max(around, key=lambda node: (node.lineno, -(node.end_lineno or 0)))
        # Of a statement that holds others its own lines alone.
        held = [child.lineno - 1 for child in ast.iter_child_nodes(inner) if isinstance(child, ast.stmt)]
        last = max(inner.lineno, min([*held, inner.end_lineno or 0]))
        tests = {test for line in range(inner.lineno, last + 1) for test in _named(contexts.get(line, ()))}
    else:
        module = re.compile(rf"\bcounterpoint\.{re.escape('.'.join(Path(fault.file).with_suffix('').parts))}\b")
        files = [other for other in SOURCE.rglob("*.py") if other == path or module.search(other.read_text("utf-8"))]
        tests = {
            test for file in files for line in trace.contexts_by_lineno(str(file)).values() for test in _named(line)
        }
    return sorted(tests, key=lambda test: (path.stem not in test.partition("::")[0], test))


def _named(contexts: Iterable[str]) -> set[str]:
    """The tests of some contexts; what runs outside of all tests has none."""
    return {context.rpartition("|")[0] for context in contexts if context}


def _lies_in(line: int, node: ast.stmt) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def first_failure(workplace: Path, tests: Sequence[str], tier: str, limit: float) -> str | None:
    """The first test that fails on the copy of the package in a folder; None if all pass."""
    if not tests:
        return None
    # Examples in docstrings are read in the copy.
    source = f"{SOURCE.parent.relative_to(ROOT)}/"
    named = [f"{workplace}/{test.removeprefix(source)}" if test.startswith(source) else test for test in tests]
    (workplace / "tests.txt").write_text("\n".join(named), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(workplace), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}
    environment |= {"HYPOTHESIS_STORAGE_DIRECTORY": str(workplace / "hypothesis")}
    words = ["-m", TIERS[tier], "-x", "--tb=no", "-p", "no:cacheprovider", f"--basetemp={workplace / 'files'}"]
    said = workplace / "said.txt"
    with said.open("w", encoding="utf-8") as output:
        running = subprocess.Popen(
            [sys.executable, "-m", "pytest", *words, f"@{workplace / 'tests.txt'}"],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = running.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(ProcessLookupError):  # its children, too
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    text = said.read_text(encoding="utf-8", errors="replace")
    if code in (0, 5):  # 5: the tier has no test here
        return None
    if code not in (1, 2, 4, None):  # 4: a case that the fault takes away
        raise RuntimeError(f"pytest failed with exit code {code}:\n{text[-2000:]}")
    failures = re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    return next(iter(failures), "the tests could not be collected" if code else f"no end within {limit:g} s")


def examine(fault: Fault, workplace: Path, trace: CoverageData, arguments: argparse.Namespace) -> Finding:
    """Put a fault into the copy, see what finds it, and take it out again."""
    path = workplace / "counterpoint" / fault.file
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    assert lines[fault.line - 1] == fault.before
    lines[fault.line - 1] = fault.after
    path.write_text("\n".join(lines), encoding="utf-8")
    try:
        fast = first_failure(workplace, tests_of(fault, trace), "fast", arguments.limit)
        thorough = "" if fast is not None else NOT_RUN
        if fast is None and not arguments.fast_only:
            lines = trace.contexts_by_lineno(str(SOURCE / fault.file)).values()
            files = sorted({test.partition("::")[0] for contexts in lines for test in _named(contexts)})
            thorough = first_failure(workplace, files, "thorough", 3 * arguments.limit)
    finally:
        path.write_text(text, encoding="utf-8")
    return Finding(fault, source_of(fault), fast, thorough)


def source_of(fault: Fault) -> str:
    """A hash of the faulty file as it is in the repository."""
    return hashlib.sha256((SOURCE / fault.file).read_bytes()).hexdigest()[:16]


def recorded(path: Path) -> dict[Fault, Finding]:
    """Findings so far, of files that have not changed since."""
    findings = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        entry = json.loads(line)
        finding = Finding(Fault(**entry.pop("fault")), **entry)
        if (SOURCE / finding.fault.file).exists() and source_of(finding.fault) == finding.source:
            findings[finding.fault] = finding
    return findings


def run(faults: Sequence[Fault], arguments: argparse.Namespace) -> None:
    """Examine faults, some at a time, and keep each finding at once."""
    trace = CoverageData(str(arguments.trace))
    trace.read()
    workplaces: Queue[Path] = Queue()

    def keep(fault: Fault) -> None:
        workplace = workplaces.get()
        finding = examine(fault, workplace, trace, arguments)
        workplaces.put(workplace)
        with arguments.record.open("a", encoding="utf-8") as record:
            record.write(json.dumps(asdict(finding)) + "\n")
        said = finding.fast or (finding.thorough if finding.thorough != NOT_RUN else "") or "not found"
        print(f"{fault.file}:{fault.line}: {said}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.workers) as pool:
        for number in range(arguments.workers):
            workplace = Path(folder) / str(number)
            shutil.copytree(SOURCE, workplace / SOURCE.name, ignore=shutil.ignore_patterns("__pycache__"))
            workplaces.put(workplace)
        list(pool.map(keep, faults))


def table(findings: Sequence[Finding]) -> str:
    """Counts by package, then the faults that the fast tier does not find."""
    lines = ["| package | faults | found by make test | found by all |", "|---|---:|---:|---:|"]
    groups = {name: [f for f in findings if f.fault.file.startswith(f"{name}/")] for name in PACKAGES}
    for name, group in [*groups.items(), ("all", findings)]:
        by_fast = sum(finding.fast is not None for finding in group)
        by_all = by_fast + sum(bool(finding.thorough) and finding.thorough != NOT_RUN for finding in group)
        if group:
            lines.append(f"| {name} | {len(group)} | {by_fast} | {by_all} |")
    for finding in findings:
        if finding.fast is None:
            fault, who = (
                finding.fault,
                {None: "nothing", NOT_RUN: "no fast test"}.get(finding.thorough, finding.thorough),
            )
            lines += ["", f"{fault.file}:{fault.line}, found by {who}"]
            lines += [f"    {line.strip()}" for line in (fault.before, fault.after)]
    return "\n".join(lines)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Arguments, or an error that says what to do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", nargs="+", choices=PACKAGES, default=PACKAGES, help="where faults are put")
    parser.add_argument("--number", type=int, default=40, help="faults in each package (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="which faults are drawn (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="faults examined at a time (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=900, help="seconds for a run of tests (default: %(default)s)")
    record = Path(tempfile.gettempdir()) / "counterpoint-mutations.jsonl"
    parser.add_argument("--record", type=Path, default=record, help="what was found so far (default: %(default)s)")
    checkout = hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]  # a trace names files from the root
    place = Path(tempfile.gettempdir()) / f"counterpoint-tests-by-line-{checkout}.coverage"
    parser.add_argument(
        "--trace", type=Path, default=place, help="tests by line, made anew after a change (default: %(default)s)"
    )
    parser.add_argument("--fast-only", action="store_true", help="leave the thorough tests to a later run")
    parser.add_argument("--show", action="store_true", help="print the faults and run nothing")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    """Draw, run what is not recorded, print the table; return 0 if the fast tier finds what all tests find, else 1."""
    arguments = parse(words)
    faults = [fault for package in arguments.packages for fault in draw(package, arguments.number, arguments.seed)]
    if arguments.show:
        print("\n".join(f"{f.file}:{f.line}\n    {f.before.strip()}\n    {f.after.strip()}" for f in faults))
        return 0
    by_fault = recorded(arguments.record)
    if not arguments.fast_only:
        by_fault = {fault: finding for fault, finding in by_fault.items() if finding.thorough != NOT_RUN}
    missing = [fault for fault in faults if fault not in by_fault]
    if missing:
        if not is_up_to_date(arguments.trace):
            trace_tests(arguments.trace, arguments.workers)
        run(missing, arguments)
    by_fault = recorded(arguments.record)
    findings = [by_fault[fault] for fault in faults]
    print(table(findings))
    return int(any(finding.fast is None and finding.thorough not in (None, NOT_RUN) for finding in findings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
