"""What every wiring answers: the class lives in ``nn.method``, below both the wirings and the loop."""

from counterpoint.nn.method import Method

__all__ = ["Method"]
