"""What training writes, for tests of pages that follow it."""

from counterpoint.core.rundir import RunFolder


def add_epoch(folder: RunFolder, epoch: int, *, seconds: float = 4.0, **measured: float) -> None:
    """What training writes at the end of an epoch."""
    levels = {"chance": 6.0, "floor": 1.0, "learning_rate": 0.1}
    folder.append_metrics({"epoch": epoch, "step": 5 * epoch, "loss": 6.0 - 0.25 * epoch, **levels, **measured})
    folder.append_timings({"epoch": epoch, "step": 5 * epoch, "images_per_second": 100.0, "seconds": seconds})
