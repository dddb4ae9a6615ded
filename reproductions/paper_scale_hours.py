"""Hours that the studies take at the papers' scale, estimated from one training step of each encoder on this CPU.

    python -m reproductions.paper_scale_hours      # some two minutes on one core; writes reproductions/paper_scale.json

A step is forward and backward of a few pictures on one thread; its floating point operations are counted by torch. The
hours of a GPU are those operations over a rate that is assumed, and written beside them: this machine has none.
"""

import json
import time
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from counterpoint.core.validation import nest
from counterpoint.nn.encoders import build_encoder
from counterpoint.runs.recipes import with_recipe
from reproductions.code_state import processor
from reproductions.study import PAPERS, studies

TARGET = PAPERS / "paper_scale.json"
GPU_RATE = 5e13  # operations per second: a sixth of an A100's peak in bfloat16, as small networks reach
VIEWS = 2  # of each sample in a step
# Samples that are trained on, and the side of their pictures.
SIZES = {
    "cifar10": (50_000, 32),
    "cifar100": (50_000, 32),
    "stl10": (5_000, 96),
    "tiny-imagenet": (100_000, 64),
    "dsprites": (589_824, 64),
    "imagenet100": (126_689, 224),
    "imagenet": (1_281_167, 224),
}


def step(encoder: str, stem: str, side: int) -> tuple[float, float]:
    """Measure seconds and operations of one view's forward and backward pass."""
    network = build_encoder(encoder, (3, side, side), stem)
    batch = 32 if side <= 64 else 2
    views = torch.randn(batch, 3, side, side)

    def once() -> None:
        network(views).square().mean().backward()

    with FlopCounterMode(display=False) as counter:
        once()
    began = time.process_time()
    once()
    return (time.process_time() - began) / batch, counter.get_total_flops() / batch


def main() -> None:
    """Measure each encoder once, and write the hours that every study would take."""
    torch.set_num_threads(1)
    costs: dict[tuple[str, str, int], tuple[float, float]] = {}
    hours = {}
    for study in studies("paper").values():
        plan = study.paper_scale
        seconds = operations = 0.0
        for arm in study.arms:
            settings = with_recipe(nest(study.settings_of(arm, "paper")))
            size, side = SIZES[study.data_of(arm, "paper")]
            case = (settings["encoder"], settings.get("stem", "auto"), side)
            if case not in costs:
                costs[case] = step(*case)
                print(case, *(f"{value:.3g}" for value in costs[case]))
            views = size * VIEWS * settings["epochs"] * plan.seeds
            seconds += views * costs[case][0]
            operations += views * costs[case][1]
        runs = len(study.arms) * plan.seeds
        hours[study.name] = {
            "runs": runs,
            "core_hours": round(seconds / 3600),
            "gpu_hours": float(f"{operations / GPU_RATE / 3600:.2g}"),
        }
    estimate = {"machine": f"{processor()}, one thread", "gpu_rate": GPU_RATE, "studies": hours}
    Path(TARGET).write_text(json.dumps(estimate, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
