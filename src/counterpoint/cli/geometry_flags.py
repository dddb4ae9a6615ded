"""What `counterpoint geometry` is asked. Loads without torch."""

from counterpoint.cli.arguments import Json, Names, VerbFlags, option
from counterpoint.core.errors import UsageError

OF_RUN = {"run", "tolerance", "as_json", "quiet"}


class GeometryFlags(VerbFlags):
    """What is asked."""

    shares: Names = option("share of each class: 0.25 or 1/4; with --normalize also counts", (), place="SHARE")
    run: str | None = option(
        "instead of shares: a labelled run, whose classes are measured beside the optimum of its own loss, "
        "temperature, negatives and class counts",
    )
    normalize: bool = option("divide the shares by their sum", False)
    negatives: str | None = option("of each anchor, a number or inf (default: the loss's own number, else inf)")
    supervised: bool = option("negatives are of other classes only", False)
    loss: str | None = option("of `counterpoint list losses` (default: the paper's)")
    temperature: float | None = option("of the loss (default: the loss's own)")
    loss_options: dict[str, bool | int | float | str | None] = option(
        "further arguments of the loss, such as {margin: 0.5} for triplet",
        {},
    )
    dimension: int | None = option("of the embedding; below classes - 1 nothing can be certified")
    nonnegative: bool = option("the embedding has no negative entries", False)
    tolerance: float = option("relative duality gap to stop at", 1e-8)
    threshold: bool = option("also the share of one majority class above which the others, all equal, merge", False)
    rebalance: bool = option("also how to sample the classes, or weigh their anchors, to get the simplex back", False)
    deviation: float | None = option(
        "with --rebalance: distance of a cosine from the simplex's that it may leave (0.05)",
    )
    phase_diagram: bool = option("also from which share on minorities merge, by negatives and temperature", False)
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
