"""The time that `recommend` promises, beside the time that the recommended training takes.

    python benchmarks/recommendation.py DATA... [--minutes 1] [--repeats 1]

Both in one process, one after the other, on a machine that does nothing else: `counterpoint train` in a shell
also takes the seconds in which Python loads torch. The time of training is that of `cp.train`, with reading the data.
"""

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import counterpoint as cp
from counterpoint.core.validation import parse_yaml


def compare(data: str, minutes: float, folder: Path) -> tuple[str, float | None]:
    """A row with the promised and the measured time, and their ratio; None if no step could be timed in its share."""
    advice = cp.recommend(data, minutes=minutes, quiet=True)
    config = advice.save(folder / "recommended.yaml")
    settings = parse_yaml(config.read_text(encoding="utf-8"), str(config))
    assert isinstance(settings, dict)
    started = time.perf_counter()
    cp.train(settings.pop("data"), out=folder / "run", overwrite=True, quiet=True, **settings)
    seconds = time.perf_counter() - started
    name = f"{Path(data).parent.name}/{Path(data).name}"
    encoder, epochs = settings["encoder"], settings["epochs"]
    if advice.low is None or advice.seconds is None or advice.high is None:
        return f"| {name} | {encoder} | {epochs} | not timed | {seconds:.0f} s | – |", None
    is_within = "yes" if advice.low <= seconds <= advice.high else "no"
    promised = f"{advice.seconds:.0f} s [{advice.low:.0f}, {advice.high:.0f}]"
    return f"| {name} | {encoder} | {epochs} | {promised} | {seconds:.0f} s | {is_within} |", seconds / advice.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=1)
    flags = parser.parse_args()
    print("| data | encoder | epochs | promised | taken | within |\n|---|---|---|---|---|---|")
    ratios: list[float] = []
    for data in flags.data * flags.repeats:
        with TemporaryDirectory() as folder:
            row, ratio = compare(data, flags.minutes, Path(folder))
        print(row, flush=True)
        ratios += [] if ratio is None else [ratio]
    if ratios:
        print(f"\ntaken over promised: {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
