"""Helper of pair_losses.py --beside-load: calls one loss in a fresh process; prints seconds and the bits of its result.

Arguments: case, implementation, pairs, calls, threads (0: what torch takes).
"""

# N pairs, D features

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from beside_load import timed_calls
from exact_losses import LossFunction
from peer_losses import CATALOGUE, DENSE, OURS
from problems import Problem, make_inputs
from torch import Tensor


@dataclass(frozen=True)
class Case:
    """A loss, its size, and its implementations.

    Attributes:
        problem: size and temperature.
        losses: each implementation, made when it is asked for.
        is_hessian: a Hessian-vector product in place of a gradient.
    """

    problem: Problem
    losses: Mapping[str, Callable[[Problem], LossFunction]]
    is_hessian: bool = False


def named(*names: str) -> dict[str, Callable[[Problem], LossFunction]]:
    """Losses of ``peer_losses`` by these names."""
    return {name: lambda problem, name=name: CATALOGUE[problem.kind][name].build(problem).function for name in names}


def ours_mio(problem: Problem) -> LossFunction:
    """Build ``losses.MIOv3``."""
    from counterpoint.losses import MIOv3  # deferred: peers are measured without it

    return MIOv3(temperature=problem.temperature)


def dense_mio(problem: Problem) -> LossFunction:
    """Build the loss of mio2021, Eq. 18, from one matrix."""
    n = problem.num_pairs
    is_own = torch.eye(n, dtype=torch.bool).repeat(2, 2)

    def loss(x0: Tensor, x1: Tensor) -> Tensor:
        z = F.normalize(torch.cat([x0, x1]))
        scores = z @ z.T / problem.temperature
        negatives = scores.exp().masked_fill(is_own, 0.0).sum() / (2 * n * (2 * n - 2))
        return negatives - scores.diagonal(n).mean()

    return loss


CASES: Mapping[str, Case] = {
    "NT-Xent": Case(Problem("nt-xent", 4096, 128, 0.1), named(OURS, DENSE, "lightly")),
    "supervised": Case(Problem("supervised", 1024, 128, 0.1), named(OURS, DENSE, "pytorch-metric-learning")),
    "MIO-v3": Case(Problem("nt-xent", 4096, 128, 0.2), {OURS: ours_mio, DENSE: dense_mio}),
    "cross-modal": Case(Problem("cross-modal", 2048, 512, 0.07), named(OURS, DENSE, "open_clip")),
    "NT-Xent, Hessian times a vector": Case(Problem("nt-xent", 4096, 128, 0.1), named(OURS, DENSE), is_hessian=True),
}


def call(case: Case, function: LossFunction, inputs: tuple[Tensor, Tensor]) -> list[Tensor]:
    """Value and gradient, or Hessian times a direction."""
    value = function(*inputs)
    slopes = torch.autograd.grad(value, inputs, create_graph=case.is_hessian)
    if not case.is_hessian:
        return [value.detach(), *slopes]
    directions = [x.detach() for x in inputs[::-1]]  # each along the other view
    return [value.detach(), *torch.autograd.grad(slopes, inputs, directions)]


def main() -> None:
    """Time the calls."""
    name, provider, num_pairs, num_calls, num_threads = sys.argv[1:]
    if int(num_threads):
        torch.set_num_threads(int(num_threads))
    case = CASES[name]
    problem = Problem(case.problem.kind, int(num_pairs), case.problem.num_features, case.problem.temperature)
    function, inputs = case.losses[provider](problem), make_inputs(problem)
    seconds, results = timed_calls(lambda: call(case, function, inputs), int(num_calls))
    bits = hashlib.sha256(b"".join(result.numpy().tobytes() for result in results)).hexdigest()
    print(json.dumps({"seconds": seconds, "bits": bits, "loss": float(results[0])}))


if __name__ == "__main__":
    main()
