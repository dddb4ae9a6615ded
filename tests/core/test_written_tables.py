"""Names from outside, written as Markdown: a reader sees them as they are, and no program makes anything of them."""

from collections.abc import Iterator

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from counterpoint.core.run_records import EvaluationRecord, EvaluationRow, EvaluationSplit
from counterpoint.core.search_records import Asked, Copies, CopyGroup, Hit, SearchAnswer, SharedConcept
from counterpoint.core.written_tables import markdown_table
from counterpoint.evaluation.evaluation_result import Evaluation

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


def hit(name: str) -> Hit:
    return Hit(3, name, name, 0.5, 0.25, (SharedConcept(1, 0.5),))


def evaluation(name: str) -> Evaluation:
    split = EvaluationSplit(source=name, num_queries=2, num_bank=2, num_classes=2, num_unlabelled=0, how=name)
    row = EvaluationRow(features=name, protocol="knn", accuracy=0.5, low=0.1, high=0.9, correct=1, total=2)
    return Evaluation(EvaluationRecord(split=split, rows=(row,)))


RECORDS = {
    "evaluation": evaluation,
    "search": lambda name: SearchAnswer(name, {"data": name}, (name,), (Asked(name, 1, name, (hit(name),)),)),
    "copies": lambda name: Copies(name, {}, (name,), (CopyGroup((1, 2), (name, name), (name, None), 0.5, "pixels"),)),
}


def inline(text: str) -> Iterator[Token]:
    """The tokens of all lines of text, as a program makes them that also makes links of bare addresses."""
    parser = MarkdownIt("commonmark", {"html": True, "linkify": False}).enable(["table", "strikethrough"])
    for token in parser.parse(text):
        assert token.type not in ("html_block", "fence", "code_block"), text
        yield from token.children or ()


@pytest.mark.parametrize("kind", RECORDS)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_text_in_every_table_and_heading(kind: str, name: str) -> None:
    text = RECORDS[kind](name).to_markdown()
    assert {token.type for token in inline(text)} <= PLAIN, text
    assert "://" not in text.replace("\\:", "")  # of which GitHub makes a link wherever it stands


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_sees_the_name_and_each_cell_stays_one(name: str) -> None:
    text = markdown_table(["name", name], [[name, "1"], ["b", name]], "lr")
    seen = [token.content for token in inline(text)]
    printed = name.encode("unicode_escape").decode() if not name.isprintable() else name
    assert "".join(seen) == f"name{printed}{printed}1b{printed}"
