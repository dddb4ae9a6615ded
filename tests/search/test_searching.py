"""Searching a run: hits, reasons, refusals; near-duplicates that were planted."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageEnhance

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.errors import DataError, UsageError

SIDE, NUM_PICTURES = 32, 60


def picture(rng: np.random.Generator) -> Image.Image:
    """Smooth and coloured, unlike any other."""
    small = Image.fromarray(rng.integers(0, 256, (5, 5, 3), dtype=np.uint8))
    return small.resize((48, 48), Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of two classes; four of them have near-duplicates, made in four ways."""
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    pictures = [picture(rng) for _ in range(NUM_PICTURES)]
    for number, each in enumerate(pictures):
        path = folder / "ab"[number % 2] / f"{number:02}.png"
        path.parent.mkdir(exist_ok=True)
        each.save(path)
    pictures[0].resize((30, 30)).resize((48, 48)).save(folder / "a" / "smaller.png")
    pictures[1].save(folder / "b" / "compressed.jpg", quality=30)
    ImageEnhance.Brightness(pictures[2]).enhance(0.7).save(folder / "a" / "darker.png")
    pictures[3].crop((2, 2, 46, 46)).resize((48, 48)).save(folder / "b" / "cropped.png")
    return folder


@pytest.fixture(scope="module")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    """A run with a non-negative embedding."""
    out = tmp_path_factory.mktemp("run") / "run"
    settings = {"source": {"image_size": SIDE}, "batch_size": 16, "projector": {"features": 16}}
    return cp.train(photos, method="ncl", epochs=2, out=out, quiet=True, **settings)


def test_the_first_hit_of_a_picture_is_the_picture(run: cp.Run, photos: Path) -> None:
    found = cp.search(run, str(photos / "a" / "04.png"), k=3, quiet=True)
    best = found.queries[0].hits[0]
    assert (best.name, best.label) == ("a/04.png", "a")
    assert best.similarity == pytest.approx(1, abs=1e-5)
    assert len(found.queries[0].hits) == 3


def test_a_row_is_not_its_own_hit_and_agrees_with_a_product(run: cp.Run) -> None:
    z = cp.embed(run, layer="embedding", quiet=True)
    unit = z.vectors / np.linalg.norm(z.vectors, axis=1, keepdims=True).clip(1e-30)
    for word in (7, "7", z.names[7]):
        asked = cp.search(run, word, k=5, quiet=True).queries[0]
        assert (asked.row, asked.name) == (7, z.names[7])
        cosine = unit @ unit[7]
        cosine[7] = -2
        assert [hit.similarity for hit in asked.hits] == pytest.approx(sorted(cosine, reverse=True)[:5], abs=1e-5)
        assert all(hit.row != 7 for hit in asked.hits)


def test_shares_of_concepts_are_those_of_the_product(run: cp.Run) -> None:
    z = cp.embed(run, layer="embedding", quiet=True).vectors
    found = cp.search(run, 3, k=4, quiet=True)
    assert (z == 0).mean() >= 0.5, "the embedding of this run must be sparse, or no dimension has a meaning"
    assert any(hit.concepts for hit in found.queries[0].hits)
    for hit in found.queries[0].hits:
        product = z[3] * z[hit.row]
        for concept in hit.concepts:
            assert concept.share == pytest.approx(product[concept.dim] / product.sum(), abs=1e-4)
        shares = [concept.share for concept in hit.concepts]
        assert shares == sorted(shares, reverse=True)


def test_random_pairs_stand_beside_every_cosine(run: cp.Run) -> None:
    found = cp.search(run, 3, k=60, layer="representation", quiet=True)
    below = [hit.random_below for hit in found.queries[0].hits]
    assert below == sorted(below, reverse=True)
    assert 0 <= below[-1] < below[0] <= 1
    assert all(not hit.concepts for hit in found.queries[0].hits)
    assert "No single dimension of this representation has a meaning" in found.reading[-1]


def test_several_queries_of_any_kind_in_one_call(run: cp.Run, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    for name in ("04.png", "06.png"):  # those that have no near-duplicate
        (tmp_path / "two" / name).write_bytes((photos / "a" / name).read_bytes())
    images = np.stack([np.asarray(Image.open(photos / "b" / "05.png").resize((SIDE, SIDE)))] * 2)
    np.save(tmp_path / "images.npy", images)
    found = cp.search(run, [np.int64(1), str(tmp_path / "two"), str(tmp_path / "images.npy")], k=1, quiet=True)
    assert [asked.hits[0].name for asked in found.queries][1:3] == ["a/04.png", "a/06.png"]
    assert len(found.queries) == 5


def test_planted_near_duplicates_are_found_and_nothing_else(run: cp.Run) -> None:
    found = cp.duplicates(run, quiet=True)
    assert {group.names for group in found.groups} == {
        ("a/00.png", "a/smaller.png"),
        ("b/01.png", "b/compressed.jpg"),
        ("a/02.png", "a/darker.png"),
        ("b/03.png", "b/cropped.png"),
    }
    assert all(group.by == "pixels" for group in found.groups)


@pytest.mark.parametrize(
    ("query", "options", "error", "complaint"),
    [
        (64, {}, UsageError, "row must be between 0 and 63, got 64"),
        ("nothing.png", {}, UsageError, "'nothing.png' is not a file, row or sample name"),
        ([], {}, UsageError, "there is no query"),
        (0, {"k": 64}, UsageError, "k must be between 1 and 63, the other samples of the collection, got 64"),
        (0, {"k": 0}, UsageError, "k must be between 1 and 63"),
        (0, {"k": "3"}, UsageError, "k must be between 1 and 63, .* got '3'"),
        ("", {}, UsageError, "'' is not a file, row or sample name"),
        (Path("5"), {}, UsageError, "'5' is not a file, row or sample name"),
        (True, {}, UsageError, "'True' is not a file, row or sample name"),
        ("x" * 5000, {}, UsageError, "is not a file, row or sample name"),
        (0, {"layer": "embeding"}, UsageError, "did you mean 'embedding'"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    run: cp.Run, query: Any, options: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        cp.search(run, query, quiet=True, **options)


def test_files_that_are_no_pictures_are_refused(run: cp.Run, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture")
    (tmp_path / "notes.md").write_text("no picture")
    (tmp_path / "empty").mkdir()
    np.save(tmp_path / "vectors.npy", np.ones((3, 5), np.float32))
    for name, complaint in (
        ("broken.png", "is not a readable picture: not an image"),
        ("notes.md", "notes.md is neither a folder of images nor a file of a known form"),
        ("empty", "no images in"),
        ("vectors.npy", "are vectors, and this encoder takes pictures"),
    ):
        with pytest.raises((UsageError, DataError), match=complaint):
            cp.search(run, str(tmp_path / name), quiet=True)


def test_five_samples_can_be_searched_and_one_cannot(run: cp.Run, photos: Path, tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.png").write_bytes((photos / "ab"[number % 2] / f"{number:02}.png").read_bytes())
    found = cp.search(run, 0, to=str(tmp_path), k=4, quiet=True)
    assert len(found.queries[0].hits) == 4
    for number in range(1, 5):
        (tmp_path / f"{number}.png").unlink()
    with pytest.raises(DataError, match="holds 1 sample; a search needs 2 or more"):
        cp.search(run, 0, to=str(tmp_path), k=1, quiet=True)


def test_the_command_prints_at_most_100_columns_and_draws_a_page(
    run: cp.Run, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "hits.html"
    words = ["search", str(run.path), str(photos / "a" / "00.png"), "5", "-k", "4", "-q"]
    assert main([*words, "--out", str(page)]) == 0
    printed = capsys.readouterr().out
    *own, drawn = printed.splitlines()
    assert max(map(len, own)) <= 100
    assert "a/smaller.png" in printed
    assert drawn == f"Drawn in {page}."
    text = page.read_text(encoding="utf-8")
    assert text.count("<img ") == 10
    assert "<script" not in text
    assert main([*words, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert [len(asked["hits"]) for asked in values["queries"]] == [4, 4]
    assert main(["search", str(run.path), "--duplicates", "-q", "--out", str(tmp_path / "copies.html")]) == 0
    assert "4 groups of near-duplicates" in capsys.readouterr().out
    assert (tmp_path / "copies.html").read_text(encoding="utf-8").count("<img ") == 8


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "give at least one QUERY"),
        (["3", "--duplicates"], "--duplicates takes no QUERY"),
        (["3", "--threshold", "0.9"], "--threshold goes with --duplicates"),
        (["--duplicates", "--threshold", "2"], "threshold must be a cosine, between -1 and 1, got 2.0"),
        (["--export", "faiss", "--out", "table"], "search --export is gone: docs/search.md shows"),
        (["3", "--dims", "64"], "search --dims is gone: all dimensions are compared"),
        (["3", "--rebuild"], "rebuild is gone: features come from the cache"),
    ],
)
def test_flags_without_effect_or_that_are_gone_are_refused_in_one_line(
    run: cp.Run, words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["search", str(run.path), *words])
    except SystemExit as left:  # of the parser
        code = left.code
    assert code == 2
    assert complaint in capsys.readouterr().err.splitlines()[-1]


def test_a_run_that_moved_is_named_as_it_is_now(run: cp.Run, tmp_path: Path) -> None:
    assert cp.search(run, 0, k=1, quiet=True).run == "run"
    copy = shutil.copytree(run.path, tmp_path / "moved")
    assert cp.search(copy, 0, k=1, quiet=True).run == cp.duplicates(copy, quiet=True).run == "moved"


def test_the_function_that_is_gone_says_what_takes_its_place() -> None:
    with pytest.raises(AttributeError, match=r"export_index is gone: docs/search\.md shows"):
        _ = cp.export_index  # pyright: ignore[reportAttributeAccessIssue]


def test_a_run_that_is_replaced_loses_the_indexes_of_earlier_versions(photos: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"source": {"image_size": 8}, "batch_size": 16, "epochs": 1, "quiet": True}
    own = cp.train(photos, out=tmp_path / "run", **settings)
    (own.path / "indexes" / "embedding").mkdir(parents=True)
    (own.path / "indexes" / "embedding" / "index.json").touch()
    again = cp.train(photos, out=tmp_path / "run", overwrite=True, **settings)
    assert not (again.path / "indexes").exists()
