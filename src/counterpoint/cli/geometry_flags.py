"""What `counterpoint geometry` is asked. Loads without torch."""

from pydantic import Field

from counterpoint.cli.arguments import Json, VerbFlags
from counterpoint.core.errors import UsageError
from counterpoint.evaluation.evaluation_settings import Names

OF_RUN = {"run", "tolerance", "as_json", "quiet"}


class GeometryFlags(VerbFlags):
    """What is asked."""

    shares: Names = Field(
        default=(),
        description="share of each class: 0.25 or 1/4; with --normalize also counts",
        json_schema_extra={"place": "SHARE"},
    )
    run: str | None = Field(
        default=None,
        description="instead of shares: a labelled run, whose classes are measured beside the optimum of its own loss, "
        "temperature, negatives and class counts",
    )
    normalize: bool = Field(default=False, description="divide the shares by their sum")
    negatives: str | None = Field(
        default=None, description="of each anchor, a number or inf (default: the loss's own number, else inf)"
    )
    supervised: bool = Field(default=False, description="negatives are of other classes only")
    loss: str | None = Field(default=None, description="of `counterpoint list losses` (default: the paper's)")
    temperature: float | None = Field(default=None, description="of the loss (default: the loss's own)")
    loss_options: dict[str, bool | int | float | str | None] = Field(
        default_factory=dict, description="further arguments of the loss, such as {margin: 0.5} for triplet"
    )
    dimension: int | None = Field(
        default=None, description="of the embedding; below classes - 1 nothing can be certified"
    )
    nonnegative: bool = Field(default=False, description="the embedding has no negative entries")
    tolerance: float = Field(default=1e-8, description="relative duality gap to stop at")
    threshold: bool = Field(
        default=False,
        description="also the share of one majority class above which the others, all equal, merge",
    )
    rebalance: bool = Field(
        default=False, description="also how to sample the classes, or weigh their anchors, to get the simplex back"
    )
    deviation: float | None = Field(
        default=None, description="with --rebalance: distance of a cosine from the simplex's that it may leave (0.05)"
    )
    phase_diagram: bool = Field(
        default=False, description="also from which share on minorities merge, by negatives and temperature"
    )
    as_json: Json = False


def check_together(flags: GeometryFlags) -> None:
    """Require shares or a run, and nothing beside them that has no effect.

    Raises:
        UsageError: both or neither, or a flag that goes with something else.
    """
    if (flags.run is None) == (not flags.shares):
        raise UsageError("give a SHARE for each class, such as 0.5 0.25 0.25, or --run RUN, and one of them only")
    given = flags.model_fields_set
    if flags.run is not None and (unfit := sorted(given - OF_RUN)):
        raise UsageError(f"--{unfit[0].replace('_', '-')} has no effect here: the run has its own; leave it out")
    if flags.deviation is not None and not flags.rebalance:
        raise UsageError("--deviation is how far --rebalance may stay from the simplex; add --rebalance")
    limits, plans = sorted(given & {"dimension", "nonnegative"}), sorted(given & {"rebalance", "phase_diagram"})
    if limits and plans:
        plan = f"--{plans[0].replace('_', '-')}"
        raise UsageError(f"{plan} is about embeddings of any sign and of enough dimensions; leave out --{limits[0]}")
