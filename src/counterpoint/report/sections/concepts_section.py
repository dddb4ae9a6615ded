"""What does each feature mean? The samples that activate each dimension of the embedding most."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from counterpoint.core.markup import Markup, element, join
from counterpoint.diagnostics.findings import DescribedConcept
from counterpoint.report.charts.chart_frame import ChartText
from counterpoint.report.charts.figures import absences, columns, readings
from counterpoint.report.charts.interval_chart import share_bar
from counterpoint.report.charts.series_style import run_title
from counterpoint.report.run_record import RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.sections.concept_overview import concept_overview, concept_words, concepts_of
from counterpoint.report.wording import count, number, percent

FEW_SAMPLES = 10
HOW_TO_READ = (
    "Each card shows the samples that activate a dimension most, the strongest first. The name and the bar are the "
    "commonest class, and its share, among all samples the dimension is active on, not only those shown. No class is "
    "named where that share is not above the class’s share of all samples by more than chance."
)
NUM_OPEN = 12  # cards before the fold
SORTS = (
    ("rank", "usefulness"),
    ("purity", "purity"),
    ("fires", "how often it is active"),
    ("expected", "expected activation"),
    ("dim", "dimension number"),
)
PIXELATED_SIDE = 32  # images up to this side are enlarged with hard pixels: nothing is there to smooth
LOSSLESS_SIDE = 16  # below this a PNG is as small as anything
WEBP_QUALITY = 82


@dataclass(frozen=True)
class GalleryPlan:
    """How much of the concept gallery the page shows."""

    num_cards: int
    num_images: int
    max_side: int


# Tried in this order until the page fits; the last one shows no image and always does.
PLANS = (
    GalleryPlan(120, 12, 64),
    GalleryPlan(96, 12, 48),
    GalleryPlan(72, 8, 48),
    GalleryPlan(48, 6, 32),
    GalleryPlan(24, 6, 24),
    GalleryPlan(24, 0, 0),
)


def gallery_section(runs: Sequence[RunRecord], plan: GalleryPlan) -> Markup:
    """Show the concepts of each run, with buttons that sort them."""
    with_concepts = [run for run in runs if concepts_of(run)]
    absent = absences([run for run in runs if not concepts_of(run)], "concepts", "diagnose")
    if not with_concepts:
        return join(absent)
    galleries = [
        join(run_title(run.name, run.order, len(runs)), _gallery(run, plan, len(runs))) for run in with_concepts
    ]
    overview = concept_overview(with_concepts, len(runs))
    notes = join(element("p", HOW_TO_READ, class_="note"), _plan_words(runs, plan))
    gallery = join(notes, _sort_buttons(), columns(galleries))
    return join(readings(runs, concept_words), overview, gallery, correlation_pictures(runs), absent)


def _sort_buttons() -> Markup:
    """Buttons that only work, and only show, with JavaScript."""
    buttons = [
        element("button", words, type="button", data_sort=key, aria_pressed="true" if key == "rank" else "false")
        for key, words in SORTS
    ]
    label = element("span", "Sort by", id="sort-label")
    return element("div", label, buttons, class_="sort needs-script", role="group", aria_labelledby="sort-label")


def _plan_words(runs: Sequence[RunRecord], plan: GalleryPlan) -> Markup | None:
    """Say what the page leaves out."""
    limit = cards_per_run(plan, len(runs))
    longer = [run for run in runs if len(concepts_of(run)) > limit]
    parts = [
        f"the first {limit} of {count(len(concepts_of(run)), 'dimension')}{f' of {run.name}' if len(runs) > 1 else ''}"
        for run in longer
    ]
    if plan is not PLANS[0]:
        images = f"at most {plan.num_images} images of {plan.max_side} pixels each" if plan.num_images else "no images"
        parts.append(f"to keep the page below 8 MB, {images} per dimension")
    if not parts:
        return None
    return element("p", f"Shown here: {'; '.join(parts)}. The rest is in findings.json and arrays.npz.", class_="note")


def _gallery(run: RunRecord, plan: GalleryPlan, num_runs: int) -> Markup:
    """Show one run's cards, the first in the open and the rest folded."""
    shown = concepts_of(run)[: cards_per_run(plan, num_runs)]
    addresses = _addresses(run.arrays.thumbnails, shown, plan)
    cards = [_card(run, concept, rank, plan, addresses) for rank, concept in enumerate(shown)]
    # The cards that page.js deals again after sorting: so many in the open.
    first = element("div", cards[:NUM_OPEN], class_="concepts", data_open=NUM_OPEN)
    if len(cards) <= NUM_OPEN:
        return element("div", first, class_="gallery")
    rest = element("div", cards[NUM_OPEN:], class_="concepts")
    fold = element(
        "details", element("summary", f"{count(len(cards) - NUM_OPEN, 'more dimension')}"), rest, class_="more"
    )
    return element("div", first, fold, class_="gallery")


def _addresses(
    images: NDArray[np.uint8] | None, concepts: Sequence[DescribedConcept], plan: GalleryPlan
) -> dict[int, str]:
    """Encode each thumbnail in use once."""
    if images is None or plan.num_images == 0:
        return {}
    used = {index for concept in concepts for index in _thumbnail_indices(concept, plan, len(images))}
    return {index: data_address(images[index], plan.max_side) for index in sorted(used)}


def _thumbnail_indices(concept: DescribedConcept, plan: GalleryPlan, num_images: int) -> list[int]:
    chosen = concept.thumbnails[: plan.num_images]
    return [int(index) for index in chosen if index is not None and 0 <= index < num_images]


def _card(run: RunRecord, concept: DescribedConcept, rank: int, plan: GalleryPlan, addresses: dict[int, str]) -> Markup:
    """Show one dimension: its name and class, its top samples, and how often it is active."""
    dim = "?" if concept.dim is None else number(concept.dim)
    keys = {
        "purity": concept.purity,
        "fires": concept.fires,
        "expected": concept.expected_activation,
        "dim": concept.dim,
    }
    # -1 for what is not known: last in what sorts downwards. As text, a value keeps all its digits.
    sort_keys = {f"data_{key}": -1.0 if value is None else repr(float(value)) for key, value in keys.items()}
    head = element("header", element("h4", f"dimension {dim}"), _meaning(concept))
    # Vectors have no images, nor has a page that must be small: names take their place.
    samples = _images(run, concept, plan, addresses) if addresses else _names(concept)
    return element("article", head, samples, _facts(run, concept), class_="concept", data_rank=rank, **sort_keys)


def _meaning(concept: DescribedConcept) -> Markup | None:
    """Name the commonest class among the samples that activate a dimension, with its share as a bar."""
    if concept.purity is None:
        return None
    if not concept.top_class:
        return element("p", "no class beyond chance", class_="meaning")
    name = element("bdi", concept.top_class, class_="class-name", title=concept.top_class)
    told = f"{percent(concept.purity)} of the samples it is active on are of one class"
    bar = share_bar(concept.purity, ChartText("purity", told))
    return element("p", name, " ", percent(concept.purity, 0), " ", bar, class_="meaning")


def _images(run: RunRecord, concept: DescribedConcept, plan: GalleryPlan, addresses: dict[int, str]) -> Markup:
    """Set a dimension's top images in order of activation."""
    images = run.arrays.thumbnails
    assert images is not None  # there are no addresses without images
    is_small = max(images.shape[1:3]) <= PIXELATED_SIDE
    pictures = [
        _image(concept, place, addresses[index], is_small)
        for place, index in enumerate(_thumbnail_indices(concept, plan, len(images)))
    ]
    return element(
        "div", pictures, class_=f"thumbs per-row-{_per_row(len(pictures))}{' long' if len(pictures) > 6 else ''}"
    )


def _image(concept: DescribedConcept, place: int, address: str, is_small: bool) -> Markup:
    name = concept.names[place] if place < len(concept.names) else f"sample {place + 1}"
    value = concept.values[place] if place < len(concept.values) else None
    words = name if value is None else f"{name}, activation {number(value)}"
    return element("img", src=address, alt=words, title=words, class_="pixelated" if is_small else None)


def _per_row(num_images: int) -> int:
    """Choose a number of columns that leaves no ragged last row.

    >>> [_per_row(n) for n in (12, 10, 8, 7, 3, 0)]
    [6, 5, 4, 6, 3, 1]
    """
    if num_images <= 6:
        return max(num_images, 1)
    # 12, 10 and 8 fill their rows; 7 and 11 fit none and are set in sixes.
    return next((per_row for per_row in (6, 5, 4) if num_images % per_row == 0), 6)


def _names(concept: DescribedConcept) -> Markup:
    """List names and activations where there are no images."""
    pairs = list(zip(concept.names, concept.values, strict=False))[:12]
    rows = [element("li", element("bdi", name), " ", element("span", number(value))) for name, value in pairs]
    return element("ol", rows, class_="samples")


def _facts(run: RunRecord, concept: DescribedConcept) -> Markup:
    """Say how often a dimension is active, and warn when its purity rests on few samples."""
    parts = []
    if concept.fires is not None:
        parts.append("always active" if concept.fires == 1 else f"active on {percent(concept.fires)}")
    if concept.expected_activation is not None:
        parts.append(f"expected activation {number(concept.expected_activation)}")
    num_samples = run.diagnosis.settings.get("num_samples") if run.diagnosis else None
    num_active = round((concept.fires or 0.0) * (num_samples or 0.0))
    if concept.purity is not None and 0 < num_active < FEW_SAMPLES:
        parts.append(f"purity from {count(num_active, 'sample')} only")
    return element("p", ", ".join(parts), class_="facts")


def cards_per_run(plan: GalleryPlan, num_runs: int) -> int:
    """Share the cards of a plan among the runs; one run alone gets at most half of them."""
    return plan.num_cards // max(num_runs, 2)


def data_address(image: NDArray[np.uint8], max_side: int) -> str:
    """Encode one thumbnail, grey (h, w) or colour (h, w, 3), as a ``data:`` address.

    Args:
        image: the pixels.
        max_side: a longer image is shrunk to this many pixels.

    Returns:
        The address.
    """
    picture = Image.fromarray(np.ascontiguousarray(image))
    if max(picture.size) > max_side:
        picture.thumbnail((max_side, max_side), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    if max(picture.size) <= LOSSLESS_SIDE:
        picture.save(stream, "PNG", optimize=True)
        kind = "png"
    else:
        # WebP has no grey.
        picture.convert("RGB").save(stream, "WEBP", quality=WEBP_QUALITY, method=4)
        kind = "webp"
    return f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"


HOW_TO_READ_CORRELATIONS = (
    "Correlations between dimensions over all samples: blue is positive, orange negative, the deeper the closer to 1. "
    "A pixel off the diagonal as deep as the diagonal is a dimension that repeats another."
)
POSITIVE, NEGATIVE = np.array([37.0, 99.0, 176.0]), np.array([200.0, 96.0, 10.0])  # at 1 and -1; white at 0
LEAST_SIDE = 320  # pixels on the page


def correlation_pictures(runs: Sequence[RunRecord]) -> Markup | None:
    """A picture for each run that has the matrix; None where none has."""
    known = [(run, run.arrays.correlation) for run in runs if run.arrays.correlation is not None]
    if not known:
        return None
    pictures = [join(run_title(run.name, run.order, len(runs)), _picture(run, matrix)) for run, matrix in known]
    heading = element("h3", "Do dimensions repeat each other?")
    return join(heading, element("p", HOW_TO_READ_CORRELATIONS, class_="note"), columns(pictures))


def _picture(run: RunRecord, matrix_LL: NDArray[np.float64]) -> Markup:
    """The matrix and what it says in words."""
    size = len(matrix_LL)
    place, repeated = run.place("embedding"), run.measured("embedding", "duplicate_dims")
    others = np.abs(matrix_LL[~np.eye(size, dtype=bool)])
    largest = float(others.max()) if others.size else 0.0
    total = f" of {place.num_dims:,}" if place and place.num_dims > size else ""
    told = "" if repeated is None else f" {count(repeated, 'dimension')} repeat an earlier one."
    words = f"{count(size, 'dimension')}{total}; the largest correlation by size is {number(largest)}.{told}"
    side = max(LEAST_SIDE, size)
    image = element("img", src=_matrix_address(matrix_LL), alt=words, class_="pixelated", width=side, height=side)
    return join(element("p", words, class_="reading"), image)


def _matrix_address(matrix_LL: NDArray[np.float64]) -> str:
    """The matrix as the ``data:`` address of a PNG."""
    depth = np.clip(np.abs(matrix_LL), 0, 1)[..., None]
    colour = np.where(matrix_LL[..., None] >= 0, POSITIVE, NEGATIVE)
    pixels = np.round(255 * (1 - depth) + colour * depth).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"


FILLS = [partial(gallery_section, plan=plan) for plan in PLANS]
SECTION = Section(60, "concepts", "Concepts", "What does each feature mean?", FILLS[0], smaller=FILLS[1:])
