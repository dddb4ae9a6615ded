"""Formulas of docstrings as SVG, drawn by matplotlib while the site is built: a page needs no script for them."""

import io
import re
from functools import cache

from docutils import nodes
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import math_to_image
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

SIZE = 11.0  # points; 1 em of the page is 12


@cache
def drawn(formula: str) -> str:
    """A formula as SVG in the colour of the text around it, or as code where matplotlib does not know a command."""
    tex = " ".join(formula.split()).replace(r"\Big", "").replace(r"\top", "T")
    file = io.BytesIO()
    try:
        depth = math_to_image(f"${tex}$", file, prop=FontProperties(size=SIZE), format="svg")
    except ValueError:
        return f'<code class="formula">{escaped(formula)}</code>'
    svg = file.getvalue().decode().partition("<svg ")[2]
    width, height = (float(number) for number in re.findall(r'(?:width|height)="([\d.]+)pt"', svg)[:2])
    box = re.search(r'viewBox="[^"]+"', svg)
    body = svg.partition(">")[2].replace("#000000", "currentColor")
    body = re.sub(r"<metadata>.*?</metadata>|<\?.*?\?>", "", body, flags=re.DOTALL)
    body = re.sub(r'<path d="[^"]*"\s+style="fill: (?:none|#ffffff)[^"]*"/>', "", body)
    style = f"width:{width / 12:.2f}em;height:{height / 12:.2f}em;vertical-align:{-float(depth) / 12:.2f}em"
    return (
        f'<svg class="formula" role="img" aria-label="{escaped(formula)}" {box[0] if box else ""} '
        f'style="{style}">{body}'
    )


def escaped(text: str) -> str:
    """Text that is safe in an attribute."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def inline(self: HTML5Translator, node: nodes.math) -> None:
    """Draw a formula within a line."""
    self.body.append(drawn(node.astext()))
    raise nodes.SkipNode


def block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Draw a formula with lines of its own."""
    formula = node.astext().replace(r"\frac", r"\dfrac")
    lines = [line for part in re.split(r"\n\s*\n", formula) for line in part.split(r"\\")]
    self.body.append(f'<div class="math-block">{"<br>".join(map(drawn, lines))}</div>')
    raise nodes.SkipNode


def add_to(app: Sphinx) -> None:
    """Register the renderer with Sphinx."""
    app.add_html_math_renderer("drawn", inline_renderers=(inline, None), block_renderers=(block, None))
