"""The style guide's limits that ruff does not check; each check is itself tried on bad snippets below."""

import ast
import fnmatch
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "counterpoint"

MAX_FILE_LINES = 400
MAX_BODY_LINES = 60
MAX_NESTING = 3
VAGUE_NAMES = ("found", "known", "asked", "given", "taken")  # of local variables
SINGLE_MODULE_IMPORTS = (
    "torchvision", "timm", "lightly", "onnx", "onnxruntime", "onnxscript", "pyarrow", "triton", "tensorboard", "wandb",
    "pytorch_lightning", "usearch", "lancedb", "faiss", "qdrant_client", "ray", "submitit",
)  # fmt: skip
SERIALISERS = ("pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve")
# The one module that may name pickle, and what of it: the unpickler of which nothing is left that could run.
INERT, OF_PICKLE = ("data/formats/pickled_arrays.py", "nn/foreign_weights.py"), ("_Unpickler", "UnpicklingError")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Offence = tuple[int, str]  # line, what is wrong
Rule = Callable[[str, str], list[Offence]]  # (path inside the package, source) -> offences
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)


# --- rules for one file


parsed = cache(ast.parse)  # of a source, for all rules


def functions_of(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def without_docstring(node: Function) -> list[ast.stmt]:
    return node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body


def first_line(statement: ast.stmt) -> int:
    return min([statement.lineno, *(mark.lineno for mark in getattr(statement, "decorator_list", []))])


def file_length(path: str, source: str) -> list[Offence]:
    num_lines = len(source.splitlines())
    return [(num_lines, f"{num_lines} lines, at most {MAX_FILE_LINES}")] if num_lines > MAX_FILE_LINES else []


def body_length(path: str, source: str) -> list[Offence]:
    offences = []
    for function in functions_of(parsed(source)):
        body = without_docstring(function)
        num_lines = (body[-1].end_lineno or 0) - first_line(body[0]) + 1 if body else 0
        if num_lines > MAX_BODY_LINES:
            offences.append((function.lineno, f"{function.name}: body of {num_lines} lines, at most {MAX_BODY_LINES}"))
    return offences


def blocks_within(node: ast.AST, depth: int = 0) -> Iterator[tuple[ast.AST, int]]:
    """Yield each control-flow block below a node with its depth; a nested function or class starts anew."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef | ast.Lambda):
            continue
        is_elif = (
            isinstance(child, ast.If) and isinstance(node, ast.If) and child in node.orelse and is_alone(child, node)
        )
        here = depth + (isinstance(child, BLOCKS) and not is_elif)
        if isinstance(child, BLOCKS):
            yield child, here
        yield from blocks_within(child, here)


def is_alone(child: ast.If, parent: ast.If) -> bool:
    """Tell ``elif`` from an ``if`` inside ``else:``, which is indented."""
    return len(parent.orelse) == 1 and child.col_offset == parent.col_offset


def nesting(path: str, source: str) -> list[Offence]:
    tree = parsed(source)
    scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, Function | ast.ClassDef))]
    return [
        (getattr(block, "lineno", 0), f"control flow nested {depth} deep, at most {MAX_NESTING}")
        for scope in scopes
        for block, depth in blocks_within(scope)
        if depth > MAX_NESTING
    ]


def is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def imports_at_top(tree: ast.Module) -> set[ast.AST]:
    """Imports that stand before any other statement; docstrings and ``if TYPE_CHECKING:`` do not end the top."""
    nodes: set[ast.AST] = set()
    for node in tree.body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom):
            nodes.add(node)
        elif is_type_checking(node):
            nodes.update(ast.walk(node))
        elif not is_docstring:
            break
    return nodes


def imports(path: str, source: str) -> list[Offence]:
    tree, lines = parsed(source), source.splitlines()
    top, offences = imports_at_top(tree), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and node not in top:
            text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            if not re.search(r"# deferred: \S", text):
                offences.append(
                    (node.lineno, "import is not at the top of the file; if it must wait: `# deferred: why`")
                )
    return offences


def prints(path: str, source: str) -> list[Offence]:
    if path.startswith("cli/"):
        return []
    calls = [node for node in ast.walk(parsed(source)) if isinstance(node, ast.Call)]
    return [
        (call.lineno, "print() outside cli/")
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "print"
    ]


def imported_modules(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of everything imported, also by ``import_module("...")``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            yield from ((node.lineno, name) for name in names if isinstance(name, str))


def is_within(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def distributed(path: str, source: str) -> list[Offence]:
    if path in ("core/dist.py", "engine/engine.py"):  # collectives; types and hooks of sharded parameters
        return []
    tree = parsed(source)
    uses = list(imported_modules(tree))
    uses += [(node.lineno, ast.unparse(node)) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    lines = sorted({line for line, name in uses if is_within(name, "torch.distributed")})
    return [(line, "torch.distributed outside core/dist.py") for line in lines]


def unsafe_loading(path: str, source: str) -> list[Offence]:
    tree = parsed(source)
    offences = [
        (line, f"imports {name}")
        for line, name in imported_modules(tree)
        if (name.split(".")[0] in SERIALISERS and not (path in INERT and name == "pickle")) or name == "torch.load"
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pickle" and node.attr not in OF_PICKLE:
            offences.append((node.lineno, f"pickle.{node.attr}"))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.load" and path not in INERT:
            offences.append((node.lineno, "torch.load reads pickles"))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load" and path in INERT:
            only_weights = any(
                word.arg == "weights_only" and ast.unparse(word.value) == "True" for word in node.keywords
            )
            offences += [] if only_weights else [(node.lineno, "torch.load without weights_only=True")]
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            offences.append((node.value.lineno, "allow_pickle"))
    return offences


def vague_names(path: str, source: str) -> list[Offence]:
    nodes = (node for function in functions_of(parsed(source)) for node in ast.walk(function))
    stores = (node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return sorted({(name.lineno, f"{name.id} does not say what it holds") for name in stores if name.id in VAGUE_NAMES})


FILE_RULES: list[Rule] = [
    file_length,
    body_length,
    nesting,
    imports,
    prints,
    distributed,
    unsafe_loading,
    vague_names,
]


# --- rules for the package as a whole: {path inside the package: source} -> offences


def doubled_names(sources: dict[str, str]) -> list[str]:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sources:
        places[Path(path).name].append(path)
    entry_points = ("__init__.py", "__main__.py")
    return [
        f"{', '.join(paths)}: one name" for name, paths in places.items() if len(paths) > 1 and name not in entry_points
    ]


def doubled_classes(sources: dict[str, str]) -> list[str]:
    places: dict[str, list[str]] = defaultdict(list)
    for path, source in sources.items():
        for node in ast.walk(parsed(source)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    return [f"{', '.join(paths)}: class {name} exists twice" for name, paths in places.items() if len(paths) > 1]


def imported_twice(sources: dict[str, str]) -> list[str]:
    places: dict[str, dict[str, int]] = defaultdict(dict)
    for path, source in sources.items():
        for line, name in imported_modules(parsed(source)):
            module = name.split(".")[0]
            if module in SINGLE_MODULE_IMPORTS:
                places[module].setdefault(path, line)
    return [
        f"{', '.join(f'{path}:{line}' for path, line in found.items())}: {module} is for one module only"
        for module, found in places.items()
        if len(found) > 1
    ]


def hollow_packages(sources: dict[str, str]) -> list[str]:
    contents: dict[str, set[str]] = defaultdict(set)
    for path in sources:
        contents[str(Path(path).parent)].add(Path(path).name)
    offences = []
    for folder, names in contents.items():
        holds_packages = any(other.startswith(f"{folder}/") for other in contents)
        if folder != "." and names == {"__init__.py"} and not holds_packages:
            offences.append(f"{folder}/__init__.py:1: a package without a module")
        if "__init__.py" not in names:
            offences.append(f"{folder}: modules without __init__.py")
    return offences


PACKAGE_RULES = [doubled_names, doubled_classes, imported_twice, hollow_packages]


# --- rule for every text file of the repository

# Written in pieces, so that this file passes its own check.
FOLDERS = "|".join(["home", "root", "work", "workspace", "Users", "mnt", "opt", "srv", "tmp"])
ABSOLUTE_PATH = re.compile(rf"(?<![\w.~/*}}\])-])/(?:{FOLDERS})(?=/|[^\w.-]|$)|\b[A-Za-z]:\\+Users\b")
INDEX_HOSTS = [
    "pypi" + r"\.(?:org|io)",
    "python" + r"hosted\.org",
    "download.pytorch" + r"\.org",
    "anaconda" + r"\.(?:org|com)",
]
INDEX_HOSTS += [
    "npmjs" + r"\.(?:org|com)",
    "--(?:extra-)?index" + "-url",
    "--find" + "-links",
    "file" + rf":///(?:{FOLDERS})\b",
]
INDEX = re.compile("|".join(INDEX_HOSTS))


def foreign_addresses(path: str, source: str) -> list[Offence]:
    offences = []
    for number, line in enumerate(source.splitlines(), start=1):
        for pattern, kind in ((ABSOLUTE_PATH, "absolute path"), (INDEX, "address of a package index")):
            found = pattern.search(line)
            if found:
                offences.append((number, f"{kind} {found.group()!r}"))
    return offences


def repository_texts() -> Iterator[tuple[str, str]]:
    """Yield every text file that is or could be committed: all but what .gitignore names."""
    ignored = [".git", *(line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split())]
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if not any(fnmatch.fnmatch(name, pattern) for pattern in ignored)]
        for name in names:
            path = Path(folder) / name
            content = path.read_bytes()
            if b"\0" not in content and not any(fnmatch.fnmatch(name, pattern) for pattern in ignored):
                yield path.relative_to(ROOT).as_posix(), content.decode("utf-8", errors="replace")


# --- the repository obeys


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    """Source of every module by its path inside the package."""
    return {
        path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))
    }


def report(offences: list[str]) -> str:
    return f"{len(offences)} offences:\n" + "\n".join(offences)


@pytest.mark.parametrize("rule", FILE_RULES, ids=lambda rule: rule.__name__)
def test_every_module_obeys(rule: Rule, sources: dict[str, str]) -> None:
    assert sources
    offences = [
        f"src/counterpoint/{path}:{line}: {message}"
        for path, source in sources.items()
        for line, message in rule(path, source)
    ]
    assert not offences, report(offences)


@pytest.mark.parametrize("rule", PACKAGE_RULES, ids=lambda rule: rule.__name__)
@pytest.mark.thorough
def test_the_package_obeys(rule: Callable[[dict[str, str]], list[str]], sources: dict[str, str]) -> None:
    offences = rule(sources)
    assert not offences, report(offences)


def test_no_file_holds_an_absolute_path_or_the_address_of_a_package_index() -> None:
    texts = dict(repository_texts())
    assert {"pyproject.toml", "tests/test_architecture.py", "src/counterpoint/__init__.py"} <= set(texts)
    offences = [
        f"{path}:{line}: {what}" for path, text in texts.items() for line, what in foreign_addresses(path, text)
    ]
    assert not offences, report(offences)


def run_python(code: str, *, cwd: Path, path: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


LINT_IMPORTS = (
    "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(cache_dir=None, no_cache=True))"
)


def test_imports_point_down_only() -> None:
    finished = run_python(LINT_IMPORTS, cwd=ROOT, path=SOURCE)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert re.search(r"Contracts: [1-9]\d* kept, 0 broken", finished.stdout), finished.stdout


@pytest.mark.parametrize("module", ["counterpoint", "counterpoint.cli.main"])
def test_the_command_line_answers_before_torch_is_loaded(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({{'torch', 'torchvision', 'scipy', 'sklearn'}} & set(sys.modules)))"
    finished = run_python(code, cwd=ROOT, path=SOURCE)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.split() == []


# --- the checks themselves work

HERE = "losses/family.py"
BODY = "def f():\n    'Doc.'\n" + "    x = 1\n" * MAX_BODY_LINES
THREE_DEEP = "def f():\n for a in b:\n  if a:\n   with c:\n    pass\n"
BAD: list[tuple[Rule, str, int]] = [
    (file_length, "x = 1\n" * 401, 401),
    (body_length, BODY + "    y = 2\n", 1),
    (nesting, THREE_DEEP.replace("pass", "while d:\n     pass"), 5),
    (nesting, "if a:\n if b:\n  if c:\n   if d:\n    pass\n", 4),
    (nesting, "if a:\n pass\nelse:\n if b:\n  if c:\n   for d in e:\n    pass\n", 6),
    (imports, "def f():\n import b\n", 2),
    (imports, "import b\nx = 1\nimport c\n", 3),
    (imports, "try:\n import b\nexcept ImportError:\n b = None\n", 2),
    (prints, "def f():\n print(1)\n", 2),
    (distributed, "import torch.distributed as dist\n", 1),
    (distributed, "import torch\nx = torch.distributed.get_rank()\n", 2),
    (unsafe_loading, "import pickle\n", 1),
    (unsafe_loading, "x = pickle._Unpickler\npickle.loads(content)\n", 2),
    (unsafe_loading, "torch.load(path, weights_only=True)\n", 1),
    (unsafe_loading, "x = 1\nnp.load(path, allow_pickle=True)\n", 2),
    (vague_names, "class A:\n found: int\n def f(self, known):\n  found = known\n", 4),
    (foreign_addresses, "x\ncd /" + "work/main", 2),
    (foreign_addresses, "path = '/" + "home/me/data'", 1),
    (foreign_addresses, "`--out=/" + "tmp/x`", 1),
    (foreign_addresses, "open('C:\\" + "Users\\me')", 1),
    (foreign_addresses, "x\n\nhttps://py" + "pi.org/simple", 3),
    (foreign_addresses, "pip install --extra-index" + "-url https://x.org y", 1),
    (foreign_addresses, "file:///" + "opt/wheels", 1),
]


@pytest.mark.parametrize(("rule", "source", "line"), BAD)
def test_a_rule_finds_what_it_should(rule: Rule, source: str, line: int) -> None:
    assert [found for found, _ in rule(HERE, source)] == [line]


def test_every_rule_finds_something() -> None:
    """That it lets pass what it should, the package itself shows above."""
    assert {rule for rule, _, _ in BAD} == {*FILE_RULES, foreign_addresses}


PackageRule = Callable[[dict[str, str]], list[str]]
PACKAGES: list[tuple[PackageRule, dict[str, str], int]] = [
    (doubled_names, {"a/__init__.py": "", "b/__init__.py": "", "a/x.py": "", "b/y.py": "", "b/__main__.py": ""}, 0),
    (doubled_names, {"a/x.py": "", "b/x.py": ""}, 1),
    (doubled_classes, {"a.py": "class X: ...", "b.py": "class Y: ...\nclass _Z: ...", "c.py": "class _Z: ..."}, 0),
    (doubled_classes, {"a.py": "class X: ...", "b.py": "class X: ..."}, 1),
    (imported_twice, {"a.py": "import timm\nimport timm.data", "b.py": "import timmy"}, 0),
    (imported_twice, {"a.py": "import timm", "b.py": "def f():\n from timm import x"}, 1),
    (imported_twice, {"a.py": "import torchvision", "b.py": "import_module('torchvision')"}, 1),
    (hollow_packages, {"__init__.py": "", "a/__init__.py": "", "a/x.py": ""}, 0),
    (hollow_packages, {"__init__.py": "", "a/__init__.py": ""}, 1),
    (hollow_packages, {"__init__.py": "", "a/x.py": ""}, 1),
]


@pytest.mark.parametrize(("rule", "sources", "num_offences"), PACKAGES)
def test_a_package_rule_tells_good_from_bad(rule: PackageRule, sources: dict[str, str], num_offences: int) -> None:
    assert len(rule(sources)) == num_offences
