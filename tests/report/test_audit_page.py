"""The page of an audit: escaped names, thumbnails inside, no script, and never over another file."""

from pathlib import Path

import numpy as np

import counterpoint as cp
from audit.planted_faults import plant, save_clean
from counterpoint.audit.audit_record import Audit, Observation
from counterpoint.report.audit_page import AUDIT_PAGE, render_audit
from counterpoint.report.document import write_page


def test_the_page_shows_what_was_found(tmp_path: Path, rng: np.random.Generator) -> None:
    plant(save_clean(tmp_path / "photos", rng, 8), rng)
    found = cp.audit(tmp_path / "photos", quiet=True)
    page = write_page(AUDIT_PAGE, tmp_path / "audit.html", lambda: render_audit(found)).read_text(encoding="utf-8")
    assert all(each.title in page for each in found.observations if "(" not in each.title)
    assert "cats/recompressed.jpg" in page
    assert page.count("data:image/jpeg;base64,") >= 8
    assert "<script" not in page
    assert str(tmp_path) not in page  # folders of the user's are not told
    assert len(page) < 2 << 20
    write_page(AUDIT_PAGE, tmp_path / "audit.html", lambda: render_audit(found))  # an earlier page is replaced


def test_names_are_text() -> None:
    evil = "<img src=x onerror=alert(1)>"
    found = Audit(name=evil, observations=(Observation(code="blank", title=evil, names=(evil,)),))
    assert "<img src=x" not in render_audit(found)
