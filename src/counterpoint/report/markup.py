"""Build HTML and SVG from plain values: every string is escaped unless it is finished markup.

``Markup`` plus a plain string is a plain string again, so a slip of the pen escapes too much, never too little.
"""

import html
import re
from collections.abc import Iterable
from typing import TypeAlias

VOID_TAGS = frozenset({"br", "col", "hr", "img", "input", "link", "meta"})
# Control characters, lone surrogates and direction overrides have no place in a page; a visible mark takes theirs.
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]")


class Markup(str):
    """Finished markup, inserted as it stands."""

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
    opening = f"<{tag}{''.join(_attribute(name, value) for name, value in attributes.items())}>"
    return Markup(opening if tag in VOID_TAGS else f"{opening}{join(*children)}</{tag}>")


def coordinate(value: float) -> str:
    """Write a number with at most two decimals, as SVG wants it.

    >>> coordinate(3.14159), coordinate(2.0), coordinate(-0.001)
    ('3.14', '2', '0')
    """
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _render(child: Child) -> str:
    """Turn one child into markup."""
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return escape(child)
    if isinstance(child, int | float):
        return coordinate(child)
    return "".join(_render(inner) for inner in child)


def _attribute(name: str, value: Attribute) -> str:
    """Write one attribute with its leading space, or nothing."""
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{_render(value)}"'
