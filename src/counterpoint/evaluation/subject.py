"""The subject of an evaluation: an encoder, or features from anywhere, with the samples it is judged on."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from counterpoint.core.rundir import RunFolder
from counterpoint.core.schemas import FEATURES
from counterpoint.core.settings import SourceSettings, TrainSettings, ViewSettings
from counterpoint.core.user_objects import CUSTOM
from counterpoint.core.validation import build
from counterpoint.data.order import Split, is_thinned
from counterpoint.data.source import Source
from counterpoint.data.sources import CATALOGUE as SETS
from counterpoint.data.sources import joined, open_source
from counterpoint.data.views.drawer import ViewDrawer
from counterpoint.data.views.image_statistics import look, sample_pictures
from counterpoint.data.views.own_views import OwnViews
from counterpoint.data.views.presets import choose_preset, plan_views
from counterpoint.engine.progress import Reporter
from counterpoint.losses.loss import Loss
from counterpoint.nn.encoders import initial_encoder
from counterpoint.nn.foreign import build_foreign
from counterpoint.nn.trained import Encoder, EncoderCard

DEFAULT_HOLDOUT = 0.2  # of the samples, if the data have no held-out part


@dataclass(frozen=True)
class Subject:
    """An encoder, or features, with the samples it is judged on.

    Attributes:
        name: name shown in tables and messages.
        encoder: encoder, trained here or elsewhere; for features from anywhere, one that changes nothing.
        source: the samples.
        split: samples for training, and samples held out of it (for other data: bank and queries).
        sources: sources that the samples come from: ``source``; or bank and queries, whose samples ``source`` holds
            one behind the other, and of which ``split`` has the second as held out.
        folder: folder of the run; None for an encoder from elsewhere.
        settings: every setting of the run; None for an encoder from elsewhere.
        is_own_data: whether these are the samples the run was trained on.
        is_own_record: whether the results belong to the run's own record: its own samples by its own labels, or
            by labels given later to a run that had none.
        own_views: the user's own views, if the run was trained with them and they are at hand.
        own_loss: the user's own loss, if the run was trained with it and it is at hand.
        initial: the encoder that training began with, to be measured beside the trained one.
        opens: settings with which samples of other data are opened for the encoder.
        facts: facts for the record of an encoder from elsewhere: its weights and how its input is prepared.
    """

    name: str
    encoder: Encoder
    source: Source
    split: Split
    sources: tuple[Source, ...]
    folder: RunFolder | None = None
    settings: TrainSettings | None = None
    is_own_data: bool = False
    is_own_record: bool = False
    own_views: OwnViews | None = None
    own_loss: Loss | None = None
    initial: Encoder | None = None
    opens: SourceSettings = field(default_factory=SourceSettings)
    facts: Mapping[str, Any] | None = None

    @property
    def is_features(self) -> bool:
        """True if the samples are features already."""
        return self.encoder.card.architecture == FEATURES

    @property
    def queries(self) -> Source | None:
        """The queries, if they are a separate source and not a part of a split."""
        return self.sources[1] if len(self.sources) > 1 else None

    @property
    def has_views(self) -> bool:
        """True if the views are at hand: those that the run was trained with, or the usual ones of such samples."""
        if self.settings is None:
            return not self.is_features
        return self.own_views is not None or self.settings.views.preset != CUSTOM

    def views(self) -> ViewDrawer:
        """The drawer of the views that the run was trained with; for an encoder from elsewhere, of the usual preset.

        Raises:
            UsageError: they were views of the user's own and are not at hand.
        """
        if self.settings is not None:
            return view_drawer(self.settings, self.encoder.card, self.own_views)
        looks = look(sample_pictures(self.source)) if self.source.kind == "images" else None
        preset, _ = choose_preset(self.source.kind, self.source.shape, looks)
        return _drawer(plan_views(ViewSettings(preset=preset)), self.encoder.card, seed=0)


def view_drawer(settings: TrainSettings, card: EncoderCard, own: OwnViews | None = None) -> ViewDrawer:
    """The drawer of a run's views, which may be the user's own."""
    return _drawer(plan_views(settings.views) if own is None else own, card, settings.seed)


def _drawer(plan: Any, card: EncoderCard, seed: int) -> ViewDrawer:
    return ViewDrawer(plan, torch.tensor(card.mean), torch.tensor(card.std), seed)


def untrained_backbone(subject: Subject) -> nn.Module | None:
    """The encoder before training: the same architecture, the same seed. None for a user's own module, and features."""
    card = subject.encoder.card
    if card.architecture in (CUSTOM, FEATURES):
        return None
    if subject.settings is None:
        return build_foreign(card.architecture, card.in_shape, seed=0).backbone
    settings = subject.settings
    return initial_encoder(card.architecture, card.in_shape, settings.seed, card.stem, settings.initial)


def open_queries(
    opens: SourceSettings,
    data: Any,
    labels: Any,
    *,
    part: Mapping[str, Any],
    reporter: Reporter,
) -> Source:
    """Open a source of queries.

    Args:
        opens: settings with which samples of other data are opened for the encoder.
        data: queries (anything ``train`` takes); of a named set its part for tests is taken.
        labels: class labels, one per sample for arrays; for named data a path, ``auto`` or ``none``.
        part: the settings ``split``, ``classes`` and ``root`` of ``source``; ``split`` is the bank's.
        reporter: shows progress while a folder is read.
    """
    chosen = {name: value for name, value in part.items() if name != "split"}
    if isinstance(data, str) and data in SETS:
        chosen["split"] = SETS[data].test_split
    return open_samples(data, {**opens.model_dump(), **chosen}, labels, reporter)


def open_samples(data: Any, settings: Mapping[str, Any], labels: Any, reporter: Reporter) -> Source:
    """Open samples by the settings of ``source``, with labels of each or a file of them; what was left out is named."""
    if isinstance(labels, str | Path):
        settings, labels = {**settings, "labels": str(labels)}, None
    source = open_source(data, build(SourceSettings, settings, "source"), labels=labels, progress=reporter.bar)
    name_skipped(source, reporter)
    return source


def beside(subject: Subject, queries: Source) -> Subject:
    """Take the samples of another source as queries: all labelled samples of the subject's source are the bank.

    Args:
        subject: subject whose samples are the bank.
        queries: source of the queries; see ``open_queries``.

    Raises:
        DataError: shapes or classes do not fit together.
    """
    source, num_bank = joined(subject.source, queries), len(subject.source)
    thins = subject.settings is not None and is_thinned(subject.settings.source)
    # Samples that long-tailed training left out are left out here, too; those held out of training are not.
    bank = subject.split.train if subject.is_own_data and thins else torch.arange(num_bank)
    split = Split(bank, num_bank + torch.arange(len(queries)))
    sources = (subject.source, queries)
    return replace(subject, source=source, split=split, is_own_record=False, sources=sources)


def name_skipped(source: Source, reporter: Reporter) -> None:
    """Say which files were left out, and how the columns of a table were taken."""
    if "source.columns" in source.notes:
        reporter.say(f"{source.name}: {source.notes['source.columns']}")
    for item in source.skipped:
        reporter.say(f"skipped {item.name}: {item.reason}")
    if source.skipped:
        reporter.say(f"skipped {len(source.skipped)} of {len(source.skipped) + len(source)} files")
