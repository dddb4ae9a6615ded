"""Names from outside, written as Markdown: a reader sees them as they are, and no program makes anything of them."""

from collections.abc import Iterator

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from counterpoint.core.terminal_text import markdown_table

NAMES = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "<!-- <?php",
    "<https://example.org>",
    "https://example.org/a|b",
    "[a](javascript:alert(1)) ![b](c) [d]",
    "a|b\\|c *d* _e_ __f__ ~~g~~ `h` ``",
    "&lt;b&gt; &#60;",
    "# a\n\n- b\r\n\x1b[31m\u202e",
    "$x$",
]
PLAIN = {"text", "softbreak"}


def inline(text: str) -> Iterator[Token]:
    """The tokens of all lines of text, as a program makes them that also makes links of bare addresses."""
    parser = MarkdownIt("commonmark", {"html": True, "linkify": False}).enable(["table", "strikethrough"])
    for token in parser.parse(text):
        assert token.type not in ("html_block", "fence", "code_block"), text
        yield from token.children or ()


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_sees_the_name_and_each_cell_stays_one(name: str) -> None:
    text = markdown_table(["name", name], [[name, "1"], ["b", name]], "lr")
    assert {token.type for token in inline(text)} <= PLAIN, text
    assert "://" not in text.replace("\\:", "")  # of which GitHub makes a link wherever it stands
    seen = [token.content for token in inline(text)]
    printed = name.encode("unicode_escape").decode() if not name.isprintable() else name
    assert "".join(seen) == f"name{printed}{printed}1b{printed}"
