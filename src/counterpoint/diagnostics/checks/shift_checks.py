"""Signs that samples differ from those of training: another distribution, memorised samples, altered input."""

from counterpoint.diagnostics import remedies
from counterpoint.diagnostics.evidence import EMBEDDING, RAW_INPUT, Evidence
from counterpoint.diagnostics.finding import Finding

MUCH_APART = 0.7  # area under the curve, raw input


def check_shift(evidence: Evidence) -> Finding | None:
    """Do held-out samples differ from training samples, in raw input or only in the embedding?"""
    told = evidence.held_out.told if evidence.held_out else {}
    embedding, raw = told.get(EMBEDDING), told.get(RAW_INPUT)
    if embedding is None or raw is None or not (embedding.is_apart or raw.is_apart):
        return None
    both = f"{raw.auc:.2f} by raw input, {embedding.auc:.2f} by the embedding"
    matched = (
        "equal numbers of each class were compared, so class proportions do not explain it"
        if raw.has_classes
        else "without labels, other class proportions would explain it, too"
    )
    if raw.is_apart:
        return Finding(
            level="warning" if (raw.auc or 0.0) >= MUCH_APART else "note",
            title="Held-out samples come from another distribution than training samples: a shift "
            f"(told apart with AUC {both})",
            measured=raw.auc,
            reference=raw.chance,
            reference_name="parts that were shuffled",
            text="A linear classifier separates them by raw input; " + matched + ". Figures on held-out samples then "
            "describe performance on other data.",
            confirm="look at samples of both parts side by side: light, size, source, date",
            remedy="draw the held-out part at random from all samples, or report both figures if it comes from "
            "another source on purpose",
            cannot_tell="in what they differ, and whether that matters for your task",
        )
    return Finding(
        title=f"The embedding knows which samples it was trained on: held-out ones are told apart with AUC {both}",
        measured=embedding.auc,
        reference=embedding.chance,
        reference_name="parts that were shuffled",
        text="The raw input of both parts does not differ, their embeddings do: the encoder has memorised its training "
        "samples; " + matched + ".",
        **remedies.against_memory(evidence),
        cannot_tell="whether the data differ in a way that needs a nonlinear boundary in pixels",
    )


def check_altered_input(evidence: Evidence) -> Finding | None:
    """Are these the training pictures after one change: another order of channels, inverted, scaled?"""
    altered = evidence.altered
    if altered is None:
        return None
    return Finding(
        level="warning",
        title=f"Altered input: {altered.sentence}",
        measured=altered.distance,
        reference=altered.undone,
        reference_name="after that is undone",
        text="Means and deviations of their channels differ from those recorded in the run (in standard deviations of "
        "single pictures), and agree once this change is undone. The encoder was never trained on such input.",
        confirm="look at some of them beside training pictures: counterpoint preview --data DATA",
        remedy="bring channels, light and scale to what they were in training, and diagnose again",
        cannot_tell="whether pictures of another source have such channels by nature",
    )
