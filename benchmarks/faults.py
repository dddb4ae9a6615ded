"""One-line faults of the package: another operator, sign or number, a condition turned round, a statement missing.

Drawn by seed, first a line, then what is wrong with it. Types, decorators and sentences for the user are left out, and
so are programs for a GPU. Own code, as ``mutations.py`` says.
"""

import ast
import io
import random
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src" / "counterpoint"
PARTS_OUT = {"triton"}

# Replacements of words: of a pair, the other one.
PAIRS = ("< <=", "> >=", "== !=", "+ -", "* /", "+= -=", "*= /=", "and or", "True False", "min max", "any all")
PAIRS += ("sum mean", "minimum maximum", "zeros_like ones_like", "floor ceil", "log exp", "cumsum cumprod")
INSTEAD = {old: new for pair in map(str.split, PAIRS) for old, new in (pair, pair[::-1])}
INSTEAD |= {"is": "is not", "in": "not in", "not": "", "if": "if not", "elif": "elif not"}
INSTEAD |= {"**": "*", "//": "/", "log1p": "log", "break": "continue"}
STARS = ("*", "**")  # no operators after these: several arguments, or none without a name
BEFORE_STARS = ("(", ",", "[", "{", "=", "lambda")
WORDS = (ast.JoinedStr, ast.Raise, ast.Assert, ast.ImportFrom)
NO_RESULT = ("strict", "repr", "frozen")  # arguments


@dataclass(frozen=True)
class Fault:
    """One line of one file, with something else in a part of it."""

    file: str
    line: int
    before: str
    after: str


def faults_of(path: Path) -> Iterator[list[Fault]]:
    """The faults of each line of a file that has some."""
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    changes: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    tree = ast.parse(text)
    out = [span for node in _left_out(tree) for span in _spans(node, lines)]
    for number, start, end, new in [*_words(text), *_statements(tree, lines)]:
        if not any(number == line and first <= start < last for line, first, last in out):
            changes[number].append((start, end, new))
    for number, edits in sorted(changes.items()):
        before = lines[number - 1]
        lines_after = [before[:start] + new + before[end:] for start, end, new in edits]
        rest = lines[: number - 1], lines[number:]
        valid = [after for after in lines_after if _compiles("\n".join([*rest[0], after, *rest[1]]))]
        if valid:
            yield [Fault(str(path.relative_to(SOURCE)), number, before, after) for after in valid]


def _compiles(text: str) -> bool:
    try:
        compile(text, "faulty", "exec")
    except SyntaxError:
        return False
    return True


def _words(text: str) -> Iterator[tuple[int, int, int, str]]:
    """Line, start, end and replacement of operators, names and numbers."""
    before = ""
    for token, following in pairwise(tokenize.generate_tokens(io.StringIO(text).readline)):
        (line, start), end, word = token.start, token.end[1], token.string
        new = [INSTEAD[word]] if word in INSTEAD else []
        if token.type == tokenize.NUMBER and word.isdigit():
            new = [str(int(word) + 1), str(int(word) - 1)]
        elif token.type == tokenize.NUMBER:
            new = [str(2 * float(word) or 1.0)]
        elif (word, following.string) == ("is", "not"):
            new, end = ["is"], following.end[1]
        elif (before, word) == ("is", "not") or (word in STARS and before in BEFORE_STARS):
            new = []
        yield from ((line, start, end, other) for other in new)
        before = word


def _statements(tree: ast.AST, lines: Sequence[str]) -> Iterator[tuple[int, int, int, str]]:
    """Line, start, end and replacement of statements of one line that could be missing."""
    for node in ast.walk(tree):
        is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        if (is_call or isinstance(node, ast.AugAssign)) and len(spans := list(_spans(node, lines))) == 1:
            yield (*spans[0], "pass")


def _left_out(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that get no fault: types, decorators, sentences for the user, and arguments without effect on results."""
    for node in ast.walk(tree):
        yield from getattr(node, "decorator_list", ())
        yield from (part for name in ("annotation", "returns") if (part := getattr(node, name, None)) is not None)
        if isinstance(node, WORDS) or (isinstance(node, ast.keyword) and node.arg in NO_RESULT):
            yield node


def _spans(node: Any, lines: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Line, start and end of a node on each of its lines, in characters (``ast`` counts bytes)."""
    for number in range(node.lineno, node.end_lineno + 1):
        line = lines[number - 1].encode()
        start = line[: node.col_offset if number == node.lineno else 0]
        end = line[: node.end_col_offset] if number == node.end_lineno else line
        yield number, len(start.decode()), len(end.decode())


def draw(package: str, number: int, seed: int) -> list[Fault]:
    """The first ``number`` faults of a package, at most one per line; a larger number begins with the same ones."""
    generator = random.Random(f"{seed} {package}")
    paths = sorted(path for path in (SOURCE / package).rglob("*.py") if not PARTS_OUT & set(path.parts))
    lines = [line_faults for path in paths for line_faults in faults_of(path)]
    generator.shuffle(lines)
    return [generator.choice(line_faults) for line_faults in lines[:number]]
