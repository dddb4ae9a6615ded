"""Compare two checkouts bit for bit: losses with their first and second derivatives, and answers of the geometry verb.

git worktree add ../before COMMIT
python benchmarks/same_bits.py ../before .       a table after some minutes; exit code 1 where a bit differs
"""

import hashlib
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

NAMES = """infonce dcl dclw mine triplet soft-triplet n-plus-one-tuplet lifted-structured modified-triplet cross-modal
linear-triplet mio-v1 mio-v2 mio-v3 sigmoid spectral cross-modal-spectral supcon multi-positive barlow-twins vicreg
sigreg visreg rdmreg"""
LOSSES: list[tuple[str, dict[str, object]]] = [
    *((name, {}) for name in (*NAMES.split(), "regression", "generalized-contrastive")),
    *(("alpha-cl", {"rule": rule}) for rule in ("entropy", "inverse-power", "square", "direct", "fixed-inverse")),
    ("generalized-contrastive", {"num_negatives": 8}),
    ("hard-negatives", {"loss": "infonce"}),
    ("sparsity-penalty", {"loss": "spectral"}),
]
SIZES = (24, 600)  # samples: small batches have a route of their own
QUESTIONS = (
    "0.5 0.25 0.25 --negatives 512 --supervised",
    "5000 400 60 --normalize --loss infonce --temperature 0.2 --negatives 510",
    "0.6 0.2 0.2 --rebalance",
    "1/3 1/3 1/3 --phase-diagram",
    "0.5 0.3 0.2 --threshold",
    "0.4 0.3 0.3 --negatives 8",
    "0.4 0.3 0.3 --loss spectral",
    "0.4 0.3 0.3 --loss mio-v3",
    "0.4 0.3 0.3 --loss triplet --negatives 4",
    "0.4 0.3 0.3 --loss hard-negatives --loss-options '{loss: infonce}' --negatives 4",
)


def answers() -> dict[str, str]:
    """Hashes of losses, and answers of the verb, by name; of the checkout that is first on the path."""
    import torch  # deferred: only the processes that compute need it

    from counterpoint.losses.build import build_loss  # deferred: of the checkout that the process was started for

    results = {}
    for size, (name, options) in ((size, loss) for size in SIZES for loss in LOSSES):
        z0, z1, v0, v1 = torch.randn(4, size, 16, generator=torch.Generator().manual_seed(size)).unbind()
        views = [z0.requires_grad_(), z1.requires_grad_()]
        value = build_loss(name, {"temperature": 0.3}, options)(*views, torch.arange(size) % 5)
        slopes = torch.autograd.grad(value, views, create_graph=True)
        try:
            second = torch.autograd.grad(slopes, views, [v0, v1])
        except RuntimeError as error:  # refused while alpha is held fixed, or the loss is linear in a view
            second = (torch.tensor(list(str(error).encode())),)
        numbers = b"".join(tensor.detach().numpy().tobytes() for tensor in (value, *slopes, *second))
        results[" ".join([name, *map(str, options.values()), f"of {size}"])] = hashlib.sha256(numbers).hexdigest()
    for question in QUESTIONS:
        command = [sys.executable, "-m", "counterpoint", "geometry", *shlex.split(question), "--json"]
        results[f"geometry {question}"] = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    return results


def main() -> int:
    """Ask both checkouts, and print which answers are the same."""
    if sys.argv[1:] == ["--answers"]:
        print(json.dumps(answers()))
        return 0
    results = []
    for folder in sys.argv[1:3]:
        environment = {**os.environ, "PYTHONPATH": str(Path(folder).resolve() / "src")}
        command = [sys.executable, __file__, "--answers"]
        results.append(json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout))
    print("| what | result |\n|---|---|")
    for name, answer in results[0].items():
        print(f"| {name} | {'same bits' if results[1].get(name) == answer else 'DIFFERS'} |")
    return int(results[0] != results[1])


if __name__ == "__main__":
    sys.exit(main())
