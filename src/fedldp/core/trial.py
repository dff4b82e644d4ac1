"""A trial of whether code keeps something of rows that it was used on, with public rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedldp.core.randomness import numbered_generator

Rows = NDArray[np.float32]

Answer = Callable[[Sequence[Rows], float], bytes]
"""Gives the contribution of the last of several units, whose rows are used one after another.

A unit is what a system treats alone: a client, a person, or a row. The second argument is a factor
on the broadcast weights.
"""

_NUMBERS = itertools.count()
"""Every trial has its own rows, the larger ones larger than before: what code keeps in a global
would otherwise be the same before and after."""


@dataclass(frozen=True)
class Trial:
    """How to try the code that computes a unit's contribution.

    Attributes:
        shape: the shape of one unit's rows.
        make: builds the code anew, with memory of no row; see ``Answer``. An answer raises what the
            code raises on the last unit's rows.
    """

    shape: tuple[int, ...]
    make: Callable[[], Answer]


def difference(trial: Trial) -> str | None:
    """Return after what the contribution of the same public rows differs; None if it never does."""
    number = next(_NUMBERS)
    own, other = numbered_generator(0, number).random((2, *trial.shape), np.float32)
    large = other * np.float32(1e6 * (1 + number) / other.max())
    reordered = own.reshape(-1)[::-1].reshape(trial.shape).copy()
    alone, used = trial.make()([own], 1.0), trial.make()
    for after, units in {
        "other rows": [other, own],  # first, for code that keeps what it sees first
        "the same rows": [own],
        "the same numbers in another order": [reordered, own],
        "rows a million times as large": [large, own],
    }.items():
        if used(units, 1.0) != alone:
            return after
    return None if used([own], 0.5) == trial.make()([own], 0.5) else "another broadcast"
