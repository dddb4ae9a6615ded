"""What a loss is, in a few lines."""

from counterpoint.losses.loss import Loss

ROWS = {
    "phi": "phi, of each anchor's sum",
    "psi": "psi, of each pair's gap",
    "alpha": "alpha, importance of a pair",
    "negatives": "negatives",
    "normalization": "normalisation",
    "second_derivative": "second derivative",
    "fused": "pairs never stored on",
    "source": "source",
}


def explain(loss: Loss) -> str:
    """Say what a loss is: its phi, psi, alpha, negatives, normalisation and source.

    Args:
        loss: any loss of the catalogue, or a ``PairLoss`` of one's own.

    Returns:
        Lines to print.

    Raises:
        TypeError: not a loss of this package.

    >>> from counterpoint.losses import InfoNCE
    >>> print(explain(InfoNCE(0.5)).splitlines()[1])
      phi, of each anchor's sum    log(1 + x)
    """
    if not isinstance(loss, Loss):
        raise TypeError(f"explain takes a loss such as counterpoint.losses.InfoNCE(), got {type(loss).__name__}")
    width = max(len(title) for title in ROWS.values())
    lines = [f"  {title:{width}}  {getattr(loss.card, field)}" for field, title in ROWS.items()]
    return "\n".join([loss.card.name, *lines])
