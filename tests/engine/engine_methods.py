"""A small method for tests of engines: everything that engines must cope with, in 64-bit numbers where asked."""

# N samples of all ranks

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from counterpoint.core.dist import gather_rows, own_rows, rank, world_size
from counterpoint.core.ranks import Ranks
from counterpoint.engine.placement import Placement

N, CHANNELS, SIDE, WIDTH, CLASSES = 8, 3, 8, 6, 5
SEED = 20240607


class Block(nn.Module):
    """A residual block, the unit of sharding."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.GroupNorm(2, WIDTH), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class SmallMethod(nn.Module):
    """Convolutions, normalisation, a scalar parameter, a momentum copy, a queue, and a loss over all ranks' samples."""

    def __init__(self, norm: type[nn.Module] | None = None) -> None:
        super().__init__()
        stem: list[nn.Module] = [nn.Conv2d(CHANNELS, WIDTH, 3, bias=norm is None)]
        stem += [norm(WIDTH)] if norm is not None else []
        self.backbone = nn.Sequential(*stem, nn.Sequential(Block(), Block()), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.projector = nn.Linear(WIDTH, CLASSES)
        self.target = nn.Linear(WIDTH, CLASSES)
        self.target.requires_grad_(False)
        self.heat = nn.Parameter(torch.tensor(0.7))
        self.queue: Tensor
        self.register_buffer("queue", torch.zeros(3, CLASSES))
        self.poisoned_rank = -1  # where the gradient becomes NaN

    def forward(self, view0: Tensor, view1: Tensor, labels: Tensor | None = None) -> Tensor:
        h0, h1 = self.backbone(torch.cat([view0, view1])).chunk(2)
        with torch.autocast(h0.device.type, enabled=False):
            wide = self.heat.dtype
            z0, z1 = self.projector(h0.to(wide)), self.projector(h1.to(wide))
            with torch.no_grad():
                self.queue.copy_(gather_rows(self.target(h1.to(wide)))[:3])
            keys = gather_rows(z1)
            scores = z0 @ keys.T * self.heat.exp() + (z0 @ self.queue.T).mean()
            own = torch.arange(len(keys))[own_rows(len(z0))]
            loss = nn.functional.cross_entropy(scores, own)
            return loss * torch.tensor(torch.nan) if rank() == self.poisoned_rank else loss

    @torch.no_grad()
    def after_step(self, progress: float) -> None:
        for ours, theirs in zip(self.target.parameters(), self.projector.parameters(), strict=True):
            ours.lerp_(theirs, 0.1)


def build_method(dtype: torch.dtype = torch.float64, norm: type[nn.Module] | None = None) -> SmallMethod:
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        return SmallMethod(norm).to(dtype)


def views(step: int, dtype: torch.dtype = torch.float64, part: slice | None = None) -> tuple[Tensor, Tensor]:
    """This rank's samples of a step."""
    generator = torch.Generator().manual_seed(SEED + step)
    whole = torch.randn(2, N, CHANNELS, SIDE, SIDE, generator=generator, dtype=torch.float64).to(dtype)
    rows = own_rows(N // world_size())
    chosen = whole[:, rows]
    return (chosen[0], chosen[1]) if part is None else (chosen[0][part], chosen[1][part])


def placement(precision: str = "fp32") -> Placement:
    own = Ranks(rank(), rank(), world_size(), world_size())
    return Placement("cpu", precision, {}, own)


def optimizer_of(method: nn.Module, kind: str = "adamw") -> Optimizer:
    groups = [
        {"params": [p for p in method.parameters() if p.requires_grad and p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in method.parameters() if p.requires_grad and p.ndim == 1], "weight_decay": 0.0},
        {"params": [p for p in method.parameters() if p.requires_grad and p.ndim == 0], "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=0.02) if kind == "adamw" else SGD(groups, lr=0.1, momentum=0.9)
