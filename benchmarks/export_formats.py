"""Time and size of exported encoders: torch beside onnxruntime, pair by pair in one run.

    python benchmarks/export_formats.py [--encoders resnet18,timm:vit_tiny_patch16_224] [--side 64] [--rounds 15]

Each row is one encoder and one batch, on one thread. The formats are first compared with torch (largest difference over
a row's largest value, at most 1e-4); then torch and the formats take turns in each round, and the table has the median
of torch's times and the median of the ratios within rounds. All take uint8 pictures and prepare them.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from measuring import Plan, paired_ratio, quartiles, take_turns, wall_seconds

from counterpoint.export.exporting import TOLERANCE, compare
from counterpoint.export.onnx_format import ONNX_FILE, ServedNetwork, write_onnx
from counterpoint.nn.encoders import build_encoder, feature_width
from counterpoint.nn.heads import build_projector
from counterpoint.nn.trained import Encoder, EncoderCard

BATCHES = (1, 64)


def untrained(name: str, side: int) -> Encoder:
    """An encoder with random weights: time does not depend on them."""
    shape = (3, side, side)
    backbone = build_encoder(name, shape)
    width = feature_width(backbone, shape)
    card = EncoderCard(
        name, "images", shape, (0.5,) * 3, (0.25,) * 3, width, "mlp", hidden=width, features=128, nonnegative="relu",
        d0=None, resizing="bicubic",
    )  # fmt: skip
    return Encoder(card, backbone, build_projector("mlp", width, hidden=width, features=128))


def measure(name: str, side: int, rounds: int) -> None:
    """Print the rows of one encoder."""
    encoder = untrained(name, side)
    network = ServedNetwork(encoder, "both")
    samples = torch.randint(0, 256, (max(BATCHES), 3, side, side), dtype=torch.uint8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ONNX_FILE
        answer = write_onnx(network, path)
        size = path.stat().st_size / 1e6
        difference = compare(answer, encoder, samples[:10], list(map(str, range(10))), TOLERANCE).difference
        for batch in BATCHES:
            part = samples[:batch]
            steps = {
                "torch": lambda part=part: encoder.both(part) and None,
                "onnx": lambda part=part: answer(part) and None,
            }
            seconds = take_turns(steps, wall_seconds, Plan(1, rounds, rounds, sample_seconds=0.0))
            own, ratio = (
                1e3 * quartiles(seconds["torch"]).median,
                paired_ratio(seconds["onnx"], seconds["torch"]).median,
            )
            print(f"| {name} | {side} | {batch} | {own:.1f} | {ratio:.2f} | {size:.1f} | {difference:.0e} |")


def main() -> None:
    """Measure the encoders that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoders", default="convnet,resnet18,resnet50,timm:vit_tiny_patch16_224")
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    flags = parser.parse_args()
    torch.set_num_threads(1)  # onnxruntime gets as many
    print("| encoder | side | batch | torch (ms) | onnxruntime / torch | MB | largest difference |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in flags.encoders.split(","):
        measure(name, flags.side, flags.rounds)


if __name__ == "__main__":
    main()
