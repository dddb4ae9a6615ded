"""Records of steps: equal only where every bit is, kept once, compared when the step is taken again."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from counterpoint.core import processor_routines
from counterpoint.core.files import read_sealed, write_sealed
from counterpoint.engine.checkpoint import Position
from counterpoint.engine.replay import StepRecord, differences, read_step, record_step, this_machine, weights_digest

IDS = torch.tensor([5, 3, 8, 1, 9, 2])


def record(**changes: object) -> StepRecord:
    made = StepRecord.of(Position(1, 2, 7), IDS, 0.1 + 0.2, 1.5, weights_digest({"w": torch.ones(2)}))
    return replace(made, **changes)


def test_a_record_says_what_the_step_was_to_the_last_bit() -> None:
    made = record()
    assert (made.step, made.epoch, made.batch) == (7, 1, 2)
    assert made.first_ids == (5, 3, 8, 1, 9)
    assert float.fromhex(made.loss) == 0.30000000000000004
    assert made.loss == "0x1.3333333333334p-2"
    assert StepRecord.of(Position(1, 2, 7), IDS.flip(0), 0.1, 1.5, "").ids_sha256 != made.ids_sha256


@pytest.mark.parametrize(
    "other",
    [
        {"w": torch.tensor([1.0, 1.0 + 2**-23])},
        {"v": torch.ones(2)},
        {"w": torch.ones(2, 1)},
        {"w": torch.ones(2, dtype=torch.float64)},
        {"w": torch.ones(2), "x": torch.ones(0)},
        {"w": torch.ones(1), "": torch.ones(1)},
        {},
    ],
    ids=str,
)
def test_weights_of_other_bits_names_shapes_or_types_have_another_digest(other: dict[str, torch.Tensor]) -> None:
    assert weights_digest(other) != weights_digest({"w": torch.ones(2)})


@pytest.mark.parametrize("loss", [{"a": 1}, "one", None, 1.0], ids=str)
def test_a_record_whose_numbers_are_none_is_no_record(loss: object, tmp_path: Path) -> None:
    record_step(tmp_path, record())
    path = tmp_path / "after-00000007.json"
    values = read_sealed(path)
    write_sealed(path, {**values, "record": {**values["record"], "loss": loss}})
    assert read_step(tmp_path, 7) is None


def test_a_record_is_kept_once_and_found_again(tmp_path: Path) -> None:
    assert read_step(tmp_path, 7) is None
    assert record_step(tmp_path, record()) is None
    kept = read_step(tmp_path, 7)
    assert kept is not None
    assert (kept.record, kept.machine) == (record(), this_machine())
    assert record_step(tmp_path, record()) is None
    assert [path.name for path in tmp_path.iterdir()] == ["after-00000007.json"]


def test_a_record_from_before_products_were_named_is_of_another_machine_than_one_with_onednn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other bits are then no fault: a run of an earlier version is not said to be read differently, or changed."""
    monkeypatch.setattr(processor_routines, "has_slow_mkl", lambda: False)
    record_step(tmp_path, record())
    path = tmp_path / "after-00000007.json"
    values = read_sealed(path)
    del values["machine"]["products"]
    write_sealed(path, values)
    kept = read_step(tmp_path, 7)
    assert kept is not None
    assert kept.machine == this_machine()
    monkeypatch.setattr(processor_routines, "has_slow_mkl", lambda: True)
    assert kept.machine != this_machine()
    note = record_step(tmp_path, record(loss=(0.5).hex()))
    assert note is not None
    assert note.startswith("this machine does not repeat step 7 bit for bit")
    assert ", cpu, products by oneDNN; " in note


def test_a_step_that_comes_out_differently_is_told_with_both_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_step(tmp_path, record())
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    note = record_step(tmp_path, record(loss=(0.5).hex()))
    assert note is not None
    assert "does not repeat step 7 bit for bit: loss 0.30000000000000004 then, 0.5 now" in note
    assert f"then torch {torch.__version__}, " in note
    assert f"now torch {torch.__version__}, 7 threads, cpu" in note
    kept = read_step(tmp_path, 7)
    assert kept is not None
    assert kept.record == record()  # what was first stays


def test_every_difference_is_named() -> None:
    now = record(
        batch=3, ids_sha256="x", first_ids=(0,), loss=(1.0).hex(), gradient_norm=(2.0).hex(), weights_sha256="y"
    )
    assert differences(record(), record()) == []
    assert differences(record(), now) == [
        "batch 2 of epoch 2 then, 3 of 2 now",
        "other samples ([5, 3, 8, 1, 9] ... then, [0] ... now)",
        "loss 0.30000000000000004 then, 1.0 now",
        "gradient norm 1.5 then, 2.0 now",
        "other weights after the step",
    ]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"record": {}}', '{"record": {"step": 7}, "machine": {}}'])
def test_a_damaged_record_counts_as_none_and_is_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / "after-00000007.json").write_text(content)
    assert read_step(tmp_path, 7) is None
    assert record_step(tmp_path, record()) is None
    assert read_step(tmp_path, 7) is not None
