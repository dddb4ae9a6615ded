"""What the caller holds in memory or names, as settings and parts, and opening the data of a run with it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from counterpoint.core.errors import UsageError
from counterpoint.core.run import Run, as_run
from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.core.user_files import as_path, is_file_or_shards, shown_name
from counterpoint.core.user_objects import CUSTOM, is_origin, load_part
from counterpoint.core.validation import merge, nest
from counterpoint.data.source import Source
from counterpoint.data.sources import ARRAY, open_source
from counterpoint.data.views.own_views import OwnViews, as_views
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.subject import name_skipped
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.evaluation.vector_table import Table, is_embedded, read_table
from counterpoint.losses.loss import Loss, as_loss
from counterpoint.nn.encoders import IDENTITY
from counterpoint.runs.recipes import with_recipe
from counterpoint.runs.warm_start import WarmStart


@dataclass(frozen=True)
class Given:
    """What a settings file cannot hold: arrays and modules.

    Attributes:
        data: an array; None where the data have a name.
        labels: given with it.
        encoder: the user's own module.
        loss: the user's own loss.
        views: the user's own views.
        source: the data, opened already, where several runs share them.
        origins: where parts came from that the user named, and the hashes of these files, by the part; for the record.
    """

    data: Any = None
    labels: Any = None
    encoder: nn.Module | None = None
    loss: Loss | None = None
    views: OwnViews | None = None
    source: Source | None = None
    origins: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @staticmethod
    def of(run: Run) -> "Given":
        """What was handed to ``Run(path, data=..., encoder=..., loss=..., views=...)``."""
        loss = None if run.loss is None else as_loss(run.loss)
        views = None if run.views is None else as_views(run.views)
        return Given(run.data, run.labels, run.encoder, loss, views)

    @staticmethod
    def of_call(data: Any, settings: Mapping[str, Any], labels: Any = None) -> "tuple[dict[str, Any], Given]":
        """What was passed to a function of Python: what has a name as nested settings, the rest as it is.

        Args:
            data: a name, a path, an array, or None.
            settings: by keyword; ``encoder``, ``loss`` and ``views`` may be the user's own.
            labels: one per sample.
        """
        asked = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
        is_named = data is None or isinstance(data, str | Path)
        if data is not None:
            asked["data"] = str(data) if is_named else ARRAY
        loss = views = None
        encoder = module if isinstance(module := asked.get("encoder"), nn.Module) else None
        if encoder is not None:
            asked["encoder"] = CUSTOM
        if not isinstance(asked.get("loss", {}), Mapping):
            loss, asked["loss"] = as_loss(asked["loss"]), {"name": CUSTOM}
        if not isinstance(asked.get("views", {}), Mapping):
            views, asked["views"] = as_views(asked["views"]), {"preset": CUSTOM}
        return nest(asked), Given(None if is_named else data, labels, encoder, loss, views)

    def run_at(self, path: Path) -> Run:
        """The run, with what its folder does not hold."""
        return Run(path, self.data, self.labels, self.encoder, self.loss, self.views)


def with_named_parts(asked: Mapping[str, Any], given: Given) -> tuple[Mapping[str, Any], Given]:
    """Lay what was asked for over its recipe, and import loss and views that flags name by ``package.module:name``.

    Settings, and so the run folder, say ``custom`` of these only.

    Raises:
        UsageError: there is none by that name, or no flag of this command names it.
    """
    asked = with_recipe(asked)
    loss, views = _section(asked, "loss"), _section(asked, "views")
    # my_package.losses:make, as against infonce.
    if is_origin(loss.get("name")):
        loaded = load_part("loss.name", loss["name"], as_loss, loss.get("options"))
        asked = merge(asked, {"loss": {"name": CUSTOM}})
        given = replace(given, loss=loaded.part, origins={**given.origins, "own_loss": loaded.origin})
    if is_origin(views.get("preset")):
        loaded = load_part("views.preset", views["preset"], as_views)
        asked = merge(asked, {"views": {"preset": CUSTOM}})
        given = replace(given, views=loaded.part, origins={**given.origins, "own_views": loaded.origin})
    return asked, given


def _section(asked: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A section of what was asked, which may be anything before it is validated."""
    return section if isinstance(section := asked.get(name), Mapping) else {}


def open_given(settings: TrainSettings, given: Given, reporter: Reporter, weights: WarmStart | None = None) -> Source:
    """Open a run's data and say which files were left out.

    Args:
        settings: of the run.
        given: what is in memory.
        reporter: shows progress while a folder is read.
        weights: the encoder's first weights; without a size in the settings, photographs are resized to theirs.

    Raises:
        UsageError: the run needs an array that was not passed.
        DataError: the data cannot be used, or are a table that became other numbers than that of the weights.
    """
    if given.source is not None:
        return given.source
    if settings.data == ARRAY and given.data is None:
        raise UsageError("this run was trained on an array in memory; pass it as data=")
    data = settings.data if given.data is None else given.data
    asked = settings.source
    if weights is not None and weights.side is not None and asked.image_size == "auto":
        asked = asked.model_copy(update={"image_size": weights.side})
    source = open_source(data, asked, labels=given.labels, progress=reporter.bar)
    if weights is not None:
        weights.check_columns(source)
    name_skipped(source, reporter)
    return source


def with_own_columns(folder: RunFolder, settings: TrainSettings) -> TrainSettings:
    """Settings by which a begun run opens its data: a table by its own card, as the run before may have moved."""
    if settings.source.columns == "auto" or not folder.encoder_card.exists():
        return settings
    source = settings.source.model_copy(update={"columns": str(folder.path)})
    return settings.model_copy(update={"source": source})


def out_folder(settings: TrainSettings) -> RunFolder:
    """The requested folder, or ``runs/DATA-METHOD`` by default.

    Raises:
        UsageError: safetensors could not write there.
    """
    out = settings.out
    if not out and settings.data is None:
        return RunFolder(Path("runs/unnamed"))  # never created: opening the data fails first, with advice
    if not out:
        # Not Path.resolve: links may go round.
        stem = Path(os.path.realpath(as_path(str(settings.data)))).stem
        how = settings.recipe or settings.method
        out = f"runs/{shown_name(stem)}-{how}"
    if shown_name(out) != out:
        raise UsageError(f"out {shown_name(out)} is not UTF-8, as safetensors needs it; choose another name")
    return RunFolder(Path(out))


def code_subject(subject: Any, data: Any, labels: Any, settings: dict[str, Any]) -> tuple[dict[str, Any], Given]:
    """Settings of training that follow from a subject of ``sparsify``, and what is in memory.

    Raises:
        UsageError: data beside features, or an encoder without data.
    """
    own: dict[str, Any] = {name: settings[name] for name in ("views",) if name in settings}
    if isinstance(labels, str | Path):
        own["source"], labels = {"labels": str(labels)}, None
    path = as_path(subject) if isinstance(subject, str | Path) and is_file_or_shards(subject) else None
    if path is not None or isinstance(subject, Table | Tensor | np.ndarray):
        if data is not None:
            raise UsageError("data goes with an encoder; only features were given")
        if path is not None and (path.is_dir() or (path.suffix != ".npy" and is_embedded(path))):
            subject = read_table(path)
        if isinstance(subject, Table):
            labels = subject.labels if labels is None else labels
            subject = subject.vectors
        own |= {"encoder": IDENTITY}
        if path is None:
            own |= {"out": "runs/features-sparse"}
        return Given.of_call(subject, own, labels)
    if isinstance(subject, nn.Module) or (isinstance(subject, str) and not Path(subject).exists()):
        if data is None:
            raise UsageError(
                f"{subject if isinstance(subject, str) else type(subject).__name__} is neither a run nor a "
                "file; an encoder from elsewhere comes without samples: give --data"
            )
        return Given.of_call(data, {**own, "encoder": subject}, labels)
    known = as_run(subject)
    before = read_resolved(known.folder)
    if data is None:
        data = before.data if known.data is None else known.data
        labels = known.labels if labels is None else labels
        own["source"] = {**before.source.model_dump(), **own.get("source", {})}
    own |= {"init": str(known.path), "out": f"{known.path.resolve()}-sparse", "views": own.get("views", known.views)}
    if own["views"] is None:
        own["views"] = {} if before.views.preset == "custom" else before.views.model_dump()
    if known.encoder is not None:
        own["encoder"] = known.encoder
    return Given.of_call(data, own, labels)
