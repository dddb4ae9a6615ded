"""The user's own views: a function, checked for the promise that a view follows from its draws alone."""

# N samples

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.counter_random import PURPOSE_DROPOUT, PURPOSE_NOISE, PURPOSE_VIEW, normal, uniform
from counterpoint.core.errors import UsageError, first_line
from counterpoint.core.torch_state import own_draws
from counterpoint.data.order import random_keys

NUM_TRIED = 4  # samples on which views are tried before training


@dataclass(frozen=True)
class Draws:
    """Random numbers for one view of some samples: row i is a function of (seed, epoch, id of sample i, view) alone.

    Ask once for all numbers that a view needs: the same question has the same answer.

    Attributes:
        seed: the run's seed.
        epoch: epoch number.
        ids_N: int64 sample ids, on the CPU.
        view: 0 or 1, for functions that draw the two in different ways.
        device: device that the numbers are put on.

    >>> draws = Draws(seed=0, epoch=3, ids_N=torch.tensor([7, 8]), view=0)
    >>> bool((draws.uniform(2)[1] == Draws(0, 3, torch.tensor([8]), 0).uniform(2)[0]).all())
    True
    """

    seed: int
    epoch: int
    ids_N: Tensor
    view: int
    device: torch.device | str = "cpu"

    def uniform(self, count: int) -> Tensor:
        """Numbers in [0, 1), float32 (n, count)."""
        return uniform(self.seed, self.epoch, self.ids_N, PURPOSE_VIEW + self.view, count).to(self.device)

    def normal(self, count: int) -> Tensor:
        """Standard normal numbers, float32 (n, count)."""
        return normal(self.seed, self.epoch, self.ids_N, PURPOSE_NOISE + self.view, count).to(self.device)

    def seeds(self) -> list[int]:
        """A seed per sample, for transforms that use torch's generator: ``torch.manual_seed`` it before each."""
        return random_keys(self.seed, self.epoch, self.ids_N, PURPOSE_DROPOUT + self.view)[:, 0].tolist()


@dataclass(frozen=True)
class OwnViews:
    """A user's function ``function(samples, draws)``, called for one view of a batch at a time.

    Args:
        function: takes float32 images (n, c, h, w) in [0, 1], or vectors (n, d), and ``Draws`` for them; returns their
            views as float32 of the same shape, before mean and deviation are taken off. It draws its random numbers
            from ``draws`` alone, so that workers, ranks and a resumed run change no view.

    >>> def brighter(samples, draws):
    ...     return (samples + 0.2 * draws.uniform(1)[:, :, None, None]).clamp(0, 1)
    >>> views = OwnViews(brighter).draw(torch.zeros(2, 3, 8, 8), Draws(0, 0, torch.arange(2), view=0))
    >>> tuple(views.shape), bool((views[0] != views[1]).all())
    ((2, 3, 8, 8), True)
    """

    function: Callable[[Tensor, Draws], Any]

    @property
    def name(self) -> str:
        """Name of the function in messages."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def draw(self, samples: Tensor, draws: Draws) -> Tensor:
        """One view of each sample.

        Args:
            samples: uint8 or float images, or vectors; left as they are.
            draws: random numbers of the samples.

        Raises:
            UsageError: the function fails, or what it returns are not views.
        """
        # A copy: a function that changes its argument must not change the data.
        inputs = to_unit_float(samples).clone() if samples.ndim == 4 else samples.to(torch.float32, copy=True)
        shape = tuple(inputs.shape)
        devices = [samples.device] if samples.is_cuda else []
        with torch.no_grad(), own_draws(devices=devices):  # what it draws or seeds there changes nothing else
            try:
                views = self.function(inputs, draws)
            except Exception as error:  # whatever a foreign function raises, its user should see in one line
                raise UsageError(f"views {self.name}: {type(error).__name__}: {first_line(error)}") from None
        if not isinstance(views, Tensor):
            raise UsageError(f"views {self.name} must return a tensor for one view, got {type(views).__name__}")
        if tuple(views.shape) != shape or views.dtype != torch.float32:
            raise UsageError(
                f"views {self.name} must return float32 of the samples' shape {shape}, got {views.dtype} of shape "
                f"{tuple(views.shape)}"
            )
        if views.device.type == "cpu" and not bool(torch.isfinite(views).all()):  # elsewhere the device were waited for
            raise UsageError(f"views {self.name} must return finite numbers, got NaN or infinity")
        return views

    def draw_each(self, samples: Tensor, seed: int, epoch: int, ids_N: Tensor, view_N: Tensor) -> Tensor:
        """One view of each sample, which may be of different numbers; on the samples' device."""
        views = torch.empty(samples.shape, dtype=torch.float32, device=samples.device)
        # The function draws one view at a time, as it may treat the two differently.
        for view in view_N.unique().tolist():
            rows = (view_N == view).nonzero()[:, 0].to(samples.device)
            draws = Draws(seed, epoch, ids_N[view_N == view], view, samples.device)
            views[rows] = self.draw(samples[rows], draws)
        return views

    def check(self, samples: Tensor) -> None:
        """Try both views of a few samples, together and one alone.

        Raises:
            UsageError: they are not views, or a sample's view depends on more than its draws.
        """
        samples = samples[:NUM_TRIED]
        ids_N = torch.arange(len(samples))
        for view in (0, 1):
            with own_draws(seed=1, devices=[]):  # what follows torch's own generator shows
                # Both calls should agree in the last sample, whatever is beside it and whatever torch's own draws are.
                together = self.draw(samples, Draws(0, 0, ids_N, view, samples.device))
                torch.manual_seed(2)
                alone = self.draw(samples[-1:], Draws(0, 0, ids_N[-1:], view, samples.device))
            # Not bit for bit: an operation may round differently in another batch size, and no harm is done.
            if not torch.allclose(together[-1:], alone, rtol=1e-3, atol=1e-4):
                raise UsageError(
                    f"views {self.name}: a sample's view changes with the samples beside it or from call to call; take "
                    "random numbers from draws.uniform, draws.normal or draws.seeds, one row per sample"
                )


def as_views(value: Any) -> OwnViews:
    """Wrap a user's views as training takes them.

    Raises:
        UsageError: they are no views.
    """
    if isinstance(value, OwnViews):
        return value
    if not callable(value):
        raise UsageError(
            "views must be settings such as {'preset': 'photos'}, or a function called as views(samples, draws), got "
            f"{type(value).__name__}"
        )
    return OwnViews(value)
