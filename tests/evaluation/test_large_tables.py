"""A bank on disk gives the same bits as one in memory, to every metric that reads it part by part."""

# N bank samples, Q queries, D features

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import counterpoint as cp
from counterpoint.core.stored_rows import StoredRows, load
from counterpoint.evaluation import feature_tables, knn, linear_probe
from counterpoint.evaluation.evaluation_result import CATALOGUE
from counterpoint.evaluation.knn import Vote
from counterpoint.evaluation.linear_probe import fit_probe, fit_scaling
from counterpoint.evaluation.metric_types import Labelled


def draw(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    labels = rng.integers(0, 3, n)
    return (rng.normal(size=(n, d)) + labels[:, None] * rng.normal(size=d)).astype(np.float32), labels


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts so small that a table of 500 rows has several."""
    monkeypatch.setattr(knn, "BANK_BLOCK", 96)
    monkeypatch.setattr(linear_probe, "BLOCK", 64)


@pytest.fixture
def table(tmp_path: Path) -> StoredRows:
    """500 rows of a file of 800, in an order of their own."""
    np.save(tmp_path / "bank.npy", draw(800, 5)[0])
    places = torch.randperm(800, generator=torch.Generator().manual_seed(1))[:500]
    return StoredRows(tmp_path / "bank.npy").take(places)


def test_standardised_rows_are_those_of_the_copy_in_memory(small_parts: None, table: StoredRows) -> None:
    queries = torch.from_numpy(draw(20, 5)[0])
    stored, held = fit_scaling(table), fit_scaling(load(table))
    rows = stored.of_rows(table)
    assert not isinstance(rows, torch.Tensor)  # nothing is computed before it is read
    assert torch.equal(load(rows), held(load(table)))
    assert torch.equal(stored(queries), held(queries))


def test_the_probes_bits_are_those_of_a_bank_in_memory(small_parts: None, table: StoredRows) -> None:
    labels, queries = torch.from_numpy(draw(500, 5)[1]), torch.from_numpy(draw(40, 5)[0])
    stored, held = (fit_probe(bank, labels) for bank in (table, load(table)))
    assert torch.equal(stored.solution.weight_CD, held.solution.weight_CD)
    assert (stored.solution.loss, stored.solution.steps) == (held.solution.loss, held.solution.steps)
    assert torch.equal(stored.predict(queries), held.predict(queries))


@pytest.mark.parametrize("similarity", ["cosine", knn.DOT])
def test_the_neighbours_bits_are_those_of_a_bank_in_memory(
    small_parts: None, table: StoredRows, similarity: str
) -> None:
    queries = torch.from_numpy(draw(40, 5)[0])
    stored, held = (knn.nearest(bank, queries, 7, similarity=similarity) for bank in (table, load(table)))
    assert torch.equal(stored.similarity_QK, held.similarity_QK)
    assert torch.equal(stored.positions_QK, held.positions_QK)


@pytest.mark.parametrize("name", [name for name, metric in CATALOGUE.items() if metric.in_parts])
def test_metrics_that_read_parts_never_ask_for_all(
    name: str, small_parts: None, table: StoredRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = torch.from_numpy(draw(500, 5)[1])
    queries, labels_Q = (torch.from_numpy(each) for each in draw(40, 5))
    held = Labelled(load(table), labels, queries, labels_Q, 5, 0.1)
    expected, read = CATALOGUE[name].measure(held), StoredRows.__getitem__

    def some(rows: StoredRows, part: slice) -> torch.Tensor:
        assert len(range(*part.indices(len(rows)))) <= 96
        return read(rows, part)

    monkeypatch.setattr(StoredRows, "__getitem__", some)
    found = CATALOGUE[name].measure(dataclasses.replace(held, bank_ND=table))
    assert found.settings == expected.settings
    # Of no class at all, a figure is NaN.
    assert repr(found.outcome) == repr(expected.outcome)


def test_those_that_read_parts_are_the_usual_ones() -> None:
    in_parts = {name for name, metric in CATALOGUE.items() if metric.in_parts}
    assert in_parts >= {"knn", "linear probe"}


def test_features_too_large_for_the_memory_are_read_from_the_cache(
    run: cp.Run, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = cp.evaluate(run, quiet=True, cache=False).rows
    monkeypatch.setattr(feature_tables, "IN_MEMORY", 100)
    taken = []
    opened = feature_tables._opened
    monkeypatch.setattr(feature_tables, "_opened", lambda path: taken.append(opened(path)) or taken[-1])
    assert cp.evaluate(run, quiet=True).rows == held
    assert any(isinstance(each, StoredRows) for each in taken)


def test_votes_of_more_neighbours_than_a_block_has_rows(small_parts: None, table: StoredRows) -> None:
    labels, queries = torch.from_numpy(draw(500, 5)[1]), torch.from_numpy(draw(10, 5)[0])
    from_disk, held = (
        cp.evaluation.knn.knn_predict(bank, labels, queries, Vote(k=200)) for bank in (table, load(table))
    )
    assert torch.equal(from_disk, held)
