"""Numbers and lists in words: one way to write a percentage, a duration, an interval, throughout the page."""

from collections.abc import Sequence

from counterpoint.core.metric import Unit

NO_BREAK = "\N{NARROW NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
ABSENT = "not measured"


def number(value: float | None, digits: int = 3) -> str:
    """Write a number with a number of significant digits; whole numbers keep all digits.

    >>> number(61.234), number(1437), number(0.00001234), number(-3.1), number(None)
    ('61.2', '1,437', '1.23×10⁻⁵', '−3.1', 'not measured')
    >>> number(1e-5), number(-2e12), number(9.999e-5)
    ('10⁻⁵', '−2×10¹²', '10⁻⁴')
    """
    if value is None:
        return ABSENT
    if value == 0:
        return "0"
    # 61.234: exponent 1, so that 3 digits leave 1 decimal.
    exponent = int(f"{abs(value):.{digits - 1}e}".partition("e")[2])  # after rounding: 9.999e-5 is 10⁻⁴
    if exponent < -3 or exponent > 8:
        mantissa = f"{value / 10.0**exponent:.{digits - 1}f}".rstrip("0").rstrip(".")
        # A factor of 1 says nothing beside a power of ten.
        factor = {"1": "", "-1": "-"}.get(mantissa, f"{mantissa}×")
        return f"{factor}{power_of_ten(exponent)}".replace("-", MINUS)
    if float(value).is_integer():
        return f"{int(value):,}".replace("-", MINUS)
    decimals = max(digits - 1 - exponent, 0)
    text = f"{value:,.{decimals}f}"
    # Zeros go behind a point only: 1,200 keeps its own.
    return (text.rstrip("0").rstrip(".") if "." in text else text).replace("-", MINUS)


def power_of_ten(exponent: int) -> str:
    """Write a power of ten.

    >>> power_of_ten(-2)
    '10⁻²'
    """
    return "10" + str(exponent).translate(SUPERSCRIPTS)


def percent(share: float | None, digits: int = 1) -> str:
    """Write a share in [0, 1] as a percentage; shares that would round to 0 or 100 say so.

    >>> percent(0.9831).replace(NO_BREAK, " "), percent(1.0).replace(NO_BREAK, " "), percent(0.00001)[:5]
    ('98.3 %', '100 %', '< 0.1')
    """
    if share is None:
        return ABSENT
    smallest, rounded = 10.0**-digits, round(100 * share, digits)
    if share > 0 and rounded == 0:
        return f"< {smallest:g}{NO_BREAK}%"
    if share < 1 and rounded == 100:
        return f"> {100 - smallest:g}{NO_BREAK}%"
    decimals = 0 if share in (0, 1) else digits
    return f"{rounded:.{decimals}f}{NO_BREAK}%".replace("-", MINUS)


def interval(low: float | None, high: float | None, unit: Unit = "share") -> str:
    """Write an interval; empty if an end is missing.

    >>> interval(0.964, 0.992).replace(NO_BREAK, " "), interval(0.984, 0.9995).replace(NO_BREAK, " ")
    ('96.4 to 99.2 %', '98.4 to > 99.9 %')
    >>> interval(1.25, 2.5, "number")
    '1.25 to 2.5'
    """
    if low is None or high is None:
        return ""
    # The sign of the unit is written once, at the end.
    return f"{figure_of(unit, low).removesuffix(NO_BREAK + '%')} to {figure_of(unit, high)}"


def sized(unit: Unit, difference: float) -> str:
    """Write a difference of two figures in the unit of differences; one of shares is in points.

    >>> sized("share", -0.0661), sized("cosine", 0.125)
    ('−6.6 points', '0.12')
    """
    if unit != "share":
        return figure_of(unit, difference)
    points = 100 * difference
    # One decimal; a difference that would round to 0 keeps its first digit.
    return f"{number(points, 1) if abs(points) < 0.05 else f'{points:.1f}'.replace('-', MINUS)} points"


def figure_of(unit: Unit, value: float | None) -> str:
    """Write a figure of a metric in its unit.

    >>> figure_of("cosine", 0.8873), figure_of("number", None)
    ('0.89', 'not measured')
    """
    return {"share": percent, "cosine": cosine, "number": number}[unit](value)


def cosine(value: float | None) -> str:
    """Write a cosine with two decimals.

    >>> cosine(0.8873), cosine(-0.0003), cosine(-0.25)
    ('0.89', '0.00', '−0.25')
    """
    # + 0.0 turns -0.0 into 0.0.
    return ABSENT if value is None else f"{round(value, 2) + 0.0:.2f}".replace("-", MINUS)


def duration(seconds: float) -> str:
    """Write a length of time.

    >>> [duration(s).replace(NO_BREAK, " ") for s in (0.42, 21.3, 130, 7320, 200000)]
    ['0.42 s', '21 s', '2 min 10 s', '2 h 2 min', '2 d 7 h']
    """
    if seconds < 10:
        return f"{number(seconds, 2)}{NO_BREAK}s"
    # Rounded before it is divided: 59.6 s are 1 min, not 60 s.
    whole_seconds = round(seconds)
    for size, unit, smaller, smaller_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole_seconds >= size:
            rest = whole_seconds % size // smaller
            tail = f" {rest}{NO_BREAK}{smaller_unit}" if rest else ""
            return f"{whole_seconds // size}{NO_BREAK}{unit}{tail}"
    return f"{whole_seconds}{NO_BREAK}s"


def count(quantity: float, noun: str, plural: str = "") -> str:
    """Write a quantity with its noun in the right number.

    >>> count(1, "finding"), count(1437, "sample"), count(2, "class", "classes")
    ('1 finding', '1,437 samples', '2 classes')
    """
    return f"{number(quantity)} {noun if quantity == 1 else plural or noun + 's'}"


def listing(parts: Sequence[str]) -> str:
    """Join parts as a sentence does.

    >>> listing(["a"]), listing(["a", "b"]), listing(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"
