"""The map, the table of dimensions and the comparison as they stand in the page, without a browser."""

import re
from pathlib import Path

import numpy as np
import pytest
from page_scan import scan
from run_folders import ATTACK, Samples, dense_embedding, sparse_embedding, toy_samples, write_run

from counterpoint.core.rundir import RunFolder
from counterpoint.report.map_layout import make_map
from counterpoint.report.page import render
from counterpoint.report.reporting import report
from counterpoint.report.run_reading import RunRecord, read_run
from counterpoint.report.sections.dimensions_section import dimension_words, dimensions_section, kinds_of
from counterpoint.report.sections.map_section import Drawn, Groups, class_groups, layouts_of, map_section, still_map
from counterpoint.runs.sample_collection import collect
from kept_samples import embedded, keep_samples, toy_source

NO_PICTURES = 5  # the last step at which a page shrinks


def with_samples(path: Path, toy: Samples, values: np.ndarray, *, method: str = "ncl", has_map: bool = True) -> Path:
    """A run folder with kept samples and, perhaps, a map."""
    write_run(path, toy, values, method=method, num_epochs=2)
    keep_samples(path, collect(toy_source(toy.images, toy.labels, toy.names, toy.class_names), **embedded(values)))
    if has_map:
        make_map(RunFolder(path), quiet=True)
    return path


def read(path: Path, order: int = 0) -> RunRecord:
    return read_run(path, name=path.name, order=order)


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory) -> list[Path]:
    toy, place = toy_samples(60), tmp_path_factory.mktemp("runs")
    sparse, dense = sparse_embedding(toy), dense_embedding(toy)
    return [with_samples(place / "a", toy, sparse), with_samples(place / "b", toy, dense, method="simclr")]


def test_the_page_holds_every_sample_and_every_dimension(two_runs):
    found = scan(report(two_runs[0], out=two_runs[0].parent / "one.html"))
    data = next(attributes for _, attributes in found.elements if attributes.get("class") == "map-data")
    assert (data["data-names"] or "").split("\n") == toy_samples(60).names
    dims = [attributes for tag, attributes in found.elements if tag == "li" and "data-dim" in attributes]
    known = read(two_runs[0]).samples
    order = [int(each["data-dim"] or -1) for each in dims]
    assert order == np.argsort(-known.dims.expected_D, kind="stable").tolist()
    np.testing.assert_allclose([float(each["data-fires"] or -1) for each in dims], known.dims.fires_D[order], rtol=1e-5)
    assert len([a for _, a in found.elements if a.get("class") == "sheet"]) == 1


def test_a_still_map_has_a_mark_for_every_sample(two_runs):
    record = read(two_runs[0])
    assert record.collection is not None
    drawing = still_map(layouts_of(record)[0], class_groups(record.collection), "words")
    assert len(re.findall(r"M\d+ \d+", drawing)) == 60
    assert drawing.count("<text") == 4  # classes


def test_no_name_on_a_still_map_covers_a_mark():
    generator = np.random.default_rng(0)
    of_N = np.repeat(np.arange(6), 150).astype(np.uint8)
    spread_N2 = generator.normal(0, 250, (900, 2)) + 700.0 * np.stack([of_N % 3, of_N // 3], axis=1) + 1000
    groups = Groups(tuple(f"class {k}" for k in range(6)), (150,) * 6, of_N)
    drawing = still_map(Drawn("t-SNE", "embedding", spread_N2.astype(int).clip(0, 4095)), groups, "words")
    marks = np.array(re.findall(r"M(\d+) (\d+)", drawing), float)
    names = [
        (float(x), float(y), name) for x, y, name in re.findall(r'<text x="([\d.]+)" y="([\d.]+)".*?>(.*?)<', drawing)
    ]
    assert len(names) >= 3
    for x, y, name in names:
        half = 8 * len(name)
        covers = (abs(marks[:, 0] - x) < half) & (marks[:, 1] < y + 4) & (marks[:, 1] > y - 22)
        assert not covers.any(), name


def test_how_far_a_map_can_be_trusted_is_said(two_runs):
    record = read(two_runs[0])
    assert record.layouts is not None
    page = map_section([record], 0)
    assert f"{record.layouts.tsne['embedding'].trustworthiness:.3f}" in page
    assert f"{record.layouts.pca_trustworthiness['embedding']:.3f}" in page
    assert "mean nothing" in page


def test_runs_of_the_same_samples_share_their_pictures(two_runs):
    page = render([read(two_runs[0]), read(two_runs[1], 1)])
    assert page.count('class="map-data"') == 2
    assert page.count("<image") == 1


@pytest.mark.thorough
def test_a_page_stays_within_its_budget(tmp_path):
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (300, 64, 64, 3), dtype=np.uint8)  # noise is the hardest to compress
    noise = Samples(images, np.arange(300) % 5, [f"{place}.png" for place in range(300)], list("abcde"))
    record = read(with_samples(tmp_path / "noise", noise, dense_embedding(noise, 96), has_map=False))
    full = render([record])
    budget = len(full.encode()) // 2
    smaller = render([record], budget)
    assert len(smaller.encode()) <= budget
    assert "<image" in smaller


def test_dimensions_are_counted_in_words(two_runs):
    words = dimension_words(read(two_runs[0])).replace("\N{NARROW NO-BREAK SPACE}", " ")
    known = read(two_runs[0]).samples.dims
    own = (known.purity_D >= 0.8) & (known.class_D >= 0)
    assert words.startswith(f"Of 16 dimensions {(known.fires_D == 0).sum()} are silent, and {own.sum()} represent one")
    assert f"of it): {len(set(known.class_D[own]))} of 4 classes together." in words


def test_a_page_without_room_names_samples(two_runs):
    record = read(two_runs[0])
    for section in (map_section, dimensions_section):
        assert 'class="shot' not in section([record], NO_PICTURES)
        assert "<image" not in section([record], NO_PICTURES)
    assert "0004.png" in dimensions_section([record], NO_PICTURES)


@pytest.mark.parametrize(
    ("options", "is_labelled"),
    [
        ({"num_samples": 5, "num_classes": 2}, True),
        ({"num_samples": 5, "num_classes": 1}, True),
        ({"num_samples": 320, "num_classes": 300}, True),
        ({"kind": "vectors", "num_samples": 20}, True),
        ({"kind": "colour", "num_samples": 20}, False),
    ],
    ids=str,
)
@pytest.mark.sampled(2)
def test_odd_samples(tmp_path, options, is_labelled):
    toy = toy_samples(**options)
    toy = toy if is_labelled else Samples(toy.images, None, toy.names, [])
    found = scan(report(with_samples(tmp_path / "run", toy, sparse_embedding(toy))))
    sections = [attributes["id"] for attributes in found.named("section")]
    assert {"map", "dimensions"} <= set(sections)
    assert bool([a for _, a in found.elements if a.get("class") == "sheet"]) == (options.get("kind") != "vectors")


def test_equal_embeddings_lie_in_one_place(tmp_path):
    toy = toy_samples(20)
    page = map_section([read(with_samples(tmp_path / "run", toy, np.ones((20, 4))))], 0)
    assert "t-SNE of" not in page
    assert "nan" not in page.lower().split()


def test_hostile_names_stay_text(tmp_path):
    toy = toy_samples(20)
    names = [f'{ATTACK} "quoted" & \n写真 {n}' for n in range(20)]
    hostile = Samples(toy.images, toy.labels, names, [f"<b onclick=x>{n}" for n in range(4)])
    folder = with_samples(tmp_path / "run", hostile, sparse_embedding(toy))
    found = scan(report(folder))
    data = next(attributes for _, attributes in found.elements if attributes.get("class") == "map-data")
    shown = (data["data-names"] or "").split("\n")
    assert len(shown) == 20  # a line break in a name is none in the list
    assert shown[3].startswith(ATTACK)
    assert not found.named("b onclick=x")
    assert all("onclick" not in attributes for _, attributes in found.elements)


def test_a_page_without_kept_samples_says_how_to_make_them(make_run):
    text = scan(report(make_run())).text
    assert "has no map yet. Run counterpoint diagnose" in text


def test_a_report_makes_the_map_unless_it_is_bare(tmp_path):
    toy = toy_samples(30)
    folder = RunFolder(with_samples(tmp_path / "run", toy, sparse_embedding(toy), has_map=False))
    report(folder.path, bare=True, quiet=True)
    assert not folder.map_layout.exists()
    report(folder.path, quiet=True)
    assert folder.map_layout.exists()
    assert "t-SNE of the embedding" in folder.report.read_text()


def test_kinds_of_dimensions(tmp_path):
    toy = toy_samples(40, num_classes=2)
    values = np.zeros((40, 4))
    values[toy.labels == 1, 0] = 1.0
    values[:, 1] = 1.0
    values[2, 2] = 1.0
    known = read(with_samples(tmp_path / "run", toy, values, has_map=False)).collection
    assert known is not None
    kinds = [kinds_of(known, dim) for dim in range(4)]
    assert kinds == [["named", "pure"], ["always"], ["pure", "selective"], ["silent"]]
