"""What is wrong with a table of vectors: NaN and infinity, constant columns."""

# N samples, D features

import hashlib

import numpy as np

from counterpoint.audit.audit_record import MOST_NAMED, Observation, amount
from counterpoint.audit.audited_data import AuditedData
from counterpoint.audit.set_evidence import Check, SetEvidence


def vector_evidence(collection: AuditedData) -> SetEvidence:
    """Evidence of a collection of vectors."""
    values_ND = np.ascontiguousarray(collection.held)
    is_good_N = np.asarray(np.isfinite(values_ND).all(1))
    digests = tuple(
        hashlib.sha256(row.tobytes()).digest()[:16] if is_good else b""
        for row, is_good in zip(values_ND, is_good_N, strict=True)
    )
    return SetEvidence(collection, digests, is_good_N, np.zeros(len(values_ND), bool))


def check_finite(evidence: SetEvidence) -> Observation | None:
    """Rows with NaN or infinity."""
    bad = np.flatnonzero(~evidence.is_good_N).tolist()
    return evidence.observed(
        bad,
        "NaN or infinity in float32",
        f" of {len(evidence.names):,}",
        code="not-finite",
        level="severe",
        text="Training refuses them: one such number makes every weight NaN.",
        remedy="leave these rows out, fill the gaps with the median of the column, or scale too large numbers down",
    )


def check_constant(evidence: SetEvidence) -> Observation | None:
    """Columns with one value."""
    values_ND = evidence.collection.held[evidence.is_good_N]
    if len(values_ND) < 2:
        return None
    places = np.flatnonzero(values_ND.max(0) == values_ND.min(0)).tolist()
    if not places:
        return None
    return Observation(
        code="constant-columns",
        level="warning" if len(places) == values_ND.shape[1] else "note",
        title=f"one value only: {amount(len(places), 'column')} of {values_ND.shape[1]:,}",
        text="They tell no sample from another.",
        remedy="leave them out",
        count=len(places),
        names=tuple(f"column {place}" for place in places[:MOST_NAMED]),
    )


VECTOR_CHECKS: tuple[Check, ...] = (check_finite, check_constant)
