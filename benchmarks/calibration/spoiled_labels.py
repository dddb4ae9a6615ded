"""Features whose labels, or whose second view, have a fault."""

# N samples, D features

from dataclasses import replace

import numpy as np

from calibration.feature_sets import Draws, FeatureSet, Values
from calibration.spoiled_features import Spoil, some_places


def _labels(good: FeatureSet) -> Values:
    assert good.labels is not None
    return good.labels.astype(int)


def wrong_labels(low: float, high: float, *, is_next: bool) -> Spoil:
    """A share of the labels is that of another class: of any, or always of the next one."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        y_N, num_classes = _labels(good).copy(), int(_labels(good).max()) + 1
        rows = some_places(draws, len(y_N), draws.uniform(low, high))
        y_N[rows] += 1 if is_next else draws.integers(1, num_classes, len(rows))
        return replace(good, labels=y_N % num_classes)

    return spoil


def labels_in_other_order(good: FeatureSet, draws: Draws) -> FeatureSet:
    """Labels are those of other rows, at random."""
    return replace(good, labels=draws.permutation(_labels(good)))


def labels_moved_down(good: FeatureSet, draws: Draws) -> FeatureSet:
    """Each label is that of another row, some places above."""
    return replace(good, labels=np.roll(_labels(good), int(draws.integers(1, 50))))


def split(num_classes: int, share: float) -> Spoil:
    """Classes whose samples have one of two labels, at random."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        y_N = _labels(good).copy()
        most = int(y_N.max()) + 1
        for number, label in enumerate(draws.permutation(most)[:num_classes]):
            y_N[(y_N == label) & (draws.random(len(y_N)) < share)] = most + number
        return replace(good, labels=y_N)

    return spoil


def merged(num_labels: int, num_classes: int) -> Spoil:
    """Labels that stand for several classes each, which lie far apart."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        y_N = _labels(good)
        to = np.arange(int(y_N.max()) + 1)
        order = draws.permutation(len(to))[: num_labels * num_classes]
        for members in np.array_split(order, num_labels):
            to[members] = members[0]
        return replace(good, labels=np.unique(to[y_N], return_inverse=True)[1])

    return spoil


def one_hot_labels(strength: float) -> Spoil:
    """Further columns hold the label, one for each class."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        y_N = _labels(good)
        added = strength * good.z_ND.std() * np.eye(int(y_N.max()) + 1)[y_N]
        return good.mapped(lambda z_ND: np.hstack([z_ND, added]))

    return spoil


def label_column(noise: float) -> Spoil:
    """One column is the number of the label, in an order of its own, with a little noise."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        y_N = _labels(good)
        number = draws.permutation(int(y_N.max()) + 1)[y_N] + noise * draws.normal(size=len(y_N))
        column = int(draws.integers(good.z_ND.shape[1]))
        size = good.z_ND.std() / number.std()

        def run(z_ND: Values) -> Values:
            changed_ND = z_ND.copy()
            changed_ND[:, column] = size * (number - number.mean())
            return changed_ND

        return good.mapped(run)

    return spoil


def unequal_classes(low: float, high: float, num_rare: int) -> Spoil:
    """One label has nearly all samples: a class, or several as one where a class is small; few are left of others."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        y_N, share = _labels(good), draws.uniform(low, high)
        sizes, order = np.bincount(y_N), draws.permutation(int(y_N.max()) + 1)
        num_common = int(np.searchsorted(sizes[order[num_rare:]].cumsum(), 200)) + 1
        is_common = np.isin(y_N, order[num_rare:][:num_common])
        rare_N = draws.permutation(np.flatnonzero(np.isin(y_N, order[:num_rare])))
        num_rare_rows = max(round(is_common.sum() * (1 - share) / share), 2 * num_rare)
        places = draws.permutation(np.concatenate([np.flatnonzero(is_common), rare_N[:num_rare_rows]]))
        return replace(good, labels=np.where(is_common, -1, y_N) + 1).at(places)

    return spoil


# ---- views


def same_views(low: float, high: float, noise: float) -> Spoil:
    """The second view of a share of the rows is the first, but for noise."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        assert good.views is not None
        views = good.views.copy()
        rows = some_places(draws, len(views), draws.uniform(low, high))
        size = noise * good.z_ND.std(axis=0)
        views[rows] = good.z_ND[rows] + size * draws.normal(size=(len(rows), views.shape[1]))
        return replace(good, views=views)

    return spoil


def moved_views(low: float, high: float, *, is_block: bool) -> Spoil:
    """A share of the second view's rows are in the wrong place: at random, or all in one block one further down."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        assert good.views is not None
        num, views = len(good.views), good.views.copy()
        num_moved = max(round(num * draws.uniform(low, high)), 2)
        if is_block:
            rows = np.arange(num_moved) + int(draws.integers(num - num_moved + 1))
        else:
            rows = draws.permutation(num)[:num_moved]
        views[rows] = views[np.roll(rows, 1)]
        return replace(good, views=views)

    return spoil


def other_views(*, is_shifted: bool) -> Spoil:
    """The second view's rows are all of other samples: at random, or some places further down."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        assert good.views is not None
        num = len(good.views)
        order = np.roll(np.arange(num), int(draws.integers(1, num // 2))) if is_shifted else draws.permutation(num)
        return replace(good, views=good.views[order])

    return spoil
