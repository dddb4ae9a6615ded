"""Pages of the notebooks, which are run for them: output and drawings of a cell are below it.

python docs/notebook_pages.py NOTEBOOK runs one and writes no page. Jupyter is not needed.
"""

import ast
import io
import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

NOTEBOOKS = Path(__file__).parent / "notebooks"
SHOWN_LINES = 40  # of what a cell prints


def cells_of(notebook: Path) -> list[tuple[str, str]]:
    """The cells of a notebook: type and text of each."""
    return [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(notebook.read_text("utf-8"))["cells"]]


def run_cell(text: str, names: dict[str, Any]) -> str:
    """Run a cell as Jupyter does: a last expression is shown. Returns what was printed."""
    body, output = ast.parse(text).body, io.StringIO()
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    with redirect_stdout(output):
        exec(compile(ast.Module(body, []), "a cell", "exec"), names)
        shown = (
            eval(compile(ast.Expression(last.value), "a cell", "eval"), names) if isinstance(last, ast.Expr) else None
        )
        if shown is not None:
            print(shown)
    return output.getvalue()


def notebook_page(notebook: Path) -> Iterator[tuple[str, str | bytes]]:
    """A notebook as a page, its pictures, and the notebook itself."""
    plt.switch_backend("agg")
    names: dict[str, Any] = {"__name__": "a_notebook"}
    parts, name = list[str](), notebook.stem
    for number, (kind, text) in enumerate(cells_of(notebook)):
        if kind == "markdown":
            parts.append(text)
            continue
        printed = run_cell(text, names).splitlines()
        parts.append(f"```python\n{text}\n```")
        if printed:
            cut = ["..."] if len(printed) > SHOWN_LINES else []
            parts.append("\n".join(["```text", *printed[:SHOWN_LINES], *cut, "```"]))
        for figure in plt.get_fignums():
            file = io.BytesIO()
            plt.figure(figure).savefig(file, dpi=144, bbox_inches="tight")
            yield f"{name}-{number}-{figure}.png", file.getvalue()
            parts.append(f"![what the cell draws]({name}-{number}-{figure}.png)")
        plt.close("all")
    yield f"{name}.ipynb", notebook.read_bytes()
    yield f"{name}.md", "\n\n".join([*parts, f"{{download}}`Download this notebook <{name}.ipynb>`"]) + "\n"


def notebook_pages() -> Iterator[tuple[str, str | bytes]]:
    """Pages and pictures of all notebooks."""
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        yield from notebook_page(notebook)


if __name__ == "__main__":
    print(*(content for name, content in notebook_page(Path(sys.argv[1])) if name.endswith(".md")))
