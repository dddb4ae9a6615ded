"""Catalogues are found by what modules hold, and read as they are loaded."""

import ast

from counterpoint.core.catalogues import held, loaded


def test_modules_are_found_in_the_order_of_their_files_and_hold_what_is_read() -> None:
    found = list(held("losses", "CATALOGUE"))
    assert [each.module for each in found] == sorted(each.module for each in found)
    for each, entries in zip(found, loaded("losses", "CATALOGUE"), strict=True):
        assert isinstance(each.value, ast.Dict)
        assert [ast.literal_eval(key) for key in each.value.keys if key is not None] == list(entries)


def test_the_package_itself_and_names_inside_functions_are_not_found() -> None:
    assert "counterpoint.losses.__init__" not in [each.module for each in held("losses", "CATALOGUE")]
    assert list(held("core", "PACKAGE, path")) == []


def test_several_names_and_single_modules_are_found() -> None:
    (found,) = held("cli/verbs/list_verb.py", "PLACE, SUMMARY")
    assert found.module == "counterpoint.cli.verbs.list_verb"
    assert [type(part) for part in ast.literal_eval(found.value)] == [int, str]
