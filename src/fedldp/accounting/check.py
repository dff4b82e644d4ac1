"""Checks of the arguments of the accounting functions, and rounding that is on the safe side."""

from __future__ import annotations

import math
from fractions import Fraction

from fedldp.errors import ConfigError

SMALLEST_DELTA = 1e-300
"""A smaller positive delta is treated as zero: the answer is the pure epsilon, which is valid."""


def check_positive(name: str, value: float) -> None:
    """Raise ConfigError unless ``value`` is a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} = {value}: give a finite number above 0")


def check_at_least(name: str, value: float, least: float) -> None:
    """Raise ConfigError unless ``value`` is a finite number of at least ``least``."""
    if not (math.isfinite(value) and value >= least):
        raise ConfigError(f"{name} = {value}: give a finite number of at least {least:g}")


def check_not_negative(name: str, value: float) -> None:
    """Raise ConfigError unless ``value`` is a finite number of at least 0."""
    check_at_least(name, value, 0.0)


def check_count(name: str, value: int, least: int = 0) -> None:
    """Raise ConfigError unless ``value`` is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} = {value}: give an integer of at least {least}")


def check_delta(value: float) -> None:
    """Raise ConfigError unless 0 <= delta < 1."""
    if not 0 <= value < 1:
        raise ConfigError(f"delta = {value}: give a number from 0 to below 1, such as 1e-5")


def round_up(exact: Fraction) -> float:
    """Return the smallest float that is at least ``exact``.

    >>> round_up(Fraction(1, 10)) >= Fraction(1, 10)
    True
    """
    nearest = float(exact)
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)
