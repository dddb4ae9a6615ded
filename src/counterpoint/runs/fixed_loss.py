"""The loss of a run as a function of its weights, with a fixed batch and no random layers."""

# N pairs of views, D features, P weights

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from counterpoint.core.errors import UsageError
from counterpoint.diagnostics.curvature.hessian_products import CoupledLoss, Inputs, Parameters
from counterpoint.engine.job import TrainingJob
from counterpoint.evaluation.features import VIEW_EPOCH
from counterpoint.losses.loss import Loss
from counterpoint.methods.joint import Classification, EmbeddingMethod
from counterpoint.methods.target_branch import MomentumQueue, Predictive
from counterpoint.nn.synced_norm import batch_norm_layers
from counterpoint.runs.curvature_record import CurvatureSettings

DEFAULT_PAIRS = 256
RANDOM_LAYERS = ("Dropout", "DropPath", "StochasticDepth")  # parts of the names of layers that draw


@dataclass(frozen=True)
class FixedLoss:
    """A loss on one batch.

    Attributes:
        at: function that returns the loss around some weights (the ``state_dict`` of the run's method).
        inputs: both views of the batch.
        num_parameters: number of trained weights.
        loss_name: name of the loss, shown in tables and messages.
        floor: value that the loss cannot go below; None if it is not known.
        remarks: sentences that a reader must know.
        batch_norm: statistics that BatchNorm uses: ``batch``, ``frozen``, or ``none`` without BatchNorm.
    """

    at: Callable[[Mapping[str, Tensor]], CoupledLoss]
    inputs: Inputs
    num_parameters: int
    loss_name: str
    floor: float | None
    remarks: tuple[str, ...]
    batch_norm: str


def run_loss(job: TrainingJob, settings: CurvatureSettings) -> FixedLoss:
    """Fix batch, views and modes of a run's method.

    Args:
        job: job of the run; its method is changed.
        settings: batch size, BatchNorm and precision.

    Raises:
        UsageError: the method's training follows no gradient of one function, or the batch is larger than the data.
    """
    method, loss = _method_with_hessian(job)
    size = min(DEFAULT_PAIRS, len(job.loader.order.positions)) if settings.batch_size == "auto" else settings.batch_size
    batch = job.loader.one_batch(size, VIEW_EPOCH)
    dtype = getattr(torch, settings.precision)
    views = job.views.two_views(batch.samples, batch.streams, VIEW_EPOCH, batch.second)
    method.to(dtype).eval()
    method.chunks = None
    remarks = []
    random = [name for name, layer in method.named_modules() if _is_random_layer(layer)]
    if random:
        remarks.append(f"layers that draw are off: {', '.join(random[:3])}{' ...' if len(random) > 3 else ''}")
    norms = [layer for _, layer in batch_norm_layers(method)]
    if settings.batch_norm == "batch":
        for layer in norms:
            layer.train().track_running_stats = False  # their own statistics stay as they are
        if norms and job.settings.engine.chunk_size != "none":
            remarks.append("BatchNorm has the statistics of the whole batch; in training it had those of each chunk")
    inputs = tuple(view.to(dtype) for view in views)
    labels_N = batch.labels if loss.uses_labels or isinstance(method, Classification) else None
    if not isinstance(method, EmbeddingMethod) or getattr(loss, "detach_target", False):
        remarks.append("targets (of the momentum encoder or of stop-gradient, and a queue) are held fixed")
    targets: list[Tensor] = []  # of the weights that were loaded last
    if isinstance(method, EmbeddingMethod):
        encoding = _CallableMethod(method, lambda *views: torch.stack(method.embed_views(*views), dim=1))
        scoring = _CallableMethod(method, lambda z_NVD: method.score(z_NVD[:, 0], z_NVD[:, 1], labels_N))
    else:
        encoding = _CallableMethod(method, lambda *views: torch.stack(method.branches(*views)[0], dim=1))
        scoring = _CallableMethod(method, lambda z_NVD: method.score(z_NVD.unbind(1), targets))

    def encode(parameters: Parameters, inputs: Inputs) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):  # fused attention has no second derivative
            return functional_call(encoding, _method_weights(parameters), inputs)

    def value(parameters: Parameters, z_NVD: Tensor) -> Tensor:
        return functional_call(scoring, _method_weights(parameters), (z_NVD,))

    def at(weights: Mapping[str, Tensor]) -> CoupledLoss:
        method.load_state_dict(weights)
        if not isinstance(method, EmbeddingMethod):
            with torch.no_grad():
                targets[:] = method.branches(*inputs)[1]
        trained = {name: weight.detach() for name, weight in method.named_parameters() if weight.requires_grad}
        return CoupledLoss(encode, value, trained, inputs)

    return FixedLoss(
        at=at,
        inputs=inputs,
        num_parameters=sum(weight.numel() for weight in method.parameters() if weight.requires_grad),
        loss_name=loss.card.name,
        floor=floor if math.isfinite(floor := loss.floor(len(inputs[0]))) else None,
        remarks=tuple(remarks),
        batch_norm=settings.batch_norm if norms else "none",
    )


@contextmanager
def exact_products() -> Iterator[None]:
    """Forbid products of fewer digits (TF32, bfloat16), whose rounding is larger than most eigenvalues."""
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


class _CallableMethod(nn.Module):
    """A module beside a function that uses it, so that the function can be called with other weights of the module."""

    def __init__(self, method: nn.Module, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.method, self.function = method, function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


def _method_weights(parameters: Parameters) -> dict[str, Tensor]:
    """Weights of the method under the names that ``_CallableMethod`` has for them."""
    return {f"method.{name}": part for name, part in parameters.items()}


def _method_with_hessian(job: TrainingJob) -> tuple[EmbeddingMethod | Predictive | MomentumQueue, Loss]:
    """Return method and loss of a run, and refuse a run whose step follows the gradient of no function of the weights.

    With targets without gradient, the function is the loss beside these targets, which the next step moves.
    """
    if job.settings.views.local_crops:
        raise UsageError("curvature is that of a loss of two views, and this run has local ones (views.local_crops)")
    loss = job.method.loss
    assert isinstance(loss, Loss)
    assert isinstance(job.method, EmbeddingMethod | Predictive | MomentumQueue)
    check_second_derivative(loss)
    if job.settings.output.nonnegative == "relu-gelu":
        raise UsageError(
            "output.nonnegative relu-gelu has the value of one function and the slope of another, so that training "
            "follows no gradient and there is no Hessian; relu, softplus and sigmoid have one"
        )
    return job.method, loss


def _is_random_layer(layer: nn.Module) -> bool:
    share = getattr(layer, "p", getattr(layer, "drop_prob", 0.0))
    is_random = any(part in type(layer).__name__ for part in RANDOM_LAYERS)
    return is_random and isinstance(share, float) and share > 0
