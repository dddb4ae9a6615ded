"""Nearest neighbours and average precision in exact fractions and plain loops. Imports no tensor code."""

import math
from collections.abc import Sequence
from fractions import Fraction

Rows = Sequence[Sequence[float]]


def whole_numbers(rows: Rows) -> list[list[int]]:
    """All numbers times the same power of two, which no order of cosines depends on."""
    ratios = [[float(x).as_integer_ratio() for x in row] for row in rows]
    scale = max(denominator for row in ratios for _, denominator in row)
    return [[numerator * (scale // denominator) for numerator, denominator in row] for row in ratios]


def order_by_cosine(query: Sequence[float], bank: Rows) -> list[int]:
    """All places of the bank by falling cosine, the smaller among equals first; a zero vector has cosine 0."""
    (asked,), rows = whole_numbers([query]), whole_numbers(bank)

    def signed_square(row: Sequence[int]) -> Fraction:
        """Of the cosine, but for the query's length, which is the same for all."""
        dot = sum(a * b for a, b in zip(asked, row, strict=True))
        return Fraction(dot * abs(dot), sum(b * b for b in row) or 1)

    return sorted(range(len(bank)), key=lambda j: (-signed_square(rows[j]), j))


def average_precision(hits: Sequence[bool], num_relevant: int, definition: str) -> float:
    """Of one query: which of the k retrieved samples are relevant, and how many of the bank are. NaN: not counted."""
    if definition == "ncl2024":  # appendix G.4 in the released code: same-class count over 10
        return sum(hits) / len(hits)
    total = 0.0
    for rank in range(1, len(hits) + 1):
        if hits[rank - 1]:
            total += sum(hits[:rank]) / rank
    return total / min(len(hits), num_relevant) if num_relevant else math.nan


def average_precisions(
    queries: Rows, labels: Sequence[int], bank: Rows, bank_labels: Sequence[int], k: int, definition: str
) -> list[float]:
    """Of every query."""
    values = []
    for i, query in enumerate(queries):
        found = [bank_labels[j] == labels[i] for j in order_by_cosine(query, bank)]
        values.append(average_precision(found[:k], sum(found), definition))
    return values
