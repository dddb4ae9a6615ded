"""Reads the code blocks of the documentation, and runs those of one page in a folder that has what they name."""

import io
import re
import shlex
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from counterpoint.cli.main import main
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build, nest, parse_yaml
from reproductions.__main__ import main as reproduce

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += sorted((ROOT / "reproductions").rglob("*.md"))
REPRODUCE = ["python", "-m", "reproductions"]
LANGUAGES = ("sh", "python", "yaml", "text")
NO_RUN, NEEDS = "no-run ", "needs "

# What is appended to a command: it is the command that is tested, not the patience.
SHORT: Mapping[str, list[str]] = {
    "train": ["--epochs", "1", "--no-diagnosis"],
    "fine-tune": ["--epochs", "1"],
    "demo": ["--epochs", "1"],
    "sparsify": ["--epochs", "1"],
    "spectrum": ["--steps", "5", "--probes", "1", "--batch-size", "32"],
}
UNHEALTHY = 3  # the code with which `diagnose --fail-on` leaves


@dataclass(frozen=True)
class Block:
    """A block of a page.

    Attributes:
        place: page and line.
        language: the first word after the fence; empty for an indented block.
        reason: why it cannot run here; empty if it can.
        needs: a library that need not be installed, by a test of its own; empty if none.
        text: what is in it.
    """

    place: str
    language: str
    reason: str
    text: str
    needs: str = ""

    @property
    def is_directive(self) -> bool:
        """Whether it is part of the site, such as a table of contents."""
        return self.language.startswith("{")


def name_of(page: Path) -> str:
    """A page by its path in the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    found = []
    for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
        if token.type in ("fence", "code_block"):
            language, _, rest = token.info.strip().partition(" ")
            line = (token.map or [0])[0] + 1
            reason = rest.removeprefix(NO_RUN).strip() if rest.startswith(NO_RUN) else ""
            needs = rest.removeprefix(NEEDS).strip() if rest.startswith(NEEDS) else ""
            found.append(Block(f"{name_of(page)}:{line}", language, reason, token.content, needs))
    return found


def commands_of(block: Block) -> list[list[str]]:
    """The commands of a shell block, in words, without comments."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def shortened(words: list[str]) -> list[str]:
    """The words of a command after ``counterpoint``, so that it takes seconds."""
    verb = words[0]
    if verb == "resume" and "--epochs" in words:
        return [*words, "--epochs", "2"]
    return [*words, *SHORT.get(verb, []), *(["--seeds", "2"] if "--seeds" in words else [])]


def run_command(words: list[str]) -> tuple[int, str]:
    """Run a command in this process; its exit code and what it printed."""
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        code = main(words)
    return code, output.getvalue()


def run_shell(block: Block) -> None:
    """Run each command of a block; each must succeed."""
    for words in commands_of(block):
        if words[:3] == REPRODUCE:
            assert reproduce([*words[3:], *([] if "--list" in words else ["--quick"])]) == 0, block.place
            continue
        assert words[0] == "counterpoint", f"{block.place}: only commands of counterpoint can run: {words}"
        code, output = run_command(shortened(words[1:]))
        allowed = (0, UNHEALTHY) if "--fail-on" in words else (0,)
        assert code in allowed, f"{block.place}: {shlex.join(words)}\n{output[-3000:]}"


def run_python(block: Block, names: dict[str, Any]) -> None:
    """Run a program, with the names of those before it on its page."""
    program = re.sub(r"\bepochs=\d+", "epochs=1", block.text)
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        exec(compile(program, block.place, "exec"), names)


def check_yaml(block: Block) -> None:
    """Validate settings as the commands that take them do."""
    build(TrainSettings, nest(parse_yaml(block.text, block.place)), block.place)


def run_blocks(page: Path) -> dict[str, Any]:
    """Run what a page shows, in order, in the working directory; the names that its Python left behind."""
    names: dict[str, Any] = {"__name__": "a_page"}
    for block in blocks_of(page):
        if block.reason or block.needs:
            continue
        if block.language == "sh":
            run_shell(block)
        if block.language == "python":
            run_python(block, names)
    return names
