"""The list of what the papers hold, held to the studies and figures."""

import pytest

from reproductions.catalogue import CATALOGUE, listed
from reproductions.paper_items import ITEMS, item_rows, sets_of
from reproductions.study import studies
from reproductions.study_data import SETS


def test_the_list_has_every_table_and_figure_and_nothing_else_but_what_it_leaves_out() -> None:
    names = {item.name for item in listed() if item.kind != "drawing"}
    assert names <= set(ITEMS)
    assert all("whole" in ITEMS[name].left_out for name in set(ITEMS) - names)
    assert len(item_rows()) == len(listed()) + len(set(ITEMS) - names)


@pytest.mark.parametrize("name", sorted(set(ITEMS) - set(CATALOGUE)))
def test_each_set_and_row_is_had_or_left_out_with_a_reason(name: str) -> None:
    item = ITEMS[name]
    assert set(item.data) <= set(SETS)
    if "whole" in item.left_out:
        return
    had = sets_of(name, "paper")
    assert set(item.data) - had <= set(item.left_out)
    # A set that is had is left out of nothing: the list follows the studies when they grow.
    assert not had & {part for part in item.left_out if part in SETS}, name
    assert had <= set(item.data) or set(item.data) <= set(item.left_out), name
    arms = next(study.arms for study in studies().values() if name == study.name or name in study.also)
    missing = set(item.left_out) - set(SETS)
    assert len(arms) >= item.rows - 2 * len(missing), name
