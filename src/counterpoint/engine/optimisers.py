"""Optimisers and learning rates from settings: torch's optimisers, LARS, which torch does not have, and schedules.

The learning rate is a pure function of the step, so that resuming needs no scheduler state.
"""

# pyright: reportPrivateImportUsage=false
# (torch's operations on lists of tensors have no public name)

import inspect
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from counterpoint.core.errors import UsageError
from counterpoint.core.settings import OptimSettings
from counterpoint.core.stored_rows import row_slices

SCALES_AND_SHIFTS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
KERNELS = ("fused", "foreach")


def build_optimizer(module: nn.Module, settings: OptimSettings, *, is_sharded: bool = False) -> Optimizer:
    """AdamW, Adam, SGD or LARS over a module's trainable parameters.

    Kernels and matrices are decayed (Adam and SGD add the decay to the gradient, AdamW takes it off the weights, LARS
    counts it in its ratio). Biases, norms and learned scales are neither decayed nor adapted by LARS; nor is what a
    part names in ``no_weight_decay()``, as timm's encoders do. With ``decay_all`` all but scalars are decayed, and LARS
    adapts the same as without it.

    Args:
        module: module whose trainable parameters are optimised.
        settings: settings of the optimiser, every ``auto`` filled in.
        is_sharded: whether the engine will spread the parameters over ranks (FSDP2).

    Returns:
        The optimiser. Its groups are what is decayed, the vectors that are not, and the scalars, if there are any
        (which stay whole where the others are sharded). It keeps its own kernels when it loads a state that others
        computed.

    Raises:
        UsageError: nothing is trainable.

    >>> settings = OptimSettings(name="sgd", learning_rate=0.1, weight_decay=0.5)
    >>> optimizer = build_optimizer(nn.Linear(3, 2), settings)
    >>> [(group["weight_decay"], len(group["params"])) for group in optimizer.param_groups]
    [(0.5, 1), (0.0, 1)]
    """
    plain = _undecayed(module)
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not trainable:
        raise UsageError("encoder and projector have no trainable parameter; at least one must require a gradient")
    # Scalars in a group of their own: where the rest is sharded, no operation takes both kinds in one list.
    scalars = [p for p in trainable if p.ndim == 0]
    decayed = [p for p in trainable if id(p) not in plain]
    vectors = [p for p in trainable if id(p) in plain and p.ndim > 0]
    decay = float(settings.weight_decay)
    groups: list[dict[str, Any]] = [{"params": decayed, "weight_decay": decay, "is_adapted": True}]
    groups += [
        {"params": parameters, "weight_decay": own_decay, "is_adapted": False}
        for parameters, own_decay in ((vectors, decay if settings.decay_all else 0.0), (scalars, 0.0))
        if parameters
    ]
    rate, momentum = float(settings.learning_rate), settings.momentum
    optimizer: Optimizer
    if settings.name == "lars":
        optimizer = LARS(groups, lr=rate, momentum=momentum, trust=settings.trust, is_clipped=settings.trust_clip)
    else:
        groups = [{name: value for name, value in group.items() if name != "is_adapted"} for group in groups]
        # Fused kernels: a step on ResNet-18's parameters took 2 CPU cores 5 ms fused, 15 ms in a loop and 35 ms foreach
        # for SGD; 9, 55 and 60 ms for AdamW (medians of 20). torch 2.15 has no fused SGD for DTensors.
        if settings.name == "sgd":
            optimizer = SGD(groups, lr=rate, momentum=momentum, fused=not is_sharded, foreach=is_sharded)
        else:
            optimizer = (AdamW if settings.name == "adamw" else Adam)(groups, lr=rate, fused=True)
    # A hook, since every way of loading passes through it. Groups are saved with their flags, such as fused=True,
    # which a run with shards cannot use.
    optimizer.register_load_state_dict_pre_hook(_keep_kernels)
    return optimizer


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Give every group the rate of a step."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def entries_of(optimizer: Optimizer) -> list[str]:
    """Names of the values that an optimiser keeps for a parameter, in order, found by a step of another of its kind."""
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    arguments = inspect.signature(type(optimizer)).parameters
    twin = type(optimizer)(
        [parameter], **{name: optimizer.defaults[name] for name in arguments if name in optimizer.defaults}
    )
    twin.step()
    return list(twin.state[parameter])


def _keep_kernels(optimizer: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    kernels = [{name: group[name] for name in KERNELS if name in group} for group in optimizer.param_groups]
    saved = state["param_groups"]
    if len(saved) != len(kernels):
        return state  # torch says what is wrong
    return {**state, "param_groups": [{**group, **own} for group, own in zip(saved, kernels, strict=True)]}


def _undecayed(module: nn.Module) -> set[int]:
    """Identities of biases, norms, scalars and vectors, and of what a part itself exempts."""
    exempt_ids: set[int] = set()
    for part in module.modules():
        own: dict[str, Tensor] = dict(part.named_parameters(recurse=False))
        is_norm = isinstance(part, SCALES_AND_SHIFTS)
        # The number of axes alone does not tell: LayerNorm over (c, h, w) has scales of three axes, and a bias
        # may have two.
        exempt_ids.update(id(p) for name, p in own.items() if p.ndim <= 1 or name == "bias" or is_norm)
        exempts: Callable[[], Collection[str]] | None = getattr(part, "no_weight_decay", None)
        if exempts is not None:
            names = exempts()
            exempt_ids.update(id(p) for name, p in part.named_parameters() if name in names)
    return exempt_ids


class LARS(Optimizer):
    r"""Layer-wise adaptive rates on SGD with momentum.

    For a layer's weights w and gradient g, with learning rate lr, trust eta, decay beta and momentum m,

    .. math::
        r = \eta\, |w| / (|g| + \beta |w|), \quad v \leftarrow m v + r (g + \beta w), \quad
        w \leftarrow w - \mathrm{lr}\; v.

    Source: you2017, Eq. 6 (the rate) and Algorithm 1. Differs from Algorithm 1 in the place of the learning rate,
    which is applied outside of the momentum as in torch's SGD and in all released code of the methods here; where
    the rate is constant the two are the same. Where w or g is zero the ratio is 1: Eq. 6 would keep zero weights zero
    for ever. Scaling a loss changes no step of an adapted layer without decay.

    Args:
        params: parameters, or groups of them; a group may set each value below for itself.
        lr: learning rate, > 0; about 0.3 x batch / 256.
        momentum: m, 0 <= m < 1.
        weight_decay: beta >= 0, part of the adapted gradient.
        trust: eta > 0; 0.001 is common, small images take 0.02.
        is_adapted: whether r is computed (False: r = 1, for biases, norms and scales).
        is_clipped: whether the whole rate is capped at the learning rate, r = min(r / lr, 1), as in solo-learn's LARS.

    Raises:
        ValueError: a value out of its range.

    >>> weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> optimizer = LARS([weight], lr=1.0, trust=0.1)
    >>> weight.grad = torch.tensor([0.0, 100.0])
    >>> _ = optimizer.step()
    >>> weight.data  # one step of length 0.1 x 5
    tensor([3.0000, 3.5000])
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        *,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        trust: float = 1e-3,
        **flags: bool,
    ) -> None:
        values = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust}
        for name, value in values.items():
            may_be_zero = name in ("momentum", "weight_decay")
            # The range is half-open: 1e-300 as its lower end means > 0. NaN compares false and is refused.
            low, high = (0.0 if may_be_zero else 1e-300), (1.0 if name == "momentum" else float("inf"))
            if not low <= value < high:
                allowed = f"{'>= 0' if may_be_zero else '> 0'} and {'< 1' if name == 'momentum' else 'finite'}"
                raise ValueError(f"{name} must be {allowed}, got {value}")
        unknown = sorted(set(flags) - {"is_adapted", "is_clipped"})
        if unknown:
            raise TypeError(f"LARS takes no argument {unknown[0]!r}")
        super().__init__(params, {**values, "is_adapted": True, "is_clipped": False, **flags})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.

        Args:
            closure: function that computes the loss and the gradients, as for any optimiser of torch.

        Returns:
            What the closure returned, or None.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                self._update(params, group)
        return loss

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """Take one step of one group: v = m v + r g + r beta w, then w = w - lr v."""
        grads = [p.grad for p in params if p.grad is not None]
        # Ratios are scalar tensors on the device, so that no step waits for a number.
        ratios = [p.new_ones(()) for p in params]
        if group["is_adapted"]:  # Eq. 6 for every parameter at once
            norms: list[Any] = [torch.stack(torch._foreach_norm(part)) for part in (params, grads)]
            # Norms of parameters that are spread over ranks (DTensors) are those of all shards, by one exchange.
            weight, grad = (norm.full_tensor() if hasattr(norm, "full_tensor") else norm for norm in norms)
            ratio = group["trust"] * weight / (grad + group["weight_decay"] * weight)
            if group["is_clipped"]:
                # The whole rate is lr r: min(r / lr, 1) keeps it at or below lr.
                ratio = (ratio / group["lr"]).clamp(max=1.0)
            # Last, so that it replaces 0 / 0, too, and a zero tensor has r = 1 whether or not the rate is clipped.
            ratios = list(torch.where((weight > 0) & (grad > 0), ratio, 1.0).unbind())
        for p in params:  # v, zero before its first step
            if "momentum_buffer" not in self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)
        buffers = [self.state[p]["momentum_buffer"] for p in params]
        for part in row_slices(len(params), _at_once(params)):
            # v = m v + r g + r beta w, term by term: gradients stay as they are and no g + beta w is
            # stored.
            torch._foreach_mul_(buffers[part], group["momentum"])
            torch._foreach_addcmul_(buffers[part], grads[part], ratios[part])
            if group["weight_decay"] > 0:
                torch._foreach_addcmul_(buffers[part], params[part], ratios[part], value=group["weight_decay"])
            # Differs from Algorithm 1: lr outside of v, see the docstring of the class.
            torch._foreach_add_(params[part], buffers[part], alpha=-group["lr"])


def _at_once(params: list[Tensor]) -> int:
    """Layers per operation. On a CPU each alone stays in its cache: ResNet-18, 2 cores, 25 ms against 36 ms."""
    return 1 if params[0].device.type == "cpu" else len(params)


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
        peak: highest learning rate, eta > 0.
        num_steps: number of all steps of the run, T.
        num_warmup: number of steps of the linear rise, W.
        final_share: share of the peak at the end of the cosine, f, in [0, 1].
        held_for: number of steps over which the cosine keeps its value, h.
        num_peak: number of steps at the peak after the warm-up, P.
        num_cosine: number of steps of the cosine, C; None for all that are left.

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
        held_step = step // self.held_for * self.held_for
        begins = self.num_warmup + self.num_peak
        length = max(1, self.num_steps - begins) if self.num_cosine is None else self.num_cosine
        share = max(0, held_step - begins) / length
        # loshchilov2017, Eq. 5, with eta_min = f eta.
        cosine = 0.5 * (1.0 + math.cos(math.pi * share))
        return self.peak * (self.final_share + (1.0 - self.final_share) * cosine)


def build_schedule(settings: OptimSettings, *, num_epochs: int, batches_per_epoch: int) -> Schedule:
    """The schedule of a run.

    Args:
        settings: settings of the optimiser, every ``auto`` filled in. Every schedule's warm-up rises at every step.
        num_epochs: number of passes over the training samples.
        batches_per_epoch: number of updates per epoch.

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
    cosine_epochs = settings.cosine_epochs
    return Schedule(
        peak=float(settings.learning_rate),
        num_steps=num_epochs * batches_per_epoch,
        num_warmup=round(warmup_epochs * batches_per_epoch),
        final_share=1.0 if settings.schedule == "constant" else settings.final_share,
        held_for=batches_per_epoch if settings.schedule == "epoch-cosine" else 1,
        num_peak=round(settings.peak_epochs * batches_per_epoch),
        num_cosine=None if cosine_epochs == "none" else max(1, round(cosine_epochs * batches_per_epoch)),
    )
