"""The config that a diagnosis asks for: that of the run, with the settings that its first finding would change."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.core.derived_files import check_settings
from counterpoint.core.errors import UsageError
from counterpoint.core.files import check_new_file, sealed_text, write_text
from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build, dump_yaml, merge, nest, read_yaml_mapping
from counterpoint.data.sources import ARRAY
from counterpoint.diagnostics.finding import Finding
from counterpoint.diagnostics.findings import Findings
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.runs.run_evidence import values_of

SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Fix:
    """A config that changes what a finding names.

    Attributes:
        finding: that asks for it.
        settings: all that the run was asked for, with what is changed.
        before: values of the changed settings in the run, by path.
        is_array: whether the run's samples were an array, which a config cannot name.
    """

    finding: Finding
    settings: dict[str, Any]
    before: dict[str, Any]
    is_array: bool

    def text(self, config: Path) -> str:
        """What is changed, and the command that trains with it."""
        finding = self.finding
        changed = [f"  {path}: {self.before.get(path)} -> {value}" for path, value in finding.changes.items()]
        where = shlex.quote(str(config))
        lines = [
            f"{config} changes what {finding.name} asks for ({finding.title}):",
            *changed,
            f"  train:  counterpoint train --config {where} --out {shlex.quote(str(config.with_suffix('')))}",
        ]
        if self.is_array:
            lines.append("  the run's samples were an array: name them with --data, or use cp.train(array, config=...)")
        return "\n".join(lines)


def fix_of(folder: RunFolder, findings: Findings) -> Fix:
    """The fix of the first finding that a setting of the run can change.

    Args:
        folder: of the run.
        findings: worst first.

    Raises:
        UsageError: nothing wrong was found, or no setting of the run changes it.
    """
    wrong = [finding for finding in findings.findings if finding.level != "good"]
    found = next((finding for finding in wrong if finding.changes), None)
    if found is None:
        advice = next((f"; for {each.name} try: {each.remedy}" for each in wrong if each.remedy), "")
        raise UsageError(f"{'no setting of this run changes what was found' if wrong else findings.verdict}{advice}")
    asked = read_yaml_mapping(folder.config)
    check_settings(folder, folder.config)
    asked.pop("out", None)  # a second run has a folder of its own
    if asked.get("data") == ARRAY:
        del asked["data"]
    settings = merge(asked, nest({path: _plain(value) for path, value in found.changes.items()}))
    build(TrainSettings, settings, "--fix")
    values = values_of(read_resolved(folder))
    before = {path: values[path] for path in found.changes}
    return Fix(found, settings, before, is_array="data" not in asked)


def write_fix(fix: Fix, config: Path) -> None:
    """Write the config; an existing file is refused.

    Raises:
        UsageError: another suffix.
        RunError: there is such a file, or no such folder.
    """
    check_new_file(config, SUFFIXES, overwrite=False, flag="--fix")
    write_text(config, sealed_text(f"# {fix.finding.name}: {fix.finding.title}\n{dump_yaml(fix.settings)}"))


def _plain(value: Any) -> Any:
    """As YAML writes it."""
    return list(value) if isinstance(value, tuple) else value
