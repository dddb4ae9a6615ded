"""Time and size of exported encoders: torch beside onnxruntime, TorchScript and torch.export, pair by pair in one run.

    python benchmarks/export_formats.py [--encoders resnet18,timm:vit_tiny_patch16_224] [--side 64] [--rounds 15]

Each row is one encoder and one batch, on one thread. The formats are first compared with torch (largest difference over
a row's largest value, at most 1e-4); then torch and the formats take turns in each round, and the table has the median
of torch's times and the median of the ratios within rounds. All take uint8 pictures and prepare them.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from measuring import Plan, paired_ratio, processor_seconds, quartiles, take_turns

from counterpoint.export.comparing import TOLERANCE, Answer, compare
from counterpoint.export.graph_formats import PROGRAM_FILE, TORCHSCRIPT_FILE, write_program, write_torchscript
from counterpoint.export.onnx_format import ONNX_FILE, write_onnx
from counterpoint.export.served_network import ServedNetwork
from counterpoint.nn.encoders import build_encoder, feature_width
from counterpoint.nn.heads import build_projector
from counterpoint.nn.trained import Encoder, EncoderCard

BATCHES = (1, 64)
FORMATS: dict[str, tuple[str, Callable[[ServedNetwork, Path], Answer]]] = {
    "onnxruntime": (ONNX_FILE, lambda network, path: write_onnx(network, path, 18)),
    "TorchScript": (TORCHSCRIPT_FILE, write_torchscript),
    "torch.export": (PROGRAM_FILE, write_program),
}


def untrained(name: str, side: int) -> Encoder:
    """An encoder with random weights: time does not depend on them."""
    shape = (3, side, side)
    backbone = build_encoder(name, shape)
    width = feature_width(backbone, shape)
    card = EncoderCard(
        name, "images", shape, (0.5,) * 3, (0.25,) * 3, width, "mlp", hidden=width, features=128, nonnegative="relu",
        d0=None,
    )  # fmt: skip
    return Encoder(card, backbone, build_projector("mlp", width, hidden=width, features=128))


def measure(name: str, side: int, rounds: int) -> None:
    """Print the rows of one encoder."""
    encoder = untrained(name, side)
    network = ServedNetwork(encoder, "both", "nhwc")
    samples = torch.randint(0, 256, (max(BATCHES), 3, side, side), dtype=torch.uint8)
    with tempfile.TemporaryDirectory() as folder:
        answers = {each: write(network, Path(folder) / file) for each, (file, write) in FORMATS.items()}
        sizes = {each: (Path(folder) / file).stat().st_size / 1e6 for each, (file, _) in FORMATS.items()}
        names = list(map(str, range(10)))
        seen = {each: compare(answer, encoder, samples[:10], names, TOLERANCE) for each, answer in answers.items()}
        for batch in BATCHES:
            steps = {"torch": encoder.both, **answers}
            calls = {each: lambda step=step, part=samples[:batch]: step(part) and None for each, step in steps.items()}
            seconds = take_turns(calls, processor_seconds, Plan(1, rounds, rounds, sample_seconds=0.0))
            own = 1e3 * quartiles(seconds["torch"]).median
            for each in answers:
                ratio = paired_ratio(seconds[each], seconds["torch"]).median
                print(
                    f"| {name} | {side} | {batch} | {own:.1f} | {each} | {ratio:.2f} | {sizes[each]:.1f} "
                    f"| {seen[each].value:.0e} |"
                )


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoders", default="convnet,resnet18,resnet50,timm:vit_tiny_patch16_224")
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    flags = parser.parse_args()
    torch.set_num_threads(1)  # onnxruntime gets as many
    print("| encoder | side | batch | torch (ms) | format | its time / torch's | MB | largest difference |")
    print("|---|---:|---:|---:|---|---:|---:|---:|")
    for name in flags.encoders.split(","):
        measure(name, flags.side, flags.rounds)


if __name__ == "__main__":
    main()
