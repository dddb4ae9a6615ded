"""Pages of the reference that are made from catalogues: one per loss with its picture, one per metric."""

import inspect
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from verb_pages import cell, code, table

from counterpoint.core.metric import Metric, described_metrics
from counterpoint.core.settings import TrainSettings
from counterpoint.losses import CATALOGUE
from counterpoint.losses.build import build_loss, parameters_of
from counterpoint.losses.loss import ROWS, Loss
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.runs.active_settings import check_choices

NEEDED = {"loss": "infonce", "num_classes": 3, "num_features": 16}  # parameters without a default
VARIED: Mapping[str, tuple[float, ...]] = {"beta": (0.5, 1, 2), "temperature": (0.1, 0.2, 0.5), "margin": (0.5, 1, 1.5)}
PAIRED = ("cross-modal", "cross-modal-spectral", "sigmoid")  # for two kinds of data
BATCH = 256
ASKS = {
    "evaluation": "The queries: the part of a run's data that was held out of training, or `--test-data`. The other "
    "labelled samples (the bank) answer.",
    "diagnostics": "The samples of the diagnosis: those held out of a run's training where there are some, two views "
    "of each; of features in a file all rows.",
}
NEEDS = {
    "corruptions": "Pictures, and `--corruptions`.",
    "": "",
}


def built(name: str, **options: object) -> Loss:
    """A loss of the catalogue with its defaults."""
    needed = {key: value for key, value in NEEDED.items() if key in parameters_of(name)} | options
    return build_loss(name, {}, {key: needed[key] for key in needed if key != "loss" or name not in PAIRED})


def picture(name: str) -> bytes:
    """A loss as SVG that is readable on white and on black: weights over similarity, or the value without weights."""
    figure, axes = plt.subplots(figsize=(5.2, 2.9))
    if hasattr(built(name), "importance"):
        draw_weights(axes, name)
    else:
        draw_values(axes, name)
    grey = "#808080"
    axes.tick_params(colors=grey)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color(grey)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(grey)
    file = io.BytesIO()
    with plt.rc_context({"svg.hashsalt": name}):  # the same bytes again
        figure.savefig(file, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    return file.getvalue()


def draw_weights(axes: Axes, name: str) -> None:
    """Draw how much a negative counts, by its cosine with an anchor whose positive has a cosine of 0.8."""
    varied = next((parameter for parameter in VARIED if parameter in parameters_of(name)), "")
    cosine_N = torch.linspace(-1, 1, 201, dtype=torch.float64)
    z0_ND = torch.stack([cosine_N, (1 - cosine_N**2).sqrt(), torch.zeros_like(cosine_N)], dim=1)
    turned_ND = z0_ND[:, [0, 2, 1]]  # the second view: of the same cosine with the anchor, elsewhere otherwise
    anchor_1D, positive_1D = torch.tensor([[1.0, 0, 0], [0.8, 0, 0.6]]).double().split(1)
    views = torch.cat([anchor_1D, z0_ND]), torch.cat([positive_1D, turned_ND])
    for value in VARIED.get(varied, (1.0,)):
        loss = built(name, **({varied: value} if varied else {})).double()
        weight_N = loss.importance(*views)[0, len(views[0]) + 1 :].detach()  # pyright: ignore[reportCallIssue]
        axes.plot(cosine_N, weight_N / weight_N.mean(), label=f"{varied} {value:g}" if varied else None)
    axes.set(xlabel="cosine of anchor and negative (its positive: 0.8)", ylabel="weight / mean weight")
    if varied:
        axes.legend(frameon=False, labelcolor="#808080")


def draw_values(axes: Axes, name: str) -> None:
    """Draw the value, by the cosine of two views; of a classifier, by that of a sample and its class's weights."""
    generator = torch.Generator().manual_seed(0)
    loss, cosines = built(name), torch.linspace(-1, 1, 41)
    z_ND, noise_ND = torch.randn(2, BATCH, NEEDED["num_features"], generator=generator).unbind()
    labels_N = torch.arange(BATCH) % NEEDED["num_classes"]
    weights = getattr(loss, "class_weights", None)
    own_ND = z_ND if weights is None else weights.detach()[labels_N]
    own_ND, values = torch.nn.functional.normalize(own_ND), []
    noise_ND = torch.nn.functional.normalize(noise_ND - (noise_ND * own_ND).sum(1, keepdim=True) * own_ND)
    for cosine in cosines.tolist():
        other_ND = 4 * (cosine * own_ND + math.sqrt(1 - cosine**2) * noise_ND)
        values.append(loss(4 * own_ND if weights is None else other_ND, other_ND, labels_N).item())
    axes.plot(cosines, values)
    pair = "the two views of a sample" if weights is None else "a sample and the weights of its class"
    axes.set(xlabel=f"cosine of {pair}", ylabel="loss")


def command(name: str) -> str:
    """The shortest command that trains with a loss; a setting that the run would refuse fails the build."""
    method = next((candidate for candidate, entry in METHODS.items() if entry.loss == name), "")
    words = [f"--method {method}"] if method else [f"--loss.name {name}"]
    if name in PAIRED and not method:
        words = ["--method cross-modal", *words]
    if "loss" in parameters_of(name):
        words.append('--loss.options "{loss: infonce}"')
    settings = {"method": method or ("cross-modal" if name in PAIRED else "simclr")}
    check_choices(TrainSettings.model_validate({**settings, **({} if method else {"loss": {"name": name}})}))
    data = "pairs.npz" if name in PAIRED else "digits"
    return f"counterpoint train --data {data} {' '.join(words)} --out runs/{name}"


def program(name: str) -> str:
    """A program that calls a loss."""
    options = {each: value for each, value in NEEDED.items() if each in parameters_of(name)}
    inside = ", ".join(
        "cp.losses.InfoNCE()" if each == "loss" else f"{each}={value}" for each, value in options.items()
    )
    labelled = built(name).uses_labels
    return "\n".join([
        "import torch", "", "import counterpoint as cp", "",
        "generator = torch.Generator().manual_seed(0)",
        f"z0 = torch.randn(64, {NEEDED['num_features']}, generator=generator)",
        "z1 = z0 + 0.5 * torch.randn(z0.shape, generator=generator)  # the second view of each sample",
        *(["labels = torch.arange(64) % 3"] if labelled else []),
        f"loss = cp.losses.{CATALOGUE[name].__name__}({inside})",
        f"print(f\"{{loss(z0, z1{', labels' if labelled else ''}).item():.3f}}\")",
    ])  # fmt: skip


def printed(text: str) -> str:
    """Output of a program."""
    output = io.StringIO()
    with redirect_stdout(output):
        exec(compile(text, "an example of the reference", "exec"), {"__name__": "an_example"})
    return output.getvalue()


def level(value: float) -> str:
    """A level of a loss as text."""
    return f"{value:.4g}" if math.isfinite(value) else "not defined" if math.isnan(value) else "none"


def loss_page(name: str) -> str:
    """Page of a loss: its sentence, when to use it, its picture, its properties, an example, its definition."""
    build, loss = CATALOGUE[name], built(name)
    document = inspect.getdoc(build) or ""
    use = re.search(r"^Use it (?:.|\n(?!\n))*", document, flags=re.MULTILINE)
    has_weights = hasattr(loss, "importance")
    caption = "The weight with which a negative is pushed away, by its similarity to the anchor."
    rows = [[title, cell(with_titles(getattr(loss.card, field)))] for field, title in ROWS.items()]
    rows += [[f"chance (all vectors alike, n = {BATCH})", level(loss.chance(BATCH))],
             [f"floor (no embedding is below, n = {BATCH})", level(loss.floor(BATCH))]]  # fmt: skip
    example = program(name)
    kind = "autoclass" if inspect.isclass(build) else "autofunction"
    return "\n\n".join([
        f"# {name}", document.partition("\n\n")[0].replace("``", "`"),
        "## When to use it", (use[0] if use else "").replace("``", "`"),
        "## How it weighs pairs" if has_weights else "## Its value", f"![{name}]({name}.svg)",
        caption if has_weights else "The value as a batch comes to agree.",
        "## Properties", table(["part", "of this loss"], rows),
        "## Example", f"```python\n{example}\n```", f"```text\n{printed(example)}```", "A run with it:",
        f"```sh\n{command(name)}\n```",
        "## Definition", "```{eval-rst}\n.. currentmodule:: counterpoint.losses\n\n"
        f".. {kind}:: {build.__name__}\n{'   :members:' if kind == 'autoclass' else ''}\n```",
    ]) + "\n"  # fmt: skip


@cache
def titles() -> Mapping[str, str]:
    """The title of each entry of the bibliography."""
    text = (Path(__file__).parent / "references.bib").read_text(encoding="utf-8")
    entries = re.findall(r"^@\w+\{(\w+),.*?title\s*=\s*\{(.+?)\},?$", text, flags=re.MULTILINE | re.DOTALL)
    return {key: " ".join(re.sub(r"[{}]", "", title).split()) for key, title in entries}


def with_titles(text: str) -> str:
    """Words on sources, followed by the titles of the works that they name."""
    named = dict.fromkeys(key for key in re.findall(r"\w+", text) if key in titles())
    return f"{text} ({'; '.join(titles()[key] for key in named)})" if named else text


def slug(name: str) -> str:
    """A name in the form of a file name."""
    return re.sub(r"\W+", "-", name)


def span(metric: Metric) -> str:
    """The values that a metric can take, and which are better."""
    low, high = (None if end is None else f"{end:g}" for end in (metric.low, metric.high))
    ends = f"{low} to {high}" if low and high else f"from {low}" if low else "any number"
    return (
        ends
        + {True: "; higher is better", False: "; lower is better", None: "; neither end is best"}[
            metric.is_higher_better
        ]
    )


def metric_page(metric: Metric, package: str) -> str:
    """Page of a metric: definition, range, chance, whose samples, how it is measured and read."""
    word = slug(metric.name) if " " in metric.name else metric.name
    commands = {
        "evaluation": f"counterpoint evaluate runs/mine --metrics {word}",
        "diagnostics": "counterpoint diagnose runs/mine",
    }
    own = "Compare it with the untrained encoder and raw input beside it: training must reach more than these two."
    rows = [
        ["values", cell(span(metric))],
        ["chance", cell(metric.chance or "depends on the data")],
        ["whose samples", ASKS[package]],
        ["needs", NEEDS[metric.needs] or ("labels" if package == "evaluation" else "features")],
        ["95 % interval", cell(metric.interval or "none")],
        ["source", cell(with_titles(metric.source))],
        ["name in JSON and Python", code(metric.name)],
    ]
    wording = re.sub(r"[\[\]]", "", re.sub(r"\[[^\]]*\{[^\]]*\]", "", metric.wording)).strip()
    reading = [f"In a table it reads: {wording}."] if wording and package == "evaluation" else []
    reading += (
        [own]
        if package == "evaluation"
        else [
            "`counterpoint diagnose` says what it means where something is wrong: "
            "see {doc}`the checks </guides/diagnosis>`."
        ]
    )
    if metric.reference:
        reading.append(f"It is shown beside {code(metric.reference)}.")
    return "\n\n".join([f"# {metric.title}", metric.definition, table(["", "of this metric"], rows),
                        "## How to read it", " ".join(reading), "## Example",
                        f"```sh\n{commands[package]}\n```"]) + "\n"  # fmt: skip


def index(title: str, about: str, heads: list[str], rows: Mapping[str, list[str]]) -> str:
    """The first page of several, with a table of them."""
    listed = "```{toctree}\n:hidden:\n:maxdepth: 1\n\n" + "\n".join(rows) + "\n```\n"
    return "\n\n".join([f"# {title}", about, table(heads, rows.values()), listed])


def sentence(build: Callable[..., object]) -> str:
    """The first sentence of what documents a loss."""
    return cell((inspect.getdoc(build) or "").partition("\n\n")[0]).replace("``", "`")


def catalogue_pages() -> Iterator[tuple[str, str | bytes]]:
    """The name and content of each page and picture."""
    rows = {name: [f"[`{name}`]({name}.md)", sentence(build)] for name, build in CATALOGUE.items()}
    about = "A run takes a loss as `--loss.name NAME`, or with the method that has it; Python as `cp.losses.CLASS()`."
    yield "losses/index.md", index("All losses", about, ["name", "meaning"], rows)
    for name in CATALOGUE:
        yield f"losses/{name}.svg", picture(name)
        yield f"losses/{name}.md", loss_page(name)
    metrics = {
        metric.name: (metric, package)
        for package in ASKS
        for metric in described_metrics(package).values()
        if metric.is_shown
    }
    rows = {
        slug(name): [f"[{metric.title}]({slug(name)}.md)", cell(metric.definition.partition(". ")[0])]
        for name, (metric, _) in metrics.items()
    }
    about = "What reports and tables show. `evaluate` asks about labelled samples, `diagnose` about features alone."
    yield "metrics/index.md", index("All metrics", about, ["metric", "meaning"], rows)
    for name, (metric, package) in metrics.items():
        yield f"metrics/{slug(name)}.md", metric_page(metric, package)
