"""Small encoders with every loss, and what their Hessians are, found column by column with nothing of the package."""

# N pairs, P parameters

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from counterpoint.diagnostics.curvature.hessian_products import CoupledLoss
from counterpoint.losses import CATALOGUE, InfoNCE, Loss

N, WIDTH, D = 7, 4, 3
LABELS = torch.tensor([0, 1, 2, 0, 1, 1, 2])
ARGUMENTS: dict[str, Any] = {"num_classes": 3, "num_features": D, "loss": InfoNCE()}
THROUGH = {"alpha-cl": {"backpropagate_alpha": True}, "dclw": {"backpropagate_weights": True}}


def make(name: str, **options: Any) -> Loss:
    """A loss of the catalogue with its defaults, and with what has none."""
    required = [p.name for p in inspect.signature(CATALOGUE[name]).parameters.values() if p.default is p.empty]
    return CATALOGUE[name](**{word: ARGUMENTS[word] for word in required}, **options).double()


def encoder() -> nn.Module:
    """Smooth: its second derivatives exist everywhere."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 5), nn.Tanh(), nn.Linear(5, D)).double()


def problem(loss: Loss, module: nn.Module, num_pairs: int = N, *, shape: tuple[int, ...] = (WIDTH,)) -> CoupledLoss:
    """An encoder and a loss on drawn pairs; parameters of the loss belong to the problem."""
    generator = torch.Generator().manual_seed(1)
    x0, noise = torch.randn(2, num_pairs, *shape, generator=generator, dtype=torch.float64)
    labels = LABELS[:num_pairs] if loss.uses_labels else None
    drawn = {"step": 0} if loss.draws_by_step else {}

    def encode(parameters: Any, inputs: tuple[Tensor, ...]) -> Tensor:
        own = {name[2:]: value for name, value in parameters.items() if name.startswith("f.")}
        return torch.stack([functional_call(module, own, (x,)) for x in inputs], dim=1)

    def value(parameters: Any, z: Tensor) -> Tensor:
        own = {name[2:]: part for name, part in parameters.items() if name.startswith("l.")}
        return functional_call(loss, own, (z[:, 0], z[:, 1], labels), drawn)

    parameters = {f"f.{name}": part.detach() for name, part in module.named_parameters()}
    parameters |= {f"l.{name}": part.detach() for name, part in loss.named_parameters()}
    return CoupledLoss(encode, value, parameters, (x0, x0 + 0.4 * noise))


def dense_hessian(coupled: CoupledLoss) -> Tensor:
    """Row by row from the gradient, by plain autograd on the whole batch."""
    leaves = {name: value.clone().requires_grad_() for name, value in coupled.parameters.items()}
    value = coupled.loss(leaves, coupled.encode(leaves, coupled.inputs))
    gradient = torch.autograd.grad(value, list(leaves.values()), create_graph=True, materialize_grads=True)
    rows = []
    for entry in torch.cat([part.reshape(-1) for part in gradient]):
        if not entry.requires_grad:
            rows.append(torch.zeros(coupled.num_parameters, dtype=torch.float64))
            continue
        row = torch.autograd.grad(entry, list(leaves.values()), retain_graph=True, materialize_grads=True)
        rows.append(torch.cat([part.reshape(-1) for part in row]))
    return torch.stack(rows)
