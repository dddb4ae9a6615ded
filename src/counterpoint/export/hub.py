"""Upload an export to the Hugging Face Hub; the only place that needs a network. Needs the extra `hub`."""

from pathlib import Path
from typing import Any

from counterpoint.core.errors import RunError, UsageError, first_line
from counterpoint.core.files import EXPORT_RECORD, files_in, read_sealed, sha256_of


def push_to_hub(folder: str | Path, repository: str, *, private: bool = False, api: Any = None) -> str:
    """Upload what ``export`` wrote, with its model card, to a repository of the hub, which is made if there is none.

    Args:
        folder: the folder that ``export`` wrote; each file must still have the hash of its record.
        repository: ``OWNER/NAME``.
        private: whether a new repository is visible to its owner alone.
        api: a ``huggingface_hub.HfApi``, for another server or token; None takes that of ``hf auth login``.

    Returns:
        The address of the commit.

    Raises:
        UsageError: the extra is missing.
        RunError: the folder is not an export, one of its files was changed, or the hub refuses.
    """
    place = Path(folder)
    if not (place / EXPORT_RECORD).is_file():
        raise RunError(f"{place} is not an export; write one with: counterpoint export RUN --to folder --out {place}")
    hashes = read_sealed(place / EXPORT_RECORD, must_be_sealed=True)["sha256s"]
    altered = [
        name
        for name, digest in hashes.items()
        if not (path := place / name).is_file() or path.is_symlink() or sha256_of(path) != digest
    ]
    added = set(files_in(place)) - {EXPORT_RECORD, *hashes}
    if changed := ", ".join([*altered, *sorted(added)]):
        raise RunError(f"{place} was changed since it was exported ({changed}); export again")
    if api is None:
        try:
            from huggingface_hub import HfApi  # deferred: an extra
        except ImportError:
            raise UsageError("the hub needs huggingface_hub: pip install huggingface_hub") from None
        api = HfApi()
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        patterns = [EXPORT_RECORD, *hashes]
        commit = api.upload_folder(
            repo_id=repository, folder_path=place, commit_message="Upload an encoder", allow_patterns=patterns
        )
    except Exception as error:  # the hub's library raises those of several others
        raise RunError(f"the hub refused {repository}: {first_line(error)}") from None
    return str(commit)
