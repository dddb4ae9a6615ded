"""Names from outside, written as Markdown: a reader sees them as they are, and no program makes anything of them."""

import csv
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from counterpoint.core.terminal_text import TextTable

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


class Cells(HTMLParser):
    """The tags of a page, and the text of its cells."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag in ("th", "td"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        self.cells[-1] += data


def inline(text: str) -> Iterator[Token]:
    """The tokens of all lines of text, as a program makes them that also makes links of bare addresses."""
    parser = MarkdownIt("commonmark", {"html": True, "linkify": False}).enable(["table", "strikethrough"])
    for token in parser.parse(text):
        assert token.type not in ("html_block", "fence", "code_block"), text
        yield from token.children or ()


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_sees_the_name_and_each_cell_stays_one(name: str) -> None:
    table = TextTable(["name", name], [[name, "1"], ["b", name]], "lr")
    text = table.to_markdown()
    assert {token.type for token in inline(text)} <= PLAIN, text
    assert "://" not in text.replace("\\:", "")  # of which GitHub makes a link wherever it stands
    seen = [token.content for token in inline(text)]
    printed = name.encode("unicode_escape").decode() if not name.isprintable() else name
    assert "".join(seen) == f"name{printed}{printed}1b{printed}"
    page = Cells()
    page.feed(table._repr_html_())
    assert page.cells == ["name", printed, printed, "1", "b", printed]
    assert page.tags == {"table", "thead", "tbody", "tr", "th", "td"}
    assert list(csv.reader(table.to_csv().splitlines(keepends=True))) == [["name", name], [name, "1"], ["b", name]]
