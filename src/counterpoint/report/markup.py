"""Build HTML and SVG from plain values: every string is escaped unless it is finished markup.

Text from outside is made fit to print first (``core.terminal_text.printable``).

``Markup`` plus a plain string is a plain string again, so a mistake escapes too much, never too little.
"""

import html
import re
from collections.abc import Iterable
from typing import TypeAlias

VOID_TAGS = frozenset({"br", "col", "hr", "img", "input", "link", "meta"})
# Control characters, lone surrogates and direction overrides have no place in a page; a visible mark replaces them.
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
# A command of this program, or what backticks enclose.
CODE = re.compile(r"`([^`]+)`|(counterpoint [a-z]+(?: RUN)?(?: --[\w.-]+(?: (?:'[^']*'|(?!--)[\w./'-]+))?)*)")


class Markup(str):
    """Finished markup, inserted unchanged."""

    __slots__ = ()


Child: TypeAlias = "str | float | Iterable[Child] | None"
Attribute: TypeAlias = "str | float | bool | None"


def escape(text: str) -> Markup:
    """Make text safe as content and inside a double-quoted attribute.

    >>> escape('</script><img src=x onerror="alert(1)">')
    '&lt;/script&gt;&lt;img src=x onerror=&quot;alert(1)&quot;&gt;'
    """
    return Markup(html.escape(UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text), quote=True))


def join(*children: Child) -> Markup:
    """Concatenate children; strings are escaped, None is nothing, iterables are flattened."""
    return Markup("".join(_render(child) for child in children))


def element(tag: str, *children: Child, **attributes: Attribute) -> Markup:
    """Build one element.

    Args:
        tag: element name.
        *children: text, numbers, markup, or iterables of these.
        **attributes: a trailing underscore is dropped and inner ones become hyphens; None and False leave the
            attribute out, True writes it without a value.

    Returns:
        The element as markup.

    >>> element("p", "1 < 2", class_="reading", data_key=3, hidden=False)
    '<p class="reading" data-key="3">1 &lt; 2</p>'
    """
    opening = f"<{tag}"
    for name, value in attributes.items():
        if value is not None and value is not False:
            attribute = name.rstrip("_").replace("_", "-")
            opening += f" {attribute}" if value is True else f' {attribute}="{_render(value)}"'
    return Markup(f"{opening}>" if tag in VOID_TAGS else f"{opening}>{join(*children)}</{tag}>")


def prose(text: str, run: str = "RUN") -> Markup:
    """Set a sentence with its commands as code, which name the run where they say RUN.

    >>> prose("look at it: counterpoint diagnose RUN --pairs, or `seed`", "runs/mine")
    'look at it: <code>counterpoint diagnose runs/mine --pairs</code>, or <code>seed</code>'
    """
    parts, end = [], 0
    for match in CODE.finditer(text):
        code = match[1] or re.sub(r"\bRUN\b", lambda _: run, match[2])
        parts += [text[end : match.start()], element("code", code)]
        end = match.end()
    return join(parts, text[end:])


def coordinate(value: float) -> str:
    """Write a number with at most two decimals, as SVG wants it.

    >>> coordinate(3.14159), coordinate(2.0), coordinate(-0.001)
    ('3.14', '2', '0')
    """
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text  # -0.001 rounds to -0.00


def _render(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return escape(child)
    # To two decimals: a number that must keep its digits is given as text.
    if isinstance(child, int | float):
        return coordinate(child)
    return "".join(_render(inner) for inner in child)
