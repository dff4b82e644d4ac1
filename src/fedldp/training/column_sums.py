"""Exact sums that measure a table's columns, and the map of columns that the server tells.

Rows have norm 1 at most, and the constant as their last number, which is neither measured nor
mapped. In a measuring round, every person gives one vector of integers in three blocks:

    class shares   not negative, together at most ``BLOCK``; or, of a label that is a number, its
                   place in the public range, 0 to ``BLOCK``
    means          of the columns, as a vector of norm at most ``BLOCK``
    mean squares   of the columns, not negative, together at most ``BLOCK``

Two vectors that are not negative and of norm at most R are at most sqrt(2) R apart; other vectors
are at most 2 R apart. So the squares of the three distances add up to at most 8 ``BLOCK``^2, which
is at most (2 ``NORM``)^2: the distance that the noise covers for gradients, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import RunError
from fedldp.data.examples import Examples
from fedldp.data.label_range import STEPS
from fedldp.protocol.wire import Broadcast
from fedldp.training.exact_sums import NORM, Floats, cut, summed_shares, whose_rows

BLOCK = math.isqrt(NORM**2 // 2)
"""The largest L2 norm of each block of a measuring vector, in grid steps."""

LONGEST = math.isqrt(3 * BLOCK**2) + 1
"""The largest L2 norm of a measuring vector, in grid steps; each of its numbers is at most
``BLOCK``."""

SHIFT, SCALE = "column shift", "column scale"
"""The keys under which a broadcast carries what was measured of the columns."""

LARGEST_SHIFT, LARGEST_SCALE = 1.0, 8.0
"""The agreed ranges of the map: columns of rows of norm 1 have means of at most 1."""

_BITS = 12
_ONE = 1 << _BITS
"""1 in the steps in which rows are measured."""


def column_sums(examples: Examples, num_classes: int) -> Floats:
    """Return the sum over people of their class shares and their columns' means and mean squares.

    A longer row is scaled down to norm 1, and a row with NaN or infinity counts as zeros. All
    arithmetic is on integers and everything is rounded towards zero, so a person's vector follows
    from that person's rows alone, and no block is longer than ``BLOCK``.

    Returns:
        whole numbers, shape (num_classes + 2 columns,): shares, means, mean squares; exact.
    """
    people = whose_rows(examples)
    count = np.bincount(people)[:, None]
    rows = _in_steps(_rows(examples)[:, :-1])

    def means(of_rows: NDArray[np.int64], one: int = _ONE) -> NDArray[np.int64]:
        total = np.zeros((len(count), of_rows.shape[1]), np.int64)
        np.add.at(total, people, of_rows)
        whole, rest = np.divmod(np.abs(total), count)  # no product below exceeds 2^62
        found: NDArray[np.int64] = np.sign(total) * (
            whole * BLOCK // one + rest * BLOCK // (count * one)
        )
        return np.asarray(found.sum(axis=0), np.int64)

    if num_classes == 1:
        shares = means(examples.labels[:, None].clip(0, STEPS), STEPS)
    else:
        shares = summed_shares(examples.labels, people, num_classes, BLOCK)
    return cut(np.concatenate([shares, means(rows), means(np.square(rows) >> _BITS)]))


def _rows(examples: Examples) -> Floats:
    """Return the features as doubles, shape (n, columns + 1)."""
    features = examples.features
    return features.reshape(len(features), math.prod(features.shape[1:])).astype(np.float64)


def _in_steps(values: Floats) -> NDArray[np.int64]:
    """Return rows in steps of 2^-12, rounded towards zero, of norm at most 1; changes its input."""
    values[~np.isfinite(values).all(axis=1)] = 0
    found: NDArray[np.int64] = np.trunc(values.clip(-1, 1) * _ONE).astype(np.int64)
    squared = np.square(found).sum(axis=1)  # exact
    long = squared > _ONE**2
    shrink = (1 - 2.0**-20) * _ONE / np.sqrt(squared[long].astype(np.float64))
    found[long] = np.trunc(found[long] * shrink[:, None]).astype(np.int64)
    found[np.square(found).sum(axis=1) > _ONE**2] = 0  # whatever was rounded up
    return found


@dataclass(frozen=True)
class ColumnMap:
    """An affine map of each column by itself: x becomes (x - shift) scale.

    Attributes:
        shift: of each column, at most ``LARGEST_SHIFT`` in magnitude.
        scale: of each column, from 0 to ``LARGEST_SCALE``.
    """

    shift: Floats
    scale: Floats

    @classmethod
    def agreed(cls, shift: NDArray[np.floating], scale: NDArray[np.floating]) -> ColumnMap:
        """Return the map as clients apply it: in float32, within the agreed ranges, never NaN."""
        with np.errstate(over="ignore"):
            told = [np.asarray(each, np.float32).astype(np.float64) for each in (shift, scale)]
        return cls(
            np.nan_to_num(told[0], nan=0.0).clip(-LARGEST_SHIFT, LARGEST_SHIFT),
            np.nan_to_num(told[1], nan=1.0).clip(0.0, LARGEST_SCALE),
        )

    @classmethod
    def told(cls, broadcast: Broadcast, columns: int) -> ColumnMap:
        """Return the map in a broadcast, which is within the agreed ranges whatever was sent.

        Raises:
            RunError: the broadcast lacks one number for each of the columns. This refusal depends
                on nothing private.
        """
        shift, scale = (broadcast.public.get(name) for name in (SHIFT, SCALE))
        if shift is None or scale is None or {shift.shape, scale.shape} != {(columns,)}:
            raise RunError(
                f"round {broadcast.round}: the broadcast does not have a shift and a scale for "
                f"each of the {columns} columns; the server must compute them from round 1"
            )
        return cls.agreed(shift, scale)

    def public(self) -> dict[str, NDArray[Any]]:
        """Return what a broadcast tells."""
        return {SHIFT: self.shift.astype(np.float32), SCALE: self.scale.astype(np.float32)}

    def __call__(self, examples: Examples) -> Examples:
        """Return examples with mapped columns; the constant at the end of a row stays."""
        rows = _rows(examples)
        rows[:, :-1] = (rows[:, :-1] - self.shift) * self.scale
        return replace(examples, features=rows.astype(np.float32))

    def to_table_weights(self, weights: NDArray[np.floating], constant: float) -> Floats:
        """Return a linear model's weights for the table's own columns, shape (d,).

        Args:
            weights: the weights for mapped columns, of each class in turn, shape (d,).
            constant: the value at the end of every row.
        """
        matrix = weights.astype(np.float64).reshape(-1, self.shift.size + 1)
        matrix[:, :-1] *= self.scale
        matrix[:, -1] -= matrix[:, :-1] @ self.shift / constant
        return matrix.ravel()
