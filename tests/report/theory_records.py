"""Records as figure functions make them: a sound one, and one whose every text attacks."""

import math

from reproductions.panels import LinePanel, MatrixPanel, PointPanel, Series
from reproductions.reproduction import Claim, Reproduction

ATTACK = "</title><script>alert(1)</script><img src=x onerror=\"alert('x')\">"
STEPS = [float(step) for step in range(50)]


def lines(count: int = 3, **scales: bool) -> LinePanel:
    """Decaying lines."""
    series = [Series(f"sigma {k + 1}", STEPS, [math.exp(-k * step / 20) for step in STEPS]) for k in range(count)]
    return LinePanel("Singular values", "step", "singular value", series, **scales)


def points() -> PointPanel:
    """Two classes on the unit circle."""
    return PointPanel(
        "Features",
        "first axis",
        "second axis",
        [Series("cats", [1.0, 0.99], [0.0, 0.1]), Series("dogs", [-1.0], [0.0])],
    )


def matrix(size: int = 3) -> MatrixPanel:
    """The simplex of so many classes."""
    names = [f"class {k + 1}" for k in range(size)]
    values = [[1.0 if row == column else -1 / (size - 1) for column in range(size)] for row in range(size)]
    return MatrixPanel("Cosines", values, names, names)


def reproduction(*panels: LinePanel | PointPanel | MatrixPanel) -> Reproduction:
    """A record with a claim of each kind."""
    claims = [
        Claim("cosine of two classes", -0.5, -0.500001, True),
        Claim("live dimensions fall with depth", "fall", "rise", False, "the run is ten times shorter"),
        Claim("last loss", "not printed", 3.25, None),
    ]
    shown = panels or (lines(), points(), matrix())
    return Reproduction(
        "toy-fig1", "A toy", "mio2021, Fig. 1", claims, shown, ["One remark."], {"seed": "0", "steps": "50"}
    )


def hostile() -> Reproduction:
    """Every text of the record is an attack."""
    series = [Series(ATTACK, [0.0, 1.0], [1.0, 2.0])]
    panels = [
        LinePanel(ATTACK, ATTACK, ATTACK, series),
        PointPanel(ATTACK, ATTACK, ATTACK, [*series, *series]),
        MatrixPanel(ATTACK, [[1.0]], [ATTACK], [ATTACK]),
    ]
    claims = [Claim(ATTACK, ATTACK, ATTACK, False, ATTACK)]
    return Reproduction(ATTACK, ATTACK, ATTACK, claims, panels, [ATTACK], {ATTACK: ATTACK})
