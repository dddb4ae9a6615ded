"""The benchmark of the report runs as a whole and prints every step."""

import report_pages


def test_the_quick_run_prints_every_step(capsys) -> None:
    assert report_pages.main(["--quick", "--dims", "16"]) == 0
    printed = capsys.readouterr().out
    for step in ("choose, decompose, shrink pictures", "lay out the map", "write the page", "open in Chromium"):
        assert f"| {step}" in printed
    assert "MB of 8" in printed
