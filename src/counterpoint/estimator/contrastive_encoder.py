"""A scikit-learn estimator: ``fit`` trains an encoder by contrast, ``transform`` gives its representations."""

import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from numbers import Integral
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from safetensors.torch import load as tensors_of
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data
from torch import Tensor

from counterpoint.core.checks import check_held
from counterpoint.core.errors import DataError, InterruptedRunError, UsageError, unknown_name
from counterpoint.core.ranks import read_ranks
from counterpoint.core.run import Run
from counterpoint.core.validation import merge, nest
from counterpoint.engine.placement import place
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.nn.classifier import BIASES, WEIGHTS, Classifier
from counterpoint.nn.layer_outputs import EMBEDDING, REPRESENTATION
from counterpoint.nn.tensor_file import file_bytes
from counterpoint.nn.trained import Encoder, EncoderCard, load, part_of, rebuilt
from counterpoint.runs.training import train

AUTO = "auto"
# Parameters, and the settings that they set.
SETTINGS: Mapping[str, str] = {
    "method": "method",
    "encoder": "encoder",
    "epochs": "epochs",
    "batch_size": "batch_size",
    "temperature": "temperature",
    "learning_rate": "optim.learning_rate",
    "views": "views",
    "device": "engine.device",
    "random_state": "seed",
    "out": "out",
}
OF_TRAIN_ALONE = ("data", "labels", "recipe", "resume", "overwrite", "quiet", "seeds")
LAYERS = (REPRESENTATION, EMBEDDING)
FEWEST_SAMPLES = 4  # of a training
IMAGE_AXES = (3, 4)  # (n, h, w), and with channels
ROWS = 16  # of vectors, at least, that pass together: products with fewer rows have other last bits
_ONE_FIT = threading.Lock()  # a process trains one run at a time; fits in several threads take turns


class ContrastiveEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Learn representations by contrast, as a transformer of scikit-learn.

    ``fit`` is ``cp.train`` on all samples that it is given, with the same names and meanings: what is left at ``auto``
    is chosen for the data. The fitted estimator holds the encoder in memory and needs no file. It can be pickled as
    scikit-learn's estimators are, and loading a pickle runs code of its author: to give an encoder away, or to keep it,
    use the run folder (``out``) and ``cp.load``, which unpickles nothing.

    Args:
        method: name of the method; see ``counterpoint list methods``.
        encoder: a name of the encoder catalogue, or ``timm:NAME``.
        layer: output of ``transform``: ``representation``, or ``embedding``, which the loss compared, at unit length.
        epochs: passes over the samples, or ``auto`` for about 400 updates.
        batch_size: distinct samples per step, >= 2.
        temperature: similarity scale of the loss, > 0.
        learning_rate: peak of the schedule, > 0.
        views: a preset of ``counterpoint list views``, a mapping such as ``{"noise": 0.1}``, or a function of your own
            (see ``OwnViews``).
        device: ``cpu``, ``cuda``, or ``auto`` for the GPU if there is one.
        random_state: a whole number (the ``seed`` of ``cp.train``), a ``RandomState``, or None for numpy's global one.
        verbose: 0 is silent, >= 1 shows progress on standard error.
        out: run folder to create and keep; None trains in a temporary one, which is removed.
        settings: any further setting of ``cp.train``, nested: ``{"optim": {"name": "sgd"}}``.

    Attributes:
        encoder_: the trained ``Encoder``, a torch module in evaluation mode.
        history_: one record per epoch: loss, chance, learning rate, ...
        run_: the ``Run`` in ``out``; None without one. It has the path alone, not the data.
        seed_: seed of the training.
        sample_shape_: shape of one sample as it was given: (features,), (h, w) or (h, w, c).
        n_features_in_: number of features of vectors.
        feature_names_in_: names of columns, if the vectors had some.

    >>> X = np.random.default_rng(0).normal(size=(12, 3))
    >>> encoder = ContrastiveEncoder(epochs=1, random_state=0).fit(X)
    >>> encoder.transform(X).shape
    (12, 256)
    """

    def __init__(  # noqa: PLR0913 (scikit-learn reads the parameters from here)
        self,
        method: str = "simclr",
        *,
        encoder: str = "auto",
        layer: str = REPRESENTATION,
        epochs: int | str = "auto",
        batch_size: int | str = "auto",
        temperature: float | str = "auto",
        learning_rate: float | str = "auto",
        views: Any = "auto",
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
        out: str | Path | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.encoder = encoder
        self.layer = layer
        self.epochs = epochs
        self.batch_size = batch_size
        self.temperature = temperature
        self.learning_rate = learning_rate
        self.views = views
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.out = out
        self.settings = settings

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train an encoder.

        Args:
            X: vectors (n, features), also a data frame; or images (n, h, w) or (n, h, w, c), uint8 or floats in [0, 1].
                At least 4.
            y: one class per sample, for methods that learn from labels (``supcon``, ``supervised``, ...). Other methods
                do not use it.

        Raises:
            ValueError: parameters, samples or labels that cannot be used.
            TypeError: sparse samples.
            RunError: ``out`` exists.
        """
        # Parameters that `cp.train` does not have are checked first: a mistake in them shows whatever the data are.
        self._check_layer()
        if not isinstance(self.verbose, Integral) or self.verbose < 0:
            raise UsageError(f"verbose must be a whole number >= 0, got {self.verbose!r}")
        if not isinstance(self.out, str | Path | None):
            raise UsageError(f"out must be the path of a folder, or None, got {self.out!r}")
        if read_ranks(os.environ).world_size > 1:
            raise UsageError("ContrastiveEncoder trains in one process; several ranks train with cp.train")
        arguments = train_arguments(self.get_params(deep=False), seed_of(self.random_state))
        samples, labels = self._check_samples(X, y)
        if labels is not None:  # train on all samples: a caller who wants some held out splits them off
            arguments = merge({"source": {"holdout": 0.0}}, arguments)
        with _ONE_FIT, _run_folder(self.out) as folder:
            run = train(samples, labels=labels, quiet=not self.verbose, **{**arguments, "out": str(folder)})
            encoder, history = load(run), run.metrics
        self.encoder_ = encoder.to(place(self.device, "fp32").torch_device)
        self.history_ = history
        self.run_ = None if self.out is None else Run(run.path)
        self.seed_ = int(arguments["seed"])
        self.sample_shape_ = tuple(samples.shape[1:])
        return self

    def transform(self, X: Any) -> Any:
        """Representations or embeddings, float32 (n, dimensions).

        A sample's row does not depend on the others.

        Args:
            X: samples of the kind and shape that ``fit`` was given.

        Raises:
            NotFittedError: ``fit`` was not called.
            ValueError: samples of another kind, shape or range.
        """
        check_is_fitted(self, "encoder_")
        self._check_layer()
        X = _without_torch(X, "X")
        if len(self.sample_shape_) == 1:
            samples = self._vectors(X, reset=False)
        else:
            samples = self._images(X, fewest=1)
            if samples.shape[1:] != self.sample_shape_:
                raise DataError(
                    f"X has samples of shape {samples.shape[1:]}, but ContrastiveEncoder was fitted with "
                    f"{self.sample_shape_}"
                )
        num_samples = len(samples)
        if samples.ndim == 2:
            samples = np.concatenate([samples, np.repeat(samples[-1:], -num_samples % ROWS, axis=0)])
        representations, embeddings = self.encoder_.both(samples)
        return (representations if self.layer == REPRESENTATION else embeddings)[:num_samples].numpy()

    @property
    def _n_features_out(self) -> int:
        """Number of dimensions that ``transform`` gives; scikit-learn's mixin of names reads it."""
        encoder: Encoder = self.encoder_
        return encoder.card.width if self.layer == REPRESENTATION else encoder.embedding_dims

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True  # grey images
        tags.target_tags.required = self._needs_labels
        assert tags.transformer_tags is not None
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return plain values; the encoder becomes its card and the bytes of its weights, never a live module."""
        state = dict(cast(Mapping[str, Any], super().__getstate__()))
        if "encoder_" in state:
            encoder: Encoder = self.encoder_
            parts, classifier = ("backbone", "projector", "classifier"), encoder.classifier
            tensors = {name: value for name, value in encoder.state_dict().items() if name.split(".", 1)[0] in parts}
            state["encoder_"] = {
                "card": asdict(encoder.card),
                "weights": file_bytes(tensors),
                "device": encoder.device.type,
                "classes": None if classifier is None else classifier.class_names,
                "is_nonnegative": classifier is not None and classifier.is_nonnegative,
            }
            state["run_"] = None if self.run_ is None else str(self.run_.path)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Build the encoder again, to the bit, on its earlier device if this machine has it, else on the CPU."""
        state = dict(state)
        if "encoder_" in state:
            values = state["encoder_"]
            tensors = tensors_of(values["weights"])
            encoder = rebuilt(EncoderCard(**values["card"]), tensors)
            if values["classes"] is not None:
                own = part_of(tensors, "classifier")
                encoder.classifier = Classifier(
                    values["classes"], own[WEIGHTS], own.get(BIASES), is_nonnegative=values["is_nonnegative"]
                )
            is_on_gpu = values["device"] == "cuda" and torch.cuda.is_available()
            state["encoder_"] = encoder.to("cuda" if is_on_gpu else "cpu")
            state["run_"] = None if state["run_"] is None else Run(Path(state["run_"]))
        super().__setstate__(state)

    @property
    def _needs_labels(self) -> bool:
        """True if the method is a known one that learns from labels."""
        return isinstance(self.method, str) and self.method in METHODS and METHODS[self.method].needs_labels

    def _check_layer(self) -> None:
        if self.layer not in LAYERS:
            raise unknown_name("layer", str(self.layer), LAYERS)

    def _check_samples(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Return samples as ``cp.train`` takes them, and labels or None."""
        X, y = _without_torch(X, "X"), _without_torch(y, "y")
        if (X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim) in IMAGE_AXES:
            samples = self._images(X, fewest=FEWEST_SAMPLES)
            for name in ("n_features_in_", "feature_names_in_"):
                vars(self).pop(name, None)  # of an earlier fit to vectors
            if y is None and self._needs_labels:
                raise UsageError(f"method {self.method} learns from labels; give them as y")
        elif self._needs_labels:
            samples, y = self._vectors(X, y, ensure_min_samples=FEWEST_SAMPLES)
        else:
            samples = self._vectors(X, ensure_min_samples=FEWEST_SAMPLES)
        if y is None:
            return samples, None
        check_consistent_length(samples, y)
        if self._needs_labels:
            check_classification_targets(y)
        labels = np.asarray(y)
        # Targets of a regression, or of several tasks, are for what comes after this step.
        is_usable = self._needs_labels or (labels.ndim == 1 and labels.dtype.kind in "iubUSO")
        return samples, labels if is_usable else None

    def _vectors(self, *arrays: Any, **options: Any) -> Any:
        return validate_data(self, *arrays, dtype=np.float32, **options)

    def _images(self, X: Any, *, fewest: int) -> np.ndarray:
        allowed: dict[str, Any] = {"dtype": "numeric", "ensure_2d": False, "allow_nd": True}
        return check_array(X, **allowed, ensure_min_samples=fewest, estimator=self, input_name="X")


def _without_torch(values: Any, name: str) -> Any:
    """Convert tensors, also those in a list, to NumPy arrays; leave anything else as it is."""
    if isinstance(values, list | tuple) and any(isinstance(value, Tensor) for value in values):
        return [_without_torch(value, name) for value in values]
    if not isinstance(values, Tensor):
        return values
    check_held(values, name)
    tensor = values.detach().cpu().resolve_conj().resolve_neg()
    is_half = tensor.is_floating_point() and tensor.itemsize < 4  # NumPy has only one such type
    return (tensor.float() if is_half else tensor).numpy()


@contextmanager
def _run_folder(out: str | Path | None) -> Iterator[Path]:
    if out is not None:
        yield Path(out)
        return
    with tempfile.TemporaryDirectory(prefix="counterpoint-") as folder:
        try:
            yield Path(folder) / "run"
        except InterruptedRunError as error:
            # As in any other Python program that Ctrl-C stops: there will be nothing to continue with.
            raise KeyboardInterrupt("training was stopped; nothing is kept without out") from error


def train_arguments(parameters: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return the settings to train with, nested; those left at ``auto`` are not among them.

    Args:
        parameters: parameters of the estimator, by name.
        seed: seed of the training, as ``seed_of`` gives it.

    Raises:
        UsageError: ``settings`` is no mapping, or holds what is a parameter of its own; an encoder without a name.

    >>> parameters = {"method": "ncl", "learning_rate": 0.01, "settings": {"optim": {"name": "sgd"}}}
    >>> train_arguments(parameters, seed=3)
    {'optim': {'name': 'sgd', 'learning_rate': 0.01}, 'method': 'ncl', 'seed': 3}
    """
    further_settings = _further_settings(parameters.get("settings"))
    values = {name: _plain(parameters[name]) for name in SETTINGS if name in parameters}
    if not isinstance(values.get("encoder", AUTO), str):
        kind = type(values["encoder"]).__name__
        raise UsageError(f"encoder must be a name, got {kind}; cp.train takes a module of your own")
    if isinstance(values.get("views"), str):
        values["views"] = {"preset": values["views"]}  # its own default is auto, too
    # Arrays and the like are not compared with a text.
    settings = {SETTINGS[name]: value for name, value in values.items() if not isinstance(value, str) or value != AUTO}
    if settings.get("out") is None:
        settings.pop("out", None)
    return nest({**further_settings, **settings, "seed": seed})


def seed_of(random_state: Any) -> int:
    """Return the seed of a run: a whole number as it is, or drawn from a generator as scikit-learn draws.

    Args:
        random_state: a whole number >= 0, a ``numpy.random.RandomState``, or None for numpy's global one.

    Raises:
        UsageError: a negative number.
        ValueError: ``random_state`` is none of these.

    >>> seed_of(7), seed_of(np.random.RandomState(0)) == seed_of(np.random.RandomState(0))
    (7, True)
    """
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        if not 0 <= random_state < 2**63:
            raise UsageError(f"random_state must be a whole number >= 0 and < 2**63, got {random_state}")
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def _further_settings(settings: Any) -> dict[str, Any]:
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise UsageError(
            f"settings must be a mapping such as {{'optim': {{'name': 'sgd'}}}}, got {type(settings).__name__}"
        )
    nested = nest(_plain(settings))
    for name in OF_TRAIN_ALONE:
        if name in nested:
            raise UsageError(f"settings cannot hold {name}, which belongs to cp.train; leave it out")
    for name, path in SETTINGS.items():
        section, _, leaf = path.partition(".")
        place = nested.get(section)
        if section in nested and (not leaf or (isinstance(place, Mapping) and leaf in place)):
            raise UsageError(f"settings cannot hold {path}, which is the parameter {name}; give it there")
    return nested


def _plain(value: Any) -> Any:
    """Convert numbers of NumPy, which grids of parameters hold, to those of Python."""
    if isinstance(value, Mapping):
        return {name: _plain(child) for name, child in value.items()}
    return value.item() if isinstance(value, np.generic) else value
