"""A study: a table or figure of a paper as data. Arms to train, what is measured of each, and claims with thresholds.

Studies are the files ``reproductions/<bibkey>/studies/*.yaml``. Loads without torch.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, Strict

from counterpoint.core.errors import UsageError, unknown_name
from counterpoint.core.settings import Settings
from counterpoint.core.validation import build, merge, read_yaml_mapping

PAPERS = Path(__file__).parent
FOLDER = "studies"  # of each paper
SCALES = ("small", "longer", "paper")
Scale = Literal["small", "longer", "paper"]
Listed = Strict(False)  # YAML has lists only
Texts = Annotated[tuple[str, ...], Listed]


class Arm(Settings):
    """A row of a table: a method with settings, trained once for each seed.

    Attributes:
        name: short, of letters, digits and hyphens.
        says: what the paper calls it.
        settings: of training; laid over those of the scale, and left aside where a recipe stands in their place.
        small: settings at the small scale alone.
        recipe: of the paper's scale, by its name; empty for the settings.
        paper: settings at the paper's scale alone, laid over the recipe.
        fine_tune: settings of training on from the arm with labels, laid over those of ``Measures``.
        data: another set than the study's at the small scale, by its name in ``study_data``.
        paper_data: the same at the paper's scale.
        printed: what the paper prints in each column.
        scales: at which it is trained; claims about it are made at these alone.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
    says: str
    settings: dict[str, Any] = Field(default_factory=dict)
    small: dict[str, Any] = Field(default_factory=dict)
    recipe: str = ""
    paper: dict[str, Any] = Field(default_factory=dict)
    fine_tune: dict[str, Any] = Field(default_factory=dict)
    data: str | None = None
    paper_data: str | None = None
    printed: dict[str, str] = Field(default_factory=dict)
    scales: Texts = SCALES


class StudyClaim(Settings):
    """An ordering that a paper states, as a difference of one figure of two arms (or of one arm and a constant).

    Attributes:
        says: the statement.
        source: where it stands, with what is printed.
        first: arm.
        second: arm that is subtracted; None compares with ``than`` alone.
        figure: a key of what is measured, ``features: metric``.
        second_figure: of the second arm, where it is another one.
        times: what the second arm's figure is multiplied by.
        relation: ``greater`` or ``smaller`` than the threshold, or ``within`` so much of 0.
        than: threshold of the difference, in the unit of the figure.
        why: what may explain that the small scale differs from the paper; no part of the claim.
        scales: at which it is judged.
    """

    says: str
    source: str
    first: str
    second: str | None = None
    figure: str
    second_figure: str | None = None
    times: float = 1.0
    relation: Literal["greater", "smaller", "within"] = "greater"
    than: float = 0.0
    why: str = ""
    scales: Texts = SCALES


class PicturePlan(Settings):
    """Which pictures the page of a study shows of each arm.

    Attributes:
        layer: of the encoder.
        dimensions: how many, those with the largest expected activation.
        pictures: the queries that activate each of them most.
    """

    layer: str = "embedding"
    dimensions: Annotated[int, Field(ge=1, le=48)] = 6
    pictures: Annotated[int, Field(ge=1, le=12)] = 8


class Measures(Settings):
    """What is measured of a trained arm, on the queries.

    Attributes:
        metrics: of ``counterpoint evaluate``, on each of ``layers``.
        layers: of the encoder.
        features: by layer, metrics of ``diagnose`` that need nothing but features and labels.
        curves: by layer, names of ``study_measures.CURVES``.
        evaluate: more settings of ``evaluate``.
        elsewhere: whether queries in another style are classified, too, where the set has them.
        transfer: styles on whose pictures probes are fitted and asked; their figures are ``LAYER on STYLE: METRIC``.
        curvature: settings of ``hessian_spectra``; none measures no curvature.
        fine_tune: settings of training on from the arm with labels; none does not.
        fine_tune_projector: whether the classifier stands on the projector's output.
        epochs: of training, whose checkpoints are evaluated as well; their figures are called
            ``LAYER after N epochs: METRIC``.
        pictures: what the page shows of the first seed; no figure depends on it.
    """

    metrics: Texts = ()
    layers: Texts = ("representation",)
    features: dict[str, Annotated[tuple[str, ...], Listed]] = Field(default_factory=dict)
    curves: dict[str, Annotated[tuple[str, ...], Listed]] = Field(default_factory=dict)
    evaluate: dict[str, Any] = Field(default_factory=dict)
    elsewhere: bool = False
    transfer: Texts = ()
    curvature: dict[str, Any] = Field(default_factory=dict)
    fine_tune: dict[str, Any] = Field(default_factory=dict)
    fine_tune_projector: bool = False
    epochs: Annotated[tuple[int, ...], Listed] = ()
    pictures: PicturePlan | None = None

    def of_figures(self) -> dict[str, Any]:
        """What the figures of a cell depend on."""
        return self.model_dump(exclude={"pictures"})


class PartPlan(Settings):
    """Which part of a set is taken.

    Attributes:
        per_class: training samples of each class; None takes all.
        queries_per_class: test samples of each class; None takes all.
        image_size: side to which pictures are brought; None leaves them.
    """

    per_class: Annotated[int, Field(ge=2)] | None = None
    queries_per_class: Annotated[int, Field(ge=1)] | None = None
    image_size: Annotated[int, Field(ge=8)] | None = None


class ScalePlan(PartPlan):
    """What a study takes at one scale; the part is that of its own set.

    Attributes:
        data: a set by its name in ``study_data``.
        others: parts of the other sets that arms name.
        settings: of training, of every arm.
        fine_tune: settings of training on with labels at this scale, laid over those of ``Measures``.
        measures: what is measured at this scale, laid over the study's.
        columns: of this scale; none are the study's.
        values: of this scale, which stand in the study's words as names in braces.
        seeds: how many.
        note: what a reader must know.
    """

    data: str
    others: dict[str, PartPlan] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)
    fine_tune: dict[str, Any] = Field(default_factory=dict)
    measures: dict[str, Any] = Field(default_factory=dict)
    columns: dict[str, str] = Field(default_factory=dict)
    values: dict[str, int | str] = Field(default_factory=dict)
    seeds: Annotated[int, Field(ge=2)] = 3
    note: str = ""

    def part_of(self, name: str) -> PartPlan:
        """Which part of a set is taken; of a set that is not named, all."""
        return self if name == self.data else self.others.get(name, PartPlan())


class OtherSet(Settings):
    """One more data set of a table, on which arms are trained, too. Its arms are called ``ARM-SET``.

    Attributes:
        says: its name, as people write it.
        small: the set that stands in for it at the small scale; empty leaves it to the paper's.
        columns: of what is printed.
        printed: by arm, what the paper prints in each of them; these arms are trained on it.
        recipes: of arms whose recipe is not that of the study's set with the name of this one in it.
        claims: of the study, by what they say, that the paper makes here, too; with the source.
    """

    says: str
    small: str = ""
    columns: Texts
    printed: dict[str, Texts]
    recipes: dict[str, str] = Field(default_factory=dict)
    claims: dict[str, str] = Field(default_factory=dict)


class Study(Settings):
    """A table or figure of a paper, to be made again.

    Attributes:
        name: as in ``python -m reproductions NAME``.
        paper: key of the bibliography.
        item: which table or figure.
        title: a sentence about it.
        arms: rows.
        columns: key of what is measured, by the head of its column.
        claims: with their thresholds.
        measures: what is measured.
        small: on a CPU, in minutes.
        longer: what the longer scale has instead of the small one, to see whether verdicts change with training; empty
            where there is none.
        paper_scale: as the paper has it.
        sets: other data sets of the same table.
        remarks: what differs from the paper at any scale.
        also: other tables and figures that the same arms show, each with a sentence.
    """

    name: str
    paper: str
    item: str
    title: str
    arms: Annotated[tuple[Arm, ...], Listed]
    columns: dict[str, str]
    claims: Annotated[tuple[StudyClaim, ...], Listed]
    measures: Measures
    small: ScalePlan
    longer: dict[str, Any] = Field(default_factory=dict)
    paper_scale: ScalePlan
    sets: dict[str, OtherSet] = Field(default_factory=dict)
    remarks: Texts = ()
    also: dict[str, str] = Field(default_factory=dict)

    @property
    def claims_hash(self) -> str:
        """Short hash of the claims with their thresholds, in their order."""
        left_out = {True: {"why", "scales", "times"}, False: {"why", "scales"}}
        return short_hash([claim.model_dump(exclude=left_out[claim.times == 1]) for claim in self.claims])

    def at(self, scale: Scale) -> ScalePlan:
        """What it takes at a scale.

        Raises:
            UsageError: there is no longer scale, or it is none.
        """
        if scale == "longer":
            if not self.longer:
                raise UsageError(f"{self.name} has no longer scale; small and paper are there")
            small = self.small.model_dump(exclude_unset=True)
            return build(ScalePlan, merge(small, self.longer), f"{self.name}, longer")
        return self.small if scale == "small" else self.paper_scale

    def arm(self, name: str) -> Arm:
        """An arm by its name."""
        return next(arm for arm in self.arms if arm.name == name)

    def settings_of(self, arm: Arm, scale: Scale) -> dict[str, Any]:
        """Settings of training: the arm's over the scale's (or these over its recipe), and its own of the scale."""
        if scale == "paper" and arm.recipe:
            return merge({"recipe": arm.recipe}, merge(self.paper_scale.settings, arm.paper))
        own = arm.paper if scale == "paper" else arm.small
        return merge(merge(self.at(scale).settings, arm.settings), own)

    def measures_of(self, arm: Arm, scale: Scale) -> Measures:
        """What is measured of an arm: of fine-tuning the study's settings, then the scale's, then the arm's."""
        if not self.measures.fine_tune:
            return self.measures
        own = merge(merge(self.measures.fine_tune, self.at(scale).fine_tune), arm.fine_tune)
        return self.measures.model_copy(update={"fine_tune": own})

    def only(self, sets: Sequence[str], scale: Scale) -> "Study":
        """The part of it that is about some data sets; its result is one of fewer claims.

        Raises:
            UsageError: a set that no arm is trained on.
        """
        known = list(dict.fromkeys(self.data_of(arm, scale) for arm in self.arms))
        for name in sets:
            if name not in known:
                raise unknown_name("data set", name, known)
        arms = {arm.name: arm for arm in self.arms if self.data_of(arm, scale) in sets}
        claims = tuple(claim for claim in self.claims if all(name in arms for name in _arms_of(claim)))
        return self.model_copy(update={"arms": tuple(arms.values()), "claims": claims})

    def data_of(self, arm: Arm, scale: Scale) -> str:
        """Name of the set that an arm is about."""
        return (arm.paper_data if scale == "paper" else arm.data) or self.at(scale).data


def short_hash(value: Any) -> str:
    """Twelve digits that plain values give, whatever the order of their names.

    >>> short_hash({"a": 1, "b": 2}) == short_hash({"b": 2, "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, allow_nan=False, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _plain(value: Any) -> Any:
    """A record as plain values."""
    assert isinstance(value, BaseModel)
    return value.model_dump()


def read_study(path: Path, scale: Scale = "small") -> Study:
    """Read a study as it is at a scale, and check that its parts name each other.

    Raises:
        UsageError: not a study, or an arm that a claim names is not there.
    """
    asked = read_yaml_mapping(path)
    study = build(Study, asked, str(path))
    plan = study.at(scale if study.longer or scale != "longer" else "small")
    arms, claims = _with_sets(study, path, scale)
    known = {arm.name: arm for arm in arms}
    names = [arm.name for arm in arms]
    if doubled := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"{path}: two arms are called {doubled[0]}")
    for claim in claims:
        for name in _arms_of(claim):
            if name not in known:
                raise UsageError(f"{path}: the claim {claim.says!r} names the arm {name}, which is not there")
    asked = {
        **asked,
        "arms": [arm.model_dump(exclude_unset=True) for arm in arms if scale in arm.scales],
        "claims": [
            claim.model_dump(exclude_unset=True)
            for claim in claims
            if all(scale in part.scales for part in (claim, *(known[name] for name in _arms_of(claim))))
        ],
        "measures": merge(asked["measures"], plan.measures),
        "columns": plan.columns or asked["columns"],
    }
    study = build(Study, _with_values(asked, plan.values), str(path))
    for claim in study.claims:
        if claim.relation == "within" and claim.than <= 0:
            raise UsageError(f"{path}: the claim {claim.says!r} needs a margin > 0 in than")
    return study


def _arms_of(claim: StudyClaim) -> list[str]:
    """The names of one or two arms."""
    return [name for name in (claim.first, claim.second) if name is not None]


def _with_sets(study: Study, path: Path, scale: Scale) -> tuple[list[Arm], list[StudyClaim]]:
    """Arms and claims of the study's own set and of the others, whose stand-ins are named where they are taken.

    Raises:
        UsageError: a set names an arm or a claim that is not there.
    """
    arms, claims = list(study.arms), list(study.claims)
    own, says = study.paper_scale.data, {claim.says: claim for claim in study.claims}
    for name, other in study.sets.items():
        if missing := [*(set(other.printed) - {arm.name for arm in study.arms}), *(set(other.claims) - set(says))]:
            raise UsageError(f"{path}: the set {name} names {sorted(missing)[0]!r}, which is not there")
        scales = SCALES if other.small else ("paper",)
        name_here = f"{other.says} ({other.small} here)" if other.small and scale != "paper" else other.says
        for key, printed in other.printed.items():
            arm = study.arm(key)
            recipe = arm.recipe.replace(f"-{own.replace('-', '')}-", f"-{name.replace('-', '')}-")
            changes = {
                "name": f"{key}-{name}",
                "says": f"{arm.says}, {name_here}",
                "recipe": other.recipes.get(key, recipe),
                "data": other.small or None,
                "paper_data": name,
                "printed": dict(zip(other.columns, printed, strict=True)),
                "scales": tuple(each for each in scales if each in arm.scales),
            }
            arms.append(arm.model_copy(update=changes))
        for told, source in other.claims.items():
            claim = says[told]
            changes = {"says": f"{told}, {name_here}", "source": source, "scales": SCALES}
            changes |= {"first": f"{claim.first}-{name}", "second": claim.second and f"{claim.second}-{name}"}
            claims.append(claim.model_copy(update=changes))
    return arms, claims


def _with_values(told: Any, values: Mapping[str, int | str]) -> Any:
    """Plain values, in whose texts names in braces are replaced; a text that is one such name becomes the value.

    >>> _with_values({"says": ["d0 = {d0}"], "d0": "{d0}"}, {"d0": 22})
    {'says': ['d0 = 22'], 'd0': 22}
    """
    if isinstance(told, dict):
        return {key: _with_values(value, values) for key, value in told.items()}
    if isinstance(told, list):
        return [_with_values(value, values) for value in told]
    if not isinstance(told, str):
        return told
    for name, value in values.items():
        if told == f"{{{name}}}":
            return value
        told = told.replace(f"{{{name}}}", str(value))
    return told


@cache
def studies(scale: Scale = "small") -> Mapping[str, Study]:
    """All studies of the papers by name, paper by paper, as they are at a scale."""
    found = [read_study(path, scale) for path in sorted(PAPERS.glob(f"*/{FOLDER}/*.yaml"))]
    return {study.name: study for study in found}
