"""Compare what was written and opened again with the encoder in torch, on the user's own samples."""

# N samples, D dimensions

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.errors import RunError, first_line
from counterpoint.data.source import Source
from counterpoint.export.served_network import BOTH
from counterpoint.nn.trained import Encoder

TOLERANCE = 1e-4  # of a row's largest value
BATCHES = (1, 2, 7)
Answer = Callable[[Tensor], Mapping[str, Tensor]]  # from samples (n, c, h, w) or (n, d) to outputs by name


@dataclass(frozen=True)
class LargestDifference:
    """The largest difference that was seen.

    Attributes:
        difference: |ours - torch's| over the largest |value| of torch's row (over 1 in a row of zeros).
        num_rows: samples that were compared, those at other sizes among them.
        sizes: sizes of the pictures, such as ``32x32``; empty for vectors.
        outputs: names of what was answered.
    """

    difference: float
    num_rows: int
    sizes: tuple[str, ...]
    outputs: tuple[str, ...]


def chosen_samples(source: Source, positions: Tensor, count: int) -> tuple[Tensor, tuple[str, ...]]:
    """At most so many samples, evenly spaced, and their names."""
    count = min(count, len(positions))
    chosen = positions[torch.linspace(0, len(positions) - 1, count).long()].tolist()
    return source.store.fetch(chosen), tuple(source.sample_names[position] for position in chosen)


def compare(
    answer: Answer, encoder: Encoder, samples: Tensor, names: Sequence[str], tolerance: float
) -> LargestDifference:
    """Require the same answers in batches of 1, 2 and 7, and for pictures at two other sizes.

    Args:
        answer: what was opened again.
        encoder: in torch.
        samples: uint8 (n, c, h, w) or float32 (n, d).
        names: of the samples.
        tolerance: largest difference that passes.

    Raises:
        RunError: they differ by more, or something else than rows is answered.
    """
    worst, num_rows, sizes, outputs = 0.0, 0, dict[str, None](), dict[str, None]()
    for part, positions in _batches(samples):
        expected: dict[str, Tensor] = dict(zip(BOTH, encoder.both(part), strict=True))
        try:
            found = answer(part)
        except Exception as error:  # each format's runtime raises its own
            raise RunError(f"it was written, and fails on a batch of {len(part)}: {first_line(error)}") from None
        for name, rows in found.items():
            difference_N = row_differences(rows, expected[name])
            largest = float(difference_N.max())
            if not largest <= tolerance:  # so written, NaN does not pass
                at = names[positions[int(difference_N.argmax())]]
                raise RunError(
                    f"its {name} of {at} differs from torch's by {largest:.2g} of the row's largest value, more than "
                    f"{tolerance:g}; nothing was kept"
                )
            worst = max(worst, largest)
            outputs[name] = None
        num_rows += len(part)
        sizes |= {"x".join(map(str, part.shape[2:])): None} if part.ndim == 4 else {}
    return LargestDifference(worst, num_rows, tuple(sizes), tuple(outputs))


def row_differences(found_ND: Tensor, expected_ND: Tensor) -> Tensor:
    """Largest difference of each row over the largest value of the expected row, (n,).

    >>> row_differences(torch.tensor([[1.0, 2.1], [0.0, 0.5]]), torch.tensor([[1.0, 2.0], [0.0, 0.0]]))
    tensor([0.0500, 0.5000])
    """
    if found_ND.shape != expected_ND.shape:
        raise RunError(f"it answers {tuple(found_ND.shape)} where torch answers {tuple(expected_ND.shape)}")
    scale_N = expected_ND.abs().amax(dim=1)
    return (found_ND - expected_ND).abs().amax(dim=1) / torch.where(scale_N == 0, 1.0, scale_N)


def _batches(samples: Tensor) -> Iterator[tuple[Tensor, list[int]]]:
    """Parts of 1, 2 and 7 samples until all were taken, and of pictures two more at other sizes; with positions."""
    num_samples, start, turn = len(samples), 0, 0
    while start < num_samples or turn < len(BATCHES):
        # Of few samples the first come again, so that each size of a batch is tried.
        positions = [(start + step) % num_samples for step in range(BATCHES[turn % len(BATCHES)])]
        start, turn = start + len(positions), turn + 1
        yield samples[positions], positions
    if samples.ndim == 4:
        height, width = samples.shape[2:]
        for new_height, new_width in ((height * 3 // 2 + 1, width * 2 + 3), (height * 2 // 3, width * 3 // 4)):
            yield _other_size(samples[:2], max(new_height, 2), max(new_width, 2)), [0, 1]


def _other_size(images_NCHW: Tensor, height: int, width: int) -> Tensor:
    """The same pictures with rows and columns doubled or left out."""
    rows = torch.arange(height) * images_NCHW.shape[2] // height
    columns = torch.arange(width) * images_NCHW.shape[3] // width
    return images_NCHW[:, :, rows][:, :, :, columns].contiguous()
