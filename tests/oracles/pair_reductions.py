"""The two reductions over pairs, from their definition in the architecture page: loops over Python floats."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Pairs:
    """u_ij = scale * <a_i, k_j> + c_i + b_j over all but the excluded keys of each anchor."""

    anchors: list[list[float]]
    keys: list[list[float]]
    scale: float
    anchor_bias: list[float]
    key_bias: list[float]
    excluded: list[list[int]]


def score(pairs: Pairs, i: int, j: int) -> float:
    """One u_ij."""
    product = math.fsum(a * k for a, k in zip(pairs.anchors[i], pairs.keys[j], strict=True))
    return pairs.scale * product + pairs.anchor_bias[i] + pairs.key_bias[j]


def log_sums(pairs: Pairs) -> list[float]:
    """log sum_j exp(u_ij) for each anchor."""
    results = []
    for i in range(len(pairs.anchors)):
        row = [score(pairs, i, j) for j in range(len(pairs.keys)) if j not in pairs.excluded[i]]
        results.append(max(row) + math.log(math.fsum(math.exp(u - max(row)) for u in row)))
    return results


def weights(pairs: Pairs, row_weight: list[float], shift: list[float]) -> list[list[float]]:
    """w_ij = row_weight_i * exp(u_ij - shift_i), 0 for excluded pairs."""
    return [
        [
            0.0 if j in pairs.excluded[i] else row_weight[i] * math.exp(score(pairs, i, j) - shift[i])
            for j in range(len(pairs.keys))
        ]
        for i in range(len(pairs.anchors))
    ]


def weighted_sums(w: list[list[float]], vectors: list[list[float]]) -> list[list[float]]:
    """Sum over j of w_ij * vectors_j, for each i."""
    columns = transposed(vectors)
    return [[math.fsum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in w]


def transposed(rows: list[list[float]]) -> list[list[float]]:
    """Rows as columns."""
    return [list(column) for column in zip(*rows, strict=True)]
