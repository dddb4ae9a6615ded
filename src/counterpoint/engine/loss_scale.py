"""The factor that keeps small gradients above what float16 can hold."""

from dataclasses import dataclass

INITIAL, GROWTH, BACKOFF, INTERVAL = 65_536.0, 2.0, 0.5, 2_000  # as torch.amp.GradScaler has them
LOWEST = 1.0  # a gradient that is not finite without any scaling is not the scale's fault
HIGHEST = 2.0**127  # the largest power of two that float32 holds


@dataclass
class LossScale:
    """Multiplies the loss before the backward pass; halved when a gradient overflows, doubled after 2,000 good steps.

    The same rule as torch's ``GradScaler``, with two differences: the verdict on the gradient comes from outside, so
    that all ranks share one and a GPU is waited for once; and at a scale of 1 an overflow is an error, not a lesson.

    Attributes:
        value: the factor; 1 where the precision needs none.
        is_active: False for float32 and bfloat16.
        good_steps: updates since the last change.
    """

    value: float = 1.0
    is_active: bool = False
    good_steps: int = 0

    @classmethod
    def for_precision(cls, precision: str) -> "LossScale":
        """The scale with which a run in this precision begins.

        >>> LossScale.for_precision("fp16").value, LossScale.for_precision("bf16").value
        (65536.0, 1.0)
        """
        return cls(INITIAL, is_active=True) if precision == "fp16" else cls()

    def learn(self, *, is_finite: bool) -> None:
        """Adapt to what became of the last gradient."""
        if not self.is_active:
            return
        if not is_finite:
            self.value, self.good_steps = max(self.value * BACKOFF, LOWEST), 0
            return
        self.good_steps += 1
        if self.good_steps == INTERVAL:
            self.value, self.good_steps = min(self.value * GROWTH, HIGHEST), 0

    @property
    def explains_overflow(self) -> bool:
        """A smaller scale may still bring a finite gradient."""
        return self.is_active and self.value > LOWEST

    def state(self) -> dict[str, float]:
        """For a checkpoint; empty where there is nothing to remember."""
        return {"value": self.value, "good_steps": float(self.good_steps)} if self.is_active else {}

    def restore(self, state: dict[str, float]) -> None:
        """Inverse of ``state``."""
        if self.is_active and state:
            self.value, self.good_steps = state["value"], int(state["good_steps"])
