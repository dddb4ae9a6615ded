"""Estimates of the spectrum of a Hessian, as records that are written, read and shown. Loads without torch."""

from dataclasses import dataclass

LEVEL = 0.95  # of intervals
NORMAL = 1.959964  # standard errors that such an interval reaches to either side


@dataclass(frozen=True)
class ProductCheck:
    """A check of the products.

    Attributes:
        name: name of the check, ``symmetry``; records of earlier versions have other checks, too.
        defect: relative defect of the identity; None if, in those records, the identity does not apply.
        limit: largest defect that passes, for the precision of the products.
        words: identity that was checked, in words.
    """

    name: str
    defect: float | None
    limit: float
    words: str

    @property
    def holds(self) -> bool:
        """Tell whether the defect is within its limit; an identity that does not apply holds."""
        return self.defect is None or self.defect <= self.limit


@dataclass(frozen=True)
class Bracket:
    """A number that lies in [low, high]."""

    low: float
    high: float


@dataclass(frozen=True)
class Mass:
    """Share and number of the P eigenvalues that lie in a range.

    Attributes:
        share: bounds on the share that the probes see, averaged over them.
        count: 95 % interval for the number of eigenvalues, from the bounds and the chance of the probes.
        at_least: number of Ritz values there (the most of any probe); below a negative and above a positive threshold
            H has no fewer eigenvalues. 0 for a range between two thresholds.
    """

    share: Bracket
    count: tuple[int, int]
    at_least: int


@dataclass(frozen=True)
class Masses:
    """The eigenvalues below -tau, from -tau to tau, and above tau."""

    below: Mass
    within: Mass
    above: Mass


@dataclass(frozen=True)
class Estimate:
    """A number with its error: the standard error of a trace, or the distance within which an eigenvalue of H lies.

    An eigenvalue's error is the length of H y - value y for the unit vector y that was found, and rounding.
    """

    value: float
    error: float

    @property
    def interval(self) -> Bracket:
        """The 95 % interval of a normal distribution, for a standard error.

        >>> Estimate(10.0, 0.0).interval
        Bracket(low=10.0, high=10.0)
        """
        return Bracket(self.value - NORMAL * self.error, self.value + NORMAL * self.error)


@dataclass(frozen=True)
class OperatorSpectrum:
    """Estimates of the spectrum of one Hessian by Lanczos.

    Attributes:
        value: value of the loss.
        gradient_norm: norm of the gradient of the loss.
        masses: shares and numbers of the eigenvalues below -tau, within, and above tau.
        signs: shares and numbers for a tau of 0: eigenvalues below and above zero, and those lost in rounding.
        largest: eigenvalues at the upper end, descending.
        smallest: eigenvalues at the lower end, ascending.
        trace: trace of the Hessian with its standard error.
        ritz_values: Ritz values of each probe, ascending.
        ritz_weights: weights of the Ritz values of each probe, which sum to 1.
        noise: error that rounding may give an eigenvalue.
        orthogonality: largest entry of V'V - I over the probes.
        is_exhausted: whether a probe's vectors span an invariant subspace.
        certificates: checks of the products, such as that they are symmetric.
    """

    value: float
    gradient_norm: float
    masses: Masses
    signs: Masses
    largest: tuple[Estimate, ...]
    smallest: tuple[Estimate, ...]
    trace: Estimate
    ritz_values: tuple[tuple[float, ...], ...]
    ritz_weights: tuple[tuple[float, ...], ...]
    noise: float
    orthogonality: float
    is_exhausted: bool
    certificates: tuple[ProductCheck, ...]

    @property
    def has_negative_curvature(self) -> bool:
        """Tell whether a direction was found along which the loss curves down by more than rounding."""
        return self.smallest[0].value < -self.noise
