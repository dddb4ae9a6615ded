"""Look inside a run, or inside features from anywhere: collapse, effective rank, alignment, uniformity,
sparsity, and what single dimensions mean. Needs no labels. Findings are printed worst first, each with something to
try.

examples:
  counterpoint diagnose runs/ncl
  counterpoint diagnose runs/ncl --checkpoint 300
  counterpoint diagnose features.npy --labels labels.npy --fail-on severe
  counterpoint diagnose runs/ncl --fix"""

import sys
from pathlib import Path

import counterpoint as cp
from counterpoint.cli.arguments import JsonFlags, SubjectFlags, array_or_name, chosen, option, subject_from
from counterpoint.cli.outputs import Level, health_code, print_found
from counterpoint.core.errors import UsageError
from counterpoint.core.run import as_run
from counterpoint.core.settings import LookSettings
from counterpoint.core.terminal_text import shown_lines
from counterpoint.core.user_files import is_file_or_shards, is_shard_folder

NO_PAIRS = "pairs: not measured, as this needs a run with one kind of samples and its views"
FILES = (".npy", ".npz", ".csv", ".parquet")

PLACE, SUMMARY = 40, "say whether a representation is healthy, and why not"


class DiagnoseFlags(JsonFlags, SubjectFlags, LookSettings):
    """Settings of ``diagnose``: the subject, and the output."""

    data: str | None = option(
        "with a run: other samples, or the array it was trained on (default: its own); with features: their samples"
    )
    labels: str | None = option("file with one label per sample: .csv (file,label) or .npy")
    views: str | None = option("with features: those of another view of the same samples, .npy")
    threshold: float = option("value above which a feature counts as active", 1e-5)
    fail_on: Level | None = option("exit with code 3 if a finding is at least this bad (for scripts)")
    pairs: bool = option("also print which negatives the loss pushes, and the closest pairs", False)
    fix: str | None = option(
        "of a run: also write the config that the first finding asks for (default RUN-fixed.yaml)",
        alone="",
    )


def run(flags: DiagnoseFlags) -> int:
    """Diagnose, and print the findings."""
    subject = subject_from(flags.subject, flags.encoder)
    is_file = flags.encoder is None and is_file_or_shards(subject)
    if is_file and Path(subject).suffix not in FILES and not is_shard_folder(subject):
        raise UsageError(f"{subject} is neither a run folder nor a file of features ({', '.join(FILES)})")
    if flags.fix is not None and (is_file or flags.encoder is not None):
        raise UsageError("--fix goes with a run: features and encoders from elsewhere have no config")
    samples = {"data": flags.data, "labels": flags.labels, "views": array_or_name(flags.views)}
    look = chosen(flags, LookSettings)
    findings = cp.diagnose(subject, **samples, threshold=flags.threshold, **look, quiet=flags.quiet)
    print_found(findings, as_json=flags.as_json)
    if flags.pairs and not flags.as_json:
        print(shown_lines(findings.pairs or NO_PAIRS))
    if flags.fix is not None:
        from counterpoint.runs.fixing import write_fix  # deferred: loads torch

        folder = Path(subject).resolve()
        config = Path(flags.fix or folder.with_name(f"{folder.name}-fixed.yaml"))
        text = write_fix(as_run(Path(subject)).folder, findings, config)
        # Beside JSON on the other stream, which scripts read.
        print(f"\n{shown_lines(text)}", file=sys.stderr)
    return health_code(findings.level, flags.fail_on)
