"""Learning rate as a pure function of the step, so that resuming needs no scheduler state."""

import math
from dataclasses import dataclass

from counterpoint.core.errors import UsageError
from counterpoint.core.settings import OptimSettings


@dataclass(frozen=True)
class Schedule:
    r"""Linear warm-up, then a cosine from the peak to a share of it.

    With W steps of warm-up, P at the peak, a cosine of C (all T - W - P that are left, unless it is given), its step
    held for h steps, and the final share f,

    .. math::
        \eta_t = \eta\, \frac{t + 1}{W} \quad (t < W), \qquad
        \eta_t = \eta \Big( f + (1 - f)\, \tfrac12 \big(1 + \cos(\pi s_t) \big) \Big), \quad
        s_t = \frac{\max(0, h \lfloor t / h \rfloor - W - P)}{C} \quad (t \ge W).

    The last step of warm-up has the peak, and no step the rate 0. h = 1 is the cosine per step, h = steps of an epoch
    the cosine per epoch, f = 1 a constant. A shorter cosine continues as torch's ``CosineAnnealingLR`` does:
    after C steps the rate rises again, and after 2C it is back at the peak.

    Source: goyal2017, section 2.2 (warm-up); loshchilov2017, Eq. 5 (cosine, without restarts).

    Args:
        peak: eta > 0.
        num_steps: T, all steps of the run.
        num_warmup: W, steps of the linear rise.
        final_share: f, in [0, 1].
        held_for: h, steps over which the cosine keeps its value.
        num_peak: P, steps at the peak after the warm-up.
        num_cosine: C, steps of the cosine; None for all that are left.

    >>> schedule = Schedule(peak=1.0, num_steps=100, num_warmup=10)
    >>> [round(schedule(step), 3) for step in (0, 9, 10, 55, 100)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    """

    peak: float
    num_steps: int
    num_warmup: int
    final_share: float = 0.0
    held_for: int = 1
    num_peak: int = 0
    num_cosine: int | None = None

    def __call__(self, step: int) -> float:
        """Learning rate of a step, counted from 0; ``num_steps`` gives where the curve ends."""
        assert 0 <= step <= self.num_steps, f"step {step} of {self.num_steps}"
        # Linear warm-up: goyal2017, section 2.2.
        if step < self.num_warmup:
            return self.peak * ((step + 1) / self.num_warmup)  # the last one exactly the peak
        # s_t; the max is for a warm-up that ends within a held epoch (W = 5, h = 3, t = 5: held at 3), the max
        # below for one that takes the whole run.
        held = step // self.held_for * self.held_for
        begins = self.num_warmup + self.num_peak
        length = max(1, self.num_steps - begins) if self.num_cosine is None else self.num_cosine
        share = max(0, held - begins) / length
        # loshchilov2017, Eq. 5, with eta_min = f eta.
        cosine = 0.5 * (1.0 + math.cos(math.pi * share))
        return self.peak * (self.final_share + (1.0 - self.final_share) * cosine)


def build_schedule(settings: OptimSettings, *, num_epochs: int, batches_per_epoch: int) -> Schedule:
    """The schedule of a run.

    Args:
        settings: with every ``auto`` filled in. The warm-up rises at every step, under each schedule.
        num_epochs: passes over the training samples.
        batches_per_epoch: updates per epoch.

    Raises:
        UsageError: a warm-up longer than the run.

    >>> settings = OptimSettings(learning_rate=1.0, weight_decay=0.0, warmup_epochs=0.0, schedule="epoch-cosine")
    >>> schedule = build_schedule(settings, num_epochs=2, batches_per_epoch=3)
    >>> [round(schedule(step), 3) for step in range(6)]
    [1.0, 1.0, 1.0, 0.5, 0.5, 0.5]
    """
    warmup_epochs = float(settings.warmup_epochs)
    if warmup_epochs > num_epochs:
        raise UsageError(
            f"optim.warmup_epochs must be at most the number of epochs, {num_epochs}, got {warmup_epochs:g}; about 5 % "
            "of them is common"
        )
    asked = settings.cosine_epochs
    return Schedule(
        peak=float(settings.learning_rate),
        num_steps=num_epochs * batches_per_epoch,
        num_warmup=round(warmup_epochs * batches_per_epoch),
        final_share=1.0 if settings.schedule == "constant" else settings.final_share,
        held_for=batches_per_epoch if settings.schedule == "epoch-cosine" else 1,
        num_peak=round(settings.peak_epochs * batches_per_epoch),
        num_cosine=None if asked == "none" else max(1, round(asked * batches_per_epoch)),
    )
