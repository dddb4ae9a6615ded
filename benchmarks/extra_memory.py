"""Helper of pair_losses.py: one forward and backward in a fresh process; prints its extra peak memory as JSON.

Arguments: implementation, kind, pairs, features, temperature, threads.
"""

import dataclasses
import json
import sys

import torch
from measuring import Step, extra_of_call
from peer_losses import CATALOGUE
from problems import Problem, make_inputs

SMALL = 16  # pairs of the call that loads code and starts threads before memory is read


def step_of(problem: Problem, provider: str) -> Step:
    """Forward and backward on fresh gradients."""
    function = CATALOGUE[problem.kind][provider].build(problem).function
    x0, x1 = make_inputs(problem)

    def step() -> None:
        x0.grad = x1.grad = None
        function(x0, x1).backward()

    return step


def main() -> None:
    """Load code on a small problem, then measure the one asked for."""
    provider, kind, num_pairs, num_features, temperature, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    problem = Problem(kind, int(num_pairs), int(num_features), float(temperature))  # pyright: ignore[reportArgumentType]
    step_of(dataclasses.replace(problem, num_pairs=SMALL), provider)()
    print(json.dumps(dataclasses.asdict(extra_of_call(step_of(problem, provider)))))


if __name__ == "__main__":
    main()
