"""Published sets are read from their original files as torchvision reads them; what is missing or cut off says so."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.datasets as peers

from counterpoint.core.errors import DataError
from counterpoint.data.sets import published as published_sets
from counterpoint.data.sets.published import PublishedSet
from counterpoint.data.sources import CATALOGUE
from counterpoint.data.stores import JoinedStore
from data import published_files as published
from data.opened_data import numbers_of, open_data, refusal, samples_of

PUBLISHED = [getattr(entry.open, "__self__", None) for entry in CATALOGUE.values()]
SPLITS = {entry.name: tuple(entry.num_samples) for entry in PUBLISHED if isinstance(entry, PublishedSet)}
EVERY_SPLIT = [(name, split) for name, splits in SPLITS.items() for split in splits]


@pytest.fixture
def root(tmp_path: Path, rng: np.random.Generator) -> Path:
    """Small archives of every set in its original form."""
    published.save_all(tmp_path, rng)
    return tmp_path


PEERS: dict[str, Callable[[Path, str], Any]] = {
    "cifar10": lambda root, split: peers.CIFAR10(root, train=split == "train"),
    "cifar100": lambda root, split: peers.CIFAR100(root, train=split == "train"),
    "stl10": lambda root, split: peers.STL10(root, split=split),
}


@pytest.mark.parametrize(("name", "split"), EVERY_SPLIT)
def test_every_split_is_what_torchvision_reads(
    name: str, split: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (peers.cifar, peers.stl10):
        monkeypatch.setattr(module, "check_integrity", lambda path, md5=None: Path(path).is_file())
    peer = PEERS[name](root, split)
    images = [np.asarray(peer[i][0]) for i in range(len(peer))]
    expected = torch.from_numpy(np.stack([image if image.ndim == 3 else image[:, :, None] for image in images]))
    source = open_data(name, root=str(root), split=split)
    assert source.name == name
    assert torch.equal(samples_of(source), expected.permute(0, 3, 1, 2))
    assert numbers_of(source) == [int(peer[i][1]) for i in range(len(peer))]
    if hasattr(peer, "classes"):
        assert source.class_names == tuple(peer.classes)
    assert source.shape == tuple(samples_of(source).shape[1:])


@pytest.mark.parametrize("name", SPLITS)
def test_auto_is_train_and_says_so(name: str, root: Path) -> None:
    auto, train = open_data(name, root=str(root)), open_data(name, root=str(root), split="train")
    assert auto.fingerprint == train.fingerprint != open_data(name, root=str(root), split="test").fingerprint
    assert "train" in auto.notes["source.split"]
    assert "published" in auto.notes["data"]  # the small archive is not the whole set, which is recorded


@pytest.mark.parametrize("name", SPLITS)
def test_labels_can_be_left_out_but_not_replaced(name: str, root: Path) -> None:
    source = open_data(name, root=str(root), labels="none")
    assert source.labels is None
    assert source.class_names == ()
    assert source.fingerprint != open_data(name, root=str(root)).fingerprint
    assert "auto or none" in refusal(name, root=str(root), labels="mine.csv")


@pytest.mark.parametrize(("name", "wrong"), [("cifar10", "extra"), ("stl10", "unlabelled")])
def test_an_unknown_split_names_the_known_ones(name: str, wrong: str, root: Path) -> None:
    message = refusal(name, root=str(root), split=wrong)
    assert all(split in message for split in SPLITS[name])
    assert ("did you mean 'unlabeled'" in message) == (name == "stl10")


def test_large_stl10_is_read_where_it_is_used(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = open_data("stl10", root=str(root), split="train+unlabeled")
    monkeypatch.setattr(published_sets, "MEMORY_BUDGET_BYTES", 0)
    lazy = open_data("stl10", root=str(root), split="train+unlabeled")
    assert isinstance(lazy.store, JoinedStore)
    numbers = numbers_of(whole)
    assert numbers is not None
    assert numbers == numbers_of(lazy)
    assert numbers[5:] == [-1] * 6
    places = [10, 0, 4, 5, 5, 9]  # across both files, out of order, repeated
    assert torch.equal(lazy.store.fetch(places), whole.store.fetch(places))
    changed = root / "stl10_binary" / "unlabeled_X.bin"
    content = bytearray(changed.read_bytes())
    content[-1] ^= 1
    changed.write_bytes(bytes(content))
    assert open_data("stl10", root=str(root), split="train+unlabeled").fingerprint != lazy.fingerprint


# --- missing and damaged files


@pytest.mark.parametrize("name", SPLITS)
def test_a_missing_file_says_where_it_should_be_and_how_to_get_it(name: str, root: Path, tmp_path: Path) -> None:
    files = [path for path in root.rglob("*") if path.is_file()]
    for path in files:
        content = path.read_bytes()
        path.unlink()
        messages = [text for split in SPLITS[name] if (text := _problem(name, root, split))]
        assert all(str(path) in text and "download=True" in text and "--source.root" in text for text in messages)
        path.write_bytes(content)
    nowhere = refusal(name, root=str(tmp_path / "nowhere"))
    assert str(tmp_path / "nowhere") in nowhere
    assert peer_call_is_valid(nowhere)


def _problem(name: str, root: Path, split: str) -> str | None:
    try:
        open_data(name, root=str(root), split=split)
    except DataError as error:
        assert "\n" not in str(error)
        return str(error)
    return None


def peer_call_is_valid(message: str) -> bool:
    """The call that the message gives fits torchvision's signature."""
    call = message.split("import *; ")[1].split('"', maxsplit=1)[0]
    taken: list[Any] = []

    def record(kind: type) -> Callable[..., None]:
        return lambda *given, **named: taken.append(inspect.signature(kind).bind(*given, **named))

    names = ("CIFAR10", "CIFAR100", "STL10")
    eval(call, {name: record(getattr(peers, name)) for name in names})
    return len(taken) == 1 and taken[0].arguments["download"] is True


@pytest.mark.parametrize("name", SPLITS)
@pytest.mark.sampled(4)
def test_a_file_cut_off_anywhere_is_refused_in_one_line(name: str, root: Path, rng: np.random.Generator) -> None:
    whole = open_data(name, root=str(root)).fingerprint
    num_refused = num_cuts = 0
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        content = path.read_bytes()
        for length in rng.integers(0, len(content), 6).tolist():
            path.write_bytes(content[:length])
            problem = _problem(name, root, "train")
            num_cuts += 1
            num_refused += problem is not None
            assert problem is None or str(path) in problem
            if problem is None and path.suffix != ".txt":  # the end of the last name can go unnoticed
                assert open_data(name, root=str(root)).fingerprint == whole, path
        path.write_bytes(content)
    assert num_refused >= 6
    assert num_cuts > num_refused  # other sets' files lie beside and are not read


def test_labels_that_do_not_fit_the_images_are_refused(root: Path) -> None:
    labels = root / "stl10_binary" / "train_y.bin"
    labels.write_bytes(labels.read_bytes()[:-1])
    assert "4 labels for 5 images" in refusal("stl10", root=str(root))
    labels.write_bytes(b"\x00" * 5)
    assert "class numbers must be 0 to 9, got -1" in refusal("stl10", root=str(root))
