"""Healthy feature sets of many families: nothing is wrong, however odd spectra, values or labels look."""

# N samples, P values of a sample, D features, C classes

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from sklearn.datasets import load_diabetes, make_swiss_roll
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.utils.extmath import randomized_svd

from calibration.feature_sets import (
    Draws,
    FeatureSet,
    Part,
    Values,
    World,
    codes,
    fitted_autoencoder,
    fitted_centres,
    fitted_network,
    fitted_pca,
    gaussian_embedding,
    good_features,
    log_uniform,
    random_net,
    random_waves,
    rotation,
    small_tables,
    spread,
    standardised,
)

Make = Callable[[World, Draws], FeatureSet]


@dataclass(frozen=True)
class Family:
    """Healthy feature sets of one family.

    Attributes:
        summary: what they are, in words.
        make: draws one.
        true_of_it: codes of findings that are right about it, and do not count as misleading.
    """

    summary: str
    make: Make
    true_of_it: tuple[str, ...] = ()


def _part(world: World, draws: Draws, kinds: tuple[str, ...] = ("photos", "digits", "table")) -> Part:
    """Samples of one kind, of those that are at hand."""
    at_hand = [kind for kind in kinds if kind in world.kinds] or ["digits"]
    return world.part(str(draws.choice(at_hand)))


def _some_places(draws: Draws, most: int, low: float = 300, high: float = 1500) -> Values:
    """Places of some samples in random order."""
    return draws.permutation(most)[: round(log_uniform(draws, min(low, most), min(high, most)))]


def _mapped(map_of: Callable[[Part, Draws], Callable[[Values], Values]], *kinds: str) -> Make:
    """Features of some samples of one kind of data under a map, half of them with another view."""

    def make(world: World, draws: Draws) -> FeatureSet:
        part = _part(world, draws, kinds or ("photos", "digits", "table"))
        places, function = _some_places(draws, len(part.y_N)), map_of(part, draws)
        views = function(part.other_NP[places]) if draws.integers(2) else None
        return FeatureSet(function(part.x_NP[places]), part.y_N[places], views, kind=part.kind)

    return make


def _changed(change: Callable[[FeatureSet, Draws], FeatureSet]) -> Make:
    """Good features that are changed in a way that does no harm."""

    def make(world: World, draws: Draws) -> FeatureSet:
        kind = str(draws.choice(world.kinds))
        return change(good_features(world, kind, draws), draws)

    return make


# ---- maps of data


def _as_it_is(part: Part, draws: Draws) -> Callable[[Values], Values]:
    low, high = part.x_NP.min(), part.x_NP.max()
    return lambda x_NP: (x_NP - low) / (high - low)  # 0 to 1, as pixels are


def _components(part: Part, draws: Draws) -> Callable[[Values], Values]:
    pca, width = fitted_pca(part), int(draws.integers(3, min(64, part.x_NP.shape[1]) + 1))
    return lambda x_NP: pca.transform(x_NP)[:, :width]


def _whitened(part: Part, draws: Draws) -> Callable[[Values], Values]:
    pca, width = fitted_pca(part), int(draws.integers(8, 25))
    size = np.sqrt(pca.explained_variance_[:width] + 1e-6)
    return lambda x_NP: pca.transform(x_NP)[:, :width] / size


def _random_net(part: Part, draws: Draws) -> Callable[[Values], Values]:
    return random_net(draws, part.x_NP.shape[1], int(draws.integers(16, 257)), depth=int(draws.integers(1, 3)))


def _rectified_net(part: Part, draws: Draws) -> Callable[[Values], Values]:
    net = random_net(draws, part.x_NP.shape[1], int(draws.integers(32, 257)))
    return lambda x_NP: np.maximum(net(x_NP) + 0.2, 0)


def _supervised_codes(part: Part, draws: Draws) -> Callable[[Values], Values]:
    net = fitted_network(part, (int(draws.choice([48, 96])),))
    return lambda x_NP: codes(net, x_NP, 1)


def _supervised_deep(part: Part, draws: Draws) -> Callable[[Values], Values]:
    net = fitted_network(part, (64, 48, 32))
    return lambda x_NP: codes(net, x_NP, 3)


def _autoencoder(part: Part, draws: Draws) -> Callable[[Values], Values]:
    net = fitted_autoencoder(part)
    return lambda x_NP: codes(net, x_NP, 2)


def _kernel(part: Part, draws: Draws) -> Callable[[Values], Values]:
    width = float(draws.uniform(0.3, 1.0)) * spread(part.x_NP) / np.sqrt(part.x_NP.shape[1])
    return random_waves(draws, part.x_NP.shape[1], int(draws.integers(32, 385)), width)


def _distances(part: Part, draws: Draws) -> Callable[[Values], Values]:
    centres_KP, is_near = fitted_centres(part), bool(draws.integers(2))

    def run(x_NP: Values) -> Values:
        apart = np.sqrt(((x_NP[:, None] - centres_KP) ** 2).sum(axis=2))
        return np.maximum(apart.mean(axis=1, keepdims=True) - apart, 0) if is_near else apart

    return run


def _sparse(part: Part, draws: Draws) -> Callable[[Values], Values]:
    """Soft-thresholded products with centres, most of them 0."""
    atoms_KP = fitted_centres(part, 96) - part.x_NP.mean(axis=0)
    products = (part.x_NP - part.x_NP.mean(axis=0)) @ atoms_KP.T
    least = np.quantile(products, draws.uniform(0.6, 0.85), axis=0)
    return lambda x_NP: np.maximum((x_NP - part.x_NP.mean(axis=0)) @ atoms_KP.T - least, 0)


# ---- generated features


def _power_law(world: World, draws: Draws) -> FeatureSet:
    num, width = round(log_uniform(draws, 300, 4000)), int(draws.integers(16, 257))
    size = np.arange(1, width + 1) ** -draws.uniform(0.25, 0.7)  # of deviations: variances fall by twice the exponent
    return FeatureSet(draws.normal(size=(num, width)) * size @ rotation(draws, width))


def _isotropic(world: World, draws: Draws) -> FeatureSet:
    return FeatureSet(draws.normal(size=(round(log_uniform(draws, 60, 2000)), round(log_uniform(draws, 2, 512)))))


def _manifold(world: World, draws: Draws) -> FeatureSet:
    """A swiss roll, a sphere or a torus, as it is or bent into more dimensions; classes are pieces of it."""
    num, form = round(log_uniform(draws, 300, 1500)), int(draws.integers(3))
    if form == 0:
        x_NP, along = make_swiss_roll(num, random_state=int(draws.integers(2**31)))
        x_NP = x_NP / 10
    elif form == 1:
        x_NP = draws.normal(size=(num, 3))
        x_NP /= np.linalg.norm(x_NP, axis=1, keepdims=True)
        along = np.arctan2(x_NP[:, 0], x_NP[:, 1])
    else:
        along, around = draws.uniform(0, 2 * np.pi, (2, num))
        x_NP = np.stack([np.cos(along), np.sin(along), np.cos(around), np.sin(around)], axis=1)
    y_N = np.digitize(along, np.quantile(along, [0.2, 0.4, 0.6, 0.8]))
    if draws.integers(2):
        x_NP = random_waves(draws, x_NP.shape[1], int(draws.integers(16, 129)), 0.5)(x_NP)
    return FeatureSet(x_NP, y_N)


def _near_collapse(world: World, draws: Draws) -> FeatureSet:
    """Class means at the corners of a simplex, and little around them: a good supervised network."""
    num_classes, width = int(draws.integers(3, 13)), int(draws.integers(24, 129))
    num = round(log_uniform(draws, 300, 1200))
    y_N = draws.integers(0, num_classes, num)
    means = rotation(draws, width)[:num_classes]
    z_ND = (
        means[y_N]
        - means.mean(axis=0)
        + log_uniform(draws, 0.05, 0.4) / np.sqrt(width) * draws.normal(size=(num, width))
    )
    return FeatureSet(z_ND * log_uniform(draws, 0.5, 20), y_N)


def _mixture(draws: Draws, num: int, width: int, num_classes: int, apart: float = 1.0) -> tuple[Values, Values]:
    """Classes with covariances of their own, some deviations apart in each direction."""
    y_N = draws.permutation(np.arange(num) % num_classes)
    means = apart * draws.normal(size=(num_classes, width))
    noise = draws.normal(size=(num, width)) * draws.uniform(0.5, 1.5, (num_classes, width))[y_N]
    return (means[y_N] + noise) @ rotation(draws, width), y_N


def _few_samples(world: World, draws: Draws) -> FeatureSet:
    return FeatureSet(
        *_mixture(draws, int(draws.integers(20, 101)), int(draws.integers(4, 33)), int(draws.integers(2, 5)))
    )


def _few_and_wide(world: World, draws: Draws) -> FeatureSet:
    return FeatureSet(*_mixture(draws, int(draws.integers(60, 200)), int(draws.integers(256, 513)), 4, 0.5))


def _two_dims(world: World, draws: Draws) -> FeatureSet:
    return FeatureSet(*_mixture(draws, round(log_uniform(draws, 200, 1500)), 2, int(draws.integers(2, 9)), 4.0))


def _many_classes(world: World, draws: Draws) -> FeatureSet:
    num = int(draws.integers(800, 2001))
    return FeatureSet(*_mixture(draws, num, int(draws.integers(32, 129)), num // int(draws.integers(3, 9)), 1.5))


def _without_classes(world: World, draws: Draws) -> FeatureSet:
    num, width = round(log_uniform(draws, 300, 1500)), int(draws.integers(8, 129))
    return FeatureSet(_mixture(draws, num, width, int(draws.integers(3, 10)))[0])


def _with_coarse_classes(world: World, draws: Draws) -> FeatureSet:
    """Each label has two to four clusters, as superclasses have."""
    z_ND, fine_N = _mixture(draws, round(log_uniform(draws, 400, 1500)), int(draws.integers(16, 97)), 12)
    return FeatureSet(z_ND, fine_N % int(draws.integers(3, 7)))


def _on_a_sphere(world: World, draws: Draws) -> FeatureSet:
    """Rows of unit length with another view near each, as a contrastive training leaves them."""
    z_ND, y_N = _mixture(draws, round(log_uniform(draws, 300, 1500)), int(draws.integers(16, 129)), 10, 0.7)
    views = z_ND + draws.uniform(0.1, 0.5) * draws.normal(size=z_ND.shape)
    return FeatureSet(_unit(z_ND), y_N, _unit(views))


def _unit(z_ND: Values) -> Values:
    return z_ND / np.linalg.norm(z_ND, axis=1, keepdims=True)


def _counts(draws: Draws) -> tuple[Values, Values]:
    """Words of documents of a few topics, (n, words)."""
    num, num_words, num_topics = round(log_uniform(draws, 300, 1200)), int(draws.integers(150, 501)), 6
    topics = draws.dirichlet(np.full(num_words, 0.08), num_topics)
    y_N = draws.integers(0, num_topics, num)
    mixed = draws.dirichlet(np.full(num_topics, 0.3), num) * 0.4 + 0.6 * np.eye(num_topics)[y_N]
    counts = draws.poisson(mixed @ topics * draws.integers(40, 200, (num, 1))).astype(float)
    return counts[:, counts.any(axis=0)], y_N  # a vocabulary has the words that occur


def _bag_of_words(world: World, draws: Draws) -> FeatureSet:
    return FeatureSet(*_counts(draws))


def _text_svd(world: World, draws: Draws) -> FeatureSet:
    counts, y_N = _counts(draws)
    weighted = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    left, size, _ = randomized_svd(weighted, int(draws.integers(16, 65)), random_state=int(draws.integers(2**31)))
    return FeatureSet(left * size, y_N)


def _discrete_table(world: World, draws: Draws) -> FeatureSet:
    """One-hot columns of categories, and small whole numbers; categories depend on the class."""
    num, num_classes, width = (
        round(log_uniform(draws, 300, 1500)),
        int(draws.integers(2, 6)),
        int(draws.integers(6, 16)),
    )
    y_N = draws.integers(0, num_classes, num)
    columns = []
    for _ in range(width):
        chances = draws.dirichlet(np.full(int(draws.integers(3, 7)), 0.6), num_classes)
        value = (draws.random((num, 1)) > chances.cumsum(axis=1)[y_N]).sum(axis=1).clip(0, chances.shape[1] - 1)
        columns.append(np.eye(chances.shape[1])[value])
    rates = draws.uniform(1, 6, (num_classes, 4))
    columns.append(draws.poisson(rates[y_N]) / 3)
    z_ND = np.hstack(columns)
    return FeatureSet(z_ND[:, z_ND.std(axis=0) > 0], y_N, kind="table")


def _table(world: World, draws: Draws) -> FeatureSet:
    x_NP, y_N = small_tables(int(draws.integers(2)))
    places = _some_places(draws, len(y_N), 120)
    return FeatureSet(standardised(x_NP[places]), y_N[places], kind="table")


def _unlabelled_table(world: World, draws: Draws) -> FeatureSet:
    x_NP = load_diabetes().data
    return FeatureSet(standardised(x_NP[_some_places(draws, len(x_NP), 150)]), kind="table")


# ---- changes that do no harm


def _half_precision(good: FeatureSet, draws: Draws) -> FeatureSet:
    return good.mapped(lambda z_ND: z_ND.astype(np.float16))


def _moved(good: FeatureSet, draws: Draws) -> FeatureSet:
    mean = draws.normal(size=good.z_ND.shape[1]) * good.z_ND.std() * draws.uniform(0.3, 1.0)
    return good.mapped(lambda z_ND: z_ND + mean)


def _sorted_by_class(good: FeatureSet, draws: Draws) -> FeatureSet:
    assert good.labels is not None
    return good.at(np.argsort(good.labels, kind="stable"))


def _partly_labelled(good: FeatureSet, draws: Draws) -> FeatureSet:
    """10 to 60 % of the labels are missing, marked as users mark them."""
    assert good.labels is not None
    is_missing = draws.random(len(good.labels)) < draws.uniform(0.1, 0.6)
    mark = (None, "", -1)[int(draws.integers(3))]
    labels = good.labels.astype(int) if mark == -1 else np.array([f"class {y}" for y in good.labels], dtype=object)
    return replace(good, labels=np.where(is_missing, np.array(mark, dtype=labels.dtype), labels))


def _long_tailed(good: FeatureSet, draws: Draws) -> FeatureSet:
    """The largest class is three to eight times as large as the smallest."""
    assert good.labels is not None
    num_classes = int(good.labels.max()) + 1
    share = draws.uniform(3, 8) ** (-np.arange(num_classes) / (num_classes - 1))
    return good.at(np.flatnonzero(draws.random(len(good.labels)) < share[good.labels]))


def _as_they_are(good: FeatureSet, draws: Draws) -> FeatureSet:
    return good


FEW = ("little-evidence",)
FAMILIES: Mapping[str, Family] = {
    "good features": Family("of three kinds of data, with another view", _changed(_as_they_are)),
    "raw values": Family("pixels, histograms of gradients and columns, from 0 to 1", _mapped(_as_it_is)),
    "principal components": Family("the first 3 to 64", _mapped(_components)),
    "whitened": Family("principal components of one variance", _mapped(_whitened)),
    "histograms of gradients": Family(
        "of photographs, as they are", _mapped(lambda part, draws: lambda x_NP: x_NP, "photos")
    ),
    "random net": Family("random weights, one or two hidden layers", _mapped(_random_net)),
    "random ReLU codes": Family("the same after ReLU", _mapped(_rectified_net)),
    "supervised codes": Family("ReLU codes of a classifier's hidden layer", _mapped(_supervised_codes)),
    "supervised, deep": Family("ReLU codes before the last layer of four", _mapped(_supervised_deep)),
    "near collapse": Family("class means on a simplex, little around them", _near_collapse, ("neural-collapse",)),
    "autoencoder codes": Family("16 values between tanh layers", _mapped(_autoencoder)),
    "kernel features": Family("random waves of a Gaussian kernel", _mapped(_kernel)),
    "distances to centres": Family("of k-means, as they are or as activations", _mapped(_distances)),
    "sparse codes": Family("60 to 85 % of the values are 0", _mapped(_sparse)),
    "power law": Family("variances fall as a power of their number", _power_law),
    "isotropic": Family("normal values, 2 to 512 dimensions", _isotropic, FEW),
    "manifold": Family("swiss roll, sphere, torus, and bent ones", _manifold),
    "float16": Family("good features in half precision", _changed(_half_precision)),
    "non-zero mean": Family("good features with a mean of their own", _changed(_moved)),
    "few samples": Family("20 to 100", _few_samples, FEW),
    "fewer samples than dimensions": Family("60 to 200 in 256 to 512", _few_and_wide, FEW),
    "two dimensions": Family("two to eight classes in a plane", _two_dims),
    "many classes": Family("100 to 600, of three to eight samples", _many_classes),
    "clusters without labels": Family("three to nine", _without_classes),
    "coarse classes": Family("each label has two to four clusters", _with_coarse_classes, ("parted-label",)),
    "on a sphere": Family("unit length, with another view", _on_a_sphere),
    "bag of words": Family("counts of 150 to 500 words", _bag_of_words),
    "text, SVD": Family("16 to 64 directions of weighted counts", _text_svd),
    "discrete table": Family("one-hot columns and small numbers", _discrete_table),
    "table": Family("breast cancer and wine, standardised", _table),
    "table without labels": Family("diabetes, standardised", _unlabelled_table),
    "Gaussian by its loss": Family(
        "SIGReg's or InfoNCE's, without classes", lambda _, draws: gaussian_embedding(draws)
    ),
    "contrast with classes": Family(
        "InfoNCE's, with 10 to 100 classes",
        lambda _, draws: replace(gaussian_embedding(draws, int(draws.integers(10, 101))), gaussian_by="theory"),
    ),
    "sorted by class": Family("good features, one class after another", _changed(_sorted_by_class)),
    "partly labelled": Family('10 to 60 % of the labels are None, "" or -1', _changed(_partly_labelled)),
    "long tail": Family("classes of unequal size, up to 8 to 1", _changed(_long_tailed)),
}
