"""Export a run: write each format into a new folder, open it again, compare, and only then give the folder its name."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import __version__ as safetensors_version
from torch import Tensor

from counterpoint.core import __version__
from counterpoint.core.errors import CounterpointError, RunError, UsageError, first_line, gone, unknown_name
from counterpoint.core.files import (
    EXPORT_RECORD,
    check_target,
    files_in,
    new_folder,
    sha256_of,
    write_sealed,
    write_text,
)
from counterpoint.core.numerics import evenly_spaced
from counterpoint.core.run import Run, as_run
from counterpoint.core.rundir import EXPORT_WEIGHTS
from counterpoint.core.torch_state import usual_modes
from counterpoint.core.validation import build
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.load_subject import one_checkpoint
from counterpoint.evaluation.trained_run import open_trained
from counterpoint.export.export_record import ALL, FORMATS, Exported, ExportedFormat, ExportSettings
from counterpoint.export.model_card import CARD_FILE, model_card
from counterpoint.export.onnx_format import BOTH, ONNX_FILE, OPSET, Answer, ServedNetwork, onnx_versions, write_onnx
from counterpoint.export.weights_folder import LOADER_FILE, write_folder, write_weights
from counterpoint.nn.trained import Encoder, load_encoder

TOLERANCE = 1e-4  # of a row's largest value
BATCHES = (1, 2, 7)
NUM_SAMPLES = 30  # that each format is compared on


def compare(
    answer: Answer, encoder: Encoder, samples: Tensor, names: Sequence[str], tolerance: float
) -> ExportedFormat:
    """Require the same answers in batches of 1, 2 and 7, and for pictures at two other sizes.

    Args:
        answer: function of the exported format, opened again.
        encoder: the encoder in torch.
        samples: samples to compare on, uint8 (n, c, h, w) or float32 (n, d).
        names: names of the samples.
        tolerance: largest difference that passes.

    Returns:
        A record of the comparison, with an empty name and no files yet.

    Raises:
        RunError: the answers differ by more, or have another shape.
    """
    worst, num_rows, sizes, outputs = 0.0, 0, dict[str, None](), dict[str, None]()
    for batch, positions in _batches(samples):
        expected: dict[str, Tensor] = dict(zip(BOTH, encoder.both(batch), strict=True))
        try:
            exported_rows = answer(batch)
        except Exception as error:  # each format's runtime raises its own
            raise RunError(f"it was written, and fails on a batch of {len(batch)}: {first_line(error)}") from None
        for name, rows in exported_rows.items():
            difference_N = row_differences(rows, expected[name])
            largest = float(difference_N.max())
            if not largest <= tolerance:  # so written, NaN does not pass
                at = names[positions[int(difference_N.argmax())]]
                raise RunError(
                    f"its {name} of {at} differs from torch's by {largest:.2g} of the row's largest value, more than "
                    f"{tolerance:g}; nothing was kept"
                )
            worst = max(worst, largest)
            outputs[name] = None
        num_rows += len(batch)
        sizes |= {"x".join(map(str, batch.shape[2:])): None} if batch.ndim == 4 else {}
    figures = {"difference": worst, "num_rows": num_rows, "sizes": tuple(sizes), "outputs": tuple(outputs)}
    return ExportedFormat(name="", files=(), bytes=0, **figures)


def row_differences(exported_ND: Tensor, expected_ND: Tensor) -> Tensor:
    """Largest difference of each row over the largest value of the expected row, (n,).

    >>> row_differences(torch.tensor([[1.0, 2.1], [0.0, 0.5]]), torch.tensor([[1.0, 2.0], [0.0, 0.0]]))
    tensor([0.0500, 0.5000])
    """
    if exported_ND.shape != expected_ND.shape:
        raise RunError(f"it returns {tuple(exported_ND.shape)} where torch returns {tuple(expected_ND.shape)}")
    scale_N = expected_ND.abs().amax(dim=1)
    return (exported_ND - expected_ND).abs().amax(dim=1) / torch.where(scale_N == 0, 1.0, scale_N)


def _batches(samples: Tensor) -> Iterator[tuple[Tensor, list[int]]]:
    """Yield batches of 1, 2 and 7 samples with their positions, then two samples of pictures at two other sizes."""
    num_samples, start, turn = len(samples), 0, 0
    while start < num_samples or turn < len(BATCHES):
        # If there are few samples, the first come again, so that each size of a batch is tried.
        positions = [(start + step) % num_samples for step in range(BATCHES[turn % len(BATCHES)])]
        start, turn = start + len(positions), turn + 1
        yield samples[positions], positions
    if samples.ndim == 4:
        height, width = samples.shape[2:]
        for new_height, new_width in ((height * 3 // 2 + 1, width * 2 + 3), (height * 2 // 3, width * 3 // 4)):
            # The same pictures with rows and columns doubled or left out.
            rows = torch.arange(max(new_height, 2)) * height // max(new_height, 2)
            columns = torch.arange(max(new_width, 2)) * width // max(new_width, 2)
            yield samples[:2][:, :, rows][:, :, :, columns].contiguous(), [0, 1]


@dataclass(frozen=True)
class _Work:
    encoder: Encoder
    network: ServedNetwork
    folder: Path
    samples: Tensor
    names: tuple[str, ...]


@dataclass(frozen=True)
class _FormatWriter:
    """The function that writes a format, the file that names it, and the largest difference that passes."""

    write: Callable[[_Work], Answer]
    file: str
    tolerance: float = TOLERANCE
    versions: Callable[[], Mapping[str, str]] = dict


@usual_modes()
def export(
    run: Run | str | Path,
    to: str | Sequence[str] = ALL,
    *,
    out: str | Path,
    data: Any = None,
    overwrite: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Exported:
    """Write the encoder of a run for other programs; each file is opened again and compared with torch.

    The folder gets a model card, ``README.md``, and ``export.json`` with what was compared and the hash of every file.
    It appears when all is done, or not at all.

    Args:
        run: the run or its folder (``Run(path, encoder=module)`` if it was trained with your own module).
        to: formats: names of ``export.export_record.FORMATS``, in one text with commas or in a list; ``all`` makes
            those that can be made, and says why the others cannot.
        out: folder to make.
        data: samples to compare on (anything ``train`` takes); None takes the run's own.
        overwrite: replace an existing export; anything else is never touched.
        quiet: show no progress.
        settings: ``layer`` (representation, embedding or both: what graphs return), ``checkpoint`` (a step), ``root``
            (of named data) and ``licence`` (for the card).

    Raises:
        UsageError: an unknown format or setting, a missing extra, or a module that a format cannot express.
        DataError: samples that the encoder does not take.
        RunError: no finished run, ``out`` cannot be written, or a file does not answer as torch does.

    References:
        ``docs/export.md``.
    """
    options = build(ExportSettings, settings, "export")
    names = tuple(name.strip() for name in to.split(",")) if isinstance(to, str) else tuple(to)
    for name in names:
        if name not in (*FORMATS, ALL):
            raise UsageError(gone(name)) if gone(name) else unknown_name("format", str(name), [*FORMATS, ALL])
    if not names:
        raise UsageError(f"to names no format (known: {', '.join(FORMATS)}, {ALL})")
    opened_run, target, reporter = as_run(run), Path(out), Reporter(quiet=quiet)
    earlier = check_target(target, overwrite=overwrite)
    load_encoder(opened_run.folder, opened_run.encoder)  # before data are read: an unfinished run says so
    part = options.model_dump(include={"root"}, exclude_none=True)
    subject = one_checkpoint(open_trained(opened_run, data=data, part=part, reporter=reporter), options.checkpoint)
    encoder = subject.encoder.to("cpu").eval()
    positions = subject.split.held_out if len(subject.split.held_out) else subject.split.train
    chosen = evenly_spaced(positions, NUM_SAMPLES).tolist()
    samples = subject.source.store.fetch(chosen)
    sample_names = tuple(subject.source.sample_names[int(at)] for at in chosen)
    encoder.both(samples[:1])  # before anything is written: samples of another kind are refused
    network = ServedNetwork(encoder, options.layer)
    with new_folder(target, earlier) as folder:
        work = _Work(encoder, network, folder, samples, sample_names)
        formats, left_out = _write_all(work, names, reporter, skips=ALL in names)
        if opened_run.folder.second.encoder_card.exists():
            second = "the encoder of the second kind of sample; cp.load(run, second=True) opens it in the run"
            left_out["second"] = second
        record = Exported(
            run=opened_run.path.resolve().name,
            checkpoint=options.checkpoint,
            version=__version__,
            samples=subject.source.name,
            fingerprint=subject.source.fingerprint,
            input=network.described()["input"],
            tolerance=TOLERANCE,
            formats=tuple(formats),
            left_out=left_out,
            sha256s={name: sha256_of(folder / name) for name in files_in(folder)},
        )
        write_text(folder / CARD_FILE, model_card(opened_run.folder, encoder, record, options.licence))
        hashes = {**record.sha256s, CARD_FILE: sha256_of(folder / CARD_FILE)}
        record = record.model_copy(update={"sha256s": dict(sorted(hashes.items()))})
        write_sealed(folder / EXPORT_RECORD, record.model_dump(mode="json"))
    reporter.say(f"wrote {', '.join(each.name for each in formats)} to {target}")
    return record.model_copy(update={"path": target})


def _write_all(
    work: _Work, names: Sequence[str], reporter: Reporter, *, skips: bool
) -> tuple[list[ExportedFormat], dict[str, str]]:
    chosen = list(FORMATS) if skips else [name for name in FORMATS if name in names]
    if "folder" in chosen and "safetensors" not in chosen:
        chosen.insert(chosen.index("folder"), "safetensors")  # the folder's weights
    formats, left_out = list[ExportedFormat](), dict[str, str]()
    with reporter.bar("exporting", len(chosen)) as advance:
        for name in chosen:
            outcome = _write_and_compare(name, work, skips=skips)
            if isinstance(outcome, ExportedFormat):
                formats.append(outcome)
            else:
                left_out[name] = outcome
                reporter.say(f"{name} is left out: {outcome}")
            advance(name)
    if not formats:
        raise UsageError(f"no format can be made: {'; '.join(f'{name}: {why}' for name, why in left_out.items())}")
    return formats, left_out


def _write_and_compare(name: str, work: _Work, *, skips: bool) -> ExportedFormat | str:
    """Write a format into the folder, open it again, and compare. Where it cannot be made, return the reason."""
    writer, began, before = WRITERS[name], time.perf_counter(), set(files_in(work.folder))
    try:
        versions = {"torch": torch.__version__, **writer.versions()}
        answer = writer.write(work)
        compared = compare(answer, work.encoder, work.samples, work.names, writer.tolerance)
    except UsageError as error:
        if not skips:
            raise
        for file in set(files_in(work.folder)) - before:
            (work.folder / file).unlink()
        return str(error)
    except RunError as error:
        raise RunError(f"{name}: {error}") from None
    except (CounterpointError, OSError):
        raise
    except Exception as error:  # what opens a format again is not ours, and raises what it likes
        raise RunError(f"{name}: it cannot be written and opened again: {first_line(error)}") from None
    files = sorted(set(files_in(work.folder)) - before, key=lambda file: (file != writer.file, file))
    fields = {
        "name": name,
        "files": tuple(files),
        "bytes": sum((work.folder / file).stat().st_size for file in files),
        "opset": OPSET if name == "onnx" else None,
        "versions": versions,
        "seconds": round(time.perf_counter() - began, 1),
    }
    return compared.model_copy(update=fields)


WRITERS: Mapping[str, _FormatWriter] = {
    "onnx": _FormatWriter(
        lambda work: write_onnx(work.network, work.folder / ONNX_FILE),
        ONNX_FILE,
        versions=onnx_versions,
    ),
    "safetensors": _FormatWriter(
        lambda work: write_weights(work.encoder, work.folder),
        EXPORT_WEIGHTS,
        tolerance=0.0,
        versions=lambda: {"safetensors": safetensors_version},
    ),
    "folder": _FormatWriter(lambda work: write_folder(work.encoder, work.folder), LOADER_FILE),
}
