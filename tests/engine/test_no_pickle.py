"""No path that reads a file may unpickle: a whole life of a run and every data set, watched by an audit hook."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "data"))

import published_files as published
import shard_files

WATCH = """
import pickle, sys
import numpy as np, torch
import counterpoint as cp
import counterpoint.cli.verbs  # everything is imported before the watch begins
from counterpoint.core.settings import SourceSettings
from counterpoint.data.sources import CATALOGUE, open_source
from counterpoint.engine.progress import Reporter

refused = []

def refuse(name):
    def call(*args, **options):
        refused.append(name)
        raise RuntimeError(f"called {name}")
    return call

def hook(event, args):
    if event.startswith("pickle."):
        refused.append(args)
        raise RuntimeError(f"unpickled {args}")

sys.addaudithook(hook)
dumped, originals = pickle.dumps(print), {name: getattr(pickle, name) for name in ("load", "loads", "Unpickler")}
for name in originals:
    setattr(pickle, name, refuse(f"pickle.{name}"))
torch.load = refuse("torch.load")
open_given = lambda data, **settings: open_source(data, SourceSettings(**settings), progress=Reporter(quiet=True).bar)
"""

PROVE_THE_WATCH = """
assert not refused, refused
for attempt in (pickle.loads, originals["loads"]):
    try:
        attempt(dumped)
    except RuntimeError:
        print("the watch works")
"""

LIFE = """
images = np.random.default_rng(0).integers(0, 256, (80, 8, 8), dtype=np.uint8)
np.savez("data.npz", images=images, labels=np.arange(80) % 2)
settings = dict(data="data.npz", out="run", method="moco", epochs=2, batch_size=16, quiet=True,
                engine={"average": 0.9, "checkpoint_steps": 2, "knn_every": 1}, target={"queue_size": 32})

from counterpoint.engine import loop
original, calls = loop.take_step, []
def interrupted(*args, **options):
    calls.append(1)
    if len(calls) == 4:
        raise MemoryError
    return original(*args, **options)
loop.take_step = interrupted
try:
    cp.train(**settings)
except MemoryError:
    pass
else:
    raise AssertionError("it was to be interrupted")
loop.take_step = original

run = cp.resume("run", quiet=True)
cp.load("run").represent(np.zeros((2, 8, 8), np.uint8))
assert cp.verify("run", quiet=True).is_intact
cp.evaluate("run", k=5, quiet=True)
cp.diagnose("run", quiet=True)
cp.embed("run", out="table.npz", quiet=True)
cp.embed("run", out="table.parquet", quiet=True)
cp.report(run)
"""

DATA_SETS = """
import json
names = json.loads(sys.argv[1])
for name in names:
    source = open_given(name, root="data", max_bad=0.9)
    source.store.fetch([0, 1])
    print(name, len(source))
for form in ("shards", "folder", "vectors.npy", "vectors.npz"):
    source = open_given(form, max_bad=0.9)
    source.store.fetch([0, 1])
    print(form, len(source))
"""

HOSTILE = """
import os
class Bomb:
    def __reduce__(self):
        return os.system, ("touch exploded",)
bomb = pickle.dumps(Bomb())
np.save("object.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
np.savez("object.npz", x=np.array([Bomb()], dtype=object))
os.makedirs("hostile/cifar-10-batches-py")
for name in ["batches.meta", "test_batch", *(f"data_batch_{n}" for n in range(1, 6))]:
    with open(f"hostile/cifar-10-batches-py/{name}", "wb") as stream:
        stream.write(bomb)
for data in ("object.npy", "object.npz", "cifar10"):
    try:
        open_given(data, root="hostile")
    except cp.CounterpointError as error:
        print("refused:", str(error).splitlines()[0][:60])
assert not os.path.exists("exploded")
"""


def run_watched(code: str, folder: Path, *words: str) -> list[str]:
    command = [sys.executable, "-c", WATCH + code + PROVE_THE_WATCH, *words]
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    *lines, first, second = finished.stdout.splitlines()
    assert (first, second) == ("the watch works", "the watch works")
    return lines


def test_train_resume_load_verify_evaluate_diagnose_embed_and_report_unpickle_nothing(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    assert run_watched(LIFE, tmp_path) == []


def test_data_sets_are_read_without_unpickling_and_hostile_pickles_are_refused(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    names = ["cifar10", "cifar100", "stl10", "svhn", "mnist", "fashion-mnist"]
    (tmp_path / "data").mkdir()
    published.save_all(tmp_path / "data", rng, names)
    for folder in ("shards", "folder/a", "folder/b"):
        (tmp_path / folder).mkdir(parents=True)
    shard_files.write_shard(tmp_path / "shards" / "00.tar", shard_files.labelled(rng, ["x", "y", "z"]))
    for number in range(4):
        (tmp_path / "folder" / "ab"[number % 2] / f"{number}.png").write_bytes(shard_files.picture(rng, form="PNG"))
    np.save(tmp_path / "vectors.npy", rng.standard_normal((5, 3)))
    np.savez(tmp_path / "vectors.npz", rng.standard_normal((5, 3)))
    lines = run_watched(DATA_SETS + HOSTILE, tmp_path, json.dumps([*names, "digits"]))
    read = [*names, "digits", "shards", "folder", "vectors.npy", "vectors.npz"]
    assert [line.split()[0] for line in lines] == [*read, "refused:", "refused:", "refused:"]
