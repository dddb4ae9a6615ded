"""Which samples a record says to leave out, and how it counts what it says."""

import pytest

from counterpoint.audit.audit_record import Audit, DuplicateGroup, Observation, Passport


def audit_of(*observations: Observation, splits: dict[str, int] | None = None) -> Audit:
    return Audit(observations=observations, passport=Passport(splits=splits or {}))


def copies(names: str, splits: str = "") -> Observation:
    group = DuplicateGroup(names=tuple(names.split()), splits=tuple(splits.split()), is_equal=True)
    return Observation(code="same-pixels", level="warning", groups=(group,))


def test_of_copies_the_first_stays() -> None:
    blank = Observation(code="blank", names=("d", "b"))
    assert audit_of(copies("a b c"), blank).left_out() == ("b", "c")  # what shows nothing is no copy


def test_near_copies_are_left_out_on_demand_and_not_in_chains() -> None:
    pairs = tuple(DuplicateGroup(names=tuple(names)) for names in ("ab", "bc", "cd", "ef"))
    each = audit_of(Observation(code="near-copies", groups=pairs))
    assert each.left_out() == ()
    assert each.left_out(near_copies=True) == ("b", "d", "f")


@pytest.mark.parametrize(
    ("names", "splits", "gone"),
    [
        ("train/a train/b test/c", "train train test", ("train/a", "train/b")),
        ("train/a train/b", "train train", ("train/b",)),
        ("test/a test/b", "test test", ()),  # training does not open them
    ],
)
def test_of_parts_the_test_part_stays_whole(names: str, splits: str, gone: tuple[str, ...]) -> None:
    assert audit_of(copies(names, splits), splits={"train": 2, "test": 2}).left_out() == gone


def test_other_data_are_never_on_the_list() -> None:
    groups = (
        DuplicateGroup(names=("a", "against: b"), splits=("", "against"), is_equal=True),
        DuplicateGroup(names=("against: c", "against: d"), splits=("against", "against"), is_equal=True),
    )
    each = Observation(code="leakage", level="severe", groups=groups)
    assert audit_of(each, splits={"": 2, "against": 3}).left_out() == ("a",)


def test_the_worst_level_is_the_audits() -> None:
    assert audit_of().level == "good"
    assert audit_of(Observation(level="note"), copies("a b")).level == "warning"
    assert str(audit_of().model_copy(update={"name": "x"})).startswith("x: nothing to remark")


def test_long_groups_are_cut_in_the_text_and_whole_in_the_record() -> None:
    found = audit_of(copies(" ".join(f"picture-{number}.png" for number in range(300))))
    assert "and 295 more" in " ".join(str(found).split())
    assert len(found.to_dict()["observations"][0]["groups"][0]["names"]) == 300
    assert max(map(len, str(found).splitlines())) <= 100
