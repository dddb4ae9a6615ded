"""Check data before training: formats and sizes, broken files, classes and their counts, copies and near
copies (also between training and test part), blank or cut pictures and noise, classes that colours or file formats
reveal, and whether there are enough samples for a verdict.

examples:
  counterpoint audit photos/
  counterpoint audit photos/ --out audit.html --json audit.json
  counterpoint audit photos/train --against photos/test --fail-on severe
  counterpoint audit vectors.npy
  counterpoint audit customers.csv --source.label-column churned"""

from pathlib import Path
from typing import Any

import counterpoint as cp
from counterpoint.cli.arguments import READ, EngineFlags, engine_from, option
from counterpoint.cli.outputs import Level, health_code, page_writer, print_found
from counterpoint.core.files import check_new_file
from counterpoint.core.terminal_text import shown

PLACE, SUMMARY = 4, "check data before training: contents and problems"
SETTINGS = READ


class AuditFlags(EngineFlags):
    """Settings of ``audit``: the data, and the files for the findings."""

    data: str = option("a folder, a file, or a named set, as `train --data` takes them", ..., place="DATA")
    against: str | None = option("other data to search for copies, such as a test set")
    out: str | None = option("also write a page, such as audit.html")
    json_file: str | None = option(
        "also write the findings, with all names, to a .json file; - prints them instead",
        flag="--json",
    )
    overwrite: bool = option("replace the file of --json if it exists", False)
    pieces: str | None = option("folder that keeps the figures of pictures: a killed audit continues there")
    fail_on: Level | None = option("exit with code 3 if a finding is at least this bad (for scripts)")


def run(flags: AuditFlags, settings: dict[str, Any]) -> int:
    """Audit the data, and print the findings."""
    file = None if flags.json_file in (None, "-") else Path(flags.json_file)
    if file is not None:
        check_new_file(file, [".json"], overwrite=flags.overwrite, flag="--json")
    engine = engine_from(flags)
    write = page_writer(flags.out, "audit")
    where = {"engine": engine, "pieces": flags.pieces}
    audit = cp.audit(flags.data, against=flags.against, quiet=flags.quiet, **where, **settings.get("source", {}))
    print_found(audit, as_json=flags.json_file == "-")
    written = [file and audit.save(file), write(audit)]
    print(*(shown(path) for path in written if path is not None), sep="\n", end="\n" if any(written) else "")
    return health_code(audit.level, flags.fail_on)
