"""Settings and parts from the arguments of a call, and opening the data of a run with them."""

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
class UserInputs:
    """Arrays and modules, which a settings file cannot hold.

    Attributes:
        data: an array; None if the data have a name.
        labels: labels of the array.
        encoder: the user's own module.
        loss: the user's own loss.
        views: the user's own views.
        source: the data, opened already, if several runs share them.
        origins: origin of each part that the user named, with the hashes of its files, by the part; for the record.
    """

    data: Any = None
    labels: Any = None
    encoder: nn.Module | None = None
    loss: Loss | None = None
    views: OwnViews | None = None
    source: Source | None = None
    origins: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @staticmethod
    def of(run: Run) -> "UserInputs":
        """Take the objects that were passed to ``Run(path, data=..., encoder=..., loss=..., views=...)``."""
        loss = None if run.loss is None else as_loss(run.loss)
        views = None if run.views is None else as_views(run.views)
        return UserInputs(run.data, run.labels, run.encoder, loss, views)

    @staticmethod
    def of_call(data: Any, settings: Mapping[str, Any], labels: Any = None) -> "tuple[dict[str, Any], UserInputs]":
        """Split the arguments of a function of Python: those with a name as nested settings, the rest as they are.

        Args:
            data: a name, a path, an array, or None.
            settings: settings by keyword; ``encoder``, ``loss`` and ``views`` may be the user's own.
            labels: labels of the array, one per sample.
        """
        values = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
        is_named = data is None or isinstance(data, str | Path)
        if data is not None:
            values["data"] = str(data) if is_named else ARRAY
        loss = views = None
        encoder = module if isinstance(module := values.get("encoder"), nn.Module) else None
        if encoder is not None:
            values["encoder"] = CUSTOM
        if not isinstance(values.get("loss", {}), Mapping):
            loss, values["loss"] = as_loss(values["loss"]), {"name": CUSTOM}
        if not isinstance(values.get("views", {}), Mapping):
            views, values["views"] = as_views(values["views"]), {"preset": CUSTOM}
        return nest(values), UserInputs(None if is_named else data, labels, encoder, loss, views)

    def run_at(self, path: Path) -> Run:
        """The run, with the objects that its folder does not hold."""
        return Run(path, self.data, self.labels, self.encoder, self.loss, self.views)


def with_named_parts(user_settings: Mapping[str, Any], objects: UserInputs) -> tuple[Mapping[str, Any], UserInputs]:
    """Lay the user's settings over their recipe, and import loss and views that are named ``package.module:name``.

    The settings, and so the run folder, call these parts ``custom``.

    Raises:
        UsageError: no part has the name, or no flag of this command names it.
    """
    user_settings = with_recipe(user_settings)
    loss, views = _section(user_settings, "loss"), _section(user_settings, "views")
    # my_package.losses:make, as against infonce.
    if is_origin(loss.get("name")):
        loaded = load_part("loss.name", loss["name"], as_loss, loss.get("options"))
        user_settings = merge(user_settings, {"loss": {"name": CUSTOM}})
        objects = replace(objects, loss=loaded.part, origins={**objects.origins, "own_loss": loaded.origin})
    if is_origin(views.get("preset")):
        loaded = load_part("views.preset", views["preset"], as_views)
        user_settings = merge(user_settings, {"views": {"preset": CUSTOM}})
        objects = replace(objects, views=loaded.part, origins={**objects.origins, "own_views": loaded.origin})
    return user_settings, objects


def _section(user_settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A section of the user's settings; before they are validated it may be anything: then it is empty."""
    return section if isinstance(section := user_settings.get(name), Mapping) else {}


def open_user_data(
    settings: TrainSettings, objects: UserInputs, reporter: Reporter, weights: WarmStart | None = None
) -> Source:
    """Open a run's data and say which files were left out.

    Args:
        settings: settings of the run.
        objects: data and parts that are in memory.
        reporter: shows progress while a folder is read.
        weights: the encoder's first weights; without a size in the settings, photographs are resized to theirs.

    Raises:
        UsageError: the run needs an array that was not passed.
        DataError: the data cannot be used, or are a table that became other numbers than that of the weights.
    """
    if objects.source is not None:
        return objects.source
    if settings.data == ARRAY and objects.data is None:
        raise UsageError("this run was trained on an array in memory; pass it as data=")
    data = settings.data if objects.data is None else objects.data
    source_settings = settings.source
    if weights is not None and weights.side is not None and source_settings.image_size == "auto":
        source_settings = source_settings.model_copy(update={"image_size": weights.side})
    source = open_source(data, source_settings, labels=objects.labels, progress=reporter.bar)
    if weights is not None:
        weights.check_columns(source)
    name_skipped(source, reporter)
    return source


def with_own_columns(folder: RunFolder, settings: TrainSettings) -> TrainSettings:
    """Settings by which a begun run opens its data: a table by its own card, since the run before may have moved."""
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
        out = f"runs/{shown_name(stem)}-{settings.recipe or settings.method}"
    if shown_name(out) != out:
        raise UsageError(f"out {shown_name(out)} is not UTF-8, as safetensors needs it; choose another name")
    return RunFolder(Path(out))


def code_subject(subject: Any, data: Any, labels: Any, settings: dict[str, Any]) -> tuple[dict[str, Any], UserInputs]:
    """Settings of training that follow from a subject of ``sparsify``, and the objects in memory.

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
        return UserInputs.of_call(subject, own, labels)
    if isinstance(subject, nn.Module) or (isinstance(subject, str) and not Path(subject).exists()):
        if data is None:
            raise UsageError(
                f"{subject if isinstance(subject, str) else type(subject).__name__} is neither a run nor a "
                "file; an encoder from elsewhere comes without samples: give --data"
            )
        return UserInputs.of_call(data, {**own, "encoder": subject}, labels)
    run = as_run(subject)
    before = read_resolved(run.folder)
    if data is None:
        data = before.data if run.data is None else run.data
        labels = run.labels if labels is None else labels
        own["source"] = {**before.source.model_dump(), **own.get("source", {})}
    own |= {"init": str(run.path), "out": f"{run.path.resolve()}-sparse", "views": own.get("views", run.views)}
    if own["views"] is None:
        own["views"] = {} if before.views.preset == "custom" else before.views.model_dump()
    if run.encoder is not None:
        own["encoder"] = run.encoder
    return UserInputs.of_call(data, own, labels)
