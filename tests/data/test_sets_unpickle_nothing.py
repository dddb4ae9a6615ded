"""Data sets are read without unpickling, also those that are published as pickles; watched by an audit hook."""

import json
from pathlib import Path

import numpy as np
import published_files as published
import pytest
import shard_files

from pickle_watch import run_watched

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


@pytest.mark.thorough
def test_data_sets_are_read_without_unpickling_and_hostile_pickles_are_refused(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    names = ["cifar10", "cifar100", "stl10"]
    (tmp_path / "data").mkdir()
    published.save_all(tmp_path / "data", rng)
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
