"""Samples of three kinds, and the maps that make features of them: what healthy and faulty feature sets are drawn from.

The kinds are photographs (given on the command line), digits, and tables. Every kind has two parts without a common
sample, 0 to choose limits by and 1 to publish figures of. Maps are fitted once for each part.
"""

# N samples, P values of a sample, D features, K centres

import itertools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier, MLPRegressor

from calibration.spoiled_samples import Sample

Values = NDArray[Any]
Draws = np.random.Generator
KINDS = ("photos", "digits", "table")
NUM_CELLS, NUM_ANGLES = 4, 8  # of histograms of gradients
CLASSES_OF_PHOTOS = 12  # those that neighbours tell best
PER_CLASS = 60
MOST_TABLE_ROWS = 1500
FITTED_AT = 0  # seed of all maps that are fitted


@dataclass(frozen=True)
class FeatureSet:
    """Features as a user hands them to a diagnosis.

    Attributes:
        z_ND: features.
        labels: of the samples, as a user has them; None without any.
        views: features of another view of the same samples.
        kind: of the data.
        gaussian_by: why the features should be Gaussian; see ``Evidence.gaussian_by``.
    """

    z_ND: Values
    labels: Values | None = None
    views: Values | None = None
    kind: str = "generated"
    gaussian_by: Literal["", "loss", "theory"] = ""

    def at(self, places: Values) -> "FeatureSet":
        """The features, labels and views of some samples, in the order of their places."""
        arrays = {
            name: None if (part := getattr(self, name)) is None else part[places]
            for name in ("z_ND", "labels", "views")
        }
        return replace(self, **arrays)

    def mapped(self, function: Callable[[Values], Values]) -> "FeatureSet":
        """Features and views under one function."""
        views = None if self.views is None else function(self.views)
        return replace(self, z_ND=function(self.z_ND), views=views)


@dataclass(frozen=True, eq=False)  # compared by identity, so that maps can be kept by part
class Part:
    """Samples of one kind.

    Attributes:
        x_NP: values, of the order of 1.
        y_N: classes, 0 or above.
        other_NP: the same samples, seen otherwise: moved a little, in other light, or with noise.
        kind: of the data.
    """

    x_NP: Values
    y_N: Values
    other_NP: Values
    kind: str


class World:
    """All samples of one set of a calibration.

    Args:
        number: of the part; 0 to choose limits by, 1 to publish figures of.
        photos: small pictures with classes; without them there are digits and tables alone.
    """

    def __init__(self, number: int, photos: Sample | None = None) -> None:
        self.number = number
        self._photos = photos
        self._parts: dict[str, Part] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of data that the set has."""
        return KINDS if self._photos is not None else KINDS[1:]

    def part(self, kind: str) -> Part:
        """Samples of a kind, drawn once."""
        if kind not in self._parts:
            draws = np.random.default_rng([FITTED_AT, self.number])
            if kind == "photos":
                assert self._photos is not None
                self._parts[kind] = _photos(self._photos, self.number, draws)
            else:
                self._parts[kind] = (_digits if kind == "digits" else _table)(self.number, draws)
        return self._parts[kind]


def _photos(sample: Sample, number: int, draws: Draws) -> Part:
    """Histograms of gradients and small pictures; of every second class, those that neighbours tell best."""
    is_mine = np.isin(sample.classes, np.unique(sample.classes)[number::2])
    sample = sample.at(np.flatnonzero(is_mine))
    x_NP = described(sample.pictures)
    y_N = np.unique(sample.classes, return_inverse=True)[1]
    sizes = np.bincount(y_N)
    order = np.argsort(np.where(sizes >= 20, -_neighbour_accuracy(x_NP, y_N), 1.0), kind="stable")[:CLASSES_OF_PHOTOS]
    places = np.concatenate([draws.permutation(np.flatnonzero(y_N == label))[:PER_CLASS] for label in order])
    pictures = sample.pictures[places]
    light = draws.uniform(0.9, 1.1, (len(places), 1, 1, 1))
    other = (np.roll(pictures, 1, axis=2) * light).clip(0, 255)
    return Part(x_NP[places], np.unique(y_N[places], return_inverse=True)[1], described(other), "photos")


def described(pictures: Values) -> Values:
    """Histograms of gradients in 4 x 4 cells, of length 1 for each cell, and a picture of 4 x 4 pixels; (n, 176)."""
    grey = pictures.mean(axis=3) / 255.0
    down, across = np.gradient(grey, axis=(1, 2))
    angle = ((np.arctan2(down, across) % np.pi) / np.pi * NUM_ANGLES).astype(int) % NUM_ANGLES
    strength = np.hypot(down, across)
    by_angle = np.stack([strength * (angle == number) for number in range(NUM_ANGLES)], axis=3)
    cells = _cells(by_angle)
    cells /= np.linalg.norm(cells, axis=3, keepdims=True) + 0.01
    return np.concatenate([cells.reshape(len(cells), -1), _cells(pictures / 255.0).reshape(len(cells), -1)], axis=1)


def _cells(maps: Values) -> Values:
    """Means over 4 x 4 cells of (n, h, w, c)."""
    num, side, _, channels = maps.shape
    covered = side - side % NUM_CELLS
    size = covered // NUM_CELLS
    return maps[:, :covered, :covered].reshape(num, NUM_CELLS, size, NUM_CELLS, size, channels).mean(axis=(2, 4))


def _neighbour_accuracy(x_NP: Values, y_N: Values) -> Values:
    """Share of each class's samples whose nearest neighbour is of the class."""
    squares = (x_NP**2).sum(axis=1)
    apart = squares[:, None] + squares - 2 * x_NP @ x_NP.T
    np.fill_diagonal(apart, np.inf)
    is_right = y_N[apart.argmin(axis=1)] == y_N
    return np.bincount(y_N, weights=is_right) / np.maximum(np.bincount(y_N), 1)


def _digits(number: int, draws: Draws) -> Part:
    """Every second digit of scikit-learn; another view is moved by at most a third of a pixel, with noise."""
    digits = load_digits()
    pictures = digits.images[number::2] / 8 - 1
    steps = draws.integers(-1, 2, (len(pictures), 2))
    moved = np.stack([np.roll(picture, step, (0, 1)) for picture, step in zip(pictures, steps, strict=True)])
    share = draws.uniform(0, 0.33, (len(pictures), 1, 1))
    noisy = (1 - share) * pictures + share * moved + 0.1 * draws.normal(size=moved.shape)
    return Part(
        pictures.reshape(len(pictures), -1), digits.target[number::2], noisy.reshape(len(pictures), -1), "digits"
    )


def _table(number: int, draws: Draws) -> Part:
    """Part 0: six generated classes of 24 columns; part 1: seven of 40, and other noise; standardised."""
    num_classes, num_columns = ((6, 24), (7, 40))[number]
    x_NP, y_N = make_classification(
        MOST_TABLE_ROWS, num_columns, n_informative=num_columns // 2, n_redundant=0,
        n_classes=num_classes, n_clusters_per_class=1, class_sep=2.5, flip_y=0.0, random_state=FITTED_AT + number,
    )  # fmt: skip
    # A saturating and a skewed column, as tables have them.
    x_NP[:, 0], x_NP[:, 1] = np.tanh(x_NP[:, 0]), np.exp(x_NP[:, 1] / 4)
    x_NP = standardised(x_NP)
    return Part(x_NP, y_N, x_NP + 0.2 * draws.normal(size=x_NP.shape), "table")


def small_tables(number: int) -> tuple[Values, Values]:
    """A published table and its classes: breast cancer (0) or wine (1), standardised."""
    x_NP, y_N = (load_breast_cancer, load_wine)[number](return_X_y=True)
    return standardised(np.asarray(x_NP)), np.asarray(y_N)


def standardised(x_NP: Values) -> Values:
    """Each column with mean 0 and deviation 1."""
    return (x_NP - x_NP.mean(axis=0)) / np.maximum(x_NP.std(axis=0), 1e-12)


# ---- maps, each fitted once for each part of each kind


@cache
def fitted_pca(part: Part) -> PCA:
    """Principal components."""
    return PCA(svd_solver="full").fit(part.x_NP)


@cache
def fitted_network(part: Part, widths: tuple[int, ...] = (64,)) -> MLPClassifier:
    """A classifier that was trained on every second sample."""
    net = MLPClassifier(widths, max_iter=150, random_state=FITTED_AT)
    return _quietly_fitted(net, part.x_NP[::2], part.y_N[::2])


@cache
def fitted_autoencoder(part: Part) -> MLPRegressor:
    """A network that gives back its input, through 16 values."""
    net = MLPRegressor(hidden_layer_sizes=(64, 16, 64), activation="tanh", max_iter=80, random_state=FITTED_AT)
    return _quietly_fitted(net, part.x_NP, part.x_NP)


@cache
def fitted_centres(part: Part, num_centres: int = 48) -> Values:
    """Centres of k-means, (k, p)."""
    return KMeans(num_centres, n_init=1, random_state=FITTED_AT).fit(part.x_NP).cluster_centers_


def _quietly_fitted(net: Any, x_NP: Values, y_N: Values) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # codes of a net that could learn longer are healthy, too
        return net.fit(x_NP, y_N)


def codes(net: Any, x_NP: Values, depth: int) -> Values:
    """Activations of a hidden layer of a scikit-learn network."""
    nonlinear: Mapping[str, Callable[[Values], Values]] = {"relu": lambda h: np.maximum(h, 0), "tanh": np.tanh}
    for weight, bias in list(zip(net.coefs_, net.intercepts_, strict=True))[:depth]:
        x_NP = nonlinear[net.activation](x_NP @ weight + bias)
    return x_NP


def random_net(draws: Draws, num_in: int, num_out: int, *, depth: int = 1) -> Callable[[Values], Values]:
    """A network of random weights, with ReLU between its layers and none at the end."""
    widths = [num_in, *[2 * num_out] * depth, num_out]
    weights = [draws.normal(size=(a, b)) * np.sqrt(2 / a) for a, b in itertools.pairwise(widths)]
    biases = [0.3 * draws.normal(size=b) for b in widths[1:]]

    def run(x_NP: Values) -> Values:
        for weight, bias in list(zip(weights, biases, strict=True))[:-1]:
            x_NP = np.maximum(x_NP @ weight + bias, 0)
        return x_NP @ weights[-1]

    return run


def random_waves(draws: Draws, num_in: int, num_out: int, width: float) -> Callable[[Values], Values]:
    """Fourier features of a Gaussian kernel of some width, in units of the root of the number of inputs."""
    weights, phase = (
        draws.normal(size=(num_in, num_out)) / (width * np.sqrt(num_in)),
        draws.uniform(0, 2 * np.pi, num_out),
    )
    return lambda x_NP: np.cos(x_NP @ weights + phase)


def rotation(draws: Draws, num: int) -> Values:
    """A random orthogonal matrix."""
    return np.linalg.qr(draws.normal(size=(num, num)))[0]


def spread(z_ND: Values) -> float:
    """Root of the mean squared distance of rows from their mean."""
    return float(np.sqrt(((z_ND - z_ND.mean(axis=0)) ** 2).sum(axis=1).mean()))


def log_uniform(draws: Draws, low: float, high: float) -> float:
    """A number between two, each factor as likely as another."""
    return float(np.exp(draws.uniform(np.log(low), np.log(high))))


# ---- good features to put faults into


def good_features(world: World, kind: str, draws: Draws) -> FeatureSet:
    """Features that tell classes, of one kind of data, with another view.

    Part 0 has principal components. Part 1 has codes of a network (digits), random waves (photographs), and its
    columns under a random net beside the columns (table): another map for each kind than part 0.
    """
    part = world.part(kind)
    most = len(part.y_N)
    places = draws.permutation(most)[: int(log_uniform(draws, min(300, most), min(1200, most)) + 0.5)]
    if world.number == 0:
        pca = fitted_pca(part)
        width = min(int(draws.integers(24, 49)), part.x_NP.shape[1])
        function: Callable[[Values], Values] = lambda x_NP: pca.transform(x_NP)[:, :width] @ mixing  # noqa: E731
        mixing = rotation(draws, width)
    elif kind == "digits":
        net = fitted_network(part, (96,))
        function = lambda x_NP: codes(net, x_NP, 1) + 0.02  # noqa: E731 (no feature is 0 for all by chance)
    elif kind == "photos":
        function = random_waves(draws, part.x_NP.shape[1], int(draws.integers(64, 200)), 0.35)
    else:
        net = random_net(draws, part.x_NP.shape[1], 40)
        function = lambda x_NP: np.hstack([x_NP, 0.5 * net(x_NP)])  # noqa: E731
    return FeatureSet(function(part.x_NP[places]), part.y_N[places], function(part.other_NP[places]), kind=kind)


def gaussian_embedding(draws: Draws, num_classes: int = 0) -> FeatureSet:
    """Embedding of a training whose loss wants a Gaussian: one of uneven spectrum, or unit-length rows for InfoNCE.

    Args:
        draws: of size, width, spectrum and loss.
        num_classes: classes that have means of their own, half a deviation to one apart in each direction; 0 for none.
    """
    num, width = round(log_uniform(draws, 300, 4000)), round(log_uniform(draws, 16, 256))
    size = np.arange(1, width + 1) ** -draws.uniform(0, 0.4)
    z_ND = draws.normal(size=(num, width))
    if num_classes:
        z_ND += draws.uniform(0.5, 1) * draws.normal(size=(num_classes, width))[draws.integers(0, num_classes, num)]
    z_ND = z_ND * size @ rotation(draws, width)
    if draws.integers(2):
        return FeatureSet(z_ND, gaussian_by="loss")
    return FeatureSet(z_ND / np.linalg.norm(z_ND, axis=1, keepdims=True), gaussian_by="theory")
