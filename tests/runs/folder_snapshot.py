"""What a folder holds, so that a test can say that nothing of it was touched."""

from pathlib import Path

from counterpoint.core.files import sha256_of


def snapshot(folder: Path) -> dict[str, str]:
    """Every path below a folder: a file with the hash of its content, or a folder."""
    return {
        path.relative_to(folder).as_posix(): sha256_of(path) if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }
