"""What is wrong or unusual with picture files, and with single pictures. Each check is silent where all is well."""

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from counterpoint.audit.audit_record import MOST_NAMED, Observation, amount, counted, needed_max_bad
from counterpoint.audit.picture_pass import DEEP_MODES, Header
from counterpoint.audit.set_evidence import PictureCheck, PictureEvidence

DARK, BRIGHT = 24 / 255, 231 / 255  # mean grey beyond which a picture is nearly black, or nearly white
LOW_CONTRAST = 40  # levels
SMALL_SIDE = 32  # pixels


def check_unreadable(evidence: PictureEvidence) -> Observation | None:
    """Files that hold no picture, or only a part of one."""
    headers = evidence.seen.headers
    bad = [place for place, header in enumerate(headers) if header.reason]
    if not bad:
        return None
    reasons = Counter(headers[place].reason for place in bad)
    is_all = len(bad) == len(headers)
    needed = needed_max_bad(len(bad), len(headers))
    remedy = "bring them again from where they came, or delete them; `train` leaves them out"
    remedy += " and names them" if needed is None else f" with --source.max-bad {needed:g}"
    return Observation(
        code="unreadable",
        level="severe" if is_all else "warning",
        title=f"unreadable: {amount(len(bad), 'file')} of {len(headers):,} ({counted(reasons, 3)})",
        text="A file that breaks off or is damaged decodes to nothing, or to other pixels than it had.",
        remedy="bring the files again from where they came" if is_all else remedy,
        count=len(bad),
        names=tuple(f"{evidence.known.names[place]} ({headers[place].reason})" for place in bad[:MOST_NAMED]),
    )


def check_others(evidence: PictureEvidence) -> Observation | None:
    """Files that are no pictures by their name."""
    others = evidence.known.collection.ignored
    if not others:
        return None
    return Observation(
        code="no-pictures",
        title=f"passed over: {amount(len(others), 'file')}",
        remedy="nothing, unless pictures are among them: give these a suffix such as .jpg or .png",
        count=len(others),
        names=tuple(f"{item.name} ({item.reason})" for item in others[:MOST_NAMED]),
    )


def check_blank(evidence: PictureEvidence) -> Observation | None:
    """Pictures of one colour."""
    return evidence.known.observed(
        np.flatnonzero(evidence.known.is_blank_N).tolist(),
        "nothing to see, hardly more than one colour",
        code="blank",
        level="warning",
        text="All of them look alike, so that each repels copies of itself in a contrastive loss.",
        remedy="leave them out with --source.exclude FILE (`counterpoint recommend` writes that file)",
    )


def check_exposure(evidence: PictureEvidence) -> Observation | None:
    """Pictures that are nearly black, nearly white, or of low contrast."""
    looks = evidence.seen.looks
    mean_N = looks.colour_N6[:, :3].mean(1)
    is_odd_N = (mean_N < DARK) | (mean_N > BRIGHT) | (looks.range_N < LOW_CONTRAST)
    places = np.flatnonzero(is_odd_N & evidence.known.is_good_N & ~evidence.known.is_blank_N).tolist()
    kinds = Counter(
        "nearly black" if mean_N[place] < DARK else "nearly white" if mean_N[place] > BRIGHT else "of low contrast"
        for place in places
    )
    remedy = "look at them; drawings and masks may be meant to be so"
    return evidence.known.observed(places, "hard to see", f" ({counted(kinds)})", code="exposure", remedy=remedy)


def check_small(evidence: PictureEvidence) -> Observation | None:
    """Pictures with few pixels beside others that have many."""
    headers = evidence.seen.headers
    sides = [min(headers[place].width, headers[place].height) for place in evidence.known.good]
    usual = float(np.median(sides)) if sides else 0.0
    return evidence.known.observed(
        [place for place, side in zip(evidence.known.good, sides, strict=True) if side < min(SMALL_SIDE, usual / 2)],
        f"smaller than {SMALL_SIDE} px, where the median side is {usual:g} px",
        code="small",
        remedy="look at them: thumbnails and icons among photographs are seldom meant",
    )


def _counting(code: str, words: str, remedy: str, claim: Callable[[Header], bool]) -> PictureCheck:
    """A check that names files of which something is true that changes nothing for training."""

    def check(evidence: PictureEvidence) -> Observation | None:
        places = [place for place in evidence.known.good if claim(evidence.seen.headers[place])]
        return evidence.known.observed(places, words, code=code, remedy=remedy)

    check.__doc__ = f"Pictures of one kind: {words}."
    return check


check_misnamed = _counting(
    "misnamed",
    "of another format than the name says",
    "nothing for training, which goes by the content; other programs may refuse them",
    lambda header: header.is_misnamed,
)
check_turned = _counting(
    "turned",
    "stored on their side, with a mark how to turn them (EXIF)",
    "nothing: they are turned when they are read; programs that ignore the mark see them on their side",
    lambda header: header.orientation != 1,
)
check_animated = _counting(
    "animated",
    "several frames",
    "nothing, if the first frame will do: it alone is taken",
    lambda header: header.frames > 1,
)
check_transparent = _counting(
    "transparent",
    "an alpha channel",
    "nothing, if white behind transparent pixels will do",
    lambda header: header.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "alpha" in header.mode,
)
check_deep = _counting(
    "deep",
    "more than 8 bits per pixel",
    "nothing, if 8 bits will do: levels are scaled down; an array (.npy) keeps more",
    lambda header: header.mode in DEEP_MODES,
)
check_printed = _counting(
    "cmyk",
    "the colours of printing (CMYK)",
    "nothing: they are converted, without a colour profile",
    lambda header: header.mode == "CMYK",
)

CATALOGUE: Mapping[str, PictureCheck] = {
    "unreadable": check_unreadable,
    "blank": check_blank,
    "exposure": check_exposure,
    "small": check_small,
    "no-pictures": check_others,
    "misnamed": check_misnamed,
    "turned": check_turned,
    "animated": check_animated,
    "transparent": check_transparent,
    "deep": check_deep,
    "cmyk": check_printed,
}
