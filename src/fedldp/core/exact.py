"""Exponentials and logarithms of fractions, rounded conservatively."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction

from fedldp.core.numbers import round_up

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
