"""Checkpoints: bit for bit what was saved, whole or absent, and damage is named and passed over."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_snapshots import FILES, OPTIMIZERS, assert_same, save, snapshot_of, tiny, trained
from torch import nn

from counterpoint.core import files
from counterpoint.core.errors import RunError
from counterpoint.engine import checkpoint
from counterpoint.engine.checkpoint import (
    Position,
    list_checkpoints,
    load_checkpoint,
    record_path,
    restore_checkpoint,
    save_checkpoint,
)
from counterpoint.engine.checkpoint_format import find_damage
from counterpoint.engine.engine import FullState

# --- round trip


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("num_steps", [0, 3])
def test_everything_comes_back_bit_for_bit(tmp_path: Path, name: str, num_steps: int) -> None:
    log = {"loss_sum": 0.1 + 0.2, "num_batches": 3}
    saved = snapshot_of(trained(name, num_steps), 11, position=Position(2, 3, 11), log=log)
    path = save_checkpoint(tmp_path, saved, keep=2)
    assert path.name == "step-00000011"
    assert sorted(file.name for file in path.iterdir()) == sorted(FILES)
    restored = restore_checkpoint(tmp_path)
    assert (restored.path, restored.damaged) == (path, ())
    assert_same(restored.snapshot, saved)


def test_what_was_loaded_does_not_depend_on_the_files(tmp_path: Path) -> None:
    saved = tiny(4)
    loaded = load_checkpoint(save_checkpoint(tmp_path, saved, keep=1))
    for file in tmp_path.rglob("*.safetensors"):
        file.write_bytes(b"\0" * file.stat().st_size)  # in place, as a truncation on another machine would be
    assert torch.equal(loaded.state.model["weight"], saved.state.model["weight"])


def test_a_state_that_json_has_no_word_for_is_refused_by_its_path(tmp_path: Path) -> None:
    state = FullState({}, {"state": {0: {"hook": print}}, "param_groups": []}, {})
    with pytest.raises(RunError, match=r"cannot save checkpoint .*state\.0\.hook is of type builtin_function"):
        save_checkpoint(tmp_path, snapshot_of(trained(), 1, state=state), keep=1)
    assert list(tmp_path.iterdir()) == []


# --- which are kept


def test_the_newest_is_restored_and_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (0, 9, 10, 100):
        save_checkpoint(tmp_path, tiny(step), keep=3)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-00000100", "step-00000010", "step-00000009"]
    assert restore_checkpoint(tmp_path).snapshot.position.step == 100


def test_named_steps_stay_and_are_not_counted(tmp_path: Path) -> None:
    for step in (0, 3, 6, 9, 12):
        save_checkpoint(tmp_path, tiny(step), keep=1, stays={3, 9})
    assert [path.name[-2:] for path in list_checkpoints(tmp_path)] == ["12", "09", "03"]


def test_the_same_step_may_be_saved_twice_and_is_left_as_it_is(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, tiny(5), keep=1)
    before = {file: file.stat().st_ino for file in path.iterdir()}
    save_checkpoint(tmp_path, tiny(5), keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]
    assert {file: file.stat().st_ino for file in path.iterdir()} == before


@pytest.mark.parametrize("change", ["damaged", "another content"])
def test_the_same_step_with_another_content_is_replaced(tmp_path: Path, change: str) -> None:
    path = save(tmp_path, 5, trained("sgd") if change == "another content" else None)
    if change == "damaged":
        (path / FILES[0]).write_bytes(b"")
    expected = snapshot_of(trained(num_steps=5), 5)
    save_checkpoint(tmp_path, expected, keep=9)
    assert_same(load_checkpoint(path).state.optimizer, expected.state.optimizer)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]


def test_damaged_later_ones_do_not_push_out_the_one_just_saved(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, tiny(4), keep=2)
    damaged = save_checkpoint(tmp_path, tiny(8), keep=2)
    (damaged / "model.safetensors").unlink()
    saved = save_checkpoint(tmp_path, tiny(6), keep=1)  # training went on from step 4
    assert list_checkpoints(tmp_path) == [damaged, saved]
    restored = restore_checkpoint(tmp_path)
    assert restored.path == saved
    assert restored.damaged == ("step-00000008: model.safetensors is missing",)
    save_checkpoint(tmp_path, tiny(8), keep=1)
    assert list_checkpoints(tmp_path) == [damaged]
    assert find_damage(damaged) is None


def test_the_record_of_a_step_is_dropped_with_its_checkpoint(tmp_path: Path) -> None:
    for step in (2, 4, 6):
        save_checkpoint(tmp_path, tiny(step), keep=2)
        record_path(tmp_path, step).write_text("{}")
    names = {"after-00000004.json", "after-00000006.json", "step-00000004", "step-00000006"}
    save_checkpoint(tmp_path, tiny(6), keep=2)
    assert {path.name for path in tmp_path.iterdir()} == names


def test_a_copy_under_another_name_is_neither_used_nor_dropped(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, tiny(2), keep=1)
    kept = tmp_path / "step-00000002 (copy)"
    shutil.copytree(tmp_path / "step-00000002", kept)
    save_checkpoint(tmp_path, tiny(4), keep=1)
    assert list_checkpoints(tmp_path) == [tmp_path / "step-00000004", kept]
    (tmp_path / "step-00000004" / "state.json").unlink()
    with pytest.raises(RunError, match=r"step-00000002 \(copy\): its name is not that of the step it holds \(2\)"):
        restore_checkpoint(tmp_path)


# --- damage


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "a flipped bit": flip,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "empty": lambda path: path.write_bytes(b""),
    "deleted": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a link": lambda path: (path.rename(path.parent.parent / "elsewhere"), path.symlink_to("../elsewhere")),
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.sampled(6)
def test_a_damaged_checkpoint_is_named_and_the_previous_one_used(
    tmp_path: Path, damage: Callable[[Path], Any], file: str
) -> None:
    save_checkpoint(tmp_path, tiny(2), keep=9)
    damage(save_checkpoint(tmp_path, tiny(4), keep=9) / file)
    restored = restore_checkpoint(tmp_path)
    assert restored.snapshot.position.step == 2
    assert torch.equal(restored.snapshot.state.model["weight"], tiny(2).state.model["weight"])
    (problem,) = restored.damaged
    assert problem.startswith(f"step-00000004: {file} ")
    with pytest.raises(RunError, match=rf"step-00000004 is damaged: {file} "):
        load_checkpoint(tmp_path / "step-00000004")


MANIFESTS = ["", "{}", "[]", "null", '{"format": 2}', '{"body": 3}', '{"body": {"format": 2, "files": 3}}', "[" * 9999]


@pytest.mark.parametrize("manifest", [*MANIFESTS, '{"body": {"format": 2}}' + " " * 70_000])
def test_a_manifest_that_says_nothing_is_damage(tmp_path: Path, manifest: str) -> None:
    path = save_checkpoint(tmp_path, tiny(4), keep=1)
    (path / "MANIFEST.json").write_text(manifest, encoding="utf-8")
    problem = find_damage(path)
    assert problem is not None
    assert "MANIFEST.json" in problem


@pytest.mark.parametrize("told", [{"format": 1, "files": {}}, {"body": {"format": 3}}], ids=str)
def test_a_checkpoint_of_another_format_is_named_as_such(tmp_path: Path, told: dict[str, Any]) -> None:
    path = save_checkpoint(tmp_path, tiny(4), keep=1)
    (path / "MANIFEST.json").write_text(json.dumps(told), encoding="utf-8")
    version = told.get("format", 3)
    assert find_damage(path) == f"MANIFEST.json says format {version}; this version reads 2"


def test_where_none_is_left_every_damaged_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"none was saved.*--overwrite"):
        restore_checkpoint(tmp_path)
    for step in (2, 4):
        flip(save_checkpoint(tmp_path, tiny(step), keep=9) / "model.safetensors")
    with pytest.raises(RunError) as caught:
        restore_checkpoint(tmp_path)
    assert "step-00000002: model.safetensors" in str(caught.value)
    assert "step-00000004: model.safetensors" in str(caught.value)


def test_what_was_never_finished_is_not_a_checkpoint(tmp_path: Path) -> None:
    whole = save_checkpoint(tmp_path, tiny(2), keep=9)
    leftovers = [".step-00000004.tmp", ".step-00000001.trash", ".step-00000099.tmp"]
    for name in leftovers:
        shutil.copytree(whole, tmp_path / name)  # killed before the rename, or while an old one was dropped
    (tmp_path / ".after-00000002.json.17.tmp.json").write_text("{")
    assert list_checkpoints(tmp_path) == [whole]
    assert restore_checkpoint(tmp_path).damaged == ()
    save_checkpoint(tmp_path, tiny(4), keep=9)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002", "step-00000004"]


# --- order of events


def test_every_file_is_flushed_before_the_manifest_all_before_the_rename_and_old_ones_go_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(tmp_path / "checkpoints", tiny(2), keep=1)
    events: list[str] = []
    flush, rename, write = files.flush_to_disk, Path.rename, checkpoint.write_manifest
    monkeypatch.setattr(checkpoint, "flush_to_disk", lambda path: (events.append(path.name), flush(path)))
    monkeypatch.setattr(Path, "rename", lambda self, to: (events.append(f"to {to.name}"), rename(self, to))[1])
    monkeypatch.setattr(checkpoint, "write_manifest", lambda *given: (events.append("manifest"), write(*given)))
    save_checkpoint(tmp_path / "checkpoints", tiny(4), keep=1)
    assert events[:4] == ["model.safetensors", "optimizer.safetensors", "average.safetensors", "state.json"]
    assert events[4:7] == ["manifest", "MANIFEST.json", ".step-00000004.tmp"]
    assert events[7:] == ["to step-00000004", "checkpoints", "to .step-00000002.trash"]


def test_an_interrupt_in_the_middle_of_a_save_leaves_nothing_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = save_checkpoint(tmp_path, tiny(2), keep=1)

    def interrupt(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "write_manifest", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, tiny(4), keep=1)
    assert list(tmp_path.iterdir()) == [whole]


def test_modules_with_shared_weights_are_saved(tmp_path: Path) -> None:
    layer = nn.Linear(3, 3)
    module = nn.Sequential(layer, layer)
    state = FullState(dict(module.state_dict()), {"state": {}, "param_groups": []}, {})
    loaded = load_checkpoint(save_checkpoint(tmp_path, snapshot_of(trained(), 1, state=state), keep=1))
    assert loaded.state.model.keys() == state.model.keys()
    assert torch.equal(loaded.state.model["1.weight"], layer.weight)
