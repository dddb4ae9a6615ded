"""The model card: what the encoder is, what it was trained and judged on, what was found, and what is not known.

Every sentence comes from the run's records. Where something was not measured, the card
names the command that does it.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from counterpoint.core.derived_files import read_derived
from counterpoint.core.markup import printable
from counterpoint.core.metric import loaded_metrics, metric_under
from counterpoint.core.run_records import EvaluationRecord, EvaluationRow, RunStatus, read_record
from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.core.written_tables import as_code, as_text, markdown_table
from counterpoint.diagnostics.findings import Findings, judged_anew
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.export.card_limits import limits
from counterpoint.export.card_snippets import snippets
from counterpoint.export.export_record import HEAD, SCALE, Exported
from counterpoint.export.export_settings import FORMATS
from counterpoint.nn.trained import Encoder

CARD_FILE = "README.md"
MOST_ROWS = 40  # of an evaluation; further ones, as under corruptions, are counted
UNKNOWN = "unknown"


@dataclass(frozen=True)
class CardFacts:
    """What a card is made from.

    Attributes:
        folder: of the run.
        encoder: that was exported.
        exported: the files, with their hashes.
        licence: of the weights, if the user gave one.
    """

    folder: RunFolder
    encoder: Encoder
    exported: Exported
    licence: str | None


def model_card(facts: CardFacts) -> str:
    """The card as Markdown, behind its front matter in YAML."""
    folder = facts.folder
    status, settings = folder.read_status(), read_resolved(folder)
    # An evaluation is of the last state; nothing is told of another one.
    is_last = facts.exported.checkpoint is None
    evaluation = _evaluation(folder) if is_last else None
    findings = _findings(folder, evaluation) if is_last else None
    name = as_text(facts.exported.run)
    sections = [
        _front_matter(facts, settings, evaluation),
        f"# {name}",
        _summary(facts, settings, status),
        "## How to load it",
        _loading(facts),
        "## What it was trained on",
        _trained_on(status, settings),
        "## Settings that matter",
        _settings(status, settings),
        "## Evaluation",
        _evaluated(facts, evaluation),
        "## Findings",
        _found(facts, findings),
        "## Limits",
        "\n".join(f"- {text}" for text in limits(facts.encoder.card, status, evaluation, findings)),
        "## Files",
        _files(facts.exported),
    ]
    return "\n\n".join(sections) + "\n"


def _evaluation(folder: RunFolder) -> EvaluationRecord | None:
    """What ``evaluate`` wrote."""
    path = folder.evaluation
    return read_record(EvaluationRecord, read_derived(folder, path), path.name) if path.exists() else None


def _findings(folder: RunFolder, evaluation: EvaluationRecord | None) -> Findings | None:
    """What ``diagnose`` wrote, with what the evaluation says."""
    if not folder.findings.exists():
        return None
    values = {name: value for name, value in read_derived(folder, folder.findings).items() if value is not None}
    return judged_anew(read_record(Findings, values, folder.findings.name), evaluation.rows if evaluation else ())


def _front_matter(facts: CardFacts, settings: TrainSettings, evaluation: EvaluationRecord | None) -> str:
    """What hubs index."""
    card = facts.encoder.card
    protocols = list(dict.fromkeys(row.protocol for row in evaluation.rows)) if evaluation else []
    values = {
        "library_name": "counterpoint",
        "license": facts.licence or UNKNOWN,
        "pipeline_tag": "image-feature-extraction" if card.kind == "images" else "feature-extraction",
        "tags": ["counterpoint", "contrastive-learning", "representation-learning", settings.method, card.architecture],
        "datasets": [printable(str(settings.data))],
        "metrics": protocols[:MOST_ROWS],
    }
    kept = {name: value for name, value in values.items() if value}
    return f"---\n{yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)}---"


def _summary(facts: CardFacts, settings: TrainSettings, status: RunStatus) -> str:
    """What it is, in three sentences."""
    encoder, card = facts.encoder, facts.encoder.card
    shape = "x".join(map(str, card.in_shape))
    state = f" This is its state at step {facts.exported.checkpoint}." if facts.exported.checkpoint else ""
    licence = "" if facts.licence else " Nobody has stated a licence for these weights."
    return (
        f"An encoder of {'pictures' if card.kind == 'images' else 'vectors'} ({as_text(card.architecture)}, input "
        f"{shape}) that was trained with {as_text(settings.method)} on {as_text(str(settings.data))} by Counterpoint "
        f"{status.version or UNKNOWN}.{state} It maps a sample to a representation of {card.width} numbers, which is "
        f"best for most uses, and to an embedding of {encoder.embedding_dims}, at unit length, which the loss compared."
        f"{licence}"
    )


def _loading(facts: CardFacts) -> str:
    """A snippet for each format."""
    parts = ["Each snippet was written for this folder and runs in it."]
    if facts.encoder.card.kind == "images":
        parts.append(
            "Pictures of another size than the one trained with are cut to their centred square and resized (bilinear, "
            "antialiased), inside of the graph where there is one; only the snippet for timm leaves that to you."
        )
    for title, text in snippets(facts.encoder, facts.exported):
        parts += [f"With {title}:", f"```python\n{text}\n```"]
    return "\n\n".join(parts)


def _trained_on(status: RunStatus, settings: TrainSettings) -> str:
    """Data, number, classes and what was held out."""
    total, train, counts = status.num_samples, status.num_train, status.class_counts or ()
    lines = [
        f"data: {as_text(str(settings.data))}, fingerprint {as_code(status.data_fingerprint or UNKNOWN)}",
        f"samples: {_count(train)} of {_count(total)} were trained on; "
        + (f"{total - train:,} were held out" if total and train and total > train else "none were held out"),
    ]
    if counts:
        lines.append(
            f"classes: {len(counts)}, with {min(counts):,} to {max(counts):,} training samples; labels were used to "
            + ("train" if "supervised" in settings.method else "hold out and to evaluate, not to train")
        )
    else:
        lines.append("classes: no labels were known")
    if status.skipped:
        lines.append(f"left out: {len(status.skipped)} files that could not be read")
    if status.init:
        lines.append(f"began with: {as_text(str(status.init.get('origin', status.init.get('name', 'given weights'))))}")
    return "\n".join(f"- {line}" for line in lines)


def _settings(status: RunStatus, settings: TrainSettings) -> str:
    """What somebody would set to train it again."""
    optim, values = settings.optim, settings.model_dump()
    rows = {
        "method": settings.method,
        "encoder": settings.encoder,
        "epochs": settings.epochs,
        "batch size": settings.batch_size,
        "temperature": settings.temperature,
        "optimiser": f"{optim.name}, peak learning rate {optim.learning_rate}, weight decay {optim.weight_decay}",
        "projector": ", ".join(f"{key} {value}" for key, value in values["projector"].items() if value != "auto"),
        "output": f"non-negative {values['output']['nonnegative']}, sub-vector {values['output']['d0']}",
        "views": settings.views.preset,
        "seed": settings.seed,
        "precision": f"{status.precision or UNKNOWN}; the exported weights are float32",
        "device": status.device,
        "torch": status.torch,
    }
    cells = [[name, as_text(UNKNOWN if value is None else str(value))] for name, value in rows.items()]
    return markdown_table(["setting", "value"], cells, "ll", is_markdown=True)


def _evaluated(facts: CardFacts, evaluation: EvaluationRecord | None) -> str:
    """Figures with intervals, baselines beside them."""
    if evaluation is None:
        return _not_told(facts, "evaluate", "evaluated", "does it")
    split = evaluation.split
    rows = [row for row in evaluation.rows if row.figure is not None]
    cells = [
        [as_text(row.features), as_text(row.protocol), share(row), "baseline" if row.is_baseline else ""]
        for row in rows[:MOST_ROWS]
    ]
    more = f"{len(rows) - MOST_ROWS} further figures are in the run's evaluation." if len(rows) > MOST_ROWS else ""
    where = (
        f"On {as_text(split.source)}: {_count(split.num_queries)} queries, {_count(split.num_bank)} labelled samples, "
        f"{_count(split.num_classes)} classes ({as_text(split.how)}). Intervals are of 95 % and tell the chance in the "
        "choice of the queries, not that of another training."
    )
    table = markdown_table(["features", "metric", "figure (95 % interval)", ""], cells, "llrl", is_markdown=True)
    return "\n\n".join(filter(None, [where, table, more]))


def _found(facts: CardFacts, findings: Findings | None) -> str:
    """The verdict and each finding."""
    if findings is None:
        return _not_told(facts, "diagnose", "diagnosed", "finds them")
    lines = [f"- {finding.level}: {as_text(finding.title)}" for finding in findings.findings]
    return "\n\n".join([f"**{as_text(findings.verdict)}**", "\n".join(lines)])


def _not_told(facts: CardFacts, verb: str, done: str, tells: str) -> str:
    """The command that makes what the card has not; a card of an earlier state has no figures at all."""
    command, step = f"counterpoint {verb} {shlex.quote(facts.exported.run)}", facts.exported.checkpoint
    if step:
        return f"Not of this state; `{command} --checkpoint {step}` {tells}."
    return f"It was not {done}. `{command}` does it, and an export with `--evaluate true`, too."


def _files(exported: Exported) -> str:
    """Every file with its hash, and how far it answers as torch does."""
    hashes = [[as_code(name), as_code(digest)] for name, digest in exported.sha256s.items()]
    left = [f"- {name} was left out: {as_text(why)}" for name, why in exported.left_out.items()]
    known = [f"- {each.name}: {FORMATS[each.name]}" for each in exported.formats if each.name in FORMATS]
    compared: Sequence[Sequence[str]] = [each.cells() for each in exported.formats]
    sizes = sorted({size for each in exported.formats for size in each.sizes})
    how = f"Each was opened again and compared with torch on samples of {as_text(exported.samples)}, in batches of "
    how += "1, 2 and 7" + (f", at {', '.join(sizes)} pixels" if sizes else "")
    parts = [f"{how}. {SCALE} At most {exported.tolerance:g} passes.", markdown_table(HEAD, compared, "llrrrl")]
    parts += ["\n".join(known), f"Graphs take {as_text(exported.input)}."]
    parts += ["\n".join(left)] if left else []
    return "\n\n".join([*parts, markdown_table(["file", "sha256"], hashes, "ll", is_markdown=True)])


def share(row: EvaluationRow) -> str:
    """A figure with its interval."""
    metric = metric_under(loaded_metrics("evaluation"), row.protocol)
    is_share = metric.unit == "share" if metric else row.accuracy is not None

    def written(value: float) -> str:
        return f"{value:.1%}" if is_share else f"{value:.4g}"

    assert row.figure is not None
    ends = f" ({written(row.low)} to {written(row.high)})" if row.low is not None and row.high is not None else ""
    return f"{written(row.figure)}{ends}"


def _count(number: float | None) -> str:
    """A number of things."""
    return UNKNOWN if number is None else f"{int(number):,}"
