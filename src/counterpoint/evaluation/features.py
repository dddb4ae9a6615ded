"""Features of every sample, computed once and shared by all protocols, of the two baselines, and of two views."""

# N samples, D features

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from counterpoint.core.errors import DataError, some
from counterpoint.core.numerics import evenly_spaced, holding
from counterpoint.core.ranks import HERE, PieceEngine
from counterpoint.core.stored_rows import Rows, load, row_slices
from counterpoint.core.thread_parts import side_by_side
from counterpoint.core.torch_state import own_draws, usual_modes
from counterpoint.core.user_objects import CUSTOM
from counterpoint.data.source import Source
from counterpoint.diagnostics.evidence import AlteredInput
from counterpoint.diagnostics.sample_shift import altered_input, picture_moments
from counterpoint.evaluation.feature_tables import Tables, Write, key_of, stored_or_computed
from counterpoint.evaluation.subject import Subject
from counterpoint.nn.layer_outputs import EMBEDDING, REPRESENTATION, LayerReader
from counterpoint.nn.trained import CHUNK, Encoder

PCA_DIMS = 128  # of the raw input
PIECE = 128  # samples that one thread passes through the encoder at a time
SHARD_ROWS = 80 * PIECE  # 10,240, of a worker at a time; where these begin at whole pieces, no sample passes twice
VIEW_EPOCH = 2**31  # no training epoch: views for evaluation are never those trained on
CONTENT = "content"  # in a table of features: a hash of what each sample holds
MOST_NAMED = 3  # samples that an error lists
MOST_PICTURES = 512  # pictures whose channels are compared with those of training

Advance = Callable[[], None]
_ENGINE = ContextVar[PieceEngine]("engine", default=HERE)
NOTHING_ELSE: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType({})


@dataclass(frozen=True)
class SampleFeatures:
    """Features of the samples of a source, in its order.

    Attributes:
        layers: features, float32 (n, d), by the layer's name.
        content_N: hash of what each sample holds (n,), as bytes.
    """

    layers: Mapping[str, Rows]
    content_N: np.ndarray

    @property
    def representation(self) -> Tensor:
        """The representation, in memory."""
        return load(self.layers[REPRESENTATION])

    @property
    def embedding(self) -> Tensor:
        """The embedding, in memory."""
        return load(self.layers[EMBEDDING])


def encoded_by(engine: PieceEngine) -> AbstractContextManager[None]:
    """Features that ``extract`` computes inside the block are made by workers of an engine, to the same bits.

    Each worker gets the encoder and the samples as they are here; picture files must have the same paths there.
    """
    return holding(_ENGINE, engine)


def extract(
    encoder: Encoder,
    source: Source,
    layers: Sequence[str] = (REPRESENTATION, EMBEDDING),
    *,
    cache: bool | str = False,
    begin: Callable[[], object] = lambda: None,
    advance: Advance = lambda: None,
) -> SampleFeatures:
    """Pass every sample through the encoder once, or read its features from the cache.

    Args:
        encoder: encoder, on the device where it computes.
        source: the samples.
        layers: names of the layers; see ``nn.layer_outputs.LayerReader``.
        cache: whether features are read from the cache and kept in it; a text is their key in place of ``key_of``.
        begin: function called before samples pass; it is not called if the cache has everything.
        advance: function called once per piece of ``PIECE`` samples.

    Raises:
        DataError: features that are not finite; the first samples are named.
    """
    names = (*layers, CONTENT)
    key = cache if isinstance(cache, str) else key_of(encoder) if cache else None
    full_key = None if key is None else f"{key} {source.fingerprint} {source.shape}"

    def compute(missing: Sequence[str], write: Write) -> None:
        begin()
        if (engine := _ENGINE.get()) is HERE:
            pass_rows(encoder, source, missing, rows=slice(0, len(source)), write=write, advance=advance)
            return
        parts = [(rows.start, rows.stop) for rows in row_slices(len(source), SHARD_ROWS)]
        with engine.opened(partial(tuple[Encoder, Source], (encoder, source))) as workers:
            for (first, stop), part in workers.each(partial(_features_of, names=missing), parts):
                write(first, part)
                for _ in range(first, stop, PIECE):
                    advance()

    arrays: dict[str, Any] = stored_or_computed(full_key, names, len(source), compute)
    return SampleFeatures({name: arrays[name] for name in layers}, arrays[CONTENT].view("V16")[:, 0])


def pass_rows(
    encoder: Encoder,
    source: Source,
    names: Sequence[str],
    *,
    rows: slice,
    write: Write,
    advance: Advance = lambda: None,
) -> None:
    """Pass some samples through the encoder, in the pieces in which all would pass: the same bits, whatever the rows.

    How many samples pass together changes the last bits of their features. Pieces of ``PIECE`` samples are counted from
    the first sample of the source; those at the ends of the rows pass as a whole.

    Args:
        encoder: encoder, on the device where it computes.
        source: the samples.
        names: names of layers of the encoder, and ``CONTENT``, see ``SampleFeatures.content_N``.
        rows: positions in the source of the samples that are passed, as a slice.
        write: function that takes the first row of a part, and its arrays by name; called by several threads.
        advance: function called once per piece.

    Raises:
        DataError: features that are not finite; the first samples are named.
    """
    wanted = [name for name in names if name != CONTENT]
    pieces = torch.arange(rows.start // PIECE * PIECE, min(-(-rows.stop // PIECE) * PIECE, len(source))).split(PIECE)
    with LayerReader(encoder, wanted) as reader:

        def work(positions: Tensor) -> None:
            samples = source.store.fetch(positions.tolist())
            arrays = {name: values.numpy() for name, values in (reader(samples) if wanted else {}).items()}
            check_finite(arrays, positions, source)
            if CONTENT in names:
                arrays[CONTENT] = _hashes(samples)
            first = int(positions[0])
            inside = slice(max(rows.start - first, 0), rows.stop - first)
            write(first + inside.start, {name: values[inside] for name, values in arrays.items()})
            advance()

        with_encoder(encoder, work, pieces)


def features_of(encoder: Encoder, source: Source, names: Sequence[str], rows: slice) -> dict[str, np.ndarray]:
    """Arrays that ``pass_rows`` writes for some samples, by name."""
    tables = Tables(rows.stop - rows.start, None)
    pass_rows(encoder, source, names, rows=rows, write=lambda first, parts: tables.write(first - rows.start, parts))
    return tables.arrays


@usual_modes()
def _features_of(opened: tuple[Encoder, Source], rows: tuple[int, int], names: Sequence[str]) -> dict[str, np.ndarray]:
    return features_of(*opened, names, slice(*rows))


def num_pieces(source: Source) -> int:
    """Number of times that ``extract`` calls ``advance``, if nothing is in the cache."""
    return -(-len(source) // PIECE)


def content_hashes(rows: Tensor) -> np.ndarray:
    """Hash of what each row holds, as ``SampleFeatures.content_N``."""
    return _hashes(rows).view("V16")[:, 0]


def _hashes(samples: Tensor) -> np.ndarray:
    """Hash of each sample as it is stored, (n, 16) bytes."""
    digests = [hashlib.blake2b(each.data, digest_size=16).digest() for each in samples.contiguous().numpy()]
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16)


def check_finite(layers: Mapping[str, np.ndarray], positions: Tensor, source: Source) -> None:
    """Refuse features that no protocol can compare.

    Args:
        layers: arrays (n, d) by the layer's name.
        positions: positions of these samples in the source (n,).
        source: the source, which has the samples' names.

    Raises:
        DataError: features that are not finite; the layer and the first samples are named.
    """
    for name, rows_ND in layers.items():
        if not (is_finite_N := np.isfinite(rows_ND).all(axis=1)).all():
            odd = [source.sample_names[int(place)] for place in positions[torch.from_numpy(~is_finite_N)].tolist()]
            raise DataError(
                f"the {name} of {some(odd, MOST_NAMED)} holds NaN or infinity; the encoder's weights or "
                "the samples are damaged"
            )


def with_encoder(encoder: Encoder, work: Callable[[Any], Any], pieces: Iterable[Any]) -> list[Any]:
    """Apply ``work`` to each piece, side by side; a user's own code is called by one thread only."""
    # An unchanged layer of torch keeps nothing of a pass: threads may share it. A hook is the user's own code.
    is_own = encoder.card.architecture == CUSTOM and not all(
        type(module).__module__.startswith("torch.nn.")
        and not ("forward" in vars(module) or module._forward_hooks or module._forward_pre_hooks)
        for module in encoder.backbone.modules()
    )
    # One thread keeps a GPU busy.
    is_alone = is_own or encoder.device.type != "cpu"
    return [work(piece) for piece in pieces] if is_alone else side_by_side(work, pieces)


def blank_encoder(backbone: nn.Module, encoder: Encoder) -> Encoder:
    """An untrained network as it is, on the device of the encoder that prepares its input."""
    # Its representation alone is used; an untrained projector is not a baseline of anything.
    card = replace(encoder.card, projector="none", nonnegative="none", d0=None)
    return Encoder(card, copy.deepcopy(backbone), nn.Identity()).to(encoder.device)


def with_norms_of(blank: Encoder, source: Source, train: Tensor) -> Encoder:
    """The baseline of an untrained network: the statistics of its BatchNorm are set on the training samples.

    With their initial values the baseline would be weaker than an untrained network really is.

    Args:
        blank: the result of ``blank_encoder``; it is changed.
        source: the samples.
        train: positions of the training samples.
    """
    chunks = (blank.prepare(samples).to(blank.device) for samples in raw_chunks(source, train))
    calibrate_norms(blank.backbone, chunks)
    return blank


def raw_chunks(source: Source, positions: Tensor | None = None) -> Iterator[Tensor]:
    """Raw samples in chunks, in order."""
    chosen = torch.arange(len(source)) if positions is None else positions
    for part in chosen.split(CHUNK):
        yield source.store.fetch(part.tolist())


def calibrate_norms(backbone: nn.Module, inputs: Iterable[Tensor]) -> nn.Module:
    """Set the running statistics of every BatchNorm to their averages over some inputs."""
    # Dropout in train mode draws; the caller's random numbers stay where they are.
    with own_draws():
        # BatchNorm refuses to train on one vector, which has no variance.
        update_bn((chunk for chunk in inputs if len(chunk) > 1), backbone.train())
    return backbone.eval()


def view_pairs(
    subject: Subject,
    encoder: Encoder,
    layers: Sequence[str],
    positions_N: Tensor,
    also: Mapping[str, Callable[[Tensor], Tensor]] = NOTHING_ELSE,
) -> dict[str, tuple[Tensor, Tensor]]:
    """Layers of an encoder for the first and the second view of some samples.

    Args:
        subject: subject whose views and samples are taken; it must have views.
        encoder: encoder of the subject, or of a baseline.
        layers: names of the layers; see ``nn.layer_outputs.LayerReader``.
        positions_N: positions of the samples in the subject's source.
        also: functions of the views themselves, by the name of their result.
    """
    source, drawer = subject.source, subject.views()
    with LayerReader(encoder, layers) as reader:

        def outputs(ids_B: Tensor) -> list[dict[str, Tensor]]:
            samples = source.store.fetch(ids_B.tolist())
            # Other data may have another size, or no colours: views are drawn of what the encoder takes.
            if encoder.card.kind == "images" and samples.shape[1:] != encoder.card.in_shape:
                samples = encoder.fitted(samples)
            views = drawer.two_views(samples, ids_B, VIEW_EPOCH)
            extras = [{name: measure(view) for name, measure in also.items()} for view in views]
            return [{**reader.of_views(view), **extra} for view, extra in zip(views, extras, strict=True)]

        parts = with_encoder(encoder, outputs, positions_N.split(PIECE))
    return {
        layer: (torch.cat([first[layer] for first, _ in parts]), torch.cat([second[layer] for _, second in parts]))
        for layer in (*layers, *also)
    }


def altered_pictures(subject: Subject) -> AlteredInput | None:
    """The change by which other pictures differ from those of training; None if there is none or it cannot be known."""
    card, settings = subject.encoder.card, subject.settings
    if settings is None or settings.init is not None or card.kind != "images":
        return None
    for source in subject.sources[int(subject.is_own_data) :]:
        pieces = evenly_spaced(torch.arange(len(source)), MOST_PICTURES).split(PIECE)
        moments = [picture_moments(subject.encoder.fitted(source.store.fetch(part.tolist()))) for part in pieces]
        if altered := altered_input(torch.cat(moments), torch.tensor(card.mean), torch.tensor(card.std)):
            return altered
    return None
