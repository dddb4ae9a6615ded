"""`counterpoint watch` as a command: one line where it cannot begin, a page, and a clean end."""

import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from counterpoint.cli.main import main
from counterpoint.core.run_contents import create_run


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with a run, and a folder that is none."""
    monkeypatch.chdir(tmp_path)
    create_run(Path("ncl"), overwrite=False).update_status(status="running", method="ncl")
    Path("photos").mkdir()
    (Path("photos") / "cat.png").write_bytes(b"")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["photos"], "is not a run folder"),
        (["photos", "--wait"], "is not a run folder"),
        (["later"], "with --wait the page waits for it"),
        (["ncl", "--port", "0"], "--port must be between 1 and 65535"),
        (["ncl", "--port", "x"], "invalid int value"),
    ],
)
def test_what_cannot_be_watched_is_one_line(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["watch", *words])
    except SystemExit as leaving:  # of the parser
        code = leaving.code
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert told in said.err.splitlines()[-1]


def test_a_port_in_use_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["watch", "ncl", "--bare", "--port", str(taken.getsockname()[1])]) == 2
    assert "Address already in use; choose another --port" in capsys.readouterr().err


@pytest.fixture
def watching() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "counterpoint", "watch", "later", "--wait", "--bare"]
    # Else it would be deaf to Ctrl-C where the tests run in a shell's background.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.thorough
def test_it_waits_for_a_run_shows_it_and_ends_by_ctrl_c(watching: subprocess.Popen[str]) -> None:
    assert watching.stdout is not None
    address = watching.stdout.readline().strip()

    def page() -> str:
        with urllib.request.urlopen(address, timeout=30) as answer:
            return answer.read().decode()

    assert "Waits for later to begin" in page()
    create_run(Path("later"), overwrite=False).update_status(status="interrupted", method="ncl")
    assert "Was stopped before its first epoch was done" in page()
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=30)
    assert watching.returncode == 0
    assert said == "watching later; Ctrl-C ends it, and leaves the run alone\n"
