"""Shell completion of verbs, flags and choices, which shtab writes from the parsers. Needs the extra `completion`.

Usage: ``counterpoint --print-completion bash > FILE``, where the shell looks for such files.
"""

import argparse

from counterpoint.cli.arguments import build_parser
from counterpoint.cli.parsers import VERBS
from counterpoint.core.errors import UsageError, unknown_name


def completion(shell: str) -> str:
    """The script for a shell that shtab supports, such as bash, zsh or fish.

    Raises:
        UsageError: the extra is missing, or an unknown shell.
    """
    try:
        import shtab  # deferred: an extra
    except ImportError:
        raise UsageError("completion needs shtab: pip install shtab") from None
    if shell not in shtab.SUPPORTED_SHELLS:
        raise unknown_name("shell", shell, shtab.SUPPORTED_SHELLS)
    whole = argparse.ArgumentParser("counterpoint")
    verbs = whole.add_subparsers()
    for name, summary in VERBS.items():
        verbs.add_parser(name, parents=[build_parser(name)], add_help=False, help=summary)
    return shtab.complete(whole, shell)
