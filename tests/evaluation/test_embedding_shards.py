"""Shards of a table: the same bytes for any number of processes, made once, never mixed with those of another table."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.errors import CounterpointError, RunError
from counterpoint.core.ranks import WorkPart
from counterpoint.evaluation.embedding import Shards, embed_shards
from counterpoint.evaluation.shard_files import MANIFEST, open_shards
from failing_disk import FAULTS, FailingDisk

pytest.importorskip("pyarrow", reason="pyarrow (extra `search`) is not installed")
# The command, whose process is killed while it writes its second shard.
DIES_AT_A_SECOND_SHARD = """
import os, signal, sys
from counterpoint.cli.main import main
from counterpoint.evaluation import shard_files
write, written = shard_files.write_atomically, []
def die(path, fill):
    def halfway(temporary):
        fill(temporary)
        written.append(path)
        if len(written) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
    write(path, halfway)
shard_files.write_atomically = die
main(sys.argv[1:])
"""
SIDE, NUM_PICTURES, ROWS = 8, 300, 70


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small pictures of three classes, one of which has no name in some samples."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "pictures.npz"
    images = rng.integers(0, 256, (NUM_PICTURES, SIDE, SIDE), dtype=np.uint8)
    np.savez(path, images=images, labels=rng.integers(0, 3, NUM_PICTURES))
    return path


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    """An encoder with BatchNorm."""
    return cp.train(data, epochs=1, batch_size=64, out=tmp_path_factory.mktemp("run") / "run", quiet=True)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def make(run: cp.Run, out: Path, part: str = "1/1", rows: int | None = ROWS) -> bool:
    number, total = map(int, part.split("/"))
    return embed_shards(run, shards=Shards(out, rows, WorkPart(number, total)), quiet=True)


def test_any_number_of_parts_writes_the_same_bytes(run: cp.Run, tmp_path: Path) -> None:
    assert make(run, tmp_path / "one")
    for number, is_last in ((3, False), (1, False), (2, True)):
        assert make(run, tmp_path / "three", f"{number}/3") == is_last
    assert files(tmp_path / "one") == files(tmp_path / "three")
    assert len(files(tmp_path / "one")) == 2 * 5 + 2


@pytest.mark.parametrize("rows", [29, ROWS, 128, NUM_PICTURES, 1000])
def test_vectors_are_the_bits_of_one_process(run: cp.Run, tmp_path: Path, rows: int) -> None:
    # Pieces that pass together are those of the whole table, wherever shards begin.
    make(run, tmp_path / "shards", rows=rows)
    whole = cp.embed(run, quiet=True)
    blocks = list(open_shards(tmp_path / "shards").blocks())
    assert np.array_equal(np.concatenate([block.vectors_ND for block in blocks]), whole.vectors)
    assert tuple(name for block in blocks for name in block.names) == whole.names
    assert tuple(label for block in blocks for label in block.labels) == whole.labels


def test_what_is_there_is_not_made_again(run: cp.Run, tmp_path: Path) -> None:
    out = tmp_path / "shards"
    make(run, out, "2/3")
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("shard-*")}
    assert set(before) == {"shard-000001.json", "shard-000001.parquet", "shard-000004.json", "shard-000004.parquet"}
    assert make(run, out)
    assert before == {name: (out / name).stat().st_mtime_ns for name in before}


@pytest.mark.thorough
def test_a_killed_part_leaves_nothing_that_another_waits_for(run: cp.Run, tmp_path: Path) -> None:
    make(run, tmp_path / "one")
    out = tmp_path / "two"
    words = ["embed", str(run.path), "--out", str(out), "--shards", str(ROWS), "--part", "1/2", "-q"]
    killed = subprocess.run([sys.executable, "-c", DIES_AT_A_SECOND_SHARD, *words], check=False, timeout=300)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(out.glob("shard-*.json"))) == 1
    assert not make(run, out, "2/2")
    assert len(list(out.glob("shard-*.json"))) == 3
    before = {path: path.stat().st_mtime_ns for path in out.glob("shard-*")}
    assert make(run, out, "1/2")
    assert before == {path: path.stat().st_mtime_ns for path in before}
    assert files(out) == files(tmp_path / "one")


@pytest.mark.parametrize("harm", ["flip", "shorten", "remove", "record", "no record"])
def test_a_damaged_shard_is_named_and_made_again(
    run: cp.Run, tmp_path: Path, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "shards"
    make(run, out)
    sound = files(out)
    path = out / "shard-000002.parquet"
    if harm == "flip":
        path.write_bytes(sound[path.name][:99] + bytes([sound[path.name][99] ^ 1]) + sound[path.name][100:])
    elif harm == "shorten":
        path.write_bytes(sound[path.name][:-5])
    elif harm == "remove":
        path.unlink()
    elif harm == "record":
        path.with_suffix(".json").write_text("{}")
    else:
        path.with_suffix(".json").unlink()
    with pytest.raises(RunError, match=r"shard-000002|shards: 2;"):
        list(open_shards(out).blocks())
    capsys.readouterr()
    embed_shards(run, shards=Shards(out))
    assert "shard 2 of 5" in capsys.readouterr().err
    assert files(out) == sound


def test_a_shard_of_another_table_is_refused_by_name(run: cp.Run, data: Path, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    make(run, one, "1/5")
    embed_shards(run, layer="embedding", shards=Shards(other, ROWS), quiet=True)
    for ending in (".json", ".parquet"):
        shutil.copy(other / f"shard-000003{ending}", one)
    with pytest.raises(RunError, match=r"shard-000003\.json is of another table: layer embedding, this is represent"):
        make(run, one)
    with pytest.raises(RunError, match=r"shard-000003\.json is of another table"):
        open_shards(one).check()


def test_a_renamed_shard_is_refused(run: cp.Run, tmp_path: Path) -> None:
    out = tmp_path / "shards"
    make(run, out)
    for ending in (".json", ".parquet"):
        shutil.copy(out / f"shard-000001{ending}", out / f"shard-000002{ending}")
    with pytest.raises(RunError, match=r"shard-000002\.json is of shard 1: it was renamed"):
        open_shards(out).check()


def test_a_folder_of_other_files_is_left_alone(run: cp.Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"holds other files, such as notes\.txt; choose an empty folder"):
        make(run, tmp_path)
    assert files(tmp_path) == {"notes.txt": b"mine"}


@pytest.mark.parametrize("first", [1, 4, 9, 16, 25])
def test_a_full_disk_is_told_in_one_line_and_the_rest_is_made_later(
    run: cp.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    out = tmp_path / "shards"
    assert make(run, tmp_path / "whole")
    make(run, out, "1/5")
    disk = FailingDisk(FAULTS["disk full"], first=first, is_lasting=True)
    with monkeypatch.context() as patch:
        disk.install(patch)
        with pytest.raises(CounterpointError, match="No space left on device") as caught:
            make(run, out)
    assert "\n" not in str(caught.value)
    assert not (out / MANIFEST).exists()
    assert make(run, out)
    assert json.loads((out / MANIFEST).read_text())["shards"][4]["rows"] == 20
    # This disk refuses to remove files, too: what is unfinished goes once its process is gone.
    assert {name: each for name, each in files(out).items() if name[0] != "."} == files(tmp_path / "whole")


def test_a_table_in_shards_is_read_wherever_a_table_is(run: cp.Run, tmp_path: Path) -> None:
    out = tmp_path / "shards"
    make(run, out)
    cp.embed(run, out=tmp_path / "table.npz", quiet=True)
    record = str(tmp_path / "e.json")
    found, expected = (cp.evaluate(path, out=record, quiet=True) for path in (out, tmp_path / "table.npz"))
    assert found.to_dict()["rows"] == expected.to_dict()["rows"]
    assert cp.diagnose(out, quiet=True).to_dict() == cp.diagnose(tmp_path / "table.npz", quiet=True).to_dict()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("{run} --out {new} --shards 10 --part 0/3", "0/3"),
        ("{run} --out {new} --shards 10 --part 4/3", "got 4/3"),
        ("{run} --out {new} --shards 10 --part x", "got 'x'"),
        ("{run} --out {new} --shards 0", "shards must have at least 1 row, got 0"),
        ("{run} --out {file} --shards 10", "--out must be a folder for shards"),
        ("{run} --out {file}/below --shards 10", "cannot make the folder"),
        ("{run} --out {new} --shards 10 --overwrite", "shards are never replaced"),
    ],
)
def test_mistakes_take_one_line(
    run: cp.Run, tmp_path: Path, words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    places = {"run": run.path, "new": tmp_path / "new", "file": tmp_path / "file"}
    assert main(["embed", *words.format(**places).split(), "-q"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_several_ranks_do_not_write_one_file(
    run: cp.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    for name, value in ranks.items():
        monkeypatch.setenv(name, value)
    assert main(["embed", str(run.path), "--out", str(tmp_path / "t.npz")]) == 2
    assert "several processes write a folder of shards together" in capsys.readouterr().err


def test_a_flag_of_the_parts_that_took_over_says_what_holds_now(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["embed", "run", "--out", "z", "--shards", "9", "--own-shards-only"])
    assert "own-shards-only is gone: each part makes its own shards alone" in capsys.readouterr().err
