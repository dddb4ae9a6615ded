"""Findings: what the measurements mean, worst first, each with a reference, a mechanism and something to try."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from counterpoint.core.paired_shares import written_p
from counterpoint.core.run_records import EvaluationRow, Figure, Listed, Record, Text
from counterpoint.diagnostics.evidence import (
    EMBEDDING,
    REPRESENTATION,
    UNTRAINED,
    Evidence,
    Lever,
    Measurements,
    gain_accuracies,
    unjudged,
)

Level = Literal["good", "note", "warning", "severe"]
LEVELS: tuple[Level, ...] = ("good", "note", "warning", "severe")

# Where a figure begins to be worth a word; each is explained where it is used.
COLLAPSED_COSINE = 0.95
LOW_RANK_SHARE, VERY_LOW_RANK_SHARE = 0.25, 0.05
LOST_RANK_SHARE = 0.25
CLOSE_COSINES = 0.3
DEAD_SHARE = 0.5
CHANCE_SHARE = 0.05
FEW_SAMPLES = 200


def known_level(level: Any) -> Any:
    """Read an unknown level as a note.

    >>> known_level("severe"), known_level("odd")
    ('severe', 'note')
    """
    return level if level in LEVELS else "note"


class Finding(Record):
    """One thing that was found."""

    name: str = ""
    level: Annotated[Level, BeforeValidator(known_level)] = "note"
    title: str = ""
    measured: Figure = None
    reference: Figure = None
    reference_name: str = ""
    text: str = ""
    remedy: str = ""


class DescribedConcept(Record):
    """One dimension (see ``concepts.Concept``) in words: its values are also items by their names.

    Attributes:
        purity: share of the commonest class among the samples that activate it.
        top_class: that class; None where it is no more common there than chance allows.
        thumbnails: places of the top samples among the pictures in ``arrays.npz``.
        names: of the top samples.
    """

    dim: Figure = None
    fires: Figure = None
    mean_activation: Figure = None
    expected_activation: Figure = None
    values: Annotated[tuple[Figure, ...], Listed] = ()
    purity: Figure = None
    top_class: str | None = None
    thumbnails: Annotated[tuple[Figure, ...], Listed] = ()
    names: Annotated[tuple[Text, ...], Listed] = ()

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


class Findings(Record):
    """A diagnosis.

    Attributes:
        findings: worst first.
        places: measurements by place.
        concepts: what single dimensions mean.
        settings: thresholds and sample counts that the figures depend on.
        unjudged: what could not be judged, and why (see ``evidence.unjudged``).
    """

    findings: Annotated[tuple[Finding, ...], Listed] = ()
    places: Mapping[str, Measurements] = Field(default_factory=dict)
    concepts: Annotated[tuple[DescribedConcept, ...], Listed] = ()
    settings: Mapping[str, Figure] = Field(default_factory=dict)
    unjudged: Annotated[tuple[Text, ...], Listed] = ()

    @property
    def level(self) -> Level:
        """The worst level."""
        return self.findings[0].level if self.findings else "good"

    @property
    def verdict(self) -> str:
        """One sentence, and what could not be judged."""
        worst = [finding.title for finding in self.findings if finding.level == self.level]
        return verdict_words(self.level, worst, self.unjudged)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in ``findings.json``."""
        return {
            "verdict": {"level": self.level, "sentence": self.verdict},
            "findings": [finding.model_dump() for finding in self.findings],
            "places": {name: figures.to_dict() for name, figures in self.places.items()},
            "concepts": [concept.written() for concept in self.concepts],
            "settings": dict(self.settings),
            "unjudged": list(self.unjudged),
        }

    def __str__(self) -> str:
        lines = [self.verdict]
        for finding in self.findings:
            lines.append(f"  {finding.level:<8} {finding.title}")
            if finding.remedy and finding.level != "good":
                lines.append(f"           try: {finding.remedy}")
        return "\n".join(lines)


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Run every check of ``CATALOGUE``; worst findings first, otherwise in the catalogue's order."""
    found = [finding for check in CATALOGUE.values() if (finding := check(evidence)) is not None]
    return tuple(sorted(found, key=lambda finding: -LEVELS.index(finding.level)))


def judged_anew(findings: Findings, rows: Sequence[EvaluationRow]) -> Findings:
    """Draw the finding about the gain, and with it the verdict, from an evaluation of the same run.

    Args:
        findings: as they were written, perhaps before there was an evaluation, or from an earlier one.
        rows: of the evaluation; none where there is none.
    """
    learned, baseline = gain_accuracies(rows)
    gain = check_gain(Evidence({}, learned=learned, baseline=baseline))  # a check that looks at no place
    known = [*(each for each in findings.findings if each.name != "gain"), *filter(None, [gain])]
    order = list(CATALOGUE)

    def place(finding: Finding) -> tuple[int, int]:
        return -LEVELS.index(finding.level), order.index(finding.name) if finding.name in order else len(order)

    return findings.model_copy(
        update={"findings": tuple(sorted(known, key=place)), "unjudged": unjudged(learned, baseline)}
    )


def verdict_words(level: Level, titles: Sequence[str], unjudged: Sequence[str]) -> str:
    """Say how good a representation is.

    Args:
        level: the worst level found.
        titles: of the findings of that level.
        unjudged: what could not be judged.

    >>> verdict_words("note", ["Few samples", "Silent dimensions"], ["whether learning helped (no evaluation)"])
    'Healthy, with something to know: Few samples (and 1 more). Not judged: whether learning helped (no evaluation).'
    """
    opening = {
        "good": "Healthy: nothing wrong was found",
        "note": "Healthy, with something to know",
        "warning": "Usable, with a warning",
        "severe": "Not usable as it is",
    }[level]
    worst = f": {titles[0]}" if titles and level != "good" else ""
    more = f" (and {len(titles) - 1} more)" if worst and len(titles) > 1 else ""
    rest = f" Not judged: {'; '.join(unjudged)}." if unjudged else ""
    return f"{opening}{worst}{more}.{rest}"


def check_full_collapse(evidence: Evidence) -> Finding | None:
    """Do different samples point the same way?"""
    embedding = evidence.places[EMBEDDING]
    is_collapsed = embedding.negative_cosine > COLLAPSED_COSINE or embedding.effective_rank < 1.0
    mean = f"mean cosine between different samples is {_plain(embedding.negative_cosine)}"
    return Finding(
        name="full-collapse",
        level="severe" if is_collapsed else "good",
        title="Embeddings of different samples coincide" if is_collapsed else f"No full collapse: the {mean}",
        measured=embedding.negative_cosine,
        reference=0.0,
        reference_name="unrelated directions",
        text=f"The {mean}; at 1 every sample would look the same to the loss.",
        remedy=_remedy(
            evidence,
            ("learning rate", "a lower learning rate (--optim.learning-rate)"),
            ("temperature", "a higher temperature (--temperature)"),
            ("preview", "a look at the views, which may be blank (counterpoint preview)"),
            otherwise="check that the inputs differ, and that what computed these features was trained",
        ),
    )


def check_dimensional_collapse(evidence: Evidence) -> Finding | None:
    """Does the embedding use its dimensions?"""
    embedding = evidence.places[EMBEDDING]
    share = embedding.effective_rank / max(embedding.rank_ceiling, 1.0)  # few samples cannot fill all dimensions
    level: Level = "severe" if share < VERY_LOW_RANK_SHARE else "warning" if share < LOW_RANK_SHARE else "good"
    if evidence.is_nonnegative and level == "warning":
        level = "note"  # clusters on few non-negative axes are what the method is for
    return Finding(
        name="dimensional-collapse",
        level=level,
        title=f"The embedding uses {embedding.effective_rank:.0f} of {embedding.rank_ceiling:.0f} possible dimensions",
        measured=embedding.effective_rank,
        reference=embedding.rank_ceiling,
        reference_name="isotropic Gaussian of the same shape",
        text="Effective rank counts dimensions by how evenly they carry variance. Few used dimensions mean that "
        "samples differ in few ways only; "
        "a projector often takes this upon itself and leaves the representation rich (directclr2022).",
        remedy=_remedy(
            evidence,
            ("representation", "the representation instead of the embedding"),
            ("temperature", "a lower temperature (--temperature)"),
            ("views", "weaker views"),
            ("directclr", "DirectCLR (--method directclr)"),
            otherwise="if a projector computed these features, use those before it",
        ),
    )


def check_lost_rank(evidence: Evidence) -> Finding | None:
    """Has training narrowed the representation?"""
    trained, untrained = evidence.places.get(REPRESENTATION), evidence.places.get(UNTRAINED)
    if trained is None or untrained is None:
        return None
    is_lost = trained.effective_rank < LOST_RANK_SHARE * untrained.effective_rank  # data and architecture bound both
    return Finding(
        name="representation-rank",
        level="warning" if is_lost else "good",
        title=f"The representation's effective rank is {trained.effective_rank:.0f}; untrained it was "
        f"{untrained.effective_rank:.0f}",
        measured=trained.effective_rank,
        reference=untrained.effective_rank,
        reference_name="the same encoder before training",
        text="An untrained network spreads samples over many directions at random; training gives some up to "
        "form groups. Keeping less than "
        "a quarter of them is dimensional collapse that has reached the representation.",
        remedy=_remedy(
            evidence,
            ("projector", "a projector (--projector.kind mlp)"),
            ("views", "weaker views"),
            ("epochs", "fewer epochs (--epochs)"),
        ),
    )


def check_alignment(evidence: Evidence) -> Finding | None:
    """Are two views of one sample closer than two samples?"""
    embedding = evidence.places[EMBEDDING]
    if embedding.positive_cosine is None:
        return None
    gap = embedding.positive_cosine - embedding.negative_cosine  # after a ReLU no cosine is below 0
    is_weak = gap < CLOSE_COSINES
    return Finding(
        name="alignment",
        level="warning" if is_weak else "good",
        title=f"Views of one sample have cosine {_plain(embedding.positive_cosine)}, different samples "
        f"{_plain(embedding.negative_cosine)}",
        measured=embedding.positive_cosine,
        reference=embedding.negative_cosine,
        reference_name="different samples",
        text="The loss pulls views of one sample together and pushes samples apart; the wider this gap, the more "
        "of that was learned.",
        remedy=_remedy(
            evidence,
            ("views", "weaker views"),
            ("epochs", "more epochs (--epochs)"),
            otherwise="compare views that keep what tells samples apart",
        ),
    )


def check_loss(evidence: Evidence) -> Finding | None:
    """Has the loss left its chance level?"""
    if evidence.loss is None or evidence.chance is None or evidence.floor is None:
        return None
    if evidence.chance <= evidence.floor:  # full collapse is the lowest loss: BYOL, SimSiam
        return None
    share = (evidence.chance - evidence.loss) / (evidence.chance - evidence.floor)  # 0 at chance, 1 at the floor
    is_at_chance = share < CHANCE_SHARE
    return Finding(
        name="loss-at-chance",
        level="severe" if is_at_chance else "good",
        title=f"The loss fell {share:.0%} of the way from chance ({evidence.chance:.2f}) to its floor "
        f"({evidence.floor:.2f})"
        if not is_at_chance
        else f"The loss, {evidence.loss:.2f}, is at chance ({evidence.chance:.2f})",
        measured=evidence.loss,
        reference=evidence.chance,
        reference_name="chance",
        text="At chance the encoder cannot tell the other view of a sample from other samples. The floor is what "
        "no embedding of a batch can go below; "
        "views that hide much make it unreachable, so part of the way is normal.",
        remedy=_remedy(
            evidence,
            ("learning rate", "a higher or lower learning rate (--optim.learning-rate)"),
            ("views", "weaker views"),
            ("epochs", "more epochs (--epochs)"),
        ),
    )


def check_dead_dimensions(evidence: Evidence) -> Finding | None:
    """Are dimensions silent for every sample?"""
    embedding = evidence.places[EMBEDDING]
    share = embedding.dead_dims / embedding.num_dims
    if share == 0:
        return None
    return Finding(
        name="dead-dimensions",
        level="note" if share < DEAD_SHARE or evidence.is_nonnegative else "warning",
        title=f"{embedding.dead_dims} of {embedding.num_dims} embedding dimensions are silent for every sample",
        measured=embedding.dead_dims,
        reference=0.0,
        reference_name="none silent",
        text="A silent dimension carries nothing and can be dropped without changing any distance. With a ReLU "
        "output some fall silent early and stay so.",
        remedy=_remedy(
            evidence,
            ("relu-gelu", "--output.nonnegative relu-gelu (silent dimensions recover)"),
            ("features", "fewer dimensions (--projector.features)"),
            otherwise="leave them out: no distance changes",
        ),
    )


def check_gain(evidence: Evidence) -> Finding | None:
    """Did learning help, compared with not learning?"""
    learned, baseline = evidence.learned, evidence.baseline  # both None without an evaluation
    gain = learned.minus(baseline) if learned and baseline else None
    if learned is None or baseline is None or gain is None:
        return None
    level: Level = "note" if not gain.is_told_apart else "good" if gain.value > 0 else "warning"
    words = {"good": "better than", "note": "not measurably better than", "warning": "worse than"}[level]
    return Finding(
        name="gain",
        level=level,
        title=f"kNN on the representation, {learned.accuracy:.1%}, is {words} {baseline.features}, "
        f"{baseline.accuracy:.1%}",
        measured=learned.accuracy,
        reference=baseline.accuracy,
        reference_name=baseline.features,
        text=f"On the same {learned.total:,} queries the difference is {100 * gain.value:+.1f} points, 95 % interval "
        f"{100 * gain.low:+.1f} to {100 * gain.high:+.1f}, p {written_p(gain.p)} ({gain.test}). Where raw input "
        "already separates the classes, learning has little to add, and more labelled samples are needed to see it.",
        remedy="if a gain is needed: more data, more epochs, views that keep what the classes differ in",
    )


def check_evidence(evidence: Evidence) -> Finding | None:
    """Are there enough samples to say anything?"""
    embedding = evidence.places[EMBEDDING]
    if embedding.num_samples >= max(FEW_SAMPLES, embedding.num_dims):
        return None
    return Finding(
        name="little-evidence",
        level="note",
        title=f"{embedding.num_samples} samples in {embedding.num_dims} dimensions are little to judge by",
        measured=embedding.num_samples,
        reference=max(FEW_SAMPLES, embedding.num_dims),
        reference_name="as many as dimensions, and at least 200",
        text="Ranks and spectra of few samples are bounded by their number; the reference values account for it, "
        "single figures scatter all the same.",
        remedy="diagnose on more samples",
    )


def _remedy(evidence: Evidence, *choices: tuple[Lever, str], otherwise: str = "") -> str:
    """The advice that the run can follow; other advice where there is none, as for features from anywhere."""
    usable = [words for lever, words in choices if lever in evidence.levers]
    return " or ".join(filter(None, (", ".join(usable[:-1]), *usable[-1:]))) or otherwise


def _plain(cosine: float) -> str:
    """Two decimals, without a minus before zero."""
    return f"{round(cosine, 2) + 0.0:.2f}"


CATALOGUE: Mapping[str, Callable[[Evidence], Finding | None]] = {
    "full-collapse": check_full_collapse,
    "loss-at-chance": check_loss,
    "dimensional-collapse": check_dimensional_collapse,
    "representation-rank": check_lost_rank,
    "alignment": check_alignment,
    "gain": check_gain,
    "dead-dimensions": check_dead_dimensions,
    "little-evidence": check_evidence,
}
