"""Pickled archives are read as data: nothing in them is ever run, whatever was done to them."""

import collections
import os
import pickle
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from counterpoint.core.errors import DataError
from counterpoint.data.formats import pickled_arrays
from counterpoint.data.formats.pickled_arrays import read_pickled
from data import published_files as published
from foreign_files import Call
from pickle_watch import audit_events
from refusals import refused

FORMS = {"python 2": published.as_python2, **{f"protocol {p}": published.as_python3(p) for p in (2, 3, 4, 5)}}
WATCHED = ("pickle.", "exec", "compile", "import", "os.", "subprocess.", "shutil.", "socket.", "ctypes.", "open")


def small(rng: np.random.Generator, num_images: int = 3) -> dict[str, Any]:
    return {
        "batch_label": "part 1 of 5",
        "labels": rng.integers(0, 300, num_images).tolist(),
        "data": rng.integers(0, 256, (num_images, 40), dtype=np.uint8),
        "filenames": [f"{number}.png" for number in range(num_images)],
        "count": 100_000,
    }


def read(content: bytes, path: Path) -> dict[str, Any]:
    path.write_bytes(content)
    return read_pickled(path)


def refusal(content: bytes, path: Path) -> str:
    message = refused(DataError, read, content, path)
    assert str(path) in message
    assert len(message) < len(str(path)) + 300
    return message


@pytest.mark.parametrize("dump", FORMS.values(), ids=FORMS)
def test_what_was_pickled_comes_back(dump: published.Dump, tmp_path: Path, rng: np.random.Generator) -> None:
    content = small(rng)
    found = read(dump(content), tmp_path / "batch")
    assert found.keys() == content.keys()
    for key, expected in content.items():
        if key == "data":
            assert found[key].dtype == np.uint8
            assert np.array_equal(found[key], expected)
        else:
            assert found[key] == expected


def test_the_python_2_form_of_this_test_is_what_pickle_reads(rng: np.random.Generator) -> None:
    content = small(rng, 300)
    found = pickle.loads(published.as_python2(content), encoding="latin1")
    assert np.array_equal(found.pop("data"), content.pop("data"))
    assert found == content


def bomb(path: Path) -> Call:
    """What makes a folder where it is unpickled."""
    return Call(os.mkdir, str(path))


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("place", ["alone", "value", "in a list", "key", "array of objects"])
def test_a_bomb_is_refused_and_does_not_go_off(protocol: int, place: str, tmp_path: Path) -> None:
    fired = tmp_path / "fired"
    objects = np.empty(2, dtype=object)
    objects[:] = bomb(fired)
    values = {
        "alone": bomb(fired),
        "value": {b"data": bomb(fired)},
        "in a list": {b"labels": [1, bomb(fired)]},
        "key": {bomb(fired): 1},
        "array of objects": {b"data": objects},
    }
    content = pickle.dumps(values[place], protocol=protocol)
    refusal(content, tmp_path / "batch")
    assert not fired.exists()
    with suppress(FileExistsError):  # of the second of two bombs
        pickle.loads(content)
    assert fired.exists()  # it would have gone off


FOREIGN = {
    "eval": Call(eval, "1 + 1"),
    "getattr": Call(getattr, "x", "upper"),
    "ordered": collections.OrderedDict(a=1),
    "set": {1, 2},
    "float": {b"x": 1.5},
    "complex": 3j,
    "path": Path("x"),
    "wide numbers": {b"data": np.arange(4)},
    "pair": {b"x": (1, 2)},
    "nested": {b"x": {b"y": 1}},
    "list of lists": {b"labels": [[1], [2]]},
    "list of arrays": {b"data": [np.zeros(2, np.uint8)]},
    "half an array": b"\x80\x02}U\x01acnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87Rs.",
    "a name": b"\x80\x02}U\x01acnumpy\nndarray\ns.",
    "scalar": {b"data": np.uint8(3)},
    "dates": {b"data": np.zeros(2, "datetime64[s]")},
    "instance": b"(ios\nsystem\n.",
    "object": b"\x80\x02(cos\nsystem\nU\x04trueo.",
    "new object": b"\x80\x02cos\nsystem\n)\x81.",
    "numpy name that is not listed": b"\x80\x02cnumpy\nload\n(U\x01xtR.",
    "listed class called": b"\x80\x02cnumpy\nndarray\n(K\x05tR.",
    "many lines": b"\x80\x04\x8c\x03o\ns\x8c\x06system\x93.",
}


@pytest.mark.parametrize("value", FOREIGN.values(), ids=FOREIGN)
def test_whatever_is_not_plain_data_is_refused(value: Any, tmp_path: Path) -> None:
    content = value if isinstance(value, bytes) else pickle.dumps(value, protocol=2)
    assert "nothing in it is ever run" in refusal(content, tmp_path / "batch")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"\x80\x02}U\x01a(cos\nsystem\nU\x04truetRs.", "names 'os.system'"),
        (b"\x80\x04}\x8c\x01a\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85Rs.", "names 'os.system'"),
        (b"\x80\x02}U\x01aU\x01bs\x81.", "step NEWOBJ"),
        (b"\x80\x02}U\x01aU\x01bsG" + bytes(8) + b"0.", "step BINFLOAT"),
        (b"\x80\x02}U\x01aU\x01bs\x82\x01.", "step EXT1"),
        (b"\x80\x02}U\x01aU\x01bsQ.", "step BINPERSID"),
    ],
)
def test_the_first_thing_that_has_no_place_is_named(content: bytes, complaint: str, tmp_path: Path) -> None:
    said = refusal(content, tmp_path / "batch")
    assert complaint in said
    assert "nothing in it is ever run" in said


ARRAYS = {
    "too few bytes": (b"abc", (2, 2)),
    "too many": (b"abcde", (2, 2)),
    "negative": (b"abcd", (-2, -2)),
    "giant": (b"abcd", (1 << 40, 1 << 40)),
    "no numbers": (b"abcd", ("a",)),
}


@pytest.mark.parametrize(("raw", "shape"), ARRAYS.values(), ids=ARRAYS)
def test_an_array_must_fit_its_bytes(raw: bytes, shape: tuple[Any, ...], tmp_path: Path) -> None:
    content = pickle.dumps({b"data": np.zeros((2, 2), np.uint8)}, protocol=4)
    assert read(content, tmp_path / "batch")["data"].shape == (2, 2)
    start = content.index(b"\x86", content.index(b"K\x02K\x02"))
    changed = content[: start - 4] + pickle.dumps(shape, protocol=2)[2:-1].replace(b"q\x00", b"") + content[start + 1 :]
    changed = changed.replace(b"C\x04\x00\x00\x00\x00", b"C" + bytes([len(raw)]) + raw)
    frame = changed.index(b"\x95")
    refusal(changed[:frame] + changed[frame + 9 :], tmp_path / "batch")


NO_DICTIONARIES = [b"", b".", b"\x80\x02.", b"N.", b"K\x01.", b"\x80\x02]q\x01.", b"\xff\xd8\xff", b"(.", b"}(."]


@pytest.mark.parametrize("content", NO_DICTIONARIES)
def test_what_is_no_dictionary_is_refused(content: bytes, tmp_path: Path) -> None:
    assert "batch" in refusal(content, tmp_path / "batch")


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    content = published.as_python2(small(rng))
    monkeypatch.setattr(pickled_arrays, "MAX_BYTES", len(content) - 1)
    assert "at most" in refusal(content, tmp_path / "batch")
    monkeypatch.undo()
    monkeypatch.setattr(pickled_arrays, "MAX_OPCODES", 10)
    assert "steps" in refusal(content, tmp_path / "batch")
    monkeypatch.undo()
    refusal(b"\x80\x02T\xff\xff\xff\x7fabc.", tmp_path / "batch")  # two gigabytes promised, three bytes there


# --- mutations, watched


@pytest.fixture
def watch() -> Iterator[list[str]]:
    """Audit events while reading."""
    with audit_events(WATCHED) as seen:
        yield seen


def mutate(content: bytes, rng: np.random.Generator, insertions: list[bytes]) -> bytes:
    """Flip, cut, repeat or insert somewhere."""
    place, kind = int(rng.integers(len(content))), int(rng.integers(5))
    if kind == 0:
        return content[:place] + bytes([content[place] ^ (1 << int(rng.integers(8)))]) + content[place + 1 :]
    if kind == 1:
        return content[:place] + bytes([int(rng.integers(256))]) + content[place + 1 :]
    if kind == 2:
        return content[:place]
    if kind == 3:
        return content[:place] + content[int(rng.integers(len(content))) :]
    return content[:place] + insertions[int(rng.integers(len(insertions)))] + content[place:]


def test_3000_mutations_run_nothing_and_are_data_or_one_line(
    tmp_path: Path, rng: np.random.Generator, watch: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fired = tmp_path / "fired"
    insertions = [pickle.dumps(bomb(fired), protocol=p)[2 if p > 1 else 0 : -1] for p in range(3)]
    insertions += [b"cos\nmkdir\n", b"R", b"b", b"\x93", b"o", b"\x81"]
    contents = [dump(small(rng)) for dump in FORMS.values()]
    now = [b""]
    path = tmp_path / "batch"
    path.touch()
    monkeypatch.setattr(pickled_arrays, "read_regular", lambda path, at_most: now[0])  # none is opened while we watch
    counts = collections.Counter[str]()
    for number in range(3000):
        now[0] = mutate(contents[number % len(contents)], rng, insertions)
        watch.clear()
        try:
            found = read_pickled(path)
            events = list(watch)
            counts["data"] += 1
            assert all(isinstance(value, np.ndarray | list | str | int | None) for value in found.values())
        except DataError as error:
            events = list(watch)
            counts["refused"] += 1
            assert "\n" not in str(error)
        assert events == []
    assert not fired.exists()
    assert counts["refused"] > 1000
    assert counts["data"] > 100  # a flipped pixel cannot be noticed here


def test_the_watch_sees_what_unpickling_would_do(tmp_path: Path, watch: list[str]) -> None:
    pickle.loads(pickle.dumps(bomb(tmp_path / "fired")))
    assert {"pickle.find_class", "os.mkdir"} <= set(watch)


TAKES_MEMORY = {
    "a place in memory": b"\x80\x04Nr\xff\xff\xff\xff.",
    "a byte array": b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b".",
    "bytes": b"\x80\x04\x8e" + (1 << 40).to_bytes(8, "little") + b".",
    "a frame": b"\x80\x04\x95" + (1 << 40).to_bytes(8, "little") + b"N.",
    "a text": b"\x80\x04\x8d" + (1 << 40).to_bytes(8, "little") + b".",
    "a number": b"\x80\x02\x8b\xff\xff\xff\x7f.",
}


@pytest.mark.parametrize("content", TAKES_MEMORY.values(), ids=TAKES_MEMORY)
def test_what_a_step_promises_takes_no_memory(content: bytes, tmp_path: Path) -> None:
    tracemalloc.start()
    refusal(content, tmp_path / "batch")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 << 20


def test_keys_and_members_of_sets_are_never_hashed_unseen(tmp_path: Path) -> None:
    nested = b")" + b"".join(b"q%ch%c\x86" % (place, place) for place in range(60))  # 2**60 empty tuples
    told = [
        refusal(b"\x80\x04" + steps, tmp_path / "batch")
        for steps in (b"}" + nested + b"Ns.", b"}(" + nested + b"Nu.", b"\x8f(" + nested + b"\x90.")
    ]
    assert "keys must be text" in told[0]
    assert "keys must be text" in told[1]
    assert "EMPTY_SET has no place" in told[2]


def test_only_records_of_ours_take_a_state(tmp_path: Path) -> None:
    for target in (b"}", b"c_codecs\nencode\n", b"cnumpy\ndtype\n", b"cnumpy\nndarray\n"):
        state = b"N}X\x0c\x00\x00\x00__defaults__N\x85s\x86"  # of a function: other arguments than it has
        assert "__setstate__" in refusal(b"\x80\x02" + target + state + b"b.", tmp_path / "batch")
    assert pickled_arrays._ArrayUnpickler.encoded.__defaults__ == ("latin1",)
