"""Features with a fault of their rows or of their columns."""

# N samples, D features

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from calibration.feature_sets import Draws, FeatureSet, Values, gaussian_embedding, log_uniform, rotation, spread

Spoil = Callable[[FeatureSet, Draws], FeatureSet]


def some_places(draws: Draws, num: int, share: float) -> Values:
    """Places of at least one sample."""
    return draws.permutation(num)[: max(round(num * share), 1)]


def _unit(vector_D: Values) -> Values:
    return vector_D / np.linalg.norm(vector_D)


# ---- rows


def outliers(most: int, near: float, far: float) -> Spoil:
    """One to ``most`` rows lie far away, half of the time in one direction."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        num_rows = min(round(log_uniform(draws, 1, most)), len(good.z_ND) // 25)
        directions = draws.normal(size=(num_rows, good.z_ND.shape[1]))
        if draws.integers(2):
            directions[:] = directions[0]
        size = log_uniform(draws, near, far) * spread(good.z_ND) * draws.uniform(0.7, 1.3, (num_rows, 1))
        z_ND = good.z_ND.copy()
        z_ND[draws.permutation(len(z_ND))[:num_rows]] += (
            size * directions / np.linalg.norm(directions, axis=1, keepdims=True)
        )
        return replace(good, z_ND=z_ND, views=None)

    return spoil


def copies(low: float, high: float, noise: tuple[float, float]) -> Spoil:
    """A share of the rows are copies of other rows, apart by noise in units of the features' deviation."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        num = len(good.z_ND)
        share = log_uniform(draws, low, high)
        # Rows that copy and are copied: the share counts both, for a pair is two rows that are nearly one.
        num_copies = max(round(num * share / 2), 1)
        order = draws.permutation(num)
        from_N = np.arange(num)
        from_N[order[:num_copies]] = order[num_copies : 2 * num_copies]
        copied = replace(good.at(from_N), views=None)
        if noise[1] == 0:
            return copied
        size = log_uniform(draws, *noise) * good.z_ND.std(axis=0)
        z_ND = copied.z_ND.copy()
        z_ND[order[:num_copies]] += size * draws.normal(size=(num_copies, z_ND.shape[1]))
        return replace(copied, z_ND=z_ND)

    return spoil


def hubs(shrunk: float, share: float, width: int) -> Spoil:
    """Some rows lie close to the mean, in features of so many dimensions that all others are far from each other."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        num = len(good.z_ND)
        signal = (good.z_ND - good.z_ND.mean(axis=0)) / spread(good.z_ND)
        rest = draws.normal(size=(num, width)) / np.sqrt(width)
        z_ND = np.hstack([0.5 * signal, rest]) @ rotation(draws, signal.shape[1] + width)
        mean = 0.6 * _unit(draws.normal(size=z_ND.shape[1]))
        z_ND[some_places(draws, num, share)] *= shrunk
        return replace(good, z_ND=z_ND + mean, views=None)

    return spoil


def drift(function: Callable[[Values], Values], low: float, high: float, num_directions: int) -> Spoil:
    """Features move along the order of the rows, by some of their spread from one end to the other."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        along = function(np.linspace(0, 1, len(good.z_ND)))
        moves = rotation(draws, good.z_ND.shape[1])[:num_directions].sum(axis=0)
        added = along[:, None] * _unit(moves) * draws.uniform(low, high) * spread(good.z_ND)
        views = None if good.views is None else good.views + added
        return replace(good, z_ND=good.z_ND + added, views=views)

    return spoil


def groups(low: float, high: float, num_groups: int) -> Spoil:
    """Samples come from sources, each of which moves its features; who is from where has nothing to do with classes."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        group_N = draws.integers(0, num_groups, len(good.z_ND))
        moves = draws.normal(size=(num_groups, good.z_ND.shape[1]))
        moves *= draws.uniform(low, high) * spread(good.z_ND) / np.linalg.norm(moves, axis=1, keepdims=True)
        if num_groups == 2:
            moves[1] = -moves[0]
        views = None if good.views is None else good.views + moves[group_N]
        return replace(good, z_ND=good.z_ND + moves[group_N], views=views)

    return spoil


def odd_dimension(shape: Callable[[Values, Draws], Values], low: float, high: float) -> Spoil:
    """One dimension of a Gaussian embedding has another shape, at some times the mean deviation of the others."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        embedding = gaussian_embedding(draws)
        z_ND = embedding.z_ND.copy()
        odd_N = shape(draws.normal(size=len(z_ND)), draws)
        z_ND[:, draws.integers(z_ND.shape[1])] = log_uniform(draws, low, high) * z_ND.std() * odd_N / odd_N.std()
        if embedding.gaussian_by == "theory":
            z_ND /= np.linalg.norm(z_ND, axis=1, keepdims=True)
        return replace(embedding, z_ND=z_ND)

    return spoil


def odd_directions(shape: Callable[[Values, Draws], Values], share: float) -> Spoil:
    """Some independent directions of an embedding that its loss makes Gaussian have another shape, in mixed dimensions.

    The loss is SIGReg: directions of another shape are what it has not brought down.
    """

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        num, width = round(log_uniform(draws, 300, 4000)), round(log_uniform(draws, 16, 256))
        z_ND = draws.normal(size=(num, width))
        odd = max(round(share * width), 1)
        z_ND[:, :odd] = shape(z_ND[:, :odd], draws)
        size = np.arange(1, width + 1) ** -0.4
        return FeatureSet(z_ND / z_ND.std(axis=0) * size @ rotation(draws, width), gaussian_by="loss")

    return spoil


def not_finite(share: float) -> Spoil:
    """Some rows hold a value that is no number."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        z_ND = good.z_ND.copy()
        rows = some_places(draws, len(z_ND), share)
        z_ND[rows, draws.integers(0, z_ND.shape[1], len(rows))] = draws.choice([np.nan, np.inf], len(rows))
        return replace(good, z_ND=z_ND)

    return spoil


# ---- columns and spectra


def _map_for_all(draw: Callable[[FeatureSet, Draws], Callable[[Values], Values]]) -> Spoil:
    """One map for the features and their views."""
    return lambda good, draws: good.mapped(draw(good, draws))


def strong_direction(low: float, high: float, *, is_added: bool) -> Spoil:
    """One direction has most of the variance: one of the features' own made stronger, or another value added."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        share = draws.uniform(low, high)
        direction = _unit(draws.normal(size=good.z_ND.shape[1]))
        if not is_added:
            direction = np.linalg.svd(good.z_ND - good.z_ND.mean(axis=0), full_matrices=False)[2][0]
        along = (good.z_ND - good.z_ND.mean(axis=0)) @ direction
        rest = spread(good.z_ND) ** 2 - along.var()
        wanted = np.sqrt(share / (1 - share) * rest)
        values = draws.normal(size=len(along)) * wanted if is_added else along * wanted / along.std()
        added = (values - along)[:, None] * direction
        return replace(good, z_ND=good.z_ND + added, views=None if good.views is None else good.views + added)

    return spoil


def scales(share: float, low: float, high: float) -> Spoil:
    """Some columns are in other units: larger by a factor of their own."""

    def draw(good: FeatureSet, draws: Draws) -> Callable[[Values], Values]:
        width = good.z_ND.shape[1]
        factor = np.ones(width)
        # At least four: of one alone the share of its variance says it better.
        chosen = draws.permutation(width)[: max(round(share * width), 4)]
        factor[chosen] = [log_uniform(draws, low, high) for _ in chosen]
        return lambda z_ND: z_ND * factor

    return _map_for_all(draw)


def silent(low: float, high: float, value: float) -> Spoil:
    """A share of the columns has one value."""

    def draw(good: FeatureSet, draws: Draws) -> Callable[[Values], Values]:
        width = good.z_ND.shape[1]
        chosen = draws.permutation(width)[: round(draws.uniform(low, high) * width)]

        def run(z_ND: Values) -> Values:
            changed_ND = z_ND.copy()
            changed_ND[:, chosen] = value * good.z_ND.std()
            return changed_ND

        return run

    return _map_for_all(draw)


def repeated(low: float, high: float, noise: float) -> Spoil:
    """Further columns say what others say, with other scales and signs, and a little noise."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        width = good.z_ND.shape[1]
        chosen = draws.permutation(width)[: round(draws.uniform(low, high) * width)]
        factor = draws.uniform(0.5, 1.5, len(chosen)) * draws.choice([-1, 1], len(chosen))

        def run(z_ND: Values) -> Values:
            again = z_ND[:, chosen] * factor
            return np.hstack([z_ND, again + noise * again.std(axis=0) * draws.normal(size=again.shape)])

        return good.mapped(run)

    return spoil


def rounded(levels: tuple[int, ...]) -> Spoil:
    """Values are rounded to a few levels between their ends, one step for all columns."""

    def draw(good: FeatureSet, draws: Draws) -> Callable[[Values], Values]:
        num_levels = int(draws.choice(levels))
        low, high = np.quantile(good.z_ND, [0.001, 0.999])
        step = (high - low) / (num_levels - 1)
        return lambda z_ND: np.round((z_ND - low) / step).clip(0, num_levels - 1) * step + low

    return _map_for_all(draw)


def saturated(low: float, high: float) -> Spoil:
    """A share of the values of each column stands at its two ends."""

    def draw(good: FeatureSet, draws: Draws) -> Callable[[Values], Values]:
        cut = draws.uniform(low, high) / 2
        least_D, most_D = np.quantile(good.z_ND, [cut, 1 - cut], axis=0)
        return lambda z_ND: z_ND.clip(least_D, most_D)

    return _map_for_all(draw)


def either(*spoils: Spoil) -> Spoil:
    """One of several ways to make a fault."""
    return lambda good, draws: spoils[int(draws.integers(len(spoils)))](good, draws)


def student(freedom: float) -> Spoil:
    """Noise of a heavy-tailed distribution on all values."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        noise = draws.standard_t(freedom, good.z_ND.shape) * 0.5 * good.z_ND.std()
        return replace(good, z_ND=good.z_ND + noise, views=None)

    return spoil


def raised(power: float) -> Spoil:
    """Standardised values are raised to a power, with their sign."""

    def draw(good: FeatureSet, draws: Draws) -> Callable[[Values], Values]:
        mean_D, size_D = good.z_ND.mean(axis=0), good.z_ND.std(axis=0) + 1e-12
        return lambda z_ND: np.sign(z_ND - mean_D) * np.abs((z_ND - mean_D) / size_D) ** power

    return _map_for_all(draw)


def uneven_lengths(sigma: float) -> Spoil:
    """Rows are of very different length: a log-normal factor for each."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        factor = np.exp(sigma * draws.normal(size=(len(good.z_ND), 1)))
        return replace(good, z_ND=(good.z_ND - good.z_ND.mean(axis=0)) * factor, views=None)

    return spoil


def offset(low: float, high: float, *, is_one_value: bool) -> Spoil:
    """A constant is added to all rows: one value in all columns, or a value for each."""

    def draw(good: FeatureSet, draws: Draws) -> Callable[[Values], Values]:
        width = good.z_ND.shape[1]
        signs = np.ones(width) if is_one_value else draws.normal(size=width)
        added = signs * draws.uniform(low, high) * good.z_ND.std(axis=0).mean()
        return lambda z_ND: z_ND + added

    return _map_for_all(draw)


def one_point(low: float, high: float) -> Spoil:
    """All rows are one point, but for noise that knows nothing of them."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        point = draws.normal(size=good.z_ND.shape[1])
        size = log_uniform(draws, low, high)
        noise = draws.normal(size=(2, *good.z_ND.shape))
        return replace(good, z_ND=point + size * noise[0], views=point + size * noise[1])

    return spoil


def few_directions(low: int, high: int, noise: float) -> Spoil:
    """Features lie in a few directions of many dimensions, but for a little noise."""

    def draw(good: FeatureSet, draws: Draws) -> Callable[[Values], Values]:
        num_directions, width = int(draws.integers(low, high + 1)), max(good.z_ND.shape[1], 48)
        down = np.linalg.qr(draws.normal(size=(good.z_ND.shape[1], num_directions)))[0]
        up = rotation(draws, width)[:num_directions]

        def run(z_ND: Values) -> Values:
            mapped_ND = z_ND @ down @ up
            return mapped_ND + noise * mapped_ND.std() * draws.normal(size=mapped_ND.shape)

        return run

    return _map_for_all(draw)


def clumps(num: tuple[int, int], shrunk: tuple[float, float]) -> Spoil:
    """Rows fall towards a few points that are no classes; ``shrunk`` bounds the part of the distance that is left."""

    def spoil(good: FeatureSet, draws: Draws) -> FeatureSet:
        centres = good.z_ND[draws.permutation(len(good.z_ND))[: int(draws.integers(num[0], num[1] + 1))]]
        apart = ((good.z_ND[:, None] - centres) ** 2).sum(axis=2)
        nearest = centres[apart.argmin(axis=1)]
        return replace(good, z_ND=nearest + draws.uniform(*shrunk) * (good.z_ND - nearest), views=None)

    return spoil
