"""Checkpoints: bit for bit what was saved, whole or absent, and damage is named and passed over."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from counterpoint.core import files
from counterpoint.core.errors import RunError
from counterpoint.engine import checkpoint
from counterpoint.engine.checkpoint import Position, find_damage, list_checkpoints, restore_checkpoint, save_checkpoint

FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "MANIFEST.json")
OPTIMIZERS: dict[str, Callable[[nn.Module], Optimizer]] = {
    "adamw": lambda module: torch.optim.AdamW(module.parameters(), lr=1e-2, weight_decay=0.1),
    "sgd": lambda module: torch.optim.SGD(module.parameters(), lr=1e-2, momentum=0.9),
    "sgd without momentum": lambda module: torch.optim.SGD(module.parameters(), lr=1e-2),
}


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 3, 2).to(memory_format=torch.channels_last), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(27, 4)
    )


def advance(module: nn.Module, optimizer: Optimizer, num_steps: int, *, seed: int = 1) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(num_steps):
        optimizer.zero_grad()
        module(torch.randn(6, 1, 4, 4, generator=generator)).square().mean().backward()
        optimizer.step()


def trained(name: str = "adamw", num_steps: int = 3) -> tuple[nn.Module, Optimizer]:
    module = network(0)
    optimizer = OPTIMIZERS[name](module)
    advance(module, optimizer, num_steps)
    return module, optimizer


def save(folder: Path, step: int, pair: tuple[nn.Module, Optimizer] | None = None, *, keep: int = 9) -> Path:
    position = Position(epoch=step // 4, batch=step % 4, step=step)
    return save_checkpoint(folder, *(pair or trained()), position, log={"loss_sum": 0.1 * step}, keep=keep)


def assert_same_state(actual: Any, expected: Any) -> None:
    assert type(actual) is type(expected) or {type(actual), type(expected)} == {list, tuple}
    if isinstance(expected, torch.Tensor):
        assert actual.dtype == expected.dtype
        assert torch.equal(actual, expected)
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key, value in expected.items():
            assert_same_state(actual[key], value)
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same_state(one, other)
    else:
        assert actual == expected


# --- round trip


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("num_steps", [0, 3])
def test_model_optimiser_position_and_log_come_back_bit_for_bit(tmp_path: Path, name: str, num_steps: int) -> None:
    module, optimizer = trained(name, num_steps)
    log = {"loss_sum": 0.1 + 0.2, "num_batches": 3}
    path = save_checkpoint(tmp_path, module, optimizer, Position(2, 3, 11), log=log, keep=2)
    assert path.name == "step-00000011"
    assert sorted(file.name for file in path.iterdir()) == sorted(FILES)
    other = network(5)
    other_optimizer = OPTIMIZERS[name](other)
    restored = restore_checkpoint(tmp_path, other, other_optimizer)
    assert (restored.position, restored.log, restored.path, restored.damaged) == (Position(2, 3, 11), log, path, ())
    assert_same_state(dict(other.state_dict()), dict(module.state_dict()))
    assert_same_state(other_optimizer.state_dict(), optimizer.state_dict())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_as_if_it_had_not_stopped(tmp_path: Path, name: str) -> None:
    module, optimizer = trained(name)
    save(tmp_path, 3, (module, optimizer))
    advance(module, optimizer, 4, seed=2)
    other = network(5)
    other_optimizer = OPTIMIZERS[name](other)
    restore_checkpoint(tmp_path, other, other_optimizer)
    advance(other, other_optimizer, 4, seed=2)
    assert_same_state(dict(other.state_dict()), dict(module.state_dict()))


def test_the_newest_is_restored_and_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (0, 9, 10, 100, 20):
        save(tmp_path, step, keep=3)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-00000100", "step-00000020", "step-00000010"]
    assert restore_checkpoint(tmp_path, *trained()).position.step == 100


def test_the_same_step_may_be_saved_twice(tmp_path: Path) -> None:
    save(tmp_path, 5, keep=1)
    save(tmp_path, 5, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]
    assert find_damage(tmp_path / "step-00000005") is None


def test_a_damaged_checkpoint_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    path = save(tmp_path, 5)
    (path / FILES[0]).write_bytes(b"")
    save(tmp_path, 5)
    assert find_damage(path) is None


# --- damage


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "a flipped bit": flip,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path: path.write_bytes(b""),
    "deleted": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_previous_one_used(
    tmp_path: Path, damage: Callable[[Path], Any], file: str
) -> None:
    older = trained(num_steps=2)
    save(tmp_path, 2, older)
    damage(save(tmp_path, 4) / file)
    module = network(5)
    restored = restore_checkpoint(tmp_path, module, OPTIMIZERS["adamw"](module))
    assert restored.position.step == 2
    assert_same_state(dict(module.state_dict()), dict(older[0].state_dict()))
    (problem,) = restored.damaged
    assert problem.startswith("step-00000004: ")
    # A flipped bit of the manifest shows as the hash of another file that does not match, or as unreadable JSON.
    assert file in problem or file == "MANIFEST.json"


@pytest.mark.parametrize(
    "manifest", ["", "{}", "[]", "null", '{"format": 1}', '{"format": 1, "files": {}}', '{"format": 1, "files": 3}']
)
def test_a_manifest_that_says_nothing_is_damage(tmp_path: Path, manifest: str) -> None:
    path = save(tmp_path, 4)
    (path / "MANIFEST.json").write_text(manifest, encoding="utf-8")
    problem = find_damage(path)
    assert problem is not None
    assert "MANIFEST.json" in problem


def test_a_checkpoint_of_another_format_is_not_read(tmp_path: Path) -> None:
    path = save(tmp_path, 4) / "MANIFEST.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}), encoding="utf-8")
    assert find_damage(path.parent) is not None


def test_where_none_is_left_every_damaged_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"none was saved.*--overwrite"):
        restore_checkpoint(tmp_path, *trained())
    for step in (2, 4):
        flip(save(tmp_path, step) / "model.safetensors")
    with pytest.raises(RunError) as caught:
        restore_checkpoint(tmp_path, *trained())
    assert "step-00000002: model.safetensors" in str(caught.value)
    assert "step-00000004: model.safetensors" in str(caught.value)


def test_what_was_never_finished_is_not_a_checkpoint(tmp_path: Path) -> None:
    whole = save(tmp_path, 2)
    shutil.copytree(whole, tmp_path / ".step-00000004.tmp")  # killed before the rename
    assert list_checkpoints(tmp_path) == [whole]
    save(tmp_path, 4)
    assert not (tmp_path / ".step-00000004.tmp").exists()


@pytest.mark.parametrize("change", ["other shapes", "other names", "another optimiser"])
def test_a_checkpoint_of_another_model_is_refused_in_one_line(tmp_path: Path, change: str) -> None:
    save(tmp_path, 4)
    module = {"other shapes": nn.Sequential(nn.Conv2d(1, 5, 2)), "other names": nn.Linear(2, 2)}.get(change, network(0))
    groups = [{"params": [p]} for p in module.parameters()]
    optimizer = torch.optim.AdamW(groups if change == "another optimiser" else module.parameters())
    with pytest.raises(RunError, match="does not fit this model") as caught:
        restore_checkpoint(tmp_path, module, optimizer)
    assert "\n" not in str(caught.value)


# --- writes that fail


def full_disk(*args: Any, **options: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fail_at(monkeypatch: pytest.MonkeyPatch, target: Any, name: str, call: int) -> None:
    """Let the n-th call of a function find the disk full."""
    original, calls = getattr(target, name), []

    def maybe(*args: Any, **options: Any) -> Any:
        calls.append(1)
        return full_disk() if len(calls) == call else original(*args, **options)

    monkeypatch.setattr(target, name, maybe)


@pytest.mark.parametrize(
    ("target", "name", "call"),
    [
        (checkpoint, "save_file", 1),
        (checkpoint, "save_file", 2),
        (Path, "write_text", 1),
        (Path, "write_text", 2),
        (files.os, "fsync", 1),
        (files.os, "fsync", 4),
        (Path, "rename", 1),
        (Path, "mkdir", 1),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
@pytest.mark.parametrize("step", [4, 2], ids=["the next step", "the same step"])
def test_a_full_disk_is_said_and_leaves_the_earlier_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Any, name: str, call: int, step: int
) -> None:
    older = trained(num_steps=2)
    save(tmp_path, 2, older, keep=1)
    if step == 2:
        flip(tmp_path / "step-00000002" / "model.safetensors")  # or it would not be written again
        save(tmp_path, 1, older, keep=9)
    with monkeypatch.context() as patch:
        fail_at(patch, target, name, call)
        with pytest.raises(RunError) as caught:
            save(tmp_path, step, keep=1)
    assert "No space left on device" in str(caught.value)
    assert f"step-{step:08d}" in str(caught.value)
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    module = network(5)
    restored = restore_checkpoint(tmp_path, module, OPTIMIZERS["adamw"](module))
    assert restored.position.step == (2 if step == 4 else 1)
    assert_same_state(dict(module.state_dict()), dict(older[0].state_dict()))
    save(tmp_path, step, keep=1)  # and with space again, all is well
    assert restore_checkpoint(tmp_path, *trained()).position.step == step


def test_every_file_is_flushed_before_the_rename_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    flush, rename = checkpoint.flush_to_disk, Path.rename
    monkeypatch.setattr(checkpoint, "flush_to_disk", lambda path: (events.append(path.name), flush(path)))
    monkeypatch.setattr(Path, "rename", lambda self, target: (events.append("rename"), rename(self, target))[1])
    save(tmp_path / "checkpoints", 4)
    assert events[:3] == ["model.safetensors", "optimizer.safetensors", "state.json"]
    assert events[3:] == ["MANIFEST.json", ".step-00000004.tmp", "rename", "checkpoints"]
