"""The section of layers and the spectra's axis: words first, floors marked, damaged or missing arrays."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_folders import edit_json

from counterpoint.report.charts.line_chart import floor_reference, log_values, rounding, spectrum_band
from counterpoint.report.charts.ticks import decade_axis
from counterpoint.report.page import report
from counterpoint.report.run_record import read_run
from counterpoint.report.sections.layers_section import layers_section


def section(folder: Path) -> str:
    return layers_section([read_run(folder, name="a", order=0)])


def edit_arrays(folder: Path, change: Any) -> None:
    with np.load(folder / "arrays.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    change(arrays)
    np.savez(folder / "arrays.npz", **arrays)


def test_words_come_first_and_name_the_layer(make_run) -> None:
    page = section(make_run())
    text = re.sub(r"<[^>]+>", " ", page)
    assert page.startswith(
        '<p class="reading">Directions are first lost in embedding (output map): of 16 that reach it 8'
    )
    assert "Left out, as wider than 4,096 dimensions" in text
    assert "Directions alive, layer by layer" in page
    assert "least alive" in page


def test_a_run_without_layers_says_which_command_makes_them(make_run) -> None:
    folder = make_run()
    edit_json(folder / "findings.json", lambda content: content.pop("layers") and content)
    assert "<code>counterpoint diagnose digits-ncl --layers</code>" in section(folder)
    text = (folder / "resolved.yaml").read_text().replace("data: digits", "data: array")
    (folder / "resolved.yaml").write_text(text)
    assert "<code>cp.diagnose(run, data=X, layers=True)</code>" in section(folder)


def test_spectra_are_shown_over_twelve_decades() -> None:
    values = np.logspace(0, -12, 60)
    shown = log_values(values, rounding(values))
    assert shown[-1] == pytest.approx(-12.0)
    axis = decade_axis("value", shown)
    assert axis.low <= -12
    assert floor_reference(values, rounding(values)) is None


def test_what_is_rounding_lies_on_the_floor() -> None:
    values = np.array([1.0, 1e-6, 1e-15, 0.0])
    floor = 1e-13
    assert log_values(values, floor) == pytest.approx([0.0, -6.0, -13.0, -13.0])
    found = floor_reference(values, floor)
    assert found is not None
    assert found.value == pytest.approx(-13.0)
    assert log_values(np.zeros(3), rounding(np.zeros(3))) == [None, None, None]
    assert log_values(np.zeros(0), 0.0) == []


def test_bands_stay_within_the_axis() -> None:
    axis = decade_axis("value", [-3.0, 0.0])
    band = spectrum_band(np.array([[0.0, 1e-9], [1e5, 10.0]]), axis)
    assert (list(band.low), list(band.high)) == ([axis.low, axis.low], [axis.high, axis.high])


def test_the_page_draws_the_floor_of_a_collapsed_embedding(make_run) -> None:
    folder = make_run()

    def collapse(arrays: dict[str, Any]) -> None:
        arrays["spectrum/embedding"][5:] = 1e-20

    edit_arrays(folder, collapse)
    page = report(folder).read_text()
    start = page.index('id="spectra"')
    assert "floor: rounding" in page[start : page.index('id="layers"')]
    assert json.loads((folder / "findings.json").read_text())["layers"]["num_samples"] == 120
