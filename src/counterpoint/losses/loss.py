"""The base of all losses: its value, the reference values of its curve, and its description."""

# N samples per view, D features

import functools
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, Self, TypeVar

import torch
from torch import Tensor, nn

from counterpoint.core.errors import NonFiniteError, UsageError
from counterpoint.core.numerics import without_autocast
from counterpoint.kernels.select import inputs_in
from counterpoint.losses.class_level import ClassLevel, not_covered
from counterpoint.losses.inputs import can_read, check_views, gathering, is_finite, require, seen

HALF = (torch.bfloat16, torch.float16)
Arguments = ParamSpec("Arguments")
Made = TypeVar("Made", bound="Loss")


@dataclass(frozen=True)
class LossCard:
    """Description of a loss, in the words of ``losses.explain`` and of the table in ``docs/losses-reference.md``.

    Attributes:
        name: name of the class or function in the catalogue.
        phi: function that is applied to each anchor's sum, as a formula; "-" without pairs.
        psi: function that is applied to each pair's score, as a formula; "-" without pairs.
        alpha: pairwise importance, as a formula; "-" without pairs.
        negatives: vectors that repel an anchor, in words.
        normalization: treatment of the inputs, and what the value is the mean of.
        source: bib key and place, e.g. ``alphacl2022, Eq. 1``.
        second_derivative: ``true`` (Hessian-vector products in linear memory), ``autograd`` or ``none, because ...``.
        fused: devices on which its pairs are never stored: ``CPU, CUDA``, ``CPU`` or ``no pairs``.
    """

    name: str
    phi: str = "-"
    psi: str = "-"
    alpha: str = "-"
    negatives: str = "none"
    normalization: str = "inputs as they are"
    source: str = "-"
    second_derivative: str = "true"
    fused: str = "no pairs"


@dataclass(frozen=True)
class Part:
    """The samples whose vectors are anchors here, where several processes share one batch.

    Every process holds all samples as keys and scores its own anchors; the mean of the parts' losses is the loss of
    the whole batch. A loss that is not a sum over anchors takes the whole batch in each process and ignores the part.

    Attributes:
        first: index of the first own sample.
        last: one past the last own sample.
        merge: function from this process's partial statistics of all columns (log-sum-exp if the flag is True, else
            sum) to those of the whole batch; differentiable.
    """

    first: int
    last: int
    merge: Callable[[Tensor, bool], Tensor]


class Loss(nn.Module, ABC):
    """Base of all losses: ``loss(z0, z1, labels=None)`` is a scalar tensor.

    Losses of pairs also answer ``importance(z0, z1)``: how much each vector repels each anchor, a dense tensor
    (2n, 2n) whose rows are anchors and whose columns are vectors, first view before second; zero where j does not
    repel i.

    Attributes:
        card: description of the loss.
        uses_labels: whether it learns from labels where they are given.
        draws_by_step: whether it draws at random; ``forward`` then takes the keyword ``step``, which numbers the draws.
        domain_error: reason why the value may be NaN or minus infinity for finite inputs of any size; empty if none.
        why_no_class_level: reason that ``class_level`` gives when it raises.
    """

    card: LossCard
    uses_labels: bool = False
    draws_by_step: bool = False
    domain_error: str = ""
    why_no_class_level: str = "its value is not an expectation over an anchor and its negatives"
    _call: str

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        """Keep the call that makes the loss, for ``repr``."""
        loss = super().__new__(cls)
        object.__setattr__(loss, "_call", _call_text(cls, arguments, named))  # a module takes none before __init__
        return loss

    def __repr__(self) -> str:
        return self._call

    def __call__(self, *views: Any, **named: Any) -> Tensor:
        """Run ``forward`` in the precision of its inputs, whatever autocast says, and let no NaN pass.

        On a CPU what must hold is looked at as it comes up. On other devices all of it is read once, at the end of the
        call; while a CUDA graph is recorded the device asserts it, which names no row. ``torch.compile`` leaves its
        graph for the call.

        Raises:
            NonFiniteError: the value is NaN or infinite although the inputs are finite.
        """
        if torch.compiler.is_compiling():  # threads, launches and the choice of a kernel cannot be traced
            return torch.compiler.disable(self.__call__)(*views, **named)  # pyright: ignore[reportReturnType]
        first = views[0] if views else named.get("z0")
        if not isinstance(first, Tensor):
            return super().__call__(*views, **named)  # refuses it by name
        if not torch.is_inference_mode_enabled():
            views = tuple(map(_savable, views))
            named = {name: _savable(value) for name, value in named.items()}
        # The common case, float32 without autocast, enters no context.
        if first.dtype not in HALF and not torch._C._is_any_autocast_enabled():
            return self._gathered(first, views, named)
        # Tensors without numbers, which torch has no autocast for, are refused by name below.
        devices = {z.device.type for z in (*views, *named.values()) if isinstance(z, Tensor)} - {"meta"}
        # Kernels on CUDA may multiply in the half precision of inputs that the loss lifts to float32.
        with without_autocast(devices), inputs_in(first.dtype if first.dtype in HALF else None):
            return self._gathered(first, views, named)

    def _gathered(self, first: Tensor, views: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        """The value; where reading waits for the device, all conditions of it are settled in one read."""
        if can_read(first):
            return self._settled(super().__call__(*views, **named))
        # super() without arguments finds no self in a lambda.
        return gathering(lambda: self._settled(super(Loss, self).__call__(*views, **named)))

    def _settled(self, value: Tensor) -> Tensor:
        if can_read(value) and math.isfinite(seen(value, 0.0)):
            return value

        def complain() -> None:
            number, dtype = float(value.detach()), str(value.dtype).removeprefix("torch.")
            why = f"they are too large for {dtype}, or a learned scale has diverged; scale them down or use float64"
            # Plus infinity is overflow: a domain that was left shows as NaN or minus infinity.
            if self.domain_error and number != math.inf:
                why = self.domain_error
            raise NonFiniteError(f"{self.card.name} is {number} for finite inputs: {why}")

        require(is_finite(value.detach()), complain, f"{self.card.name} is not finite")
        return value

    @abstractmethod
    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """Value of the loss.

        Args:
            z0: embeddings of the first view, shape (n, d), n >= 2.
            z1: embeddings of the second view, same samples in the same order.
            labels: int64 (n,); losses without labels only check them. Each number is a class, -1 too: samples of
                unknown class need numbers of their own, as training gives them.
            part: samples whose vectors are anchors here; None scores all.

        Returns:
            Scalar tensor; float32 for half-precision inputs.

        Raises:
            TypeError: inputs are not floating point.
            ValueError: shapes differ, n < 2, labels of another length, or a row is not finite (named).
        """

    @abstractmethod
    def chance(self, n: int) -> float:
        """Loss of n samples whose vectors all look alike (nothing learned, or full collapse)."""

    @abstractmethod
    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        """A value that no embedding of n samples can go below; minus infinity where there is none.

        Args:
            n: number of samples per batch, >= 2.
            nonnegative: whether the embedding has no negative entries.
        """

    def class_level(self) -> ClassLevel:
        """Record of what the loss asks of whole classes, from which ``theory`` computes the geometry that minimises it.

        Raises:
            UsageError: the loss has no class-level risk; says why, and which losses have one.
        """
        raise not_covered(self.card.name, self.why_no_class_level)


def shown_by_call(build: Callable[Arguments, Made]) -> Callable[Arguments, Made]:
    """Let the losses that a function makes show themselves by its call, as those of a class do.

    >>> from counterpoint.losses import InfoNCE
    >>> InfoNCE(0.2)
    InfoNCE(temperature=0.2)
    """

    @functools.wraps(build)
    def make(*arguments: Arguments.args, **named: Arguments.kwargs) -> Made:
        loss = build(*arguments, **named)
        loss._call = _call_text(build, arguments, named)
        return loss

    return make


def _call_text(build: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> str:
    """The call as code; a function in it is shown by its name."""
    try:
        bound = inspect.signature(build).bind(*arguments, **named).arguments
    except TypeError:  # a copy, which brings its text with it; a wrong call is refused by what is called
        return f"{build.__name__}()"
    values = {name: getattr(value, "__name__", None) or repr(value) for name, value in bound.items()}
    return f"{build.__name__}({', '.join(f'{name}={value}' for name, value in values.items())})"


def _savable(value: Any) -> Any:
    """A copy of a tensor made in inference mode, which autograd cannot save for tensors with a gradient."""
    return value.clone() if isinstance(value, Tensor) and value.is_inference() else value


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
        loss: any loss of the catalogue, or your own ``PairLoss``.

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


class OwnLoss(Loss):
    """Any module that is called as ``loss(z0, z1)`` and gives a scalar.

    With several ranks each computes the whole batch. It has no chance level, no floor and no importance.

    Args:
        module: module that maps two views (n, d) to a scalar.

    >>> mse = OwnLoss(nn.MSELoss())
    >>> mse(torch.ones(2, 3), torch.zeros(2, 3))
    tensor(1.)
    """

    why_no_class_level = "it is not a loss of the catalogue"

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        name = type(module).__name__
        unknown = "as the module has it"
        self.card = LossCard(name, "-", "-", "-", unknown, unknown, "your own module", "autograd", "no pairs")

    def __repr__(self) -> str:
        return self.card.name

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """Value that the module gives; see ``Loss.forward``. Labels are only checked, ``part`` is ignored.

        Raises:
            TypeError: the module gives no scalar tensor.
        """
        check_views(z0, z1, labels)
        value = self.module(z0, z1)
        if not isinstance(value, Tensor) or value.numel() != 1:
            kind = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"{self.card.name} must give a scalar tensor, got {kind}")
        return value.reshape(())

    def chance(self, n: int) -> float:
        """Return NaN: the module does not tell its chance level."""
        return math.nan

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        """Return minus infinity: the module does not tell its least value."""
        return -math.inf


def as_loss(value: Any) -> Loss:
    """Return a value as the loss that training takes.

    Raises:
        UsageError: the value is neither a loss nor a torch module.
    """
    if isinstance(value, Loss):
        return value
    if isinstance(value, nn.Module):
        return OwnLoss(value)
    raise UsageError(
        "loss must be a loss of counterpoint.losses (PairLoss(phi, psi), AlphaCL(OwnRule(f)), a subclass of Loss), or "
        f"any torch module called as loss(z0, z1), got {type(value).__name__}"
    )


def first_order(derivative: Tensor, at: Tensor, *, refusal: str) -> Tensor:
    """A derivative tied to what it was taken at, so that differentiating it once more raises.

    With weights held fixed the derivative of a gradient is the Hessian of no loss, and silently wrong.

    Args:
        derivative: the first derivative, returned unchanged.
        at: a tensor that depends on all that must not be differentiated again.
        refusal: message of the error.

    Raises:
        RuntimeError: with the refusal, when a derivative of the result is asked for, in either mode.

    >>> x = torch.ones(2, requires_grad=True)
    >>> first_order(3 * x.detach(), x, refusal="no second derivative").sum().backward()
    Traceback (most recent call last):
    RuntimeError: no second derivative
    """
    return _FirstOrder.apply(derivative, at, refusal)  # pyright: ignore[reportReturnType]


class _FirstOrder(torch.autograd.Function):
    """The identity, without derivatives."""

    generate_vmap_rule = True

    @staticmethod
    def forward(derivative: Tensor, at: Tensor, refusal: str) -> Tensor:
        return derivative.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, str], output: Tensor) -> None:
        # ``at`` is kept nowhere: being an input is enough to tie the result to it.
        ctx.refusal = inputs[2]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        raise RuntimeError(ctx.refusal)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(ctx.refusal)


def first_gradient(value: Tensor, at: Tensor, *, refusal: str) -> Tensor:
    """A value in which something is held fixed: it has a gradient, and differentiating that raises.

    Args:
        value: value with something held fixed; returned unchanged.
        at: tensor that is held fixed in the value, before it was detached.
        refusal: message of the error.
    """
    return _FirstGradient.apply(value, at, refusal)  # pyright: ignore[reportReturnType]


class _FirstGradient(_FirstOrder):
    """The identity, whose derivative has no derivatives."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, str], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.save_for_forward(inputs[1])
        ctx.refusal = inputs[2]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        return first_order(grad_outputs[0], ctx.saved_tensors[0], refusal=ctx.refusal), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return first_order(tangents[0], ctx.saved_tensors[0], refusal=ctx.refusal)
