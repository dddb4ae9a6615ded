"""Losses for sentence-transformers beside its own: extra peak memory and time of a forward and a backward pass.

python benchmarks/text_losses.py [PAIRS]     a table; 8,192 pairs of short sentences unless told otherwise

Each row is a process of its own: the same small transformer with weights at random, the same sentences, one thread.
Memory is the peak above what stood there before the call; encoder and loss together. Needs the extra text.
"""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from measuring import extra_of_call
from sentence_transformers.sentence_transformer import losses as theirs
from tiny_text import sentences, tiny_model

from counterpoint.integrations.trainer_losses import SentenceLoss
from counterpoint.losses import AlphaCL, Direct, HardNegatives, InfoNCE

PAIRS, FEATURES, MINI_BATCH, TOLERANCE = 8192, 64, 256, 1e-5


def hard(model: Any) -> SentenceLoss:
    return SentenceLoss(model, HardNegatives(InfoNCE(0.05, negatives="cross-view", anchors="first")))


def alpha(model: Any) -> SentenceLoss:
    return SentenceLoss(model, AlphaCL(Direct(), "cross-view", anchors="first"), mini_batch_size=MINI_BATCH)


LOSSES: Mapping[str, Callable[[Any], Any]] = {
    "MultipleNegativesRankingLoss": theirs.MultipleNegativesRankingLoss,
    "SentenceLoss": SentenceLoss,
    "CachedMultipleNegativesRankingLoss": lambda model: theirs.CachedMultipleNegativesRankingLoss(
        model, mini_batch_size=MINI_BATCH
    ),
    "SentenceLoss, mini-batches": lambda model: SentenceLoss(model, mini_batch_size=MINI_BATCH),
    "SentenceLoss, hard negatives": hard,
    "SentenceLoss, alpha-CL, mini-batches": alpha,
}
SAME = list(LOSSES)[:4]  # one value, one gradient


def measured(name: str, num_pairs: int) -> dict[str, Any]:
    """Figures of one call in this process, which should be fresh."""
    torch.set_num_threads(1)
    model = tiny_model(features=FEATURES)
    loss = LOSSES[name](model)

    def columns(count: int) -> list[dict[str, Any]]:
        return [model.preprocess(sentences(count, seed=seed)) for seed in range(2)]

    def pass_over(batch: list[dict[str, Any]]) -> float:
        model.zero_grad()
        value = loss(batch, None)
        value.backward()
        return float(value.detach())

    pass_over(columns(2 * MINI_BATCH))  # loads code
    batch, values = columns(num_pairs), []
    call = extra_of_call(lambda: values.append(pass_over(batch)))
    gradient = sum(float(p.grad.double().norm()) for p in model.parameters() if p.grad is not None)
    return {**dataclasses.asdict(call), "value": values[0], "gradient": gradient}


def main() -> None:
    if len(sys.argv) == 3:  # one row
        print(json.dumps(measured(sys.argv[1], int(sys.argv[2]))))
        return
    num_pairs = sys.argv[1] if len(sys.argv) > 1 else str(PAIRS)
    print(f"{num_pairs} pairs, {FEATURES} features, mini-batches of {MINI_BATCH}; one call each, one thread\n")
    print("| loss | value | extra peak [MiB] | seconds |\n|---|---:|---:|---:|")
    first: dict[str, Any] = {}
    for name in LOSSES:
        finished = subprocess.run(
            [sys.executable, __file__, name, num_pairs], capture_output=True, text=True, check=False
        )
        if finished.returncode:
            sys.exit(finished.stderr)
        row = json.loads(finished.stdout.splitlines()[-1])
        first = first or row
        if name in SAME and any(abs(row[key] / first[key] - 1) > TOLERANCE for key in ("value", "gradient")):
            sys.exit(f"{name} is not the same loss: {row}, {first}")
        print(f"| {name} | {row['value']:.4f} | {row['extra_mib']:,.0f} | {row['seconds']:.1f} |", flush=True)


if __name__ == "__main__":
    main()
