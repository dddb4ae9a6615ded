"""Text from outside cannot become markup, and shows no folder of the machine it came from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_scan import PageScan

from counterpoint.core.terminal_text import MAX_CHARACTERS, hide_folders, printable
from counterpoint.report.markup import Markup, coordinate, element, escape, join

printable_characters = st.characters(blacklist_categories=("Cc", "Cs", "Cf"), blacklist_characters="\ufffe\uffff")


@given(st.text(printable_characters), st.text(printable_characters))
def test_any_text_comes_back_as_text_and_attribute(text, value):
    seen = PageScan(element("p", text, title=value))
    assert seen.elements == [("p", {"title": value})]
    assert seen.text == text


@given(st.text())
def test_escaped_text_holds_no_special_character(text):
    escaped = escape(text)
    assert not set("<>\"'") & set(escaped)
    escaped.encode("utf-8")  # lone surrogates are gone


def test_markup_added_to_text_loses_its_privilege():
    assert PageScan(join(Markup("<b>") + "<i>")).elements == []


def test_direction_overrides_and_control_characters_become_visible():
    assert escape("a\u202eb\x00c\ud800d") == "a\ufffdb\ufffdc\ufffdd"


@pytest.mark.parametrize(("value", "text"), [(1e-9, "0"), (-1e-9, "0"), (12.0, "12"), (0.125, "0.12"), (-3.5, "-3.5")])
def test_coordinates_are_short(value, text):
    assert coordinate(value) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/vol/ada/photos", "…/photos"),
        ("/vol/ada/My Photos/cat 1.jpg", "…/cat 1.jpg"),
        ("~/photos/", "…/photos"),
        (r"D:\data\ada\x.npy", "…/x.npy"),
        (r"\\server\share\x.npy", "…/x.npy"),
        ("file:" + "///vol/ada/x.npy", "…/x.npy"),
        ("counterpoint train /vol/ada/p --out=/vol/x -q", "counterpoint train …/p --out=…/x -q"),
        ("cannot read '/vol/Ada Byron/x.jpg': truncated", "cannot read '…/x.jpg': truncated"),
        ("data:/vol/ada/x", "data:…/x"),
        ("[/vol/ada/x, /vol/y]", "[…/x, …/y]"),
        ("photos/cat.jpg", "photos/cat.jpg"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("</script><img src=x onerror=alert(1)>", "</script><img src=x onerror=alert(1)>"),
        ("loss / chance, 1/2, and/or", "loss / chance, 1/2, and/or"),
    ],
)
def test_only_absolute_paths_lose_their_folders(text, shown):
    assert hide_folders(text) == shown


def test_long_text_is_cut_with_a_sign():
    assert len(printable("x" * 5000)) == MAX_CHARACTERS
    assert printable("x" * 5000).endswith("…")
