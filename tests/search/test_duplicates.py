"""Near-duplicates in buckets: what comparing all pairs finds, by direct evidence, in whatever order workers end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.errors import UsageError
from counterpoint.core.stored_rows import StoredRows
from counterpoint.search.duplicates import FIRST, NearPairs, bucket_pairs, direct_groups

LEAST = 0.99


class Backwards:
    """An engine whose last item ends first."""

    @contextmanager
    def opened(self, begin: Callable[[], Any]) -> Iterator[Any]:
        state = begin()

        class Workers:
            def ask(self, question: Callable[[Any], Any]) -> Any:
                return question(state)

            def each(self, work: Callable[[Any, Any], Any], items: Any) -> Iterator[Any]:
                return ((item, work(state, item)) for item in reversed(list(items)))

        yield Workers()


def planted(num_rows: int, num_copies: int, seed: int = 0) -> torch.Tensor:
    """Clustered vectors, of which the last ones are others with a little noise."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(20, 16, generator=generator)
    rows = means[torch.randint(20, (num_rows,), generator=generator)] + torch.randn(num_rows, 16, generator=generator)
    copied = torch.randperm(num_rows - num_copies, generator=generator)[:num_copies]
    rows[-num_copies:] = rows[copied] * 3 + 0.02 * torch.randn(num_copies, 16, generator=generator)
    return rows


def all_pairs(rows_ND: torch.Tensor) -> dict[tuple[int, int], float]:
    """Oracle: each two rows."""
    unit = rows_ND.double().numpy()
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosine = unit @ unit.T
    near = zip(*np.nonzero(np.triu(cosine >= LEAST, 1)), strict=True)
    return {(int(one), int(other)): float(cosine[one, other]) for one, other in near}


def as_dict(found: NearPairs) -> dict[tuple[int, int], float]:
    return {
        (one, other): each for (one, other), each in zip(found.pairs_P2.tolist(), found.cosine_P.tolist(), strict=True)
    }


def test_one_bucket_finds_what_comparing_all_finds() -> None:
    rows = planted(3000, 200)
    found, expected = as_dict(bucket_pairs(rows, LEAST, num_buckets=1)), all_pairs(rows)
    assert len(expected) >= 200
    assert found.keys() == expected.keys()
    assert found == pytest.approx(expected, abs=1e-6)


def test_many_buckets_find_most_and_the_interval_of_recall_holds_the_share() -> None:
    rows = planted(6000, 400)
    found, expected = bucket_pairs(rows, LEAST, num_buckets=40), all_pairs(rows)
    assert as_dict(found).keys() <= expected.keys()
    has_near = {row for pair in expected for row in pair}
    share = len({row for pair in as_dict(found) for row in pair}) / len(has_near)
    assert share > 0.9
    assert found.recall is not None
    assert found.recall.total <= len(has_near)
    assert found.recall.low <= share <= found.recall.high


def test_neighbouring_buckets_are_compared() -> None:
    # Evenly spread rows on a circle: without neighbours, copies across an edge of a bucket would be lost.
    angle = torch.arange(0, 2 * torch.pi, 0.002)
    rows = torch.stack([angle.cos(), angle.sin()], dim=1)
    found = bucket_pairs(rows, float(np.cos(0.003)), num_buckets=16)
    pairs = {tuple(pair) for pair in found.pairs_P2.tolist()}
    assert {(row, row + 1) for row in range(len(rows) - 1)} <= pairs
    assert found.recall is not None
    assert found.recall.value == 1


def test_the_answer_does_not_depend_on_the_engine_or_on_where_rows_lie(tmp_path: Path) -> None:
    rows = planted(2000, 100)
    np.save(tmp_path / "rows.npy", rows.numpy())
    expected = bucket_pairs(rows, LEAST, num_buckets=12)
    for given, engine in ((rows, Backwards()), (StoredRows(tmp_path / "rows.npy"), Backwards())):
        found = bucket_pairs(given, LEAST, num_buckets=12, engine=engine)
        assert torch.equal(found.pairs_P2, expected.pairs_P2)
        assert torch.equal(found.cosine_P, expected.cosine_P)
        assert found.recall == expected.recall


def test_many_equal_rows_keep_few_pairs_and_are_one_group() -> None:
    found = bucket_pairs(torch.ones(500, 4), LEAST, num_buckets=2)
    assert len(found.pairs_P2) <= 500 * FIRST
    assert [len(rows) for rows, _ in direct_groups(found)] == [500]


def test_rows_are_not_joined_by_a_third() -> None:
    chain = NearPairs(torch.tensor([[0, 1], [1, 2], [2, 3]]), torch.tensor([0.99, 0.98, 0.97], dtype=torch.float64))
    assert direct_groups(chain) == [((0, 1), 0.99), ((2, 3), 0.97)]


def test_rows_without_near_ones_have_no_recall() -> None:
    found = bucket_pairs(torch.eye(6), LEAST, num_buckets=2)
    assert found.pairs_P2.shape == (0, 2)
    assert found.recall is None


def test_more_buckets_than_rows_are_refused() -> None:
    with pytest.raises(UsageError, match="buckets must be between 1 and the 6 rows, got 7"):
        bucket_pairs(torch.eye(6), LEAST, num_buckets=7)


def test_the_verb_says_recall_and_refuses_what_has_no_effect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "rows.npy"
    rows = planted(600, 60).numpy()
    rows[-60:] = rows[:60]  # whatever the encoder makes of them
    np.save(data, rows)
    run = str(cp.train(data, epochs=1, batch_size=64, out=tmp_path / "run", quiet=True).path)
    assert main(["search", run, "--duplicates", "--buckets", "6", "-q"]) == 0
    said = capsys.readouterr().out
    assert "6 buckets, each compared with itself and 3 others" in " ".join(said.split())
    assert "Of 120 sampled rows with a near one, 120 were found: recall 1.000, 95 %" in " ".join(said.split())
    assert main(["search", run, "7", "--buckets", "6", "-q"]) == 2
    assert "--buckets goes with --duplicates" in capsys.readouterr().err
