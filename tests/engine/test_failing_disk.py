"""Every open, write, fsync, close, rename and mkdir of a save fails in turn: what was saved before stays good."""

import errno
import os
import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from small_snapshots import save, tiny

from counterpoint.core.errors import RunError
from counterpoint.engine.checkpoint import list_checkpoints, load_checkpoint, restore_checkpoint, save_checkpoint
from counterpoint.engine.checkpoint_format import find_damage
from counterpoint.engine.replay import StepRecord, read_step, record_step
from failing_disk import FAULTS, FailingDisk

pytestmark = pytest.mark.thorough

OLDER, NEWER = 2, 4


def save_on(disk: FailingDisk, folder: Path) -> str | None:
    """Save while the disk fails; returns what the error said."""
    with pytest.MonkeyPatch.context() as patch:
        disk.install(patch)
        try:
            save_checkpoint(folder, tiny(NEWER), keep=1)
        except RunError as error:
            return str(error)
    return None


@pytest.mark.parametrize("is_lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("number", FAULTS.values(), ids=FAULTS)
def test_every_call_fails_in_turn(tmp_path: Path, number: int, is_lasting: bool) -> None:
    told: Counter[str] = Counter()
    for first in count(1):
        folder = tmp_path / str(first)
        older = save_checkpoint(folder, tiny(OLDER), keep=1)
        disk = FailingDisk(number, first, is_lasting)
        message = save_on(disk, folder)
        if not disk.failed:
            assert message is None
            break
        if message is not None:
            told[disk.failed[0]] += 1
            assert os.strerror(number) in message
            assert f"step-{NEWER:08d}" in message
            assert find_damage(older) is None
        restored = restore_checkpoint(folder)  # the earlier one, or the new one where it was committed
        assert restored.damaged == ()
        assert restored.snapshot.position.step in ({OLDER, NEWER} if message else {NEWER})
        save_checkpoint(folder, tiny(NEWER), keep=1)  # and with the disk in order again, all is well
        assert [path.name for path in folder.iterdir()] == [f"step-{NEWER:08d}"]
    # What a save consists of: 5 files, each opened twice, written, flushed; two folders; renames.
    assert told["open"] >= 10
    assert told["write"] == 5
    assert told["fsync"] == 5 + 1 + 1
    assert told["rename"] == 2  # the commit, and the old one to the trash
    assert told["mkdir"] == 1


@pytest.mark.parametrize("number", FAULTS.values(), ids=FAULTS)
def test_a_damaged_checkpoint_of_the_same_step_is_replaced_or_stays(tmp_path: Path, number: int) -> None:
    for first in count(1):
        folder = tmp_path / str(first)
        older = save_checkpoint(folder, tiny(OLDER), keep=2)
        (save_checkpoint(folder, tiny(NEWER), keep=2) / "state.json").unlink()
        disk = FailingDisk(number, first, is_lasting=False)
        message = save_on(disk, folder)
        if not disk.failed:
            break
        names = {path.name for path in list_checkpoints(folder)}
        assert f"step-{NEWER:08d}" in names, (message, disk.failed)
        assert message is None or find_damage(older) is None


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    """Let the system itself refuse to write more to a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("num_bytes", [0, 1, 300, 1000, 2000])
def test_a_real_limit_of_the_system_is_told_with_the_files_name(tmp_path: Path, num_bytes: int) -> None:
    older = save(tmp_path, OLDER, keep=1)
    with largest_file(num_bytes), pytest.raises(RunError) as caught:
        save(tmp_path, NEWER, keep=1)
    assert f"{os.strerror(errno.EFBIG)} (" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [older]
    load_checkpoint(older)


def test_a_record_that_cannot_be_written_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    record = StepRecord(4, 0, 4, "a", (1, 2), "0x1p0", "0x1p0", "b")
    for first in count(1):
        disk = FailingDisk(errno.ENOSPC, first, is_lasting=False)
        with pytest.MonkeyPatch.context() as patch:
            disk.install(patch)
            try:
                record_step(tmp_path, record)
            except RunError as error:
                assert "No space left on device" in str(error)
                assert disk.failed
        kept = read_step(tmp_path, 4)
        assert kept is None or kept.record == record
        if not disk.failed:
            break
        (tmp_path / "after-00000004.json").unlink(missing_ok=True)
    assert [path.name for path in tmp_path.iterdir()] == ["after-00000004.json"]
