"""The page of an audit: escaped names, thumbnails inside, no script, and never over another file."""

from pathlib import Path

import numpy as np
from page_scan import scan_without_script

import counterpoint as cp
from audit.planted_faults import plant, save_clean
from counterpoint.audit.audit_record import Audit, Observation, Passport
from counterpoint.cli.outputs import page_writer
from counterpoint.report.audit_page import render_audit


def test_the_page_shows_what_was_found(tmp_path: Path, rng: np.random.Generator) -> None:
    plant(save_clean(tmp_path / "photos", rng, 8), rng)
    found = cp.audit(tmp_path / "photos", quiet=True)
    out = tmp_path / "audit.html"
    page_writer(str(out), "audit")(found)
    page = out.read_text(encoding="utf-8")
    assert all(each.title in page for each in found.observations if "(" not in each.title)
    assert "cats/recompressed.jpg" in page
    assert page.count("data:image/jpeg;base64,") >= 8
    assert "<script" not in page
    assert str(tmp_path) not in page  # folders of the user's are not told
    assert len(page) < 2 << 20
    page_writer(str(out), "audit")(found)  # an earlier page is replaced


def test_it_begins_with_an_answer_and_how_large_classes_are() -> None:
    worst = Observation(code="blank", level="severe", title="nothing to see", remedy="`train` leaves them out")
    passport = Passport(classes={"cats": 40, "dogs": 4}, widths=(32, 48, 64, 72, 96))
    scanned = scan_without_script(render_audit(Audit(observations=(worst,), passport=passport)))
    first, *rest = (attributes["id"] for attributes in scanned.named("section"))
    assert first == "verdict"
    assert rest
    opening = scanned.text.partition("What should be known")[0]
    assert "Not as it is" in opening
    assert "train leaves them out" in opening
    assert "from 40 to 4 samples" in opening
    assert "from 32 to 96 pixels" in opening
    mild = worst.model_copy(update={"level": "note", "title": "noise"})
    cards = scan_without_script(render_audit(Audit(observations=(worst, mild, mild)))).named("details")
    assert ["open" in each for each in cards if "card" in (each["class"] or "")] == [True, False, False]
    same = passport.model_copy(
        update={"widths": (20, 32, 64, 64, 64)}
    )  # half of them have one width: no height tells that
    assert "pixels" not in render_audit(Audit(passport=same)).partition("What should be known")[0]


def test_names_are_text() -> None:
    evil = "<img src=x onerror=alert(1)>"
    found = Audit(name=evil, observations=(Observation(code="blank", title=evil, names=(evil,)),))
    assert "<img src=x" not in render_audit(found)
