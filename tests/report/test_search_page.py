"""The page of a search: what stands on it, what outside text may do to it, and its size."""

import numpy as np

from counterpoint.evaluation.search_records import Copies, CopyGroup, Hit, QueryHits, SearchAnswer, SharedConcept
from counterpoint.report.search_page import render_search

EVIL = '<script>alert(1)</script>"><img src=x>'


def answer(num_hits: int = 2, side: int = 8) -> SearchAnswer:
    rng = np.random.default_rng(0)
    concepts = (SharedConcept(3, 0.6), SharedConcept(5, 0.2))
    hits = tuple(Hit(row, f"{EVIL}{row}", "cat", 0.9, 0.999, concepts) for row in range(num_hits))
    pictures = {f"row-{row}": rng.integers(0, 256, (side, side, 3), dtype=np.uint8) for row in range(num_hits)}
    pictures["query-0"] = rng.integers(0, 256, (side, side), dtype=np.uint8)
    return SearchAnswer(
        "ncl", {"collection": "2 samples"}, ("Read it.",), (QueryHits(EVIL, None, None, hits),), pictures=pictures
    )


def test_query_hits_and_reasons_stand_on_it() -> None:
    page = render_search(answer())
    assert page.count("<img ") == 3
    assert "above 99.9" in page
    assert page.count('class="bar"') == 4


def test_text_from_outside_stays_text() -> None:
    page = render_search(answer())
    assert "<script" not in page
    assert "<img src=x" not in page
    assert "style=" not in page


def test_it_shrinks_until_it_fits() -> None:
    found = answer(40, side=96)
    large = render_search(found)
    small = render_search(found, max_bytes=len(large.encode()) // 2)
    assert len(small.encode()) <= len(large.encode()) // 2
    assert small.count("<img ") == 41
    assert "<img " not in render_search(found, max_bytes=1)


def test_groups_of_near_duplicates() -> None:
    groups = (CopyGroup((0, 5), ("a", EVIL), ("x", None), 0.99, "pixels", crosses_split=True),)
    page = render_search(Copies("ncl", {"collection": "9 samples"}, ("Read it.",), groups, pictures=answer().pictures))
    assert "1 group of near-duplicates with 2 samples" in page
    assert "trained on and held out" in page
    assert "<script" not in page
