"""Spectra of every layer of an encoder from one pass over its samples."""

# N samples, D features, K = min(N - 1, D)

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from counterpoint.diagnostics.layer_record import LayerFigures, LayersRecord
from counterpoint.diagnostics.spectra import StreamingCovariance, effective_rank
from counterpoint.diagnostics.vanished import isotropic_band, isotropic_spectrum, vanished_directions
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.features import PIECE, check_finite, with_encoder
from counterpoint.evaluation.subject import Subject
from counterpoint.nn.layer_outputs import Layer, LayerReader, layers_of

INPUT = "input"
WIDEST = 4096  # dimensions of a layer whose covariance is kept: 128 MB
NUM_TRIED = 8  # samples that show which layers there are
PIECES = 8  # passed side by side before they are added

Arrays = dict[str, np.ndarray]


def read_layers(judged: Subject, reporter: Reporter) -> tuple[LayersRecord, Arrays]:
    """Measure every layer of an encoder.

    Args:
        judged: encoder and samples.
        reporter: shows progress.

    Returns:
        The record, and for ``arrays.npz``: spectra (``layer/0`` and so on, in the order of the record) and the
        bands of isotropic features (``band/0``).

    Raises:
        DataError: a layer gives NaN or infinity; it is named with the first samples.
    """
    encoder, source = judged.encoder, judged.source
    tried = source.store.fetch(list(range(min(NUM_TRIED, len(source)))))
    known = layers_of(encoder, tried)
    layers = [layer for layer in known if layer.num_dims <= WIDEST]
    wide = [f"{layer.name} ({layer.num_dims:,})" for layer in known if layer.num_dims > WIDEST]
    remarks = [f"Left out, as wider than {WIDEST:,} dimensions: {', '.join(wide)}."] if wide else []
    own_input = [Layer(INPUT, "", tried.shape[1], False)] if encoder.card.kind == "vectors" else []
    if own_input and own_input[0].num_dims <= WIDEST:
        layers = [*own_input, *layers]
    streams = {layer.name: StreamingCovariance() for layer in layers}
    names = [layer.name for layer in layers]
    progress = reporter.bar("reading layers", -(-len(source) // PIECE))
    with LayerReader(encoder, [name for name in names if name != INPUT]) as reader, progress as advance:

        def work(positions: Tensor) -> Mapping[str, Tensor]:
            prepared = encoder.prepare(source.store.fetch(positions.tolist()))
            found = {INPUT: prepared, **reader.of_views(prepared)}
            check_finite({name: found[name].numpy() for name in names}, positions, source)
            advance()
            return found

        pieces = torch.arange(len(source)).split(PIECE)
        for start in range(0, len(pieces), PIECES):
            # In the order of the samples, whichever thread is first.
            found = with_encoder(encoder, work, pieces[start : start + PIECES])
            for name, stream in streams.items():
                stream.update(torch.cat([part[name] for part in found]))
    spectra = [stream.spectrum() for stream in streams.values()]
    figures = tuple(map(_figures, layers, streams.values(), spectra))
    arrays: Arrays = {f"layer/{place}": values.numpy() for place, values in enumerate(spectra)}
    arrays |= {f"band/{place}": null_band(values, len(source)) for place, values in enumerate(spectra)}
    return LayersRecord(num_samples=len(source), layers=figures, remarks=tuple(remarks)), arrays


def null_band(spectrum_D: Tensor, num_samples: int) -> np.ndarray:
    """Range (2, k) of the eigenvalues of isotropic features of the same shape and total variance."""
    band_2K = torch.stack(isotropic_band(num_samples, len(spectrum_D)))
    mean = float(spectrum_D.sum()) / float(isotropic_spectrum(num_samples, len(spectrum_D)).sum())
    return (band_2K * mean).numpy()


def _figures(layer: Layer, stream: StreamingCovariance, spectrum_D: Tensor) -> LayerFigures:
    num_samples, num_dims = stream.num_samples, layer.num_dims
    vanished = vanished_directions(spectrum_D, num_samples)
    alive = vanished.resolved - vanished.count
    null_K = isotropic_spectrum(num_samples, num_dims)
    known_R = spectrum_D[: vanished.resolved]
    return LayerFigures(
        name=layer.name,
        kind=layer.kind,
        num_dims=num_dims,
        is_pooled=layer.is_pooled,
        resolved=vanished.resolved,
        vanished=vanished.count,
        effective_rank=effective_rank(spectrum_D),
        null_rank=effective_rank(null_K),
        largest=float(spectrum_D[0]),
        median=float(known_R.median()) if len(known_R) else None,
        least=float(spectrum_D[alive - 1]) if alive else None,
        floor=stream.floor(float(spectrum_D[0])),
    )
