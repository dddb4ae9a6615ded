"""Which layer loses directions first, in words and as a table."""

import pytest

from counterpoint.diagnostics.layer_record import LayerFigures, LayersRecord


def layer(name: str, num_dims: int, vanished: int, kind: str = "Linear") -> LayerFigures:
    return LayerFigures(name=name, kind=kind, num_dims=num_dims, resolved=num_dims, vanished=vanished)


def record(*layers: LayerFigures, **more) -> LayersRecord:
    return LayersRecord(num_samples=1000, layers=layers, **more)


def test_first_and_largest_loss_are_named() -> None:
    found = record(
        layer("0", 128, 0), layer("1", 128, 30), layer("projector.0", 128, 88), layer("embedding", 64, 24, "")
    )
    assert [(loss.layer, loss.count) for loss in found.losses] == [
        ("layer 1 (Linear)", 30),
        ("projector.0 (Linear)", 58),
    ]
    assert found.words == (
        "Directions are first lost in layer 1 (Linear): of 128 that reach it 98 are alive after it. Most are lost in "
        "projector.0 (Linear): 58 of 98. At the end, in embedding, 40 of 64 are alive."
    )


@pytest.mark.parametrize(
    ("before", "after", "is_lost"),
    [
        ((128, 0), (64, 0), False),  # no more fit
        ((64, 0), (256, 192), False),  # no more arrive
        ((128, 0), (128, 1), False),  # the scatter of the count
        ((128, 0), (128, 2), False),  # below 2 %
        ((128, 0), (128, 3), True),
        ((20, 0), (20, 2), True),
        ((128, 64), (128, 0), False),  # a ReLU gives directions
    ],
)
def test_what_counts_as_a_loss(before: tuple[int, int], after: tuple[int, int], is_lost: bool) -> None:
    found = record(layer("0", *before), layer("1", *after))
    assert bool(found.losses) == is_lost
    assert found.words.startswith("Directions are first lost" if is_lost else "No layer loses directions")


def test_a_record_without_layers_says_so() -> None:
    assert record().words == "No layer could be measured."
    assert "No layer could be measured." in str(record(remarks=("Left out.",)))


def test_long_names_keep_their_end_and_lines_fit() -> None:
    names = ["encoder.layers.11.attention.output.dense", "0"]
    found = record(*(layer(name, 4096, 4000, "SelfAttentionOutput") for name in names))
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 100
    assert any(line.startswith("…") for line in lines)
