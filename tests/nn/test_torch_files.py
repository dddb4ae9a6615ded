"""Files of torch.save are read as torch reads them, and nothing in them is run."""

import io
import os
import pickle
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from counterpoint.core.errors import RunError
from counterpoint.nn.foreign_weights import read_weights
from foreign_files import Call, bomb, with_company
from pickle_watch import audit_events
from refusals import refused

WATCHED = ("pickle.", "os.", "subprocess.", "socket.", "import", "exec", "compile")


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(memory_format=torch.channels_last)


def refusal(path: Path) -> str:
    message = refused(RunError, read_weights, path)
    assert str(path) in message
    return message


def expected(value: Any, prefix: str = "") -> dict[str, Tensor]:
    """Tensors in dictionaries of which all keys are texts."""
    found: dict[str, Tensor] = {}
    for key, item in value.items():
        if isinstance(item, Tensor):
            found[prefix + key] = item.detach()
        elif isinstance(item, dict) and all(isinstance(word, str) for word in item):
            found |= expected(item, f"{prefix}{key}.")
    return found


@pytest.fixture
def watch() -> Iterator[list[str]]:
    """Audit events of what a file could do."""
    with audit_events(WATCHED) as seen:
        yield seen


# --- what torch reads


@pytest.mark.parametrize("is_zip", [True, False], ids=["archive", "stream"])
def test_a_checkpoint_gives_torchs_tensors(is_zip: bool, tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    weights = small().state_dict()
    saved = (with_company(weights) if is_zip else {"epoch": 3, "state_dict": weights}) | {
        "parameter": nn.Parameter(base[0].clone()),
        "views": {"turned": base.mT, "part": base[1:3, ::2], "empty": base[:0], "same": base},
        "kinds": {str(kind): torch.ones(3).to(kind) for kind in (torch.float64, torch.float16, torch.int8, torch.bool)},
    }
    path = tmp_path / "any.ckpt"
    torch.save(saved, path, _use_new_zipfile_serialization=is_zip)
    found, wanted = read_weights(path), expected(saved)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype, name
        assert torch.equal(found[name], value), name


def test_dictionaries_that_hold_each_other_are_read_once(tmp_path: Path) -> None:
    inner: dict[str, Any] = {"w": torch.ones(2)}
    inner["again"] = inner
    torch.save({"a": inner, "b": inner}, tmp_path / "w.pt")
    assert list(read_weights(tmp_path / "w.pt")) == ["a.w"]


def test_a_solo_learn_checkpoint_with_its_configuration_is_read(tmp_path: Path) -> None:
    omegaconf = pytest.importorskip("omegaconf", reason="omegaconf is not installed")
    settings = omegaconf.OmegaConf.create(
        {"method": "simclr", "data": {"sizes": [32, 1.5, None, True]}, "x": "${method}"}
    )
    torch.save({"hyper_parameters": settings, "state_dict": {"backbone.w": torch.ones(2)}}, tmp_path / "solo.ckpt")
    assert list(read_weights(tmp_path / "solo.ckpt")) == ["state_dict.backbone.w"]


def test_safetensors_are_read_whatever_they_are_called(tmp_path: Path) -> None:
    from safetensors.torch import save_file  # deferred: of this test only

    save_file({"a.b": torch.ones(2)}, tmp_path / "weights.bin")
    assert torch.equal(read_weights(tmp_path / "weights.bin")["a.b"], torch.ones(2))


# --- what asks for more


@pytest.mark.parametrize("is_zip", [True, False], ids=["archive", "stream"])
def test_a_call_is_refused_by_name_and_nothing_runs(is_zip: bool, tmp_path: Path, watch: list[str]) -> None:
    fired = tmp_path / "fired"
    calls = {
        "posix.system": bomb(fired),
        "Popen": Call(subprocess.Popen, ["touch", str(fired)]),
        "eval": Call(eval, "1"),
        "getattr": Call(getattr, "text", "upper"),
    }
    for name, call in calls.items():
        path = tmp_path / "w.pth"
        torch.save({"state_dict": {"w": torch.ones(2)}, "x": [call]}, path, _use_new_zipfile_serialization=is_zip)
        # Opened and listed once, so that only reading is watched.
        content = path.read_bytes()
        watch.clear()
        said = refusal(path)
        assert [event for event in watch if not event.startswith("os.") or event == "os.system"] == []
        assert f"{name}, and nothing in a file is ever run" in said
        assert "safetensors.torch.save_file" in said
        assert path.read_bytes() == content
    assert not fired.exists()


class Counted:
    """A class that knows how many objects of it were made."""

    made = 0

    def __new__(cls) -> "Counted":
        cls.made += 1
        return super().__new__(cls)


def test_objects_of_unknown_classes_are_left_aside_and_never_made(tmp_path: Path) -> None:
    torch.save({"settings": Counted(), "w": torch.ones(2)}, tmp_path / "w.pth")
    assert list(read_weights(tmp_path / "w.pth")) == ["w"]
    assert Counted.made == 1


def test_a_whole_module_is_refused_with_the_remedy(tmp_path: Path) -> None:
    torch.save(small(), tmp_path / "w.pth")
    assert "torch.nn.modules.container.Sequential" in refusal(tmp_path / "w.pth")
    assert "state_dict()" in refusal(tmp_path / "w.pth")


# --- what is no checkpoint


def test_other_files_are_refused(tmp_path: Path) -> None:
    cases: dict[str, bytes] = {
        "the file is empty": b"",
        "neither safetensors nor a file of torch.save": b"\x89PNG" + bytes(100),
        "not in a subdirectory": archive({"a.npy": b"x"}),
        "no dictionary in it holds tensors": saved({}),
        "a list": saved([]),
        "packed": archive({"m/data.pkl": b"}." + bytes(10_000)}, zipfile.ZIP_DEFLATED),
        "no weights can be read": pickle.dumps({"w": 1}),
        "header": b"\xff" * 7 + b"\x7f{" + bytes(20),  # promises 9e18 bytes
    }
    for said, content in cases.items():
        (tmp_path / "w.pth").write_bytes(content)
        assert said in refusal(tmp_path / "w.pth"), said
    assert "a folder" in refusal(tmp_path)
    assert "No such file" in refusal(tmp_path / "none.pth")
    os.mkfifo(tmp_path / "pipe.pth")
    assert "a pipe" in refusal(tmp_path / "pipe.pth")


def saved(value: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def archive(members: dict[str, bytes], packing: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", packing) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return stream.getvalue()


def test_a_tensor_that_repeats_its_numbers_is_refused(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(1).expand(10**12)}, tmp_path / "w.pth")
    assert "repeats its numbers" in refusal(tmp_path / "w.pth")


@pytest.mark.parametrize("is_zip", [True, False], ids=["archive", "stream"])
def test_mutated_files_are_weights_or_one_line(is_zip: bool, tmp_path: Path, rng: np.random.Generator) -> None:
    weights = nn.Linear(3, 2).state_dict()
    saved = with_company(weights) if is_zip else weights
    path, fired = tmp_path / "w.pth", tmp_path / "fired"
    torch.save(saved, path, _use_new_zipfile_serialization=is_zip)
    content = path.read_bytes()
    insertions = [pickle.dumps(bomb(fired), protocol=2)[2:-1], b"R", b"b", b"\x81", b"Q", b"cos\nsystem\n"]
    counts = {True: 0, False: 0}
    for number in range(150):
        place = int(rng.integers(len(content)))
        changes = [content[:place], content[:place] + bytes([int(rng.integers(256))]) + content[place + 1 :]]
        changes += [content[:place] + insertions[int(rng.integers(len(insertions)))] + content[place:]]
        path.write_bytes(changes[number % len(changes)])
        try:
            counts[bool(read_weights(path))] += 1
        except RunError as error:
            counts[False] += 1
            assert "\n" not in str(error)
    assert not fired.exists()
    assert counts[False] > 40
    assert counts[True] > 2


def test_damaged_numbers_of_an_archive_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    torch.save({"w": torch.full((100,), 1.5)}, path)
    content = path.read_bytes()
    place = content.index(torch.full((4,), 1.5).numpy().tobytes()) + 40
    path.write_bytes(content[:place] + b"\x00\x01" + content[place + 2 :])
    assert "CRC" in refusal(path)
