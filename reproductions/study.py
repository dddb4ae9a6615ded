"""A study is a table or figure of a paper as data: arms to train, measures, and claims with thresholds.

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
        says: its name in the paper.
        settings: training settings, laid over those of the scale; unused if a recipe replaces them.
        small: settings at the small scale alone.
        recipe: name of the recipe at the paper's scale; empty uses ``settings``.
        paper: settings at the paper's scale alone, laid over the recipe.
        fine_tune: settings of fine-tuning the arm with labels, laid over those of ``Measures``.
        data: name in ``study_data`` of the set at the small scale, if it is not the study's.
        paper_data: the same at the paper's scale.
        printed: what the paper prints in each column.
        scales: scales at which it is trained; claims about it are made at these alone.
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
        source: its place in the paper, with the printed numbers.
        first: name of the arm whose figure is compared.
        second: name of the arm that is subtracted; None compares with ``than`` alone.
        figure: key of the measured figure, ``features: metric``.
        second_figure: key of the second arm's figure, if it is another one.
        times: factor of the second arm's figure.
        relation: ``greater`` or ``smaller`` than the threshold, or ``within`` so much of 0.
        than: threshold of the difference, in the unit of the figure.
        why: what may explain that the small scale differs from the paper; no part of the claim.
        scales: scales at which it is judged.
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
    """Pictures that the page of a study shows of each arm.

    Attributes:
        layer: layer of the encoder.
        dimensions: number of dimensions, those with the largest expected activation.
        pictures: number of queries that activate each of them most.
    """

    layer: str = "embedding"
    dimensions: Annotated[int, Field(ge=1, le=48)] = 6
    pictures: Annotated[int, Field(ge=1, le=12)] = 8


class Measures(Settings):
    """Measures of a trained arm, taken on the queries.

    Attributes:
        metrics: metrics of ``counterpoint evaluate``, on each of ``layers``.
        layers: layers of the encoder.
        features: by layer, metrics of ``diagnose`` that need nothing but features and labels.
        curves: by layer, names of ``study_measures.CURVES``.
        evaluate: more settings of ``evaluate``.
        elsewhere: whether queries in another style are classified, too, where the set has them.
        transfer: styles on whose pictures probes are fitted and tested; their figures are ``LAYER on STYLE: METRIC``.
        curvature: settings of ``hessian_spectra``; empty measures no curvature.
        fine_tune: settings of fine-tuning the arm with labels; empty does not fine-tune.
        fine_tune_projector: whether the classifier stands on the projector's output.
        epochs: epochs of training whose checkpoints are evaluated as well; their figures are called
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
        """Fields that the figures of a cell depend on."""
        return self.model_dump(exclude={"pictures"})


class PartPlan(Settings):
    """The part of a data set that is used.

    Attributes:
        per_class: training samples of each class; None takes all.
        queries_per_class: test samples of each class; None takes all.
        image_size: side to which pictures are brought; None leaves them.
    """

    per_class: Annotated[int, Field(ge=2)] | None = None
    queries_per_class: Annotated[int, Field(ge=1)] | None = None
    image_size: Annotated[int, Field(ge=8)] | None = None


class ScalePlan(PartPlan):
    """Data, settings and seeds of a study at one scale; the part is that of its own set.

    Attributes:
        data: name of the set in ``study_data``.
        others: parts of the other sets that arms name.
        settings: training settings of every arm.
        fine_tune: settings of fine-tuning with labels at this scale, laid over those of ``Measures``.
        measures: what is measured at this scale, laid over the study's.
        columns: columns at this scale; empty takes the study's.
        values: values at this scale, which replace names in braces in the study's words.
        seeds: number of seeds.
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
        """Return the part of a set that is used; a set that is not named is used in full."""
        return self if name == self.data else self.others.get(name, PartPlan())


class OtherSet(Settings):
    """One more data set of a table, on which arms are trained, too. Its arms are called ``ARM-SET``.

    Attributes:
        says: its name, as people write it.
        small: the set that stands in for it at the small scale; empty leaves it to the paper's.
        columns: heads of the columns that the paper prints.
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
        item: the table or figure in the paper.
        title: a sentence about it.
        arms: rows of the table.
        columns: key of the measured figure, by the head of its column.
        claims: claims with their thresholds.
        measures: what is measured.
        small: plan of the small scale, which takes minutes on a CPU.
        longer: changes of the longer scale to the small one, to see whether verdicts change with training; empty if
            there is no longer scale.
        paper_scale: plan with the paper's sizes.
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
        """Return the plan of a scale.

        Raises:
            UsageError: the study has no longer scale, or its longer plan is not valid.
        """
        if scale == "longer":
            if not self.longer:
                raise UsageError(f"{self.name} has no longer scale; small and paper are there")
            small = self.small.model_dump(exclude_unset=True)
            return build(ScalePlan, merge(small, self.longer), f"{self.name}, longer")
        return self.small if scale == "small" else self.paper_scale

    def arm(self, name: str) -> Arm:
        """Return an arm by its name."""
        return next(arm for arm in self.arms if arm.name == name)

    def settings_of(self, arm: Arm, scale: Scale) -> dict[str, Any]:
        """Training settings of an arm: its own laid over the scale's, or the scale's laid over its recipe."""
        if scale == "paper" and arm.recipe:
            return merge({"recipe": arm.recipe}, merge(self.paper_scale.settings, arm.paper))
        own = arm.paper if scale == "paper" else arm.small
        return merge(merge(self.at(scale).settings, arm.settings), own)

    def measures_of(self, arm: Arm, scale: Scale) -> Measures:
        """Measures of an arm; settings of fine-tuning are the study's, then the scale's, then the arm's."""
        if not self.measures.fine_tune:
            return self.measures
        own = merge(merge(self.measures.fine_tune, self.at(scale).fine_tune), arm.fine_tune)
        return self.measures.model_copy(update={"fine_tune": own})

    def only(self, sets: Sequence[str], scale: Scale) -> "Study":
        """Return the study of some data sets alone, with fewer arms and claims.

        Raises:
            UsageError: no arm is trained on one of the sets.
        """
        names = list(dict.fromkeys(self.data_of(arm, scale) for arm in self.arms))
        for name in sets:
            if name not in names:
                raise unknown_name("data set", name, names)
        arms = {arm.name: arm for arm in self.arms if self.data_of(arm, scale) in sets}
        claims = tuple(claim for claim in self.claims if all(name in arms for name in _arm_names(claim)))
        return self.model_copy(update={"arms": tuple(arms.values()), "claims": claims})

    def data_of(self, arm: Arm, scale: Scale) -> str:
        """Name of the set that an arm is trained on at a scale."""
        return (arm.paper_data if scale == "paper" else arm.data) or self.at(scale).data


def short_hash(value: Any) -> str:
    """Hash plain values to twelve digits, whatever the order of their names.

    >>> short_hash({"a": 1, "b": 2}) == short_hash({"b": 2, "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, allow_nan=False, default=_dump_record)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _dump_record(value: Any) -> Any:
    assert isinstance(value, BaseModel)
    return value.model_dump()


def read_study(path: Path, scale: Scale = "small") -> Study:
    """Read a study as it is at a scale, and check that its parts name each other.

    Raises:
        UsageError: not a study, or an arm that a claim names is not there.
    """
    fields = read_yaml_mapping(path)
    study = build(Study, fields, str(path))
    plan = study.at(scale if study.longer or scale != "longer" else "small")
    arms, claims = _with_sets(study, path, scale)
    arm_named = {arm.name: arm for arm in arms}
    names = [arm.name for arm in arms]
    if doubled := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"{path}: two arms are called {doubled[0]}")
    for claim in claims:
        for name in _arm_names(claim):
            if name not in arm_named:
                raise UsageError(f"{path}: the claim {claim.says!r} names the arm {name}, which is not there")
    fields = {
        **fields,
        "arms": [arm.model_dump(exclude_unset=True) for arm in arms if scale in arm.scales],
        "claims": [
            claim.model_dump(exclude_unset=True)
            for claim in claims
            if all(scale in part.scales for part in (claim, *(arm_named[name] for name in _arm_names(claim))))
        ],
        "measures": merge(fields["measures"], plan.measures),
        "columns": plan.columns or fields["columns"],
    }
    study = build(Study, _with_values(fields, plan.values), str(path))
    for claim in study.claims:
        if claim.relation == "within" and claim.than <= 0:
            raise UsageError(f"{path}: the claim {claim.says!r} needs a margin > 0 in than")
    return study


def _arm_names(claim: StudyClaim) -> list[str]:
    """Names of the one or two arms that a claim compares."""
    return [name for name in (claim.first, claim.second) if name is not None]


def _with_sets(study: Study, path: Path, scale: Scale) -> tuple[list[Arm], list[StudyClaim]]:
    """Return arms and claims of the study's own set and of its others, and name stand-ins in their texts.

    Raises:
        UsageError: a set names an arm or a claim that is not there.
    """
    arms, claims = list(study.arms), list(study.claims)
    own, says = study.paper_scale.data, {claim.says: claim for claim in study.claims}
    for name, other in study.sets.items():
        if missing := [*(set(other.printed) - {arm.name for arm in study.arms}), *(set(other.claims) - set(says))]:
            raise UsageError(f"{path}: the set {name} names {sorted(missing)[0]!r}, which is not there")
        scales = ("small", "paper") if other.small else ("paper",)
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
                "scales": tuple(own_scale for own_scale in scales if own_scale in arm.scales),
            }
            arms.append(arm.model_copy(update=changes))
        for statement, source in other.claims.items():
            claim = says[statement]
            changes = {"says": f"{statement}, {name_here}", "source": source, "scales": SCALES}
            changes |= {"first": f"{claim.first}-{name}", "second": claim.second and f"{claim.second}-{name}"}
            claims.append(claim.model_copy(update=changes))
    return arms, claims


def _with_values(template: Any, values: Mapping[str, int | str]) -> Any:
    """Replace names in braces in all texts of plain values; a text that is one such name becomes the value.

    >>> _with_values({"says": ["d0 = {d0}"], "d0": "{d0}"}, {"d0": 22})
    {'says': ['d0 = 22'], 'd0': 22}
    """
    if isinstance(template, dict):
        return {key: _with_values(value, values) for key, value in template.items()}
    if isinstance(template, list):
        return [_with_values(value, values) for value in template]
    if not isinstance(template, str):
        return template
    for name, value in values.items():
        if template == f"{{{name}}}":
            return value
        template = template.replace(f"{{{name}}}", str(value))
    return template


@cache
def studies(scale: Scale = "small") -> Mapping[str, Study]:
    """All studies of the papers by name, paper by paper, as they are at a scale."""
    all_studies = [read_study(path, scale) for path in sorted(PAPERS.glob(f"*/{FOLDER}/*.yaml"))]
    return {study.name: study for study in all_studies}
