"""A loss as a function of weights, with a fixed batch and nothing that draws: of a run, or your own without a run."""

# N pairs of views, D features, P weights

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from counterpoint.core.checks import require_numbers
from counterpoint.core.errors import UsageError, first_line
from counterpoint.diagnostics.curvature.coupled_loss import CoupledLoss, Inputs, Parameters, flat
from counterpoint.engine.job import TrainingJob
from counterpoint.evaluation.features import VIEW_EPOCH
from counterpoint.losses.loss import Loss
from counterpoint.methods.encoding import batch_dependent_layers
from counterpoint.methods.joint import Classification, EmbeddingMethod
from counterpoint.nn.synced_norm import batch_norm_layers
from counterpoint.runs.curvature_record import CurvatureSettings

DEFAULT_PAIRS = 256
METHOD, ENCODER, LOSS = "method.", "encoder.", "loss."  # before the names of weights
RANDOM_LAYERS = ("Dropout", "DropPath", "StochasticDepth")  # parts of the names of layers that draw
STEP = 1e-7  # length of the step that tries the slope, over that of the weights: few kinks of a ReLU lie within it
SLOPE_TOLERANCE = 3e-5  # over the usual slope: a ResNet has 2e-8
SAME = 1e-9  # relative, of embeddings in float64
Encode = Callable[[Mapping[str, Tensor], Tensor], Tensor]


@dataclass(frozen=True)
class FixedLoss:
    """A loss on one batch.

    Attributes:
        at: the loss around some weights (the ``state_dict`` of a run's method); one of your own has its weights.
        inputs: both views.
        num_parameters: trained weights.
        loss_name: shown in tables and messages.
        floor: a value that it cannot go below; None where that is not known.
        remarks: what is to be known, in sentences.
        batch_norm: whose statistics BatchNorm uses: batch, frozen, or none.
    """

    at: Callable[[Mapping[str, Tensor]], CoupledLoss]
    inputs: Inputs
    num_parameters: int
    loss_name: str
    floor: float | None
    remarks: tuple[str, ...]
    batch_norm: str


def run_loss(job: TrainingJob, asked: CurvatureSettings) -> FixedLoss:
    """Fix batch, views and modes of a run's method.

    Args:
        job: of the run; its method is changed.
        asked: batch size, BatchNorm and precision.

    Raises:
        UsageError: the method's training follows no gradient of one function, or the batch is larger than the data.
    """
    method = job.method
    loss = _with_hessian(job)
    assert isinstance(method, EmbeddingMethod)
    size = min(DEFAULT_PAIRS, len(job.loader.order.positions)) if asked.batch_size == "auto" else asked.batch_size
    batch = job.loader.one_batch(size, VIEW_EPOCH)
    dtype = getattr(torch, asked.precision)
    views = job.views.two_views(batch.samples, batch.streams, VIEW_EPOCH, batch.second)
    method.to(dtype).eval()
    method.chunks = None
    remarks = []
    random = [name for name, layer in method.named_modules() if _draws(layer)]
    if random:
        remarks.append(f"layers that draw are off: {', '.join(random[:3])}{' ...' if len(random) > 3 else ''}")
    norms = [layer for _, layer in batch_norm_layers(method)]
    if asked.batch_norm == "batch":
        for layer in norms:
            layer.train().track_running_stats = False  # their own statistics stay as they are
        if norms and job.settings.engine.chunk_size != "none":
            remarks.append("BatchNorm has the statistics of the whole batch; in training it had those of each chunk")
    inputs = tuple(view.to(dtype) for view in views)
    labels_N = batch.labels if loss.uses_labels or isinstance(method, Classification) else None
    encoding = _Called(method, lambda *views: torch.stack(method.embed_views(*views), dim=1))
    scoring = _Called(method, lambda z_N2D: method.score(z_N2D[:, 0], z_N2D[:, 1], labels_N))

    def encode(parameters: Parameters, inputs: Inputs) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):  # fused attention has no second derivative
            return functional_call(encoding, _above(parameters, METHOD), inputs)

    def value(parameters: Parameters, z_N2D: Tensor) -> Tensor:
        return functional_call(scoring, _above(parameters, METHOD), (z_N2D,))

    def at(weights: Mapping[str, Tensor]) -> CoupledLoss:
        method.load_state_dict(weights)
        trained = {name: weight.detach() for name, weight in method.named_parameters() if weight.requires_grad}
        is_separable = next(iter(batch_dependent_layers(method)), None) is None
        return CoupledLoss(encode, value, trained, inputs, is_separable)

    return FixedLoss(
        at=at,
        inputs=inputs,
        num_parameters=sum(weight.numel() for weight in method.parameters() if weight.requires_grad),
        loss_name=loss.card.name,
        floor=_finite_floor(loss, len(inputs[0])),
        remarks=tuple(remarks),
        batch_norm=asked.batch_norm if norms else "none",
    )


def user_loss(loss: Any, parameters: Any, batch: Any, labels: Any, asked: CurvatureSettings) -> FixedLoss:
    """Check what the caller gave, and put it together in the precision asked for.

    Args:
        loss: ``loss(z0, z1)``, or with labels.
        parameters: an encoder, or a pair of a function and its named tensors.
        batch: two views.
        labels: of the samples; None for a loss that takes none.
        asked: BatchNorm and precision.

    Raises:
        UsageError: something of the wrong kind, a loss whose gradient is not the slope of its value, or a layer that
            draws at random.
    """
    for name in ("batch_size", "checkpoint"):
        if getattr(asked, name) != CurvatureSettings.model_fields[name].default:
            raise UsageError(f"{name} is a setting for runs; the batch and the weights are those that are given")
    _check_kinds(loss, parameters, batch, labels)
    coupled = partial(_coupled, loss, parameters, batch, labels, asked.batch_norm)
    _check_slope(exact := coupled(torch.float64))
    norms = list(batch_norm_layers(parameters)) if isinstance(parameters, nn.Module) else []
    is_separable = _is_separable(exact)
    found = replace(coupled(getattr(torch, asked.precision)), is_separable=is_separable)
    return FixedLoss(
        at=lambda _: found,
        inputs=found.inputs,
        num_parameters=found.num_parameters,
        loss_name=loss.card.name if isinstance(loss, Loss) else getattr(loss, "__name__", type(loss).__name__),
        floor=_finite_floor(loss, len(found.inputs[0])) if isinstance(loss, Loss) else None,
        remarks=() if is_separable or norms else ("the encoder mixes the samples of a batch, so it is not cut",),
        batch_norm=asked.batch_norm if norms else "none",
    )


@contextmanager
def exact_products() -> Iterator[None]:
    """Without products of fewer digits (TF32, bfloat16), whose rounding is larger than most eigenvalues."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(allow_tf32=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def check_second_derivative(loss: Loss) -> None:
    """Require a loss that has a Hessian.

    Raises:
        UsageError: it has no Hessian; the message says why, and which option has one.
    """
    if loss.card.second_derivative.startswith("none"):
        raise UsageError(f"{loss.card.name} has no Hessian: {loss.card.second_derivative.removeprefix('none, ')}")


class _Called(nn.Module):
    """A module beside a function that uses it, so that the function can be called with other weights of the module."""

    def __init__(self, method: nn.Module, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.method, self.function = method, function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


def _with_hessian(job: TrainingJob) -> Loss:
    """The loss of a run whose training follows the gradient of one function of the weights."""
    if not isinstance(job.method, EmbeddingMethod):
        raise UsageError(
            f"method {job.settings.method} has a part that gets no gradient (a momentum encoder, a queue, or "
            "stop-gradient): what it follows is the gradient of no function, its Jacobian is not symmetric, and "
            "Lanczos does not apply; train with simclr, mio, barlow-twins or another method without such a part"
        )
    loss = job.method.loss
    assert isinstance(loss, Loss)
    check_second_derivative(loss)
    if job.settings.output.nonnegative == "relu-gelu":
        raise UsageError(
            "output.nonnegative relu-gelu has the value of one function and the slope of another, so that training "
            "follows no gradient and there is no Hessian; relu, softplus and sigmoid have one"
        )
    return loss


def _finite_floor(loss: Loss, num_pairs: int) -> float | None:
    floor = loss.floor(num_pairs)
    return floor if math.isfinite(floor) else None


def _draws(layer: nn.Module) -> bool:
    share = getattr(layer, "p", getattr(layer, "drop_prob", 0.0))
    is_random = any(part in type(layer).__name__ for part in RANDOM_LAYERS)
    return is_random and isinstance(share, float) and share > 0


def _check_kinds(loss: Any, parameters: Any, views: Any, labels: Any) -> None:
    """Require two views of equal length, a loss that can be called, and weights with a function of them."""
    is_pair = isinstance(views, tuple | list) and len(views) == 2 and all(isinstance(view, Tensor) for view in views)
    for view in views if is_pair else ():
        _check_real(view, "a view of batch")
    if not is_pair or views[0].shape[:1] != views[1].shape[:1] or sum(views[0].shape[:1]) < 2:
        raise UsageError("batch must be two tensors, the views of the same samples in the same order, at least 2 rows")
    if not callable(loss):
        raise UsageError(f"loss must be a loss object or a function (z0, z1) -> scalar, got {type(loss).__name__}")
    if isinstance(loss, Loss):
        check_second_derivative(loss)
    require_numbers(labels, "labels")
    if isinstance(parameters, nn.Module):
        for name, part in parameters.state_dict().items():
            require_numbers(part, name)
        active = [name for name, layer in parameters.named_modules() if _draws(layer) and layer.training]
        if active:
            raise UsageError(
                f"{active[0]} draws at random, so that no two products are of one function; call encoder.eval() first "
                "(BatchNorm follows batch_norm= whatever the mode)"
            )
        return
    is_two = isinstance(parameters, tuple) and len(parameters) == 2
    if not is_two or not callable(parameters[0]) or not isinstance(parameters[1], Mapping):
        raise UsageError(
            "parameters must be a module, or a pair of a function (tensors, view) -> (n, d) and its named tensors; got "
            f"{type(parameters).__name__}"
        )
    for name, part in parameters[1].items():
        _check_real(part, name)


def _check_real(part: Any, name: str) -> None:
    require_numbers(part, name)
    if not isinstance(part, Tensor) or part.is_complex():
        kind = part.dtype if isinstance(part, Tensor) else type(part).__name__
        raise UsageError(f"{name} must be a tensor of real numbers, got {kind}")


def _coupled(loss: Any, own: Any, batch: Any, labels: Any, batch_norm: str, dtype: torch.dtype) -> CoupledLoss:
    """The loss in one precision; modules are copied, so that the caller's stay as they are."""
    inputs = tuple(view.detach().to(dtype) if view.is_floating_point() else view for view in batch)
    if isinstance(own, nn.Module):
        encoder = _copied(own, dtype, batch_norm)
        weights = _above({name: part for name, part in encoder.named_parameters() if part.requires_grad}, ENCODER)
        encode_one: Encode = lambda weights, view: functional_call(encoder, dict(weights), (view,))  # noqa: E731
    else:
        encode_one, tensors = own
        weights = _above({name: part.to(dtype) for name, part in tensors.items()}, ENCODER)
    if isinstance(loss, nn.Module):
        loss = _copied(loss, dtype, "batch")
        weights |= _above({name: part for name, part in loss.named_parameters() if part.requires_grad}, LOSS)
    drawn = {"step": 0} if isinstance(loss, Loss) and loss.draws_by_step else {}
    extra = () if labels is None else (torch.as_tensor(labels, device=inputs[0].device),)

    def encode(parameters: Parameters, views: Inputs) -> Tensor:
        below = _below(parameters, ENCODER)
        with sdpa_kernel(SDPBackend.MATH):  # fused attention has no second derivative
            return torch.stack([_vectors(encode_one(below, view), view) for view in views], dim=1)

    def value(parameters: Parameters, z_N2D: Tensor) -> Tensor:
        views = (z_N2D[:, 0], z_N2D[:, 1], *extra)
        if isinstance(loss, nn.Module):
            return functional_call(loss, _below(parameters, LOSS), views, drawn)
        return loss(*views)

    return CoupledLoss(encode, value, {name: part.detach() for name, part in weights.items()}, inputs)


def _copied(module: nn.Module, dtype: torch.dtype, batch_norm: str) -> nn.Module:
    """A copy in one precision: nothing draws, and BatchNorm has the statistics asked for."""
    copied = copy.deepcopy(module).to(dtype).eval()
    if batch_norm == "batch":
        for _, layer in batch_norm_layers(copied):
            layer.train().track_running_stats = False
    return copied


def _above(parameters: Parameters, prefix: str) -> dict[str, Tensor]:
    """Weights under the names that they have in a module above."""
    return {f"{prefix}{name}": part for name, part in parameters.items()}


def _below(parameters: Parameters, prefix: str) -> dict[str, Tensor]:
    """Weights of one part, under its own names."""
    return {name.removeprefix(prefix): part for name, part in parameters.items() if name.startswith(prefix)}


def _vectors(z: Any, view: Tensor) -> Tensor:
    if not isinstance(z, Tensor) or z.ndim != 2 or len(z) != len(view):
        shape = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise UsageError(f"the encoder must give a vector for each sample, ({len(view)}, d), got {shape}")
    return z


def _check_slope(exact: CoupledLoss) -> None:
    """Require a function of the weights whose gradient is its slope, tried in float64 along one direction."""
    leaves = exact.leaves()
    with torch.enable_grad():
        value = exact.loss(leaves, _encoded(exact, leaves))
        if not isinstance(value, Tensor) or value.numel() != 1 or not bool(torch.isfinite(value)):
            raise UsageError("the loss must give one finite number")
        if not value.requires_grad:
            raise UsageError("the loss does not depend on the parameters by any gradient; is all of it detached?")
        parts = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
    if float(exact.value()) != float(value.detach()):
        raise UsageError(
            "the loss is not the same at a second call: something draws at random (dropout, fresh views); fix it first"
        )
    slope, tried, typical = _slopes(exact, flat(parts))
    rounding = 1e2 * torch.finfo(torch.float64).eps * max(1.0, abs(float(value.detach()))) / STEP
    if abs(slope - tried) > SLOPE_TOLERANCE * (typical + abs(tried)) + rounding:
        raise UsageError(
            f"the gradient of this loss is not the slope of its value ({slope:.3g} against {tried:.3g} along a random "
            "direction): some part gets no gradient (stop-gradient, detach, a momentum copy), or that of another "
            "function. What training follows is then the gradient of no function, its Jacobian is not symmetric, and "
            "Lanczos does not apply. Give the target as a constant, loss=lambda z0, z1: f(z0, target), or let the "
            "gradient through"
        )


def _encoded(exact: CoupledLoss, leaves: Parameters) -> Tensor:
    """The first embeddings, in which an encoder shows whether it takes the views."""
    try:
        return exact.encode(leaves, exact.inputs)
    except (RuntimeError, IndexError) as error:  # torch's; a fault of the user's own function keeps its place
        view = exact.inputs[0]
        raise UsageError(
            f"the encoder does not take views of {view.dtype} and shape {tuple(view.shape)}: {first_line(error)}; "
            "views of floats are brought to its precision, whole numbers stay (view.float() / 255 for bytes)"
        ) from error


def _slopes(exact: CoupledLoss, gradient_P: Tensor) -> tuple[float, float, float]:
    """Slope along a drawn direction by the gradient and by central differences, and its usual size."""
    generator = torch.Generator().manual_seed(0)
    v_P = torch.randn(exact.num_parameters, generator=generator, dtype=torch.float64).to(gradient_P)
    weights_P = flat(list(exact.parameters.values()))
    v_P *= (1 + float(weights_P.norm())) / float(v_P.norm())
    values = []
    for sign in (1, -1):
        moved = exact.split(weights_P + sign * STEP * v_P)
        values.append(float(exact.value(dict(zip(exact.parameters, moved, strict=True)))))
    usual = float(gradient_P.norm() * v_P.norm()) / exact.num_parameters**0.5
    return float(gradient_P @ v_P), (values[0] - values[1]) / (2 * STEP), usual


def _is_separable(exact: CoupledLoss) -> bool:
    """Whether some samples have the embeddings alone that they have within the batch."""
    num = exact.num_samples // 2
    with torch.no_grad():
        whole = exact.encode(exact.parameters, exact.inputs)[:num]
        alone = exact.encode(exact.parameters, next(exact.chunks(num)))
    return bool((whole - alone).abs().max() <= SAME * whole.abs().max())
