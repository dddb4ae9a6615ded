"""Look at data, or take what `audit --json` found, time a few steps of candidate encoders on this machine, and
write a config with a reason and a confidence for each line. `train --config` runs it as it is.

examples:
  counterpoint recommend photos/
  counterpoint recommend photos/ --minutes 30 --want readable --out photos.yaml
  counterpoint recommend photos/ --audit audit.json
  counterpoint recommend customers.csv --source.label-column churned"""

from pathlib import Path
from typing import Any, Literal

import counterpoint as cp
from counterpoint.cli.arguments import READ, JsonFlags, option
from counterpoint.cli.outputs import print_found
from counterpoint.core.files import check_new_file
from counterpoint.core.terminal_text import shown

PLACE, SUMMARY = 6, "write a config for data, with reasons, and times measured here"
SETTINGS = READ


class RecommendFlags(JsonFlags):
    """Settings of ``recommend``: the data, the goal, and the file for the configuration."""

    data: str = option("a folder, a file, or a named set, as `train --data` takes them", ..., place="DATA")
    audit: str | None = option("what `audit DATA --json FILE` wrote (default: look again)")
    want: Literal["features", "readable"] = option(
        "features for search and classifiers, or readable: each dimension has a meaning",
        "features",
    )
    labels: bool = option("labels may be used in training, too", False)
    drop_near_copies: bool = option("also leave out one of each pair of near copies (look at them first)", False)
    minutes: float = option("how long training may take here", 10.0)
    out: str = option("config to write", "recommended.yaml")
    overwrite: bool = option("replace the config if it exists", False)


def run(flags: RecommendFlags, settings: dict[str, Any]) -> None:
    """Audit, measure, write the config, and name it."""
    out = Path(flags.out)
    check_new_file(out, [".yaml", ".yml"], overwrite=flags.overwrite)
    how = {"want": flags.want, "use_labels": flags.labels, "minutes": flags.minutes}
    how |= {"drop_near_copies": flags.drop_near_copies, **settings.get("source", {})}
    recommendation = cp.recommend(flags.data, **how, known=flags.audit, quiet=flags.quiet).beside(out)
    recommendation.save(out)
    print_found(recommendation, as_json=flags.as_json)
    if not flags.as_json:
        print(f"run it: {shown(f'counterpoint train --config {out}')}")
