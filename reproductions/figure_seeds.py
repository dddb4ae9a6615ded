"""One record of a computed figure from the records of several seeds: every claim is judged seed by seed."""

import re
from collections.abc import Sequence
from dataclasses import replace

from scipy.stats import binomtest

from reproductions.reproduction import Claim, Reproduction
from reproductions.verdicts import UNTOLD

MOST_TEXTS = 3  # that are told one by one
NUMBER = r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\d)"
RANGE = re.compile(f"{NUMBER}(?: to {NUMBER})?")  # as of the starts of one seed


def over_seeds(records: Sequence[Reproduction], first_seed: int) -> Reproduction:
    """Return the record of the first seed, with claims about all seeds.

    A claim agrees or differs where all seeds do. Where they disagree, a sign test decides: it agrees with the paper if
    the exact 95 % interval of the share of seeds that agree (clopper1934) lies above one half, differs if it lies below
    it, and cannot be told otherwise.

    Args:
        records: of one figure, one for each seed, at least one.
        first_seed: seeds count up from it.
    """
    if len(records) == 1:
        return records[0]
    # Panels are drawn of the first.
    claims = tuple(_merge_claims(same) for same in zip(*(record.claims for record in records), strict=True))
    seeds = f"{first_seed} to {first_seed + len(records) - 1}"
    return replace(records[0], claims=claims, settings={**records[0].settings, "seed": seeds})


def _merge_claims(claims: Sequence[Claim]) -> Claim:
    """Merge the claims of all seeds about one statement into one claim."""
    first = claims[0]
    ours = spread([claim.ours for claim in claims])
    judged = [claim.agrees for claim in claims if claim.agrees is not None]
    if not judged or len(set(judged)) == 1:
        return replace(first, ours=ours)
    low, high = binomtest(sum(judged), len(judged)).proportion_ci()
    agrees = bool(low > 0.5) if low > 0.5 or high < 0.5 else None
    note = f"{first.note}; agrees with {sum(judged)} of {len(judged)} seeds".removeprefix("; ")
    return replace(first, ours=ours, agrees=agrees, judged=UNTOLD if agrees is None else first.judged, note=note)


def spread(values: Sequence[float | str]) -> float | str:
    """The mean with the smallest and the largest of numbers; of texts the different ones, or their numbers' ranges.

    >>> spread([0.5, 1.0, 0.75]), spread([2.0, 2.0]), spread(["yes", "no", "yes"])
    ('0.75 (0.5 to 1)', 2.0, 'yes; no')
    >>> spread(["by 0.31, rank 1", "by 0.25, rank 1", "by 0.4, rank 1", "by 0.3, rank 1"])
    'by 0.25 to 0.4, rank 1'
    >>> spread(["16, 12 to 13", "16, 12", "16, 11 to 12", "16, 13"])
    '16, 11 to 13'
    """
    different = list(dict.fromkeys(values))
    if len(different) == 1:
        return different[0]
    numbers = [value for value in values if not isinstance(value, str)]
    if len(numbers) == len(values):
        return f"{sum(numbers) / len(numbers):.4g} ({min(numbers):.4g} to {max(numbers):.4g})"
    texts = [str(value) for value in different]
    if len(texts) <= MOST_TEXTS or len({RANGE.sub("0", text) for text in texts}) > 1:
        return "; ".join(texts)
    # Each column has the same number of all texts.
    columns = zip(*map(RANGE.findall, texts), strict=True)

    def range_of(_: re.Match[str]) -> str:
        ends = sorted({end for number in next(columns) for end in number.split(" to ")}, key=float)
        return ends[0] if len(ends) == 1 else f"{ends[0]} to {ends[-1]}"

    return RANGE.sub(range_of, texts[0])
