"""Argument checks for the accounting, conservative rounding, exponentials and logarithms."""

from __future__ import annotations

import math
from contextlib import suppress
from decimal import Context, Decimal
from fractions import Fraction

from fedldp.core.errors import ConfigError

SMALLEST_DELTA = 1e-300
"""A smaller positive delta is treated as 0: the result is then the pure epsilon, which is valid."""

LARGEST_TEXT = 500


def check_positive(name: str, value: float) -> None:
    """Raise ConfigError unless ``value`` is a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} = {value}: give a finite number above 0")


def check_at_least(name: str, value: float, least: float) -> None:
    """Raise ConfigError unless ``value`` is a finite number of at least ``least``."""
    if not (math.isfinite(value) and value >= least):
        raise ConfigError(f"{name} = {value}: give a finite number of at least {least:g}")


def check_count(name: str, value: int, least: int = 0) -> None:
    """Raise ConfigError unless ``value`` is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} = {value}: give an integer of at least {least}")


def strict_number(name: str, value: object) -> float:
    """Return ``value`` as a float of at least 0.

    Raises:
        ConfigError: the value is not a plain int or float (strings, bools and numpy scalars are
            refused), or it is negative, NaN, infinite, or an integer that no float equals.
    """
    if type(value) in (int, float):
        with suppress(OverflowError):
            number = float(value) + 0.0  # type: ignore[arg-type]  # and -0.0 becomes 0.0
            if math.isfinite(number) and number >= 0 and number == value:
                return number
    raise ConfigError(f"{name} = {_shown(value)}: give a plain finite number of at least 0")


def strict_optional(name: str, value: object) -> float | None:
    """Return None, or ``value`` as a float of at least 0; see ``strict_number``."""
    return None if value is None else strict_number(name, value)


def strict_share(name: str, value: object) -> float:
    """Return ``value`` as a float from 0 to 1; see ``strict_number``.

    Raises:
        ConfigError: the value is anything else.
    """
    number = strict_number(name, value)
    if number > 1:
        raise ConfigError(f"{name} = {_shown(value)}: give a number from 0 to 1")
    return number


def strict_count(name: str, value: object) -> int:
    """Return ``value``, an int from 0 to 2^53, which a float and a JSON number hold exactly.

    Raises:
        ConfigError: the value is anything else, such as a bool, a float or a numpy integer.
    """
    return _strict_int(name, value, 0, 53)


def strict_weight(name: str, value: object) -> int:
    """Return ``value``, an int from 1 to 2^64: the number of random words that map to an outcome.

    Raises:
        ConfigError: the value is anything else, such as a bool, a float or a numpy integer.
    """
    return _strict_int(name, value, 1, 64)


def _strict_int(name: str, value: object, least: int, bits: int) -> int:
    if type(value) is not int or not least <= value <= 2**bits:
        raise ConfigError(
            f"{name} = {_shown(value)}: give a plain integer from {least} to 2^{bits}"
        )
    return value


def strict_flag(name: str, value: object) -> bool:
    """Return ``value``; raise ConfigError unless it is true or false."""
    if type(value) is not bool:
        raise ConfigError(f"{name} = {_shown(value)}: give true or false")
    return value


def strict_text(name: str, value: object) -> str:
    """Return ``value``; raise ConfigError unless it is a short, printable, nonempty string."""
    if type(value) is not str or not value.isprintable() or not 0 < len(value) <= LARGEST_TEXT:
        raise ConfigError(
            f"{name} = {_shown(value)}: give 1 to {LARGEST_TEXT} printable characters"
        )
    return value


def _shown(value: object) -> str:
    """Return a value of any type as it appears in a one-line message."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    if value is None or isinstance(value, int | float | str):
        return f"{value!a:.60}"
    return f"a value of type {type(value).__name__}"


def check_delta(value: float) -> None:
    """Raise ConfigError unless 0 <= delta < 1."""
    if not 0 <= value < 1:
        raise ConfigError(f"delta = {value}: give a number of at least 0 and below 1, such as 1e-5")


def round_up(exact: Fraction | float) -> float:
    """Return the smallest float that is at least ``exact``; infinity if there is none.

    >>> round_up(Fraction(1, 10)) >= Fraction(1, 10)
    True
    """
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


# Use sixty digits, whatever decimal context the program has set. The rounding errors stay far below
# the two slacks as long as exponents are below 1,000 and logarithms above 10^-25.
_CONTEXT = Context(prec=60)
_SLACK = Fraction(1, 10**50)
_LOG_SLACK = Fraction(1, 10**30)


def exp_below(x: Fraction) -> Fraction:
    """Return a number below e^x, with a relative error of about 1e-50, for |x| up to 1,000."""
    power = _CONTEXT.exp(_CONTEXT.divide(Decimal(x.numerator), Decimal(x.denominator)))
    return Fraction(power) * (1 - _SLACK)


def log_up(ratio: Fraction) -> float:
    """Return ln of a ratio of at least 1, rounded up to a float.

    >>> log_up(Fraction(3, 1))
    1.0986122886681098
    """
    quotient = _CONTEXT.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    return round_up(Fraction(_CONTEXT.ln(quotient)) * (1 + _LOG_SLACK))
