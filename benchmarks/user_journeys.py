"""Play four users from an empty environment: photographs, an own loss, a table with categories, features.

Each journey prints its commands, their seconds and what a person reads first and last; each must end in an answer
within ten minutes. The environment is made anew and gets the package alone, as `pip install .` installs it.

    python benchmarks/user_journeys.py PHOTOS           # a folder of pictures, a sub-folder per class
    python benchmarks/user_journeys.py PHOTOS --python .venv/bin/python    # in an environment that there is
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = 600.0  # seconds of a journey
MOST_LINES = 5  # at either end of what a command prints

OWN_LOSS = """
import torch, counterpoint as cp

class Pull(torch.nn.Module):
    def __init__(self, push=0.1):
        super().__init__()
        self.push = push
    def forward(self, z0, z1):
        z0, z1 = (torch.nn.functional.normalize(z) for z in (z0, z1))
        return (z0 - z1).square().sum(1).mean() + self.push * (z0 @ z1.T).exp().mean()

ours = [cp.train("digits", loss=Pull(), out=f"runs/pull-{seed}", seed=seed, epochs=20, quiet=True) for seed in range(3)]
base = [cp.train("digits", out=f"runs/simclr-{seed}", seed=seed, epochs=20, quiet=True) for seed in range(3)]
for run in ours + base:
    cp.evaluate(run, quiet=True)
print(cp.compare(*ours, *base))
print(cp.diagnose(ours[0], quiet=True).verdict)
"""
TABLE = """
import csv, numpy as np
rng = np.random.default_rng(0)
kinds = rng.integers(0, 3, 2000)
numbers = rng.normal(size=(2000, 8)) + np.eye(8)[kinds] * 2.5
with open("customers.csv", "w", newline="") as stream:
    writer = csv.writer(stream)
    writer.writerow([*(f"x{i}" for i in range(8)), "city", "plan", "kind"])
    for row, kind in zip(numbers, kinds):
        values = [f"{value:.4f}" if rng.random() > 0.03 else "" for value in row]
        city = rng.choice(["Bern", "Lima", "Oslo", ""], p=[0.3, 0.3, 0.3, 0.1])
        plan = ["basic", "plus", "pro"][kind] if rng.random() < 0.7 else "basic"
        writer.writerow([*values, city, plan, f"kind {kind}"])
"""
FEATURES = """
import numpy as np
rng = np.random.default_rng(0)
labels = rng.integers(0, 10, 5000)
z = rng.normal(size=(10, 256))[labels] * 0.6 + rng.normal(size=(5000, 256))
z[:, :12] += 40 * rng.normal(size=(5000, 1))  # a fault: one direction takes nearly all variance
np.save("features.npy", z.astype("float32")); np.save("labels.npy", labels)
"""
TABLE_FLAGS = "--source.label-column kind"


def journeys(photos: Path) -> dict[str, list[str]]:
    """Commands of each user; a text of several lines is a program."""
    pictures = shlex.quote(str(photos.resolve()))
    return {
        "photographs": [
            f"counterpoint audit {pictures} --out audit.html",
            f"counterpoint recommend {pictures} --minutes 1 --out photos.yaml",
            "counterpoint train --config photos.yaml --out runs/mine",
            "counterpoint report runs/mine",
        ],
        "own loss": [OWN_LOSS],
        "table with categories": [
            TABLE,
            f"counterpoint audit customers.csv {TABLE_FLAGS}",
            f"counterpoint train --data customers.csv {TABLE_FLAGS} --out runs/table",
            "counterpoint evaluate runs/table",
            "counterpoint report runs/table",
        ],
        "features from elsewhere": [
            FEATURES,
            "counterpoint diagnose features.npy --labels labels.npy",
            "counterpoint evaluate features.npy --labels labels.npy",
        ],
    }


def main() -> int:
    """Play all journeys; return 1 if one fails or takes longer than ten minutes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--python", type=Path, help="an environment that has the package; default: a new one")
    parser.add_argument("--only", choices=journeys(Path()), help="one journey")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        python = flags.python.absolute() if flags.python else _installed(place / "env")
        played = {name: commands for name, commands in journeys(flags.photos).items() if flags.only in (None, name)}
        return int(not all(_play(name, commands, python, place / name) for name, commands in played.items()))


def _installed(place: Path) -> Path:
    """Make a new environment with the package, and return its Python."""
    began = time.perf_counter()
    venv.create(place, with_pip=True)
    python = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    subprocess.run([python, "-m", "pip", "install", "-qq", "-c", ROOT / "constraints.txt", ROOT], check=True)
    print(f"pip install: {time.perf_counter() - began:.0f} s\n")
    return python


def _play(name: str, commands: list[str], python: Path, place: Path) -> bool:
    """Play one journey in a folder of its own; tell whether it ended well and in time."""
    place.mkdir()
    print(f"== {name}")
    total = 0.0
    for command in commands:
        is_program = "\n" in command
        words = ["-c", command] if is_program else ["-m", *shlex.split(command)]
        began = time.perf_counter()
        done = subprocess.run(
            [python, *words], cwd=place, capture_output=True, text=True, encoding="utf-8", check=False
        )
        total += (seconds := time.perf_counter() - began)
        print(f"$ {'python program' if is_program else command}    [{seconds:.1f} s, code {done.returncode}]")
        said = done.stdout.splitlines() if done.returncode == 0 else done.stderr.splitlines()
        told = done.stderr.splitlines()[-1:] if " train " in command else []  # the sentence
        if len(said) > 2 * MOST_LINES:
            said = [*said[:MOST_LINES], "...", *said[-MOST_LINES:]]
        print("\n".join(f"  {line}" for line in [*said, *told]))
        if done.returncode != 0:
            return False
    print(f"{name}: {total:.0f} s ({ALLOWED:.0f} allowed)\n")
    return total <= ALLOWED


if __name__ == "__main__":
    sys.exit(main())
