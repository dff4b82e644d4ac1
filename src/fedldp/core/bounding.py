"""Bounds on what a client may send.

A bound is public: it comes with the broadcast or the configuration.
Sensitivity is computed here, by the code that clips, and never passed in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, PrivacyError

LARGEST = 1e6
"""The largest centre or radius: float32 has seven digits, and a larger number would swallow the
weights."""
LARGEST_WEIGHT = 1e9
"""The largest magnitude that a client accepts in a broadcast; no training needs larger numbers."""
FARTHEST = np.float32(1e30)
SMALLEST_RADIUS = 1e-9
LARGEST_GRID_RADIUS = 1 << 26
"""The square of this is 2^52, half of the range in which float64 holds every integer exactly."""

Number = TypeVar("Number", int, float)


def within_largest_weight(values: NDArray[Any]) -> bool:
    """Return whether all numbers in a public array are within ``LARGEST_WEIGHT``; NaN is not."""
    if values.size == 0 or values.dtype == np.bool_:
        return True
    # A comparison with NaN is False. Integers become Python integers, which do not overflow.
    return bool(max(values.max().item(), -values.min().item()) <= LARGEST_WEIGHT)


def check_releasable(values: Any) -> None:
    """Refuse values that a randomiser cannot protect, before anything is drawn or sent.

    Raises:
        PrivacyError: ``values`` is not a floating-point array with at least one axis and one
            element, or it holds NaN or infinity.
    """
    # Subclasses are refused too: a masked array would hide its NaN from the check.
    if type(values) is not np.ndarray:
        raise PrivacyError(f"cannot release a {type(values).__name__}: pass a floating-point array")
    if values.dtype not in (np.float32, np.float64):
        raise PrivacyError(
            f"cannot release an array of type {values.dtype}: only float32 and float64 "
            "can be randomised; integer and other buffers have no range"
        )
    if values.ndim == 0:
        raise PrivacyError("cannot release a 0-d array: give the parameter at least one axis")
    if values.size == 0:
        raise PrivacyError("cannot release an empty array: remove the parameter from the model")
    if not np.isfinite(values).all():
        raise PrivacyError(
            "the values to release contain NaN or infinity: nothing was released; "
            "lower learning_rate, or check the data and the model"
        )


@dataclass(frozen=True, eq=False)
class Ranges:
    """The public range [centre - radius, centre + radius] of each parameter tensor.

    A Ranges maps weights to normalised coordinates x = (w - centre) / radius, in which every
    mechanism works, and maps estimates back.

    Attributes:
        centers: float64, shape (L,) for L tensors.
        radii: float64, shape (L,), positive.
        sizes: the number of coordinates in each tensor, length L.

    Raises:
        ConfigError: a radius is not positive, a value is not finite or too large, or float32 cannot
            tell the two ends of the range apart.
    """

    centers: NDArray[np.float64]
    radii: NDArray[np.float64]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        for name, values in (("range centre", self.centers), ("range_radius", self.radii)):
            if len(values) != len(self.sizes):
                raise ConfigError(
                    f"{name} has {len(values)} values for {len(self.sizes)} parameter "
                    "tensors: give one value, or one per tensor"
                )
            for value in values:
                if not np.isfinite(value) or abs(value) > LARGEST:
                    raise ConfigError(f"{name} = {value:g}: give a finite number up to {LARGEST:g}")
        for center, radius in zip(self.centers, self.radii, strict=True):
            if radius < SMALLEST_RADIUS:
                raise ConfigError(
                    f"range_radius = {radius:g}: give a number of at least {SMALLEST_RADIUS:g}"
                )
            if radius < abs(center) * 1e-5:
                raise ConfigError(
                    f"range_radius = {radius:g} is too small next to the range's centre, "
                    f"{center:g}, for float32: give a larger radius"
                )

    @classmethod
    def fixed(
        cls, center: float | list[float], radius: float | list[float], sizes: tuple[int, ...]
    ) -> Ranges:
        """Return agreed ranges: one (centre, radius) for all tensors, or one per tensor."""
        return cls(_one_each(center, sizes), _one_each(radius, sizes), sizes)

    @classmethod
    def of_public(
        cls,
        weights: NDArray[np.float32],
        sizes: tuple[int, ...],
        *,
        floor: float,
        margin: float,
        first: float = 0.0,
    ) -> Ranges:
        """Return adaptive ranges for weights that are already public.

        This is post-processing, so it costs no privacy. Client weights come wrapped as Sensitive
        and are refused: with ranges computed from them, reports of two inputs could have disjoint
        supports, and epsilon would be infinite.

        Args:
            weights: the server's own weights, shape (d,).
            sizes: the number of coordinates of each tensor.
            floor: the smallest radius.
            margin: a radius is half of the range of the tensor's weights, times this factor.
            first: the radius of a tensor whose weights are all equal; at least ``floor``.

        Source: Sun, Qian, Chen 2021, Algorithm 1, lines 12-13.
        """
        if not isinstance(weights, np.ndarray):
            raise PrivacyError(
                f"ranges must come from public weights, not from a {type(weights).__name__}: "
                "compute them from the server's own weights"
            )
        if weights.shape != (sum(sizes),):
            raise PrivacyError(
                f"weights of shape {weights.shape}: the layers have {sum(sizes)} weights"
            )
        pieces = np.split(weights.astype(np.float64), np.cumsum(sizes)[:-1])
        low = np.array([piece.min() for piece in pieces])
        high = np.array([piece.max() for piece in pieces])
        radii = np.where(high > low, (high - low) / 2 * margin, first)
        return cls((high + low) / 2, np.maximum(radii, floor), sizes)

    def normalise(
        self, values: NDArray[np.float32], out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Return x = (values - centre) / radius, float32, not clipped.

        Args:
            values: shape (d,) or (n, d); a row's result does not depend on the other rows.
            out: another array of the same shape, to which the result is written; None: a new array.
        """
        if values.ndim not in (1, 2) or values.shape[-1] != sum(self.sizes):
            raise PrivacyError(
                f"values of shape {values.shape}: the ranges cover {sum(self.sizes)} weights"
            )
        result = np.empty(values.shape, np.float32) if out is None else out
        try:
            with np.errstate(over="raise"):
                return self._scaled(values, result)
        except FloatingPointError:
            if values.ndim == 2:
                for row, x in zip(values, result, strict=True):
                    self.normalise(row, x)
                return result
            # Clip to a finite limit far beyond every bound: a finite value must not be refused
            # later.
            with np.errstate(over="ignore"):
                return np.clip(self._scaled(values, result), -FARTHEST, FARTHEST, out=result)

    def _scaled(self, values: NDArray[np.float32], out: NDArray[np.float32]) -> NDArray[np.float32]:
        center, factor = self.as_single
        if center is None:
            return np.multiply(values, factor, out=out, dtype=np.float32)
        np.subtract(values, center, out=out)
        out *= factor
        return out

    @cached_property
    def as_single(self) -> tuple[NDArray[np.float32] | None, NDArray[np.float32]]:
        """The centre (None if it is 0) and 1/radius: one pair, or one for each weight."""
        center, factor = self.centers.astype(np.float32), (1.0 / self.radii).astype(np.float32)
        if (center == center[0]).all() and (factor == factor[0]).all():
            return (center[0] if center[0] else None), factor[0]
        return np.repeat(center, self.sizes), np.repeat(factor, self.sizes)

    def restore(self, estimate: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return centre + radius * estimate, float32, shape (d,)."""
        found = np.repeat(self.radii, self.sizes)
        found *= estimate
        found += np.repeat(self.centers, self.sizes)
        return found.astype(np.float32)


def _one_each(value: float | list[float], sizes: tuple[int, ...]) -> NDArray[np.float64]:
    if isinstance(value, list):
        return np.array(value, np.float64)
    return np.full(len(sizes), value, np.float64)


def longest_blocks(values: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the index of each vector's block with the largest L2 norm; the first if several tie.

    Args:
        values: finite, shape (n, blocks, block size).

    Returns:
        Shape (n,); a vector's result does not depend on the other vectors.
    """
    largest = np.abs(values).max((1, 2)).astype(np.float64)
    parts = values / np.where(largest > 0, largest, 1)[:, None, None]  # so no square overflows
    found: NDArray[np.int64] = np.einsum("ijk,ijk->ij", parts, parts).argmax(1)
    return found


def scaled_down(values: NDArray[np.floating], radius: float) -> NDArray[np.float64]:
    """Return ``values``, scaled down as a whole if its L2 norm exceeds ``radius``.

    The norm is computed in float64, for mechanisms that assume real arithmetic. Scaling the result
    again leaves it unchanged. See ``GridBall`` for a bound that holds exactly.
    """
    wide = values.astype(np.float64)
    largest = float(np.abs(wide).max())
    if largest == 0:
        return wide
    direction = wide / largest  # so that no square overflows
    norm = math.sqrt((direction * direction).sum())
    if norm * largest <= radius:
        return wide
    # Scale down slightly more than needed, so that scaling the result again leaves it unchanged.
    return direction * (radius / norm * (1 - 2.0**-40))


def replace_one_sensitivity(radius: Number) -> Number:
    """Return the largest distance between two vectors of norm at most ``radius``, in that norm."""
    return 2 * radius


@dataclass(frozen=True)
class GridBall:
    """The set of vectors of whole grid steps whose norm is at most ``radius`` steps.

    Guarantee: ``clip`` returns a point of the ball, exactly, whatever rounding happened before. Its
    last step compares a sum of integers, or of their squares, with radius^order. Up to 2^53,
    float64 adds integers exactly and in any order, and a larger sum stays above 2^53.

    Attributes:
        order: the order of the norm, 1 or 2.
        radius: in steps, at most ``LARGEST_GRID_RADIUS``.
        step: the grid step, in the unit of the values; positive.

    Raises:
        ConfigError: ``radius`` is too large.
    """

    order: Literal[1, 2]
    radius: int
    step: float

    def __post_init__(self) -> None:
        if self.radius > LARGEST_GRID_RADIUS:
            raise ConfigError(
                f"radius = {self.radius} grid steps: give at most {LARGEST_GRID_RADIUS}"
            )

    @property
    def sensitivity(self) -> int:
        """The largest distance, in steps, that replacing a client's whole input can cause."""
        return replace_one_sensitivity(self.radius)

    def check_size(self, size: int) -> None:
        """Refuse vectors so long that rounding them to the grid could use up the radius.

        Raises:
            ConfigError: ``size`` is too large.
        """
        if self._room(size) <= 0:
            raise ConfigError(
                f"a vector of {size} coordinates is too long for this much noise: its norm bound "
                f"is {self.radius} grid steps; give a larger epsilon or a smaller model"
            )

    def clip(self, values: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return ``clip_rows`` of a single vector.

        Args:
            values: finite, of any shape; the norm is taken over all of them.
        """
        return self.clip_rows(values.reshape(1, -1)).reshape(values.shape)

    def clip_rows(self, rows: NDArray[np.floating]) -> NDArray[np.int64]:
        """Round each row to the grid, and scale it down as a whole if it leaves the ball.

        Args:
            rows: finite, shape (n, d); no row affects another.

        Returns:
            Whole numbers of steps, of the same shape. Points of the ball are returned unchanged.

        Raises:
            ConfigError: see ``check_size``.
        """
        self.check_size(rows.shape[1])
        steps = np.array(rows, np.float64, order="C")
        largest = self.radius * self.step
        peaks = np.abs(steps).max(1)
        far = peaks > largest
        if far.any():  # scale down first, so that nothing overflows
            steps[far] = steps[far] / peaks[far, None] * largest
        steps /= self.step
        rounded = np.rint(steps)
        for place in np.flatnonzero(~self._hold(rounded)):
            own, total = steps[place], self._totals(steps[place]).item()
            own *= self._room(own.size) / math.pow(total, 1 / self.order)
            if not self._hold(np.rint(own, out=rounded[place])):
                raise PrivacyError("a clipped vector is too long: this is a bug in fedldp")
        return rounded.astype(np.int64)

    def _room(self, size: int) -> float:
        # Rounding moves each coordinate by at most half a step; one more step covers float errors.
        return self.radius - math.pow(size, 1 / self.order) / 2 - 1

    def _hold(self, steps: NDArray[np.float64]) -> NDArray[np.bool_]:
        # Whether each row is in the ball; a comparison with NaN is False.
        return np.asarray(self._totals(steps) <= float(self.radius**self.order))

    def _totals(self, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        # The norm of each row, raised to the power of its order.
        return np.asarray(np.sum(np.abs(steps) if self.order == 1 else np.square(steps), axis=-1))
