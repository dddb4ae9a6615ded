"""The loss of a run as a function of its weights: one fixed batch, fixed views, and nothing that draws."""

# N pairs of views, D features

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from counterpoint.core.errors import UsageError
from counterpoint.diagnostics.curvature.coupled_loss import CoupledLoss, Inputs, Parameters
from counterpoint.engine.job import TrainingJob
from counterpoint.evaluation.features import VIEW_EPOCH
from counterpoint.losses.loss import Loss
from counterpoint.methods.encoding import batch_dependent_layers
from counterpoint.methods.joint import Classification, EmbeddingMethod
from counterpoint.nn.synced_norm import batch_norm_layers
from counterpoint.runs.curvature_settings import CurvatureSettings

DEFAULT_PAIRS = 256
METHOD = "method."  # before the names of weights, within the modules below
RANDOM_LAYERS = ("Dropout", "DropPath", "StochasticDepth")  # parts of the names of layers that draw


@dataclass(frozen=True)
class RunLoss:
    """The loss of a run on one batch.

    Attributes:
        method: of the run, prepared; weights are put into it by ``at``.
        inputs: both views.
        labels_N: class numbers, or None.
        remarks: what is not as in training, in sentences.
        batch_norm: whose statistics BatchNorm uses: batch, frozen, or none.
    """

    method: EmbeddingMethod
    inputs: Inputs
    labels_N: Tensor | None
    remarks: tuple[str, ...]
    batch_norm: str

    @property
    def num_parameters(self) -> int:
        """Trained weights."""
        return sum(weight.numel() for weight in self.method.parameters() if weight.requires_grad)

    @property
    def loss_name(self) -> str:
        """What the loss is called."""
        return _loss_of(self.method).card.name

    @property
    def floor(self) -> float | None:
        """A value that the loss cannot go below; None where that is not known."""
        return finite_floor(_loss_of(self.method), len(self.inputs[0]))

    def at(self, weights: Mapping[str, Tensor]) -> CoupledLoss:
        """The loss around some weights.

        Args:
            weights: ``state_dict`` of the method.
        """
        self.method.load_state_dict(weights)
        encoding, scoring = _Encoding(self.method), _Scoring(self.method)

        def encode(parameters: Parameters, inputs: Inputs) -> Tensor:
            # Fused attention has no second derivative.
            with sdpa_kernel(SDPBackend.MATH):
                return functional_call(encoding, _named(parameters), inputs)

        def loss(parameters: Parameters, z_N2D: Tensor) -> Tensor:
            return functional_call(scoring, _named(parameters), (z_N2D, self.labels_N))

        trained = {name: weight.detach() for name, weight in self.method.named_parameters() if weight.requires_grad}
        is_separable = next(iter(batch_dependent_layers(self.method)), None) is None
        return CoupledLoss(encode, loss, trained, self.inputs, is_separable)


def run_loss(job: TrainingJob, asked: CurvatureSettings) -> RunLoss:
    """Fix batch, views and modes of a run's method.

    Args:
        job: of the run; its method is changed.
        asked: batch size, BatchNorm and precision.

    Raises:
        UsageError: the method's training follows no gradient of one function, or the batch is larger than the data.
    """
    method = job.method
    _check_has_hessian(job, method)
    assert isinstance(method, EmbeddingMethod)
    positions = len(job.loader.order.positions)
    size = min(DEFAULT_PAIRS, positions) if asked.batch_size == "auto" else asked.batch_size
    batch = job.loader.one_batch(size, VIEW_EPOCH)
    dtype = getattr(torch, asked.precision)
    views = job.views.two_views(batch.samples, batch.streams, VIEW_EPOCH, batch.second)
    method.to(dtype).eval()
    method.chunks = None
    remarks = []
    random = [name for name, layer in method.named_modules() if draws(layer)]
    if random:
        remarks.append(f"layers that draw are off: {', '.join(random[:3])}{' ...' if len(random) > 3 else ''}")
    norms = [layer for _, layer in batch_norm_layers(method)]
    if asked.batch_norm == "batch":
        for layer in norms:
            layer.train()
        if norms and job.settings.engine.chunk_size != "none":
            remarks.append("BatchNorm has the statistics of the whole batch; in training it had those of each chunk")
    labels_N = batch.labels if _loss_of(method).uses_labels or isinstance(method, Classification) else None
    return RunLoss(
        method=method,
        inputs=tuple(view.to(dtype) for view in views),
        labels_N=labels_N,
        remarks=tuple(remarks),
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


class _Encoding(nn.Module):
    """A method as a function from both views to their embeddings (n, 2, d)."""

    def __init__(self, method: EmbeddingMethod) -> None:
        super().__init__()
        self.method = method

    def forward(self, view0: Tensor, view1: Tensor) -> Tensor:
        return torch.stack(self.method.embed_views(view0, view1), dim=1)


class _Scoring(nn.Module):
    """A method as a function from embeddings to its loss."""

    def __init__(self, method: EmbeddingMethod) -> None:
        super().__init__()
        self.method = method

    def forward(self, z_N2D: Tensor, labels_N: Tensor | None) -> Tensor:
        return self.method.score(z_N2D[:, 0], z_N2D[:, 1], labels_N)


def _named(parameters: Parameters) -> dict[str, Tensor]:
    """Weights under the names that they have in the modules above."""
    return {f"{METHOD}{name}": value for name, value in parameters.items()}


def _loss_of(method: nn.Module) -> Loss:
    """The loss of a method, which all wirings have."""
    loss = method.loss
    assert isinstance(loss, Loss)
    return loss


def _check_has_hessian(job: TrainingJob, method: nn.Module) -> None:
    """Require that training follows the gradient of one function of the weights."""
    name = job.settings.method
    if not isinstance(method, EmbeddingMethod):
        raise UsageError(
            f"method {name} has a part that gets no gradient (a momentum encoder, a queue, or stop-gradient): what it "
            "follows is the gradient of no function, its Jacobian is not symmetric, and Lanczos does not apply; train "
            "with simclr, mio, barlow-twins or another method without such a part"
        )
    check_second_derivative(_loss_of(method))
    if job.settings.output.nonnegative == "relu-gelu":
        raise UsageError(
            "output.nonnegative relu-gelu has the value of one function and the slope of another, so that training "
            "follows no gradient and there is no Hessian; relu, softplus and sigmoid have one"
        )


def check_second_derivative(loss: Loss) -> None:
    """Require a loss that has a Hessian.

    Raises:
        UsageError: it has none; says why, and which option has one.
    """
    if loss.card.second_derivative.startswith("none"):
        raise UsageError(f"{loss.card.name} has no Hessian: {loss.card.second_derivative.removeprefix('none, ')}")


def finite_floor(loss: Loss, num_pairs: int) -> float | None:
    """A value that no embedding of so many pairs can go below; None where there is none."""
    floor = loss.floor(num_pairs)
    return floor if math.isfinite(floor) else None


def draws(layer: nn.Module) -> bool:
    """Whether a layer draws at random in training."""
    share = getattr(layer, "p", getattr(layer, "drop_prob", 0.0))
    is_random = any(part in type(layer).__name__ for part in RANDOM_LAYERS)
    return is_random and isinstance(share, float) and share > 0
