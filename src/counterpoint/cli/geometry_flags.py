"""The flags of `counterpoint geometry`. Loads without torch."""

from counterpoint.cli.arguments import Json, Names, VerbFlags, option


class GeometryFlags(VerbFlags):
    """The question."""

    shares: Names = option("share of each class: 0.25 or 1/4; with --normalize also counts", (), place="SHARE")
    run: str | None = option(
        "instead of shares: a labelled run, whose classes are compared with the optimum of its loss, "
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
