"""A thousand random changes of a checkpoint: each is noticed, named, and the earlier checkpoint used."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from small_snapshots import FILES, tiny

from counterpoint.engine.checkpoint import restore_checkpoint, save_checkpoint

NUM_MUTATIONS = 1000
OLDER, NEWER = 2, 4
Draw = np.random.Generator
Content = dict[str, bytes]


def flip(content: bytes, draw: Draw) -> bytes:
    changed = bytearray(content)
    changed[draw.integers(len(content))] ^= 1 << draw.integers(8)
    return bytes(changed)


def truncate(content: bytes, draw: Draw) -> bytes:
    return content[: draw.integers(len(content))]


def zero_block(content: bytes, draw: Draw) -> bytes:
    start = draw.integers(len(content))
    end = start + draw.integers(1, 65)
    return content[:start] + bytes(len(content[start:end])) + content[end:]


def append(content: bytes, draw: Draw) -> bytes:
    return content + draw.bytes(int(draw.integers(1, 9)))


def append_space(content: bytes, draw: Draw) -> bytes:
    return content + b"\n"


def insert(content: bytes, draw: Draw) -> bytes:
    place = draw.integers(len(content))
    return content[:place] + draw.bytes(1) + content[place:]


def shuffle_block(content: bytes, draw: Draw) -> bytes:
    middle = draw.integers(1, len(content))
    return content[middle:] + content[:middle]


def replace_digit(content: bytes, draw: Draw) -> bytes:
    """What an editor does to JSON or to a header: another number, the same length."""
    places = [place for place, byte in enumerate(content) if byte in b"0123456789"]
    place = places[draw.integers(len(places))]
    return content[:place] + str((content[place] - ord("0") + 1) % 10).encode() + content[place + 1 :]


def header_only(content: bytes, draw: Draw) -> bytes:
    return flip(content[:64], draw) + content[64:]


CHANGES: list[Callable[[bytes, Draw], bytes]] = [
    flip,
    truncate,
    zero_block,
    append,
    append_space,
    insert,
    shuffle_block,
    replace_digit,
    header_only,
]


def rewrite(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)  # a file that is overwritten is flushed to disk by some file systems
    path.write_bytes(content)


def change_one(folder: Path, content: Content, draw: Draw) -> str:
    """Change the bytes of one file."""
    name = FILES[draw.integers(len(FILES))]
    change = CHANGES[draw.integers(len(CHANGES))]
    changed = content[name]
    while changed == content[name]:
        changed = change(content[name], draw)
    rewrite(folder / name, changed)
    return f"{change.__name__} {name}"


def delete(folder: Path, content: Content, draw: Draw) -> str:
    name = FILES[draw.integers(len(FILES))]
    (folder / name).unlink()
    return f"delete {name}"


def add(folder: Path, content: Content, draw: Draw) -> str:
    rewrite(folder / f"extra-{draw.integers(99)}", draw.bytes(int(draw.integers(9))))
    return "add"


def swap_within(folder: Path, content: Content, draw: Draw) -> str:
    one, other = draw.choice(FILES, 2, replace=False)
    rewrite(folder / one, content[other])
    rewrite(folder / other, content[one])
    return "swap within"


def take_from_older(folder: Path, content: Content, draw: Draw) -> str:
    """The same file of the earlier checkpoint: of the same size, and valid there."""
    name = FILES[draw.integers(len(FILES))]
    rewrite(folder / name, (folder.parent / f"step-{OLDER:08d}" / name).read_bytes())
    return f"older {name}"


def take_all_from_older(folder: Path, content: Content, draw: Draw) -> str:
    for name in FILES:
        rewrite(folder / name, (folder.parent / f"step-{OLDER:08d}" / name).read_bytes())
    return "older whole"


def put_back(folder: Path, content: Content) -> None:
    for path in folder.iterdir():
        if path.name not in content:
            path.unlink()
    for name, whole in content.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != whole:
            rewrite(path, whole)


MUTATIONS = [*[change_one] * 15, delete, add, swap_within, take_from_older, take_all_from_older]


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """Mutate, restore, put everything back; counts the kinds, each of which was noticed."""
    parent, draw = tmp_path_factory.mktemp("run"), np.random.default_rng(20240611)
    for step in (OLDER, NEWER):
        folder = save_checkpoint(parent, tiny(step), keep=9)
    content = {name: (folder / name).read_bytes() for name in FILES}
    expected = tiny(OLDER).state.model["weight"]
    seen: Counter[str] = Counter()
    for _ in range(NUM_MUTATIONS):
        kind = MUTATIONS[draw.integers(len(MUTATIONS))](folder, content, draw)
        restored = restore_checkpoint(parent)
        assert restored.snapshot.position.step == OLDER, kind
        assert torch.equal(restored.snapshot.state.model["weight"], expected)
        (problem,) = restored.damaged
        assert problem.startswith(f"{folder.name}: "), kind
        seen[kind] += 1
        put_back(folder, content)
    assert restore_checkpoint(parent).damaged == ()  # the checkpoint itself is fine: each time it was the mutation
    return seen


@pytest.mark.thorough
def test_each_of_a_thousand_mutations_is_noticed_and_the_earlier_checkpoint_used(thousand: Counter[str]) -> None:
    assert thousand.total() == NUM_MUTATIONS


@pytest.mark.thorough
def test_every_kind_of_mutation_met_every_file(thousand: Counter[str]) -> None:
    for change in CHANGES:
        assert all(thousand[f"{change.__name__} {name}"] > 0 for name in FILES), change.__name__
    rare = ["delete", "older", "add", "swap within", "older whole"]
    assert all(any(kind.startswith(word) for kind in thousand) for word in rare)


def test_the_two_checkpoints_differ_in_every_file_but_in_no_size(tmp_path: Path) -> None:
    older, newer = (save_checkpoint(tmp_path, tiny(step), keep=9) for step in (OLDER, NEWER))
    for name in FILES:
        assert (older / name).read_bytes() != (newer / name).read_bytes()
        assert (older / name).stat().st_size == (newer / name).stat().st_size
