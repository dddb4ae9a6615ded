"""Write the config that a diagnosis asks for: that of the run with the settings that its first finding would change."""

import shlex
from pathlib import Path

from counterpoint.core.derived_files import check_settings
from counterpoint.core.errors import UsageError
from counterpoint.core.files import check_new_file, sealed_text, write_text
from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build, dump_yaml, flat, merge, nest, read_yaml_mapping, without_removed
from counterpoint.data.sources import ARRAY
from counterpoint.diagnostics.findings import Findings
from counterpoint.evaluation.trained_run import read_resolved


def write_fix(folder: RunFolder, findings: Findings, config: Path) -> str:
    """Write the config of the first finding that a setting of the run can change; an existing file is refused.

    Args:
        folder: folder of the run.
        findings: findings about the run, the worst first.
        config: path of the new file, ``.yaml`` or ``.yml``.

    Returns:
        The changes in words, and the command that trains with them.

    Raises:
        UsageError: nothing wrong was found, no setting of the run changes it, or another suffix.
        RunError: there is such a file, or no such folder.
    """
    wrong = [finding for finding in findings.findings if finding.level != "good"]
    fixable = next((finding for finding in wrong if finding.changes), None)
    if fixable is None:
        advice = next((f"; for {finding.name} try: {finding.remedy}" for finding in wrong if finding.remedy), "")
        raise UsageError(f"{'no setting of this run changes what was found' if wrong else findings.verdict}{advice}")
    run_config = without_removed(read_yaml_mapping(folder.config))
    check_settings(folder, folder.config)
    run_config.pop("out", None)  # a second run has a folder of its own
    is_array = run_config.get("data", ARRAY) == ARRAY
    if is_array:
        run_config.pop("data", None)
    # YAML has lists where settings have pairs.
    changes = {path: list(value) if isinstance(value, tuple) else value for path, value in fixable.changes.items()}
    settings = merge(run_config, nest(changes))
    build(TrainSettings, settings, "--fix")
    check_new_file(config, (".yaml", ".yml"), overwrite=None, flag="--fix")
    write_text(config, sealed_text(f"# {fixable.name}: {fixable.title}\n{dump_yaml(settings)}"))
    before = flat(TrainSettings, read_resolved(folder).model_dump())
    where, out = (shlex.quote(str(file)) for file in (config, config.with_suffix("")))
    lines = [
        f"{config} changes what {fixable.name} asks for ({fixable.title}):",
        *(f"  {path}: {before[path]} -> {value}" for path, value in fixable.changes.items()),
        f"  train:  counterpoint train --config {where} --out {out}",
    ]
    if fixable.experience:
        lines.append(f"  tried:  {fixable.experience}")
    if is_array:
        lines.append("  the run's samples were an array: name them with --data, or use cp.train(array, config=...)")
    return "\n".join(lines)
