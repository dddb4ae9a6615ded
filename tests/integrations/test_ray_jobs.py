"""Pieces on Ray: the bytes of one process, nothing made twice, and errors in one line."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import counterpoint as cp
from counterpoint.audit import auditing
from counterpoint.cli.main import main
from counterpoint.core.errors import DataError, RunError, UsageError
from counterpoint.core.ranks import HERE
from counterpoint.evaluation import features
from counterpoint.evaluation.embedding import Shards, embed_shards
from counterpoint.integrations import ray_jobs
from counterpoint.integrations.ray_jobs import RayEngine, check_versions, versions
from counterpoint.search.duplicates import bucket_pairs

ray = pytest.importorskip("ray", reason="Ray (extra `ray`) is not installed")
ROWS, NUM_PICTURES = 70, 300
on_cluster = pytest.mark.thorough  # a cluster takes some ten seconds to start
# The command, which ends all of itself and of its workers once two shards are there.
DIES_AT_TWO_SHARDS = """
import os, signal, sys, threading, time
from pathlib import Path
from counterpoint.cli.main import main
out = Path(sys.argv[sys.argv.index("--out") + 1])
def watch():
    while len(list(out.glob("shard-*.json"))) < 2:
        time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=watch, daemon=True).start()
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[RayEngine]:
    """Two workers of a cluster that serves all tests of this file."""
    here = f"{Path(__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", here)  # workers import functions of this file
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield RayEngine(workers=2)
        ray.shutdown()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    """An encoder with BatchNorm of small pictures of three classes."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("run")
    images = rng.integers(0, 256, (NUM_PICTURES, 8, 8), dtype=np.uint8)
    np.savez(folder / "pictures.npz", images=images, labels=rng.integers(0, 3, NUM_PICTURES))
    return cp.train(folder / "pictures.npz", epochs=1, batch_size=64, out=folder / "run", quiet=True)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# What needs no cluster, before the first test that starts one.


def test_other_versions_are_named() -> None:
    check_versions(versions())
    with pytest.raises(UsageError, match=r"has Python 3\.\d+, and this command 2\.7; install the same on all nodes"):
        check_versions({**versions(), "Python": "2.7"})


def test_a_cluster_of_another_ray_takes_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: object) -> None:
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.9.1\n")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    message = r"^--address auto: no Ray cluster that can be used: Version mismatch: .* Ray: 2\.9\.0 Python: 3\.9\.1$"
    with pytest.raises(UsageError, match=message), RayEngine("auto").opened(open_ten):
        pass


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--engine ray --address 127.0.0.1:{port}", "the Ray cluster cannot be reached: "),
        ("--engine ray --address 127.0.0.1:x", "the Ray cluster cannot be reached: "),
        ("--engine ray --workers 0", "workers must be"),
        ("--workers 2", "--workers goes with --engine ray"),
        ("--gpus-per-worker 1 --shards 10", "--gpus-per-worker goes with --engine ray"),
        ("--engine dask", "engine"),
        ("--engine ray --out z.npz", "--out must be a folder for shards, got the file z.npz"),
    ],
)
def test_mistakes_take_one_line(
    run: cp.Run, tmp_path: Path, words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        given = words.format(port=unused.getsockname()[1]).split()
        assert main(["embed", str(run.path), "--out", str(tmp_path / "z"), *given, "-q"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "z").exists()


def test_a_missing_ray_is_named_with_its_extra(
    run: cp.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["embed", str(run.path), "--out", str(tmp_path / "z"), "--engine", "ray"]) == 2
    assert "--engine ray needs Ray; install it with: pip install 'counterpoint[ray]'" in capsys.readouterr().err


# What workers do in these tests; they find this module by its name.


def open_ten() -> int:
    return 10


def add(state: int, item: int) -> int:
    return state + item


def die_twice(state: int, item: int, folder: Path) -> int:
    """Of item 3, kill the worker the first two times; a file tells each time."""
    times = len(list(folder.iterdir()))
    if item == 3 and times < 2:
        (folder / str(times)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return state + item


def die(state: int, item: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(state: int, item: int) -> None:
    raise DataError(f"sample {item} is damaged")


def fail(state: int, item: int) -> None:
    raise ZeroDivisionError("of a library\nin two lines")


@on_cluster
def test_each_item_is_done_once_although_workers_die(engine: RayEngine, tmp_path: Path) -> None:
    with engine.opened(open_ten) as workers:
        found = list(workers.each(partial(die_twice, folder=tmp_path), range(20)))
        assert workers.ask(lambda state: state) == 10
    assert sorted(found) == [(item, 10 + item) for item in range(20)]
    assert len(list(tmp_path.iterdir())) == 2


# A cluster of two nodes, of which one is stopped, and started again, while pieces are done.
NODE_RESTARTS = """
import time
from ray.cluster_utils import Cluster
from counterpoint.integrations.ray_jobs import RayEngine
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
node, restarted = cluster.add_node(num_cpus=1), False
with RayEngine(cluster.address, workers=2).opened(lambda: 10) as workers:
    found = {}
    for item, result in workers.each(lambda state, item: time.sleep(0.2) or state + item, range(60)):
        found[item] = result
        if len(found) >= 10 and not restarted:
            cluster.remove_node(node, allow_graceful=False)
            restarted = bool(cluster.add_node(num_cpus=1))
assert restarted and found == {item: 10 + item for item in range(60)}, found
cluster.shutdown()
"""


@on_cluster
def test_pieces_of_a_node_that_restarts_are_done() -> None:
    subprocess.run([sys.executable, "-c", NODE_RESTARTS], check=True, timeout=300, capture_output=True)


@on_cluster
def test_few_items_wait_at_workers(engine: RayEngine) -> None:
    drawn = []
    with engine.opened(open_ten) as workers:
        results = workers.each(add, (drawn.append(item) or item for item in range(1000)))
        next(results)
        assert len(drawn) == 2 * ray_jobs.AHEAD + 1


@on_cluster
def test_an_error_of_a_worker_is_one_line_here(engine: RayEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_jobs, "RETRIES", 1)
    with engine.opened(open_ten) as workers:
        with pytest.raises(DataError, match=r"^sample 0 is damaged$"):
            list(workers.each(refuse, [0]))
        with pytest.raises(RunError, match=r"^piece 0: a worker failed: of a library in two lines$"):
            list(workers.each(fail, [0]))
        with pytest.raises(RunError, match=r"^piece 0: its worker died 2 times, or .*what is finished stays") as caught:
            list(workers.each(die, [0]))
    assert "\n" not in str(caught.value)


@on_cluster
def test_workers_of_other_versions_are_refused(engine: RayEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_jobs, "versions", lambda: {**versions(), "counterpoint": "0.0.1"})
    with (
        engine.opened(open_ten) as workers,
        pytest.raises(UsageError, match=r"has counterpoint .*, and this command 0\.0\.1; install the same"),
    ):
        workers.ask(lambda state: state)


@on_cluster
def test_more_gpus_than_there_are_are_refused(engine: RayEngine) -> None:
    with (
        pytest.raises(UsageError, match=r"the cluster has 0 GPUs, too few for 2 workers with 0\.5 each"),
        RayEngine(workers=2, gpus_per_worker=0.5).opened(open_ten),
    ):
        pass


@on_cluster
@pytest.mark.parametrize("workers", [1, 2])
def test_workers_write_the_bytes_of_one_process(run: cp.Run, engine: RayEngine, tmp_path: Path, workers: int) -> None:
    embed_shards(run, shards=Shards(tmp_path / "one", ROWS), quiet=True)
    assert embed_shards(run, shards=Shards(tmp_path / "ray", ROWS), engine=RayEngine(workers=workers), quiet=True)
    assert files(tmp_path / "one") == files(tmp_path / "ray")


@on_cluster
def test_a_finished_shard_is_not_made_again_and_another_table_is_refused(
    run: cp.Run, engine: RayEngine, tmp_path: Path
) -> None:
    out = tmp_path / "shards"
    assert embed_shards(run, shards=Shards(out, ROWS), quiet=True)
    sound = files(out)
    (out / "shard-000002.json").unlink()
    before = {path: path.stat().st_mtime_ns for path in out.glob("shard-*.parquet") if "000002" not in path.name}
    assert embed_shards(run, shards=Shards(out, ROWS), engine=engine, quiet=True)
    assert before == {path: path.stat().st_mtime_ns for path in before}
    with pytest.raises(RunError, match="layer representation, this is embedding"):
        embed_shards(run, layer="embedding", shards=Shards(out, ROWS), engine=engine, quiet=True)
    assert files(out) == sound


@on_cluster
def test_an_encoder_whose_code_no_worker_has_takes_one_line(
    run: cp.Run, engine: RayEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "on_one_node.py").write_text("import torch\n\n\nclass Flat(torch.nn.Flatten):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    words = ["evaluate", "--encoder", "on_one_node:Flat", "--data", str(run.path.parent / "pictures.npz"), "-q"]
    assert main(words) == 0
    assert main([*words, "--engine", "ray", "--workers", "1"]) == 2
    error = capsys.readouterr().err
    assert "a worker failed: ModuleNotFoundError: No module named 'on_one_node'" in error
    assert error.count("\n") == 1


@on_cluster
def test_a_killed_command_leaves_no_process_and_goes_on(run: cp.Run, tmp_path: Path) -> None:
    embed_shards(run, shards=Shards(tmp_path / "one", 10), quiet=True)
    out = tmp_path / "two"
    words = ["embed", str(run.path), "--out", str(out), "--shards", "10", "--engine", "ray", "--workers", "1", "-q"]
    killed = subprocess.run([sys.executable, "-c", DIES_AT_TWO_SHARDS, *words], check=False, timeout=300)
    assert killed.returncode == -signal.SIGKILL
    time.sleep(1)  # its workers end with it
    before = {path: path.stat().st_mtime_ns for path in out.glob("shard-*.json")}
    assert 2 <= len(before) < 30
    time.sleep(1)
    assert before == {path: path.stat().st_mtime_ns for path in out.glob("shard-*.json")}
    assert subprocess.run([sys.executable, "-m", "counterpoint", *words], check=False, timeout=300).returncode == 0
    assert before == {path: path.stat().st_mtime_ns for path in before}
    assert {name: each for name, each in files(out).items() if name[0] != "."} == files(tmp_path / "one")


@on_cluster
def test_an_audit_says_the_same(engine: RayEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "PIECE", 1)  # several pieces of few pictures
    rng = np.random.default_rng(0)
    for number in range(150):
        pixels = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((48, 48)).save(tmp_path / f"{number:03d}.png")
    (tmp_path / "149.png").write_bytes((tmp_path / "000.png").read_bytes())
    (tmp_path / "148.png").write_bytes(b"broken")
    found, expected = (
        {**cp.audit(tmp_path, quiet=True, engine=each).to_dict(), "seconds": 0} for each in (engine, HERE)
    )
    assert found == expected
    kept = cp.audit(tmp_path, quiet=True, engine=engine, pieces=tmp_path / "pieces").to_dict()
    assert {**kept, "seconds": 0} == expected
    assert len(list((tmp_path / "pieces").glob("shard-*.json"))) == 3
    assert "unreadable" in str(found)
    with pytest.raises(UsageError, match="--engine ray and --pieces are for pictures"):
        cp.audit(np.eye(5, dtype=np.float32), engine=engine, quiet=True)


def test_features_are_evaluated_by_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "features.npy", np.eye(9, dtype=np.float32))
    assert main(["evaluate", str(tmp_path / "features.npy"), "--engine", "ray", "-q"]) == 2
    assert "features are evaluated by one process" in capsys.readouterr().err


@on_cluster
@pytest.mark.parametrize(
    "verb", ["evaluate RUN --checkpoint all --data DATA", "select RUN convnet --data DATA", "search RUN 7 --to DATA"]
)
def test_features_of_workers_give_the_figures_of_one_process(
    run: cp.Run, engine: RayEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    monkeypatch.setattr(features, "SHARD_ROWS", features.PIECE)
    places = {"RUN": str(run.path), "DATA": str(run.path.parent / "pictures.npz")}
    words = [*(places.get(word, word) for word in verb.split()), "--json", "--no-cache", "-q"]
    assert main(words) == 0
    expected = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(features, "pass_rows", lambda *_, **__: pytest.fail("this process computes features"))
    assert main([*words, "--engine", "ray", "--workers", "2"]) == 0
    assert json.loads(capsys.readouterr().out) == expected


@on_cluster
def test_buckets_are_compared_to_the_same_bits(engine: RayEngine) -> None:
    rows = torch.randn(3000, 16, generator=torch.Generator().manual_seed(0))
    rows[1000:1100] = rows[:100] * 2
    found, expected = (bucket_pairs(rows, 0.99, num_buckets=8, engine=each) for each in (engine, HERE))
    assert len(found.pairs_P2) >= 100
    assert torch.equal(found.pairs_P2, expected.pairs_P2)
    assert torch.equal(found.cosine_P, expected.cosine_P)
