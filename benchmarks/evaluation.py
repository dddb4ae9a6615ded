"""evaluate() of 2,800 pictures beside plain scikit-learn doing the same: passes, PCA, kNN and linear probes.

    python benchmarks/evaluation.py                # idle; about a minute on two cores
    python benchmarks/evaluation.py --beside-load  # also beside a busy process and beside a two-thread torch program
    python benchmarks/evaluation.py --classifiers  # instead: kNN and linear probe, beside faiss, lightly and others
    python benchmarks/evaluation.py --tables       # instead: retrieval from large tables; about a minute
    python benchmarks/evaluation.py --large        # instead: a table of 1,000,000 x 512 on disk, within 2 GiB
    python benchmarks/evaluation.py --features     # instead: 10,000 pictures: a bare pass, features, evaluate
    python benchmarks/evaluation.py --quick        # seconds; shows that everything runs, not how fast

The encoder is a small network of our own whose representation has 256 or 1024 dimensions, trained for one epoch. Each
implementation has a process of its own, without any variable for threads; the first call, and one more.
Accuracies of both sides must be the same within 2 points, or one picture where that is more, else the exit code is 1.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from beside_load import IDLE, LOADS, calls_of, compare
from classifier_peers import FULL, QUICK, compare_classifiers
from large_features import features_beside_pass, large_table
from loaded_evaluation import HOLDOUT, LABELS, OURS, PEER, Pictures, pictures, small_network
from result_tables import heading
from table_metrics import cases, measured

import counterpoint as cp

WIDTHS = (256, 1024)
QUICK_WIDTHS = (16,)
CHILD = Path(__file__).with_name("loaded_evaluation.py")
CLOSE = 0.02
NUM_CALLS = 2


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Arguments, or an error that says what to do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside-load", action="store_true", help="first call and median beside other work")
    parser.add_argument("--classifiers", action="store_true", help="kNN and linear probe alone, on drawn features")
    parser.add_argument("--tables", action="store_true", help="instead metrics of large tables beside other libraries")
    parser.add_argument("--large", action="store_true", help="instead a table on disk, with its peak memory")
    parser.add_argument("--features", action="store_true", help="instead features and evaluate beside the bare pass")
    parser.add_argument("--quick", action="store_true", help="few pictures, dimensions and calls, as a smoke test")
    return parser.parse_args(words)


def train(folder: Path, data: Pictures, width: int) -> Path:
    """A run of one epoch."""
    network = small_network(width)
    settings = {"epochs": 1, "batch_size": min(256, len(data.labels) // 2), "source": {"holdout": HOLDOUT}}
    run = cp.train(data.images, labels=data.labels, encoder=network, out=str(folder), quiet=True, **settings)
    return run.path


def differences(run: Path, width: int, num_pictures: int) -> list[str]:
    """Sentences about rows in which the two sides do not agree."""
    accuracies = {name: calls_of(CHILD, run, name, width, num_pictures, 1).extra["accuracies"] for name in (OURS, PEER)}
    ours, theirs = accuracies[OURS], accuracies[PEER]
    # Two neighbours as near as float32 can tell may come in either order, and with them one picture's class.
    close = max(CLOSE, 1.01 / (HOLDOUT * num_pictures))
    return [f"{row}: {ours[row]:.3f} and {theirs[row]:.3f}" for row in theirs if abs(ours[row] - theirs[row]) > close]


def tables(*, is_quick: bool) -> bool:
    """Print the table of each metric; tell whether figures differ or a limit, which a quick run has not, is passed."""
    has_failed = False
    for case in cases(is_quick=is_quick):
        lines, wrong = measured(case)
        print("", *lines, sep="\n", flush=True)
        for sentence in wrong:
            print(sentence, file=sys.stderr)
        has_failed |= bool(wrong)
    return has_failed


def main(words: Sequence[str]) -> int:
    """Check that both sides agree, measure, print a table for each width, and return the exit code."""
    arguments = parse(words)
    num_pictures, widths = (200, QUICK_WIDTHS) if arguments.quick else (2800, WIDTHS)
    num_calls = 1 if arguments.quick else NUM_CALLS
    print(heading("cpu", "evaluation.py"), flush=True)
    if arguments.classifiers:
        return int(not compare_classifiers(QUICK if arguments.quick else FULL))
    if arguments.tables:
        return int(tables(is_quick=arguments.quick))
    if arguments.large:
        return int(large_table(is_quick=arguments.quick))
    if arguments.features:
        return int(features_beside_pass(is_quick=arguments.quick))
    has_failed = False
    for width in widths:
        with tempfile.TemporaryDirectory() as folder:
            run = train(Path(folder) / "run", pictures(num_pictures), width)
            if odd := differences(run, width, num_pictures):
                print(f"accuracies differ, not timed: {'; '.join(odd)}", file=sys.stderr)
                has_failed = True
                continue
            commands = {name: (CHILD, (run, name, width, num_pictures, num_calls)) for name in (OURS, PEER)}
            title = f"{num_pictures:,} pictures of {LABELS} classes, width {width}"
            loads = tuple(LOADS) if arguments.beside_load else (IDLE,)
            print("", compare(title, commands, loads), sep="\n", flush=True)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
