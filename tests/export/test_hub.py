"""Uploading an export: what arrives at a repository, here a local folder, and what is refused."""

import inspect
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import HfApi, ModelCard

import counterpoint as cp
from counterpoint.core.errors import RunError


class LocalHub:
    """A hub whose repositories are folders; it takes the calls that the real one takes, and no others."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create_repo(self, *arguments: Any, **named: Any) -> None:
        call = inspect.signature(HfApi.create_repo).bind(self, *arguments, **named).arguments
        (self.root / call["repo_id"]).mkdir(parents=True, exist_ok=call["exist_ok"])

    def upload_folder(self, **named: Any) -> str:
        call = inspect.signature(HfApi.upload_folder).bind(self, **named).arguments
        if call["repo_id"].startswith("denied"):
            raise PermissionError("403 Forbidden\nwith a long explanation")
        target = self.root / call["repo_id"]
        for name in call["allow_patterns"]:
            shutil.copy2(Path(call["folder_path"]) / name, target / name)
        return str(target)


def test_what_arrives_opens_and_has_a_card_that_the_hub_reads(run: cp.Run, tmp_path: Path) -> None:
    cp.export(run, "folder", out=tmp_path / "out", quiet=True, licence="mit")
    (tmp_path / "out/__pycache__").mkdir()
    (tmp_path / "out/__pycache__/loader.pyc").write_bytes(b"left by Python, which ran the loader")
    place = cp.push_to_hub(tmp_path / "out", "ada/birds", api=LocalHub(tmp_path / "hub"))
    assert Path(place) == tmp_path / "hub/ada/birds"
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    assert np.array_equal(cp.load(place).represent(images), cp.load(run).represent(images))
    card = ModelCard.load(Path(place) / "README.md")
    assert card.data.to_dict()["license"] == "mit"
    assert card.data.to_dict()["library_name"] == "counterpoint"


def test_only_an_unchanged_export_is_uploaded_and_a_refusal_is_one_line(run: cp.Run, tmp_path: Path) -> None:
    hub, out = LocalHub(tmp_path / "hub"), tmp_path / "out"
    with pytest.raises(RunError, match="counterpoint export"):
        cp.push_to_hub(run.path, "ada/birds", api=hub)
    cp.export(run, "safetensors", out=out, quiet=True)
    with pytest.raises(RunError, match="403") as caught:
        cp.push_to_hub(out, "denied/birds", api=hub)
    assert "\n" not in str(caught.value)
    (out / "secret.txt").write_text("mine")
    with pytest.raises(RunError, match=r"secret\.txt"):
        cp.push_to_hub(out, "ada/birds", api=hub)
    (out / "secret.txt").unlink()
    (out / "README.md").write_text("another card")
    with pytest.raises(RunError, match=r"README\.md"):
        cp.push_to_hub(out, "ada/birds", api=hub)
    assert not (tmp_path / "hub/ada").exists()
