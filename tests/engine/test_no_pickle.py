"""No path that reads a file may unpickle: a whole life of a run, watched by an audit hook."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
import numpy as np, torch
import counterpoint as cp
import counterpoint.cli.verbs  # everything is imported before the watch begins

images = np.random.default_rng(0).integers(0, 256, (80, 8, 8), dtype=np.uint8)
np.savez("data.npz", images=images, labels=np.arange(80) % 2)
refused = []

def hook(event, args):
    if event.startswith("pickle."):
        refused.append(args)
        raise RuntimeError(f"unpickled {args}")

sys.addaudithook(hook)
settings = dict(data="data.npz", out="run", epochs=2, batch_size=16, quiet=True)

original, calls = torch.optim.AdamW.step, []
def interrupted(self, *args, **options):
    calls.append(1)
    if len(calls) == 3:
        raise MemoryError
    return original(self, *args, **options)
torch.optim.AdamW.step = interrupted
try:
    cp.train(**settings)
except MemoryError:
    pass
torch.optim.AdamW.step = original

run = cp.resume("run", quiet=True)
cp.load("run").represent(np.zeros((2, 8, 8), np.uint8))
cp.evaluate("run", k=5, quiet=True)
cp.diagnose("run", quiet=True)
cp.embed("run", out="table.npz", quiet=True)
cp.report(run)
assert not refused, refused

import pickle
try:
    pickle.loads(pickle.dumps(print))
except RuntimeError:
    print("the hook works")
"""


def test_train_resume_load_evaluate_diagnose_embed_and_report_unpickle_nothing(tmp_path: Path) -> None:
    finished = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.endswith("the hook works\n")
