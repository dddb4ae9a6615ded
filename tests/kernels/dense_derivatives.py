"""Gradient and tangents of the pair reductions as autograd makes them of the matrix: what closed forms are held to."""

from dataclasses import fields

import torch
from torch import Tensor

from counterpoint.kernels.contract import PairFunction, PairScores, PerAnchor, ScoreTerms
from counterpoint.kernels.dense import reduce

__all__ = ["gradient", "gradient_tangent", "reduce", "reduce_tangent"]


def gradient(scores: PairScores, psi: PairFunction, statistic: PerAnchor, weight: PerAnchor) -> ScoreTerms:
    """See ``contract.PairKernel.gradient``."""
    # The given statistic is not needed: autograd computes it anew.
    return _as_terms(scores, torch.func.grad(_weighted_total(scores, psi, weight))(_given(scores.terms)))


def reduce_tangent(scores: PairScores, psi: PairFunction, statistic: PerAnchor, tangent: ScoreTerms) -> PerAnchor:
    """See ``contract.PairKernel.reduce_tangent``."""

    def statistics(given: dict[str, Tensor]) -> tuple[Tensor, ...]:
        return tuple(reduce(_as_scores(scores, given), psi).both())

    return PerAnchor(*torch.func.jvp(statistics, (_given(scores.terms),), (_given(tangent),))[1])


def gradient_tangent(
    scores: PairScores, psi: PairFunction, statistic: PerAnchor, weight: PerAnchor, tangent: ScoreTerms
) -> ScoreTerms:
    """See ``contract.PairKernel.gradient_tangent``."""
    # Forward over reverse: a Hessian-vector product, without the Hessian.
    slope = torch.func.grad(_weighted_total(scores, psi, weight))
    return _as_terms(scores, torch.func.jvp(slope, (_given(scores.terms),), (_given(tangent),))[1])


def _weighted_total(scores: PairScores, psi: PairFunction, weight: PerAnchor):
    """The function sum_i g_i r_i of the given terms."""

    def total(given: dict[str, Tensor]) -> Tensor:
        result = reduce(_as_scores(scores, given), psi)
        value = (weight.rows_N * result.rows_N).sum()
        if result.columns_M is None or weight.columns_M is None:
            return value
        return value + (weight.columns_M * result.columns_M).sum()

    return total


def _given(terms: ScoreTerms) -> dict[str, Tensor]:
    """The terms that are not None, by name."""
    return {f.name: value for f in fields(terms) if (value := getattr(terms, f.name)) is not None}


def _as_scores(scores: PairScores, given: dict[str, Tensor]) -> PairScores:
    """The same scores made of other terms."""
    return PairScores(_as_terms(scores, given), scores.mask, scores.is_two_way)


def _as_terms(scores: PairScores, given: dict[str, Tensor]) -> ScoreTerms:
    """Terms by name; those that the scores lack are None."""
    return ScoreTerms(**{f.name: given.get(f.name) for f in fields(scores.terms)})  # pyright: ignore[reportArgumentType]
