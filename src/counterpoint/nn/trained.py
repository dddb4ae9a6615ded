"""The encoder a user loads: weights, input preparation and output map, rebuilt from two files without pickle."""

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from counterpoint.core.array_layout import Kind, check_finite, to_samples
from counterpoint.core.checks import check_held
from counterpoint.core.derived_files import WEIGHTS_SHA256, read_card, write_card
from counterpoint.core.errors import DataError, RunError, UsageError, first_line
from counterpoint.core.files import read_sealed, sha256_of, write_atomically
from counterpoint.core.numerics import is_readable
from counterpoint.core.run import Run, as_run
from counterpoint.core.rundir import EXPORT_WEIGHTS, RunFolder, exported_folder
from counterpoint.core.settings import Count
from counterpoint.core.table_columns import ColumnPlan, encoded
from counterpoint.core.torch_state import own_draws, require_float32, usual_modes
from counterpoint.core.user_objects import CUSTOM
from counterpoint.nn.classifier import Classifier, is_classifier_sound, load_classifier
from counterpoint.nn.encoders import build_encoder, own_copy, with_pooling
from counterpoint.nn.heads import OutputMap, ProjectorDetails, build_projector, output_width
from counterpoint.nn.resizing import Resizing, fit_images
from counterpoint.nn.tensor_file import read_tensors, write_tensors

CHUNK = 512  # samples per forward pass
TOO_LARGE = "; scale the samples down, or look for damaged weights"  # of sums that float32 cannot hold
CARD_FORMAT = 2  # sealed
CARD_FORMATS = (1, CARD_FORMAT)  # 1: of 0.1.0, without a seal


@dataclass(frozen=True)
class EncoderCard:
    """All that is needed to rebuild an encoder and prepare its input."""

    architecture: str  # a name of the encoder catalogue, timm:NAME, or custom
    kind: Kind
    in_shape: tuple[Count, ...]  # (channels, height, width) or (features,)
    mean: tuple[float, ...]  # per channel or feature, of values in [0, 1] (images) or as given (vectors)
    std: tuple[float, ...]
    width: Count
    projector: str
    hidden: Count
    features: Count
    nonnegative: str
    d0: int | None
    layers: int = 2  # from here on: what cards of the first release lack
    norm: str = "none"
    output_norm: bool = False
    rank: int | None = None
    stem: str = "small"  # of the built-in ResNets: 0.1.0 had one at any size
    output_scale: bool = False
    table: ColumnPlan | None = None  # of an encoder of rows of a table
    resizing: Resizing = "bilinear"  # of pictures of another size; cards of 0.2.0 and before do not say it
    active: Count = 8  # values that a sparse code keeps

    @property
    def projector_details(self) -> ProjectorDetails:
        """Settings that only some projectors have."""
        return ProjectorDetails(self.layers, self.norm, self.output_norm, self.rank, self.output_scale, self.active)

    @property
    def projected_width(self) -> int:
        """Dimensions of what the projector returns."""
        return output_width(self.projector, self.width, features=self.features, rank=self.rank)


CARD = TypeAdapter(EncoderCard)


class Encoder(nn.Module):
    """A trained encoder: ``represent`` gives the representation, ``embed`` what the loss compared, at unit length.

    It is a module in evaluation mode, whose forward pass begins with the preparation of its input: it can be moved,
    exported, compiled and trained further as a whole.

    Args:
        card: all that is needed to rebuild it.
        backbone: maps prepared samples to representations.
        projector: maps representations to what the output map takes.

    Attributes:
        classifier: classifier that a supervised method trained with it; None if there is none.
    """

    mean: Tensor
    std: Tensor
    classifier: Classifier | None

    def __init__(self, card: EncoderCard, backbone: nn.Module, projector: nn.Module) -> None:
        super().__init__()
        self.card = card
        self.backbone = backbone
        self.projector = projector
        self.classifier = None
        self.output_map = OutputMap(d0=card.d0, nonnegative=card.nonnegative)
        shape = (-1, 1, 1) if card.kind == "images" else (-1,)
        self.register_buffer("mean", torch.tensor(card.mean).reshape(shape))
        self.register_buffer("std", torch.tensor(card.std).reshape(shape))
        self.eval()

    def __repr__(self) -> str:
        card = self.card
        sizes = f"representation {card.width}, embedding {self.embedding_dims}"
        return f"Encoder({card.architecture}, input {card.in_shape}, {sizes})"

    @property
    def embedding_dims(self) -> int:
        """Dimensions of what ``embed`` returns."""
        return self.card.d0 or self.card.projected_width

    @property
    def device(self) -> torch.device:
        """Device on which it computes; a backbone without parameters runs where the mean is."""
        return next(self.backbone.parameters(), self.mean).device

    def forward(self, samples: Any) -> Any:
        """Representations (n, width), with gradient; see ``represent`` for other input.

        Args:
            samples: images (n, c, h, w), uint8 or floats in [0, 1], or vectors (n, d), on the encoder's device. An
                array or a list is answered as ``represent`` answers it.

        Raises:
            DataError: wrong axes, or another number of features; NaN or infinity in samples or representations, except
                where the pass is compiled, traced, captured or mapped, which reads no number.
        """
        if not isinstance(samples, Tensor):
            return self.represent(samples)
        prepared = self.prepare(samples)
        if is_readable(samples):
            # Values that are too large for float32 are infinite there.
            check_finite(samples.float() if samples.dtype == torch.float64 else samples, "samples")
            representations = self.backbone(prepared)
            check_finite(representations, "representations", TOO_LARGE)
            return representations
        return self.backbone(prepared)

    def represent(self, samples: Any) -> Any:
        """Representations (n, width), before the projector.

        Args:
            samples: images (n, h, w), (n, h, w, c) or (n, c, h, w), uint8 or floats in [0, 1]; or vectors (n, d).
                Images of another size are centre-cropped to a square and resized. NumPy arrays and tensors are
                answered in kind. An encoder of a table takes files, frames, lists by column; or encoded arrays.

        Raises:
            DataError: wrong kind, channels or range, an ambiguous shape, or numbers too large for the encoder.
        """
        return _in_kind_of(self.both(samples)[0], samples)

    def embed(self, samples: Any) -> Any:
        """Embeddings (n, embedding_dims): projector and output map applied, unit length; see ``represent``."""
        return _in_kind_of(self.both(samples)[1], samples)

    def logits(self, samples: Any) -> Any:
        """Logits (n, classes) of the classifier that was trained with the encoder; see ``represent``.

        Raises:
            UsageError: the encoder has no classifier.
        """
        return _in_kind_of(self.class_logits(self.both(samples)[0]), samples)

    def classify(self, samples: Any) -> tuple[str, ...]:
        """Name of the class of each sample, by the classifier that was trained with the encoder; see ``logits``."""
        logits_NC = torch.as_tensor(self.logits(samples))
        assert self.classifier is not None
        return tuple(self.classifier.class_names[number] for number in logits_NC.argmax(dim=1).tolist())

    @usual_modes()
    @torch.no_grad()
    def class_logits(self, representations: Tensor) -> Tensor:
        """Logits (n, classes) of samples whose representations (n, width) are known; a CPU tensor.

        Raises:
            UsageError: the encoder has no classifier.
        """
        if (classifier := self.classifier) is None:
            raise UsageError("this encoder has no classifier; supervised and nonnegative-supervised train one")
        # Vectors are not at unit length: a cross-entropy takes them as they are.
        compared = OutputMap(d0=self.card.d0, nonnegative=self.card.nonnegative, normalize=False)
        device = classifier.class_weights.device
        parts = (compared(self.projector(part.to(device))) for part in representations.split(CHUNK))
        return torch.cat([classifier(part).cpu() for part in parts])

    @usual_modes()
    def both(self, samples: Any) -> tuple[Tensor, Tensor]:
        """Representations and embeddings from one pass, as CPU tensors."""
        card = self.card
        rows = samples if card.table is None else encoded(card.table, samples)
        checked = to_samples(rows, card.kind, name="samples", channels=card.in_shape[0])
        pairs = [self.of_views(self.prepare(chunk)) for chunk in checked.split(CHUNK)]
        representations, embeddings = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        check_finite(representations, "representations", TOO_LARGE)
        check_finite(embeddings, "embeddings", TOO_LARGE)
        return representations, embeddings

    @torch.no_grad()
    def of_views(self, views: Tensor) -> tuple[Tensor, Tensor]:
        """Representation and embedding of input that is already prepared, such as views; CPU tensors."""
        r = self.backbone(views.to(self.device))
        return r.cpu(), self.output_map(self.projector(r)).cpu()

    def prepare(self, samples: Tensor) -> Tensor:
        """Bring samples (as ``to_samples`` returns them) to the network's size, mean and deviation.

        Raises:
            DataError: wrong axes, or another number of features.
            TypeError: a tensor that is not dense, or holds no numbers.
        """
        check_held(samples, "samples")
        axes = "(n, d)" if self.card.kind == "vectors" else "(n, c, h, w)"
        if samples.ndim != axes.count(",") + 1:
            raise DataError(f"samples must be {self.card.kind} {axes}, got shape {tuple(samples.shape)}")
        if self.card.kind == "images":
            samples = self.fitted(samples)
        elif samples.shape[1] != self.card.in_shape[0]:
            raise DataError(f"this encoder takes {self.card.in_shape[0]} features per sample, got {samples.shape[1]}")
        return (samples.to(self.mean.dtype) - self.mean.to(samples.device)) / self.std.to(samples.device)

    def fitted(self, images_NCHW: Tensor) -> Tensor:
        """Images as floats in [0, 1] at the network's size; see ``nn.resizing.fit_images``."""
        return fit_images(images_NCHW, self.card.in_shape, self.card.resizing)


def _in_kind_of(output: Tensor, samples: Any) -> Any:
    """Answer tensors with a tensor and anything else with a NumPy array."""
    return output if isinstance(samples, Tensor) else output.numpy()


def load(run: Run | str | Path, *, encoder: nn.Module | None = None, second: bool = False) -> Encoder:
    """Load the encoder of a finished run, or of a folder that ``export`` wrote.

    Args:
        run: the run or its folder; or an exported folder with weights.
        encoder: your own module, if the run was trained with one; a copy of it gets the weights.
        second: whether to load the encoder of the second kind of sample, of a cross-modal run.

    Raises:
        RunError: not a run, nothing trained yet, or a damaged file.
    """
    if (exported := exported_folder(run)) is not None:
        return load_encoder(exported, encoder)
    trained_run = as_run(run)
    if second and not trained_run.folder.second.encoder_card.exists():
        raise RunError(f"{trained_run.path} holds no second encoder; only cross-modal runs have one")
    return load_encoder(trained_run.folder.second if second else trained_run.folder, encoder or trained_run.encoder)


def save_encoder(folder: RunFolder, encoder: Encoder, weights: Mapping[str, Tensor] | None = None) -> None:
    """Write ``encoder.safetensors`` and ``encoder.json``.

    Args:
        folder: folder of the run.
        encoder: encoder to save.
        weights: values by name (``backbone.*``, ``projector.*``; others are left out) where they are not those of the
            encoder's own modules: a moving average, or weights that several ranks hold in shards.
    """
    parts = {"backbone": encoder.backbone, "projector": encoder.projector}
    if weights is None:
        weights = {f"{part}.{name}": value for part in parts for name, value in parts[part].state_dict().items()}
    chosen = {name: value for name, value in weights.items() if name.split(".", 1)[0] in parts}
    # Weights first, then the card with their hash: a run that ends in between is not taken for saved.
    write_atomically(folder.weights, lambda path: write_tensors(path, chosen))
    seal = {"format": CARD_FORMAT, WEIGHTS_SHA256: sha256_of(folder.weights)}
    write_card(folder, folder.encoder_card, {**seal, **asdict(encoder.card)})


def is_saved(folder: RunFolder) -> bool:
    """Tell whether a run holds an encoder, undamaged, and no damaged classifier."""
    try:
        return sha256_of(folder.weights) == _read_card(folder)[1] and is_classifier_sound(folder)
    except (RunError, OSError):
        return False


def load_encoder(folder: RunFolder, module: nn.Module | None = None) -> Encoder:
    """Rebuild the encoder of a run.

    Args:
        folder: folder of the run.
        module: the user's own module, needed (and copied) when the run was trained with one.

    Raises:
        RunError: no encoder was saved yet, or a file is damaged.
        UsageError: the run was trained with the user's own module and none was given.
    """
    saved = read_saved(folder)
    if saved.card.architecture == CUSTOM and module is None:
        raise UsageError(f"{folder.path} was trained with your own module; pass it as encoder=")
    try:
        encoder = rebuilt(saved.card, saved.tensors, module)
    except UsageError:
        raise
    except (RuntimeError, ValueError) as error:  # weights of other shapes, or a card that nothing can be built from
        raise RunError(f"{folder.weights} cannot be read: {first_line(error)}") from None
    encoder.classifier = load_classifier(folder, encoder.embedding_dims)
    return encoder


def rebuilt(card: EncoderCard, weights: Mapping[str, Tensor], module: nn.Module | None = None) -> Encoder:
    """An encoder from its card and its weights, ``backbone.*`` and ``projector.*``, without a classifier.

    Args:
        card: description of the encoder.
        weights: all its weights by name, ``backbone.*`` and ``projector.*``; others are left aside.
        module: the user's own module, if the encoder was trained from one.

    Raises:
        RuntimeError: the weights are not those of the card.
    """
    require_float32()
    with usual_modes(), own_draws():  # the caller's random numbers are left alone
        if card.architecture == CUSTOM and module is not None:
            backbone = with_pooling(own_copy(module), card.in_shape)
        else:
            backbone = build_encoder(card.architecture, card.in_shape, card.stem)
        sizes = {"hidden": card.hidden, "features": card.features}
        projector = build_projector(card.projector, card.width, **sizes, details=card.projector_details)
    encoder = Encoder(card, backbone, projector)
    encoder.backbone.load_state_dict(part_of(weights, "backbone"))
    encoder.projector.load_state_dict(part_of(weights, "projector"))
    return encoder


@dataclass(frozen=True)
class SavedEncoder:
    """Encoder of a run as it was saved.

    Attributes:
        card: description of the encoder and of its input.
        tensors: its weights, ``backbone.*`` and ``projector.*``.
        sha256: hash of the file that holds them.
    """

    card: EncoderCard
    tensors: Mapping[str, Tensor]
    sha256: str


def part_of(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors under a name, without it.

    >>> list(part_of({"backbone.0.bias": torch.ones(1), "projector.bias": torch.ones(1)}, "backbone"))
    ['0.bias']
    """
    start = f"{name}."
    return {key.removeprefix(start): value for key, value in tensors.items() if key.startswith(start)}


def read_saved(folder: RunFolder) -> SavedEncoder:
    """Read what a run saved of its encoder, without building it.

    Raises:
        RunError: no encoder was saved yet, or a file is damaged.
    """
    card, digest = _read_card(folder)
    try:
        if sha256_of(folder.weights) != digest:
            raise RunError(
                f"{folder.weights} is damaged (its hash is not the one in {folder.encoder_card.name}); "
                f"{_repaired_by(folder)}"
            )
        return SavedEncoder(card, read_tensors(folder.weights), digest)
    except OSError as error:
        raise RunError(f"{folder.weights} cannot be read: {first_line(error)}") from None


def _read_card(folder: RunFolder) -> tuple[EncoderCard, str]:
    if not folder.encoder_card.exists():
        if folder.weights_name == EXPORT_WEIGHTS:
            raise RunError(f"{folder.path} was exported without its weights; export the run with --to safetensors")
        raise RunError(
            f"{folder.path} holds no trained encoder yet; "
            f"continue it with: counterpoint resume {shlex.quote(str(folder.path))}"
        )
    path = folder.encoder_card
    try:
        values = read_card(folder, path)
        version, digest = values.pop("format"), str(values.pop(WEIGHTS_SHA256))
        if version not in CARD_FORMATS:
            raise RunError(f"{path} has format {version}; this version reads {', '.join(map(str, CARD_FORMATS))}")
        read_sealed(path, must_be_sealed=version == CARD_FORMAT)
        return CARD.validate_python(asdict(EncoderCard(**values))), digest
    except (KeyError, TypeError) as error:
        raise RunError(f"{path} is damaged: {first_line(error)}; {_repaired_by(folder)}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise RunError(f"{path} is damaged: {first['loc'][0]}: {first['msg']}; {_repaired_by(folder)}") from None


def _repaired_by(folder: RunFolder) -> str:
    if folder.weights_name == EXPORT_WEIGHTS:
        return "export the run again, with --overwrite"
    return f"write it again with: counterpoint resume {shlex.quote(str(folder.path))}"
