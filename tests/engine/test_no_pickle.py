"""No path that reads a file of a run may unpickle: its whole life, watched by an audit hook."""

from pathlib import Path

import pytest

from pickle_watch import run_watched

LIFE = """
images = np.random.default_rng(0).integers(0, 256, (80, 8, 8), dtype=np.uint8)
np.savez("data.npz", images=images, labels=np.arange(80) % 2)
settings = dict(data="data.npz", out="run", method="moco", epochs=2, batch_size=16, quiet=True,
                engine={"checkpoint_steps": 2, "knn_every": 1}, target={"queue_size": 32})

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


@pytest.mark.thorough
def test_train_resume_load_verify_evaluate_diagnose_embed_and_report_unpickle_nothing(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra `search`)")
    assert run_watched(LIFE, tmp_path) == []
