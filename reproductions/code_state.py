"""Identify the running code, by commit of the checkout or version of the package, and the processor."""

import hashlib
import platform
import subprocess
from functools import cache
from pathlib import Path

import counterpoint
from counterpoint.core import __version__

PACKAGE = Path(counterpoint.__file__).parent


@cache
def code_state() -> str:
    """Commit of the checkout that holds the package, with a hash of the package's files if they were changed.

    Returns:
        Twelve digits of the commit; the version if the package is in no checkout.
    """
    commit = _git("rev-parse", "--short=12", "HEAD")
    tracked = _git("ls-files", "--error-unmatch", "__init__.py")
    if not commit or not tracked:
        return f"version {__version__}"
    return f"{commit}+{_hash_of_files()}" if _git("status", "--porcelain", "--", "*.py") else commit


def processor() -> str:
    """Name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _hash_of_files() -> str:
    """The first eight digits of a hash of all modules of the package."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(f"{path.relative_to(PACKAGE)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:8]


def _git(*words: str) -> str:
    """The output of a git command in the package's folder; empty if git is absent or fails."""
    try:
        done = subprocess.run(["git", *words], cwd=PACKAGE, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
