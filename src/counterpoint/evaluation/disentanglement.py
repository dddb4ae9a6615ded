"""Whether single dimensions of a code stand for single factors that generated the data: MIG, modularity, DCI."""

# N samples, D dimensions of the code, F factors, B bins, V values of a factor, G groups of samples, R tables of counts

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from torch import Tensor

from counterpoint.core.checks import check_dense, check_features
from counterpoint.core.metric import Metric
from counterpoint.core.thread_parts import side_by_side
from counterpoint.data.order import random_order
from counterpoint.evaluation.metric_types import IntervalEstimate, Labelled, Score, jackknife

BINS = 20
GROUPS, FEWEST_IN_GROUPS = 10, 200  # of samples, for intervals
LARGEST_TRAIN, LARGEST_TEST = 10_000, 5_000  # samples that predictors of factors are fitted to and judged by
NUM_TREES = 10


@dataclass(frozen=True)
class FactorInformation:
    """What each dimension of a code tells about each factor.

    Attributes:
        information_DF: mutual information of dimension and factor in nats, float64 (d, f).
        entropy_F: of each factor in nats, the most that a dimension can tell about it.
        left_out: the same without each of ten groups of samples, for intervals; empty of few samples.
    """

    information_DF: Tensor
    entropy_F: Tensor
    left_out: Sequence["FactorInformation"] = ()

    @property
    def gap(self) -> float:
        r"""MIG, the mutual information gap, in [0, 1].

        .. math:: \frac{1}{F} \sum_f \frac{I(z_{1(f)}; v_f) - I(z_{2(f)}; v_f)}{H(v_f)}

        with the two dimensions that tell most about each factor. 1: each factor stands in one dimension, which tells
        all of it; 0: in none, or in two alike.

        Source: chen2018, Eq. 6.
        """
        best_2F = self.information_DF.topk(2, dim=0).values
        return float(((best_2F[0] - best_2F[1]) / self.entropy_F).mean())

    @property
    def modularity(self) -> float:
        r"""Whether each dimension tells about one factor only, in [0, 1].

        .. math:: \frac{1}{D} \sum_d \Big(1 - \frac{\sum_{f \ne f_d} I_{df}^2}{(F - 1)\, I_{d f_d}^2}\Big)

        f_d is the factor that dimension d tells most about; a dimension that tells nothing counts 0, as in the code of
        locatello2019. Several dimensions may stand for one factor. Differences of scale do not count: of a random code,
        whose informations are estimated a little above 0, some are much larger than others, and it scores about 0.7.

        Source: ridgeway2018, section 3.
        """
        square_DF = self.information_DF.square()
        best_D = square_DF.amax(dim=1)
        others_D = (square_DF.sum(dim=1) - best_D) / (square_DF.shape[1] - 1)
        # A dead dimension divides 0 by 1, and is taken out.
        score_D = 1 - others_D / torch.where(best_D > 0, best_D, 1.0)
        return float(torch.where(best_D > 0, score_D, 0.0).mean())


def factor_information(codes_ND: Tensor, factors_NF: Tensor, *, num_bins: int = BINS) -> FactorInformation:
    r"""Mutual information of every dimension with every factor, from all samples.

    .. math:: I(z_d; v_f) = \sum_{b, v} \frac{n_{bv}}{N} \log \frac{N n_{bv}}{n_b n_v}

    Each dimension is cut into bins of equal width between its least and its largest value (float64), as in the code of
    locatello2019, which takes 10,000 samples; here it is all that are given. A factor of more than ``num_bins`` values
    cannot be told completely by one dimension: over the grid of dSprites (3, 6, 40, 32 and 32 values) the factors
    themselves have a gap of 0.90 with 20 bins, and of 1 with 40.

    Source: chen2018; bins as in locatello2019.

    Args:
        codes_ND: features.
        factors_NF: the value of each factor by its number, whole numbers (n, f).
        num_bins: of each dimension, >= 2.

    Raises:
        ValueError: shapes that do not fit, fewer than 2 dimensions or factors, or a factor of one value.

    >>> factors = torch.cartesian_prod(torch.arange(3), torch.arange(4))
    >>> found = factor_information(factors.double(), factors)
    >>> round(found.gap, 12), round(found.modularity, 12)
    (1.0, 1.0)
    """
    _check(codes_ND, factors_NF)
    if num_bins < 2:
        raise ValueError(f"num_bins must be >= 2, got {num_bins}; 20 is usual")
    factors = [_numbered(factor_N) for factor_N in factors_NF.T]
    num_groups = GROUPS if len(codes_ND) >= FEWEST_IN_GROUPS else 1
    group_N = (random_order(0, 0, len(codes_ND)) % num_groups).int()

    def row(dim: int) -> Tensor:
        bin_N = group_N * num_bins + _bins(codes_ND[:, dim].double().contiguous(), num_bins)
        return torch.stack([_information(bin_N, num_bins, num_groups, *factor) for factor in factors], dim=1)

    information_RDF = torch.stack(side_by_side(row, range(codes_ND.shape[1])), dim=1)
    entropies = [_information(group_N * num + value_N, num, num_groups, value_N, num) for value_N, num in factors]
    entropy_RF = torch.stack(entropies, dim=1)
    whole, *left_out = map(FactorInformation, information_RDF, entropy_RF)
    return replace(whole, left_out=tuple(left_out))


@dataclass(frozen=True)
class FactorImportance:
    """How much each dimension of a code counts where factors are predicted from it, and how well they are.

    Attributes:
        importance_DF: relative importance, >= 0; float64 (d, f).
        accuracy_F: share of test samples whose factor is predicted right.
    """

    importance_DF: Tensor
    accuracy_F: Tensor

    @property
    def disentanglement(self) -> float:
        r"""Whether a dimension counts for one factor only: mean of :math:`1 - H_F(P_{d\cdot})`, weighted, in [0, 1].

        P has the importances of a dimension scaled to sum 1, H_F is the entropy to base F, and dimensions weigh as
        much as they count in all. 0 where nothing counts.

        Source: eastwood2018, section 2.
        """
        return _concentration(self.importance_DF)

    @property
    def completeness(self) -> float:
        """Whether one dimension alone counts for a factor: the same for the factors, entropies to base D."""
        return _concentration(self.importance_DF.T)

    @property
    def informativeness(self) -> float:
        """Mean accuracy over the factors; locatello2019 gives this, eastwood2018 an error."""
        return float(self.accuracy_F.mean())


def factor_importance(codes_ND: Tensor, factors_NF: Tensor, *, seed: int = 0) -> FactorImportance:
    """DCI: fit a predictor to each factor and read from it which dimensions it uses.

    Importance is the mean decrease of impurity that a dimension brings. 10,000 samples are drawn for the fit and 5,000
    others for the accuracy; of fewer than 15,000, two thirds and the rest.

    Source: eastwood2018 (random forests; here of 10 trees that choose among all dimensions at each split). Differs from
    locatello2019, whose gradient boosting takes minutes for factors of many values.

    Args:
        codes_ND: features.
        factors_NF: the value of each factor by its number, whole numbers (n, f).
        seed: of the samples and of the predictors.

    Raises:
        ValueError: shapes that do not fit, fewer than 2 dimensions or factors, or a factor of one value.

    >>> factors = torch.cartesian_prod(torch.arange(3), torch.arange(4)).repeat(20, 1)
    >>> found = factor_importance(factors.double(), factors)
    >>> found.disentanglement, found.completeness, found.informativeness
    (1.0, 1.0, 1.0)
    """
    _check(codes_ND, factors_NF)
    drawn = random_order(seed, 0, len(codes_ND))[: LARGEST_TRAIN + LARGEST_TEST]
    num_train = 2 * len(drawn) // 3
    codes, factors = codes_ND[drawn].double().numpy(), factors_NF[drawn].numpy()

    def fit(factor: int) -> tuple[np.ndarray, float]:
        model = RandomForestClassifier(NUM_TREES, max_features=None, random_state=seed)  # pyright: ignore[reportArgumentType]
        model.fit(codes[:num_train], factors[:num_train, factor])
        return model.feature_importances_, model.score(codes[num_train:], factors[num_train:, factor])

    fitted = side_by_side(fit, range(factors.shape[1]))
    importance_DF = np.stack([importance_D for importance_D, _ in fitted], axis=1)
    return FactorImportance(torch.from_numpy(importance_DF), torch.tensor([accuracy for _, accuracy in fitted]))


def _check(codes_ND: Tensor, factors_NF: Tensor) -> None:
    """Require codes and whole-numbered factors of the same samples."""
    check_features(codes_ND, "codes")
    check_dense(factors_NF, "factors")
    if factors_NF.ndim != 2 or len(factors_NF) != len(codes_ND) or factors_NF.is_floating_point():
        raise ValueError(
            f"factors must be whole numbers of shape ({len(codes_ND)}, factors), got {factors_NF.dtype} of shape "
            f"{tuple(factors_NF.shape)}"
        )
    if codes_ND.shape[1] < 2 or factors_NF.shape[1] < 2:
        raise ValueError(
            f"at least 2 dimensions and 2 factors are compared, got {codes_ND.shape[1]} and {factors_NF.shape[1]}"
        )
    for place, factor_N in enumerate(factors_NF.T):
        if (factor_N == factor_N[0]).all():
            raise ValueError(f"factor {place} has one value only, {int(factor_N[0])}; leave its column out")


def _numbered(factor_N: Tensor) -> tuple[Tensor, int]:
    """The values of a factor as numbers from 0, int32, and how many there are."""
    values, number_N = factor_N.unique(return_inverse=True)
    return number_N.int(), len(values)


def _bins(code_N: Tensor, num_bins: int) -> Tensor:
    """Number of the bin of each value, from 0, int32."""
    edges = np.linspace(float(code_N.min()), float(code_N.max()), num_bins + 1)
    # Without the last edge, so that the largest value falls into the last bin. A constant falls into one bin.
    inner = torch.from_numpy(edges[1:-1].copy())
    return torch.bucketize(code_N, inner, out_int32=True, right=True)


def _information(left_N: Tensor, num_left: int, num_groups: int, right_N: Tensor, num_right: int) -> Tensor:
    """Mutual information of two numbered variables in nats: of all samples, then without each group of several.

    Numbers of the left one in a group stand behind those in the group before.
    """
    # int32 halves the time that int64 takes, as does one histogram of pairs instead of one of each.
    joint = torch.bincount(left_N * num_right + right_N, minlength=num_groups * num_left * num_right)
    count_GBV = joint.view(num_groups, num_left, num_right)
    count_BV = count_GBV.sum(dim=0)
    count_RBV = torch.cat([count_BV[None], count_BV - count_GBV]).double() if num_groups > 1 else count_GBV.double()
    total_R = count_RBV.sum(dim=(1, 2))
    count_RB1, count_R1V = count_RBV.sum(2, keepdim=True), count_RBV.sum(1, keepdim=True)
    # Products of counts are whole numbers, exact below 2^53, so that independence gives exactly log 1 = 0.
    ratio_RBV = total_R[:, None, None] * count_RBV / (count_RB1 * count_R1V)
    return torch.where(count_RBV > 0, count_RBV * ratio_RBV.log(), 0.0).sum(dim=(1, 2)) / total_R


def _concentration(importance_RC: Tensor) -> float:
    """One minus the entropy of each row, to the base of its length; rows weigh as much as they sum up to."""
    weight_R1 = importance_RC.sum(dim=1, keepdim=True)
    share_RC = importance_RC / torch.where(weight_R1 > 0, weight_R1, 1.0)
    score_R = 1 - torch.special.entr(share_RC).sum(dim=1) / np.log(importance_RC.shape[1])
    total = float(weight_R1.sum())
    return float((score_R * weight_R1[:, 0]).sum()) / total if total > 0 else 0.0


def _codes(known: Labelled) -> tuple[Tensor, Tensor]:
    """All features, and the factors of their samples."""
    assert known.factors_MF is not None
    return torch.cat([known.bank_ND, known.queries_QD]), known.factors_MF


def _information_score(known: Labelled, figure: Callable[[FactorInformation], float]) -> Score:
    """A figure of what single dimensions tell about single factors."""
    found: FactorInformation = known.once("factor information", lambda: factor_information(*_codes(known)))
    codes_ND, factors_MF = _codes(known)
    settings = {"bins": BINS, "samples": len(codes_ND), "factors": factors_MF.shape[1]}
    return Score(jackknife(figure(found), [figure(each) for each in found.left_out]), settings)


def _importance_score(known: Labelled, figure: Callable[[FactorImportance], float]) -> Score:
    """A figure of how factors are predicted."""
    found: FactorImportance = known.once("factor importance", lambda: factor_importance(*_codes(known)))
    codes_ND, factors_MF = _codes(known)
    samples = min(len(codes_ND), LARGEST_TRAIN + LARGEST_TEST)
    settings = {"predictor": "random forest", "trees": NUM_TREES, "samples": samples, "factors": factors_MF.shape[1]}
    return Score(IntervalEstimate(figure(found)), settings)


METRICS = (
    Metric(
        name="mig",
        title="Mutual information gap",
        short="MIG",
        definition="Mean over the factors that generated the data of what the best dimension tells about the factor "
        "more than the second best does, as a share of the factor's entropy.",
        source="chen2018",
        measure=lambda known: _information_score(known, lambda found: found.gap),
        low=0.0,
        high=1.0,
        is_higher_better=True,
        wording="mean over[ {factors}] factors, dimensions in[ {bins}] bins of equal width",
        interval="95 % interval of the jackknife over ten groups of samples",
        on_request=True,
        needs="factors",
    ),
    Metric(
        name="modularity",
        title="Modularity",
        short="modularity",
        definition="Mean over the dimensions of how much each tells about one factor only; a dimension that tells "
        "nothing counts 0.",
        source="ridgeway2018",
        measure=lambda known: _information_score(known, lambda found: found.modularity),
        low=0.0,
        high=1.0,
        is_higher_better=True,
        wording="from mutual information with[ {factors}] factors, dimensions in[ {bins}] bins of equal width",
        interval="95 % interval of the jackknife over ten groups of samples",
        on_request=True,
        needs="factors",
    ),
    Metric(
        name="dci",
        title="DCI disentanglement",
        short="DCI disentanglement",
        definition="How much each dimension counts for one factor only where factors are predicted from all of them, "
        "weighted by how much it counts in all.",
        source="eastwood2018",
        measure=lambda known: _importance_score(known, lambda found: found.disentanglement),
        low=0.0,
        high=1.0,
        is_higher_better=True,
        wording="importances of dimensions where a predictor[, {predictor},] is fitted to each of[ {factors}] factors",
        on_request=True,
        needs="factors",
    ),
    Metric(
        name="dci completeness",
        title="DCI completeness",
        short="DCI completeness",
        definition="How much one dimension alone counts for each factor where factors are predicted from all of them.",
        source="eastwood2018",
        measure=lambda known: _importance_score(known, lambda found: found.completeness),
        low=0.0,
        high=1.0,
        is_higher_better=True,
        wording="importances of dimensions where a predictor[, {predictor},] is fitted to each of[ {factors}] factors",
        on_request=True,
        needs="factors",
    ),
    Metric(
        name="dci informativeness",
        title="DCI informativeness",
        short="DCI informativeness",
        definition="Mean over the factors of the share of samples whose factor is predicted right from all dimensions.",
        source="locatello2019",
        measure=lambda known: _importance_score(known, lambda found: found.informativeness),
        low=0.0,
        high=1.0,
        unit="share",
        is_higher_better=True,
        wording="a predictor[, {predictor},] is fitted to each of[ {factors}] factors",
        on_request=True,
        needs="factors",
    ),
)
