"""Rows of an evaluation whose right queries are known: packed here as the record describes it, by NumPy."""

from base64 import urlsafe_b64encode
from collections.abc import Iterable
from typing import Any

import numpy as np

from counterpoint.core.schemas import EvaluationRow
from oracles.class_votes import wilson_interval

FINGERPRINT = "0123456789abcdef"  # of the queries of all records made here


def packed(right: Iterable[int], total: int) -> str:
    """Eight queries to a byte, the first one highest."""
    is_right = np.zeros(total, bool)
    is_right[list(right)] = True
    return urlsafe_b64encode(np.packbits(is_right).tobytes()).decode()


def hit_values(features: str, protocol: str, right: Iterable[int], total: int) -> dict[str, Any]:
    """A row as JSON has it, with these queries right."""
    right = list(right)
    low, high = wilson_interval(len(right), total)
    counts = {"accuracy": len(right) / total, "correct": len(right), "total": total, "low": low, "high": high}
    return {"features": features, "protocol": protocol, **counts, "hits": packed(right, total)}


def hit_row(features: str, right: Iterable[int], total: int, protocol: str = "knn") -> EvaluationRow:
    """A row with these queries right."""
    return EvaluationRow.model_validate(hit_values(features, protocol, right, total))
