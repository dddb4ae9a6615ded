"""Which kernel computes a reduction: by psi and size, with a reason, or as asked."""

# N anchors, M keys, D features

import warnings

import pytest
import torch
from pair_cases import FUNCTIONS

from counterpoint.kernels import select as choice_module
from counterpoint.kernels.contract import HINGE, IDENTITY, PairScores, ScoreTerms
from counterpoint.kernels.select import CATALOGUE, recording, select, use
from counterpoint.kernels.triton import triton_pairs
from counterpoint.losses import InfoNCE
from tolerances import assert_close


def scores_of(n: int, m: int, dtype: torch.dtype = torch.float32) -> PairScores:
    """Scores of a shape, without the memory."""
    anchors, keys = (torch.zeros(1, 1, dtype=dtype).expand(rows, 4) for rows in (n, m))
    return PairScores(ScoreTerms(anchors, keys, torch.ones((), dtype=dtype)))


@pytest.mark.parametrize("psi", FUNCTIONS.values(), ids=lambda psi: psi.name)
def test_few_pairs_take_the_matrix_and_many_take_tiles(psi: object) -> None:
    few, many = (select(scores_of(n, n), psi) for n in (4, 70_000))  # pyright: ignore[reportArgumentType]
    assert (few.name, many.name) == (("linear", "linear") if psi is IDENTITY else ("dense", "tiled"))
    assert few.kernel is CATALOGUE[few.name]
    assert all(len(choice.reason) > 10 for choice in (few, many))


def test_a_kernel_may_be_asked_for() -> None:
    scores = scores_of(4, 4)
    with use("tiled"):
        assert select(scores, HINGE).name == "tiled"
        assert select(scores, IDENTITY).name == "tiled"
        assert select(scores, HINGE).reason == "asked for"
        with use("dense"):
            assert select(scores, HINGE).name == "dense"
        assert select(scores, HINGE).name == "tiled"
    assert select(scores, HINGE).name == "dense"


def test_an_unknown_kernel_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"kernel must be one of .*dense.*tiled.*, got 'fast'"), use("fast"):
        pass


def test_a_program_that_does_not_start_is_replaced_recorded_and_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of resource: shared memory, Required: 132096, Hardware limit: 101376")

    monkeypatch.setattr(choice_module, "PROGRAM_DEVICES", ("cpu",))
    monkeypatch.setattr(choice_module, "DENSE_PAIRS", 0)
    monkeypatch.setattr(choice_module, "_failures", {})
    monkeypatch.setattr(triton_pairs, "_device_problem", lambda _: None)
    monkeypatch.setattr(triton_pairs, "_launch", fail)
    z0, z1 = torch.randn(2, 9, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z0.requires_grad_()
    loss = InfoNCE(negatives="cross-view")
    with use("dense"):
        (expected,) = torch.autograd.grad(loss(z0, z1), z0)
    with recording() as choices:
        with pytest.warns(RuntimeWarning, match="fused CUDA program triton did not start.*132096"):
            (first,) = torch.autograd.grad(loss(z0, z1), z0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            (second,) = torch.autograd.grad(loss(z0, z1), z0)
    assert_close(first, expected)
    assert_close(second, expected)
    assert [choice.name for choice in choices] == ["triton", "tiled"]
    assert "132096" in choices[1].reason
    with use("triton"), pytest.raises(RuntimeError, match="132096"):
        loss(z0, z1)
