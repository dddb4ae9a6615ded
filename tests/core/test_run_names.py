"""Runs of one name are told apart by the folders above them."""

from pathlib import Path

from counterpoint.core.run import display_names


def test_runs_of_one_name_are_told_apart() -> None:
    folders = [Path("x/a/run"), Path("y/a/run"), Path("z/b/run"), Path("other")]
    assert display_names(folders) == ["a/run (1)", "a/run (2)", "b/run", "other"]
