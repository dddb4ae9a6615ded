"""A PostgreSQL server of its own in a temporary folder, where the system's packages have installed one."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER = "postgres"  # of the system: the server refuses to run as root


def why_no_server() -> str:
    """Empty where a server can be started."""
    if programs() is None:
        return "PostgreSQL is not installed"
    if os.geteuid() == 0 and USER not in {entry.pw_name for entry in pwd.getpwall()}:
        return "PostgreSQL does not run as root, and there is no user postgres"
    return ""


def why_no_vectors() -> str:
    """Empty where that server knows vectors."""
    known = list(Path("/usr/share/postgresql").glob("*/extension/vector.control"))
    return why_no_server() or ("" if known else "pgvector is not installed beside PostgreSQL")


def programs() -> Path | None:
    """Folder of ``initdb`` and ``pg_ctl``, of the newest version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@contextmanager
def running_server() -> Iterator[Path]:
    """A server on a socket; yields the folder of the socket, in which ``USER`` may read files."""
    # Of its own: folders of tests can be entered by their owner only.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    data, place = folder / "data", programs()
    assert place is not None
    is_root = os.geteuid() == 0
    if is_root:
        shutil.chown(folder, USER)
    user = {"user": USER, "group": pwd.getpwnam(USER).pw_gid, "extra_groups": []} if is_root else {}

    def run(*words: str) -> None:
        subprocess.run(words, check=True, capture_output=True, cwd=folder, timeout=120, **user)

    try:
        run(str(place / "initdb"), "-D", str(data), "-A", "trust", "-U", USER, "--no-sync", "-E", "UTF8")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        run(str(place / "pg_ctl"), "-D", str(data), "-o", options, "-l", str(folder / "log"), "-w", "start")
        try:
            yield folder
        finally:
            run(str(place / "pg_ctl"), "-D", str(data), "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
