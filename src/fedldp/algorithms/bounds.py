"""Bounds: public coordinates for what clients send, and the limits that mechanisms rely on.

A bound decides whether clients send their weights or the change of their weights, and in which
coordinates a mechanism works. If the limit is a norm, the mechanism enforces it exactly and
computes its sensitivity from it. What a bound does to rows before the mechanism costs no privacy,
because the mechanism accepts any row.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedldp.accounting.events import Event
from fedldp.algorithms.settings import Offers, Positive
from fedldp.core.bounding import LARGEST, SMALLEST_RADIUS, Ranges, longest_blocks
from fedldp.core.errors import ConfigError, RunError
from fedldp.mechanisms import Mechanism, stated_event
from fedldp.mechanisms.rotation import Rotation, padded_size
from fedldp.protocol.roles import State
from fedldp.protocol.wire import Broadcast, Layout, Vector
from fedldp.training.linear_models import LinearModel, Statistics

Send = Literal["weights", "update"]
"""What a client sends: its weights after training, or their change from the broadcast weights."""

Radius = Annotated[float, Field(ge=SMALLEST_RADIUS, le=LARGEST, allow_inf_nan=False)]

_FLOOR = 1e-3
"""The smallest radius of adaptive ranges."""


class RangeSettings(Offers):
    """The settings of ``InRange``, besides ``send``."""

    ranges: Literal["fixed", "adaptive"] = "fixed"
    """where the ranges of weights come from: fixed (range_radius around 0), or adaptive (computed
    from the last weights)"""
    range_radius: Radius | list[Radius] = 0.1
    """radius r of the fixed ranges: one number for all layers, or a list with one per layer"""
    range_margin: Positive = 1.0
    """factor by which the radius of adaptive ranges is multiplied"""
    range_first: Radius = _FLOOR
    """radius of adaptive ranges for a layer whose last weights are all equal, such as biases of 0
    or batch norm's statistics in the first round"""


@dataclass(frozen=True, kw_only=True)
class Chart(ABC):
    """Public linear coordinates for what clients send, if these are not the model's weights.

    Attributes:
        layout: the model's parameters; None until the chart is bound to a model.
    """

    layout: Layout | None = None

    def bound_to(self, layout: Layout) -> Self:
        """Return this chart for a model whose parameters have this layout."""
        return replace(self, layout=layout)

    @property
    def whole(self) -> Layout:
        """The model's parameters."""
        assert self.layout is not None
        return self.layout

    @property
    def model(self) -> LinearModel:
        """The model, which must be linear."""
        return LinearModel.of(self.whole)

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of coordinates."""

    @abstractmethod
    def apply(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the coordinates of what clients send, shape (n, ``size``), row by row."""

    @abstractmethod
    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weights, or their change, with these coordinates, shape (d,)."""


@dataclass(frozen=True, kw_only=True)
class InContrasts(Chart):
    """Contrasts between a linear model's k classes: k - 1 numbers replace k, of the same norm."""

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return self.model.contrasts

    def apply(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the contrasts of weights, or of their change; see ``Chart``."""
        return self.model.in_contrasts(rows).reshape(len(rows), -1)

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weights with these contrasts; see ``Chart``."""
        return self.model.weights(mean.reshape(-1, self.model.inputs))


@dataclass(frozen=True, kw_only=True)
class InLabels(Chart):
    """One class's weights, from a linear model's weights minus their mean over the classes.

    The chosen class is the one whose weights have the largest norm; ties go to the first class. If
    all of a client's examples have the same label, the chosen class is that label, and the weights
    of this class determine the client's whole solution.
    """

    @property
    def labels(self) -> int:
        """The number of classes; each class has one block of coordinates."""
        return self.model.classes

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return self.model.classes * self.model.inputs

    def apply(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return coordinates that are zero except for one class; see ``Chart``."""
        weights = self.model.by_class(rows)
        weights -= weights.mean(1, keepdims=True)
        own = longest_blocks(weights)
        weights[np.arange(self.model.classes) != own[:, None]] = 0
        return weights.reshape(len(rows), -1)

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weights, minus their mean over the classes; see ``Chart``."""
        found = mean.reshape(self.model.classes, -1)
        return self.model.of_classes(found - found.mean(0))


@dataclass(frozen=True, kw_only=True)
class OfStatistics(Chart):
    """Statistics, not weights; the server computes the weights from the mean of the statistics.

    The server's ridge regression on the mean of noisy reports is post-processing, so it costs no
    privacy.

    Attributes:
        ridge: the regression's ridge; positive.
    """

    ridge: float

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return self._statistics.size

    def apply(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the statistics unchanged; see ``Chart``."""
        return rows

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weights that the statistics determine; see ``Chart``."""
        return self._statistics.solve(mean, self.ridge)

    @property
    def _statistics(self) -> Statistics:
        return Statistics(self.model)


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Public coordinates for what clients send, and the limit on their values.

    Attributes:
        send: whether clients send the weights or their change from the broadcast weights.
        chart: the coordinates that replace the weights, if any.
        sizes: the number of coordinates in each of the model's tensors; () until the bound is bound
            to a model.
        bounds_people: whether what one person adds to a client's vector is bounded, and not the
            vector.
    """

    bounds_people: ClassVar[bool] = False

    send: Send = "weights"
    chart: Chart | None = None
    sizes: tuple[int, ...] = ()

    def bound_to(self, layout: Layout) -> Self:
        """Return this bound for a model whose parameters have this layout.

        Raises:
            ConfigError: fixed ranges are invalid for the model.
        """
        chart = None if self.chart is None else self.chart.bound_to(layout)
        return replace(self, chart=chart, sizes=layout.sizes)

    def event(self, mechanism: Mechanism, size: int) -> Event:
        """Return what a report of ``size`` coordinates releases, whatever clients compute."""
        return stated_event(mechanism, size)

    def announce(self, weights: Vector) -> Ranges | None:
        """Return the ranges to announce with public ``weights``, shape (d,), or None."""
        return None

    def accept(self, weights: NDArray[np.floating], state: State) -> NDArray[np.floating]:
        """Return the next weights, given the result of the server's step, before they are rounded.

        Args:
            weights: shape (d,).
            state: the server's state in the round that is ending.

        Raises:
            RunError: the next round could not announce ranges for these weights.
        """
        return weights

    def size(self, size: int) -> int:
        """Return how many coordinates are randomised for a model of ``size`` weights."""
        return size if self.chart is None else self.chart.size

    @property
    def unit(self) -> float:
        """The norm in the coordinates of ``unbounded`` that has norm 1 in those of ``apply``."""
        return 1.0

    def unbounded(self, rows: NDArray[np.float32], broadcast: Broadcast) -> NDArray[np.floating]:
        """Return what clients would send if no norm were bounded; see ``apply``."""
        values = rows if self.send == "weights" else rows - broadcast.weights.astype(np.float64)
        return values if self.chart is None else self.chart.apply(values)

    def apply(self, rows: NDArray[np.float32], broadcast: Broadcast) -> NDArray[np.floating]:
        """Return the values to randomise, computed from clients' weights.

        Args:
            rows: finite, shape (n, d); they are not changed.
            broadcast: the broadcast that the clients answer.

        Returns:
            Shape (n, ``size(d)``); each row is computed only from the same row of ``rows``. The
            result may be ``rows`` itself.
        """
        return self.unbounded(rows, broadcast)

    def restore(self, mean: NDArray[np.float64], state: State) -> NDArray[np.floating]:
        """Return the mean of what clients sent, in the units of the weights, shape (d,).

        Args:
            mean: a mechanism's estimate, shape (``size(d)``,).
            state: the server's state in the round.
        """
        return mean if self.chart is None else self.chart.restore(mean)


@dataclass(frozen=True, kw_only=True)
class Unbounded(Bound):
    """No bound: nothing is protected, or the mechanism has its own bound."""


@dataclass(frozen=True, kw_only=True)
class InNorm(Bound):
    """A norm of at most ``clip``, which the mechanism enforces.

    Attributes:
        clip: positive, in the units of the weights.
        direction: whether to send only the direction, with an L2 norm of ``clip``. A row of zeros
            has no direction, so a public direction with equal coordinates replaces it.
        by_layer: whether each of the model's L tensors is scaled down by itself first, to an L2
            norm of at most clip/sqrt(L), so that the norm of all of them is at most ``clip``.

    Source: H. B. McMahan, D. Ramage, K. Talwar, L. Zhang, "Learning Differentially Private
    Recurrent Language Models", ICLR 2018, for ``by_layer``.
    """

    clip: float
    direction: bool = False
    by_layer: bool = False

    def apply(self, rows: NDArray[np.float32], broadcast: Broadcast) -> NDArray[np.floating]:
        """Return rows of any norm, or directions in float64; see ``Bound.apply``."""
        values = super().apply(rows, broadcast)
        if not (self.direction or self.by_layer):
            return values
        wide = values.astype(np.float64)  # a copy, which may be changed
        if self.by_layer:
            limit = self.clip / math.sqrt(len(self.sizes))
            for layer in np.split(wide, np.cumsum(self.sizes)[:-1], axis=1):
                layer *= (limit / np.maximum(_norms(layer), limit))[:, None]
            return wide
        wide[~wide.any(axis=1)] = 1.0
        return wide * (self.clip / _norms(wide))[:, None]


@dataclass(frozen=True, kw_only=True)
class Rotated(InNorm):
    """An L2 norm of at most ``clip``, spread evenly over the coordinates.

    A change is divided by ``clip``, scaled down to norm 1 if it is longer, and rotated by the
    round's public rotation, so that no coordinate of a sum is large.
    """

    send: Send = "update"

    @property
    def unit(self) -> float:
        """The clip; see ``Bound.unit``."""
        return self.clip

    def size(self, size: int) -> int:
        """Return the smallest power of two that is at least the number of coordinates."""
        return padded_size(super().size(size))

    def apply(self, rows: NDArray[np.float32], broadcast: Broadcast) -> NDArray[np.floating]:
        """Return rotated rows of norm at most 1, in float64; see ``Bound.apply``."""
        values = super().apply(rows, broadcast).astype(np.float64, copy=False)
        # Scale to norm 1 first, because the rotation is exact for vectors of norm at most 1; the
        # mechanism itself enforces the norm.
        scaled = values / np.maximum(_norms(values), self.clip)[:, None]
        return Rotation(values.shape[1], broadcast.round).forward(scaled)

    def restore(self, mean: NDArray[np.float64], state: State) -> NDArray[np.floating]:
        """Return the mean, rotated back and multiplied by ``clip``; see ``Bound.restore``."""
        size = super().size(state.weights.size)
        turned = self.clip * Rotation(size, state.round).back(mean)
        return turned if self.chart is None else self.chart.restore(turned)


@dataclass(frozen=True, kw_only=True)
class InBox(Bound):
    """Every coordinate within [-most, most], with one limit for all clients or one for each.

    Attributes:
        most: the limit; positive.
    """

    most: float

    def apply(self, rows: NDArray[np.float32], broadcast: Broadcast) -> NDArray[np.floating]:
        """Return clipped rows, in float64; see ``Bound.apply``."""
        wide = super().apply(rows, broadcast).astype(np.float64)
        return np.clip(wide, -self.most, self.most)


@dataclass(frozen=True, kw_only=True)
class InRange(Bound):
    """Coordinates x = (w - c)/r with the centre c and the radius r of each parameter tensor.

    All computation here is in float32. The mechanism clips x, per coordinate or as a vector.

    Attributes:
        radius: r, one number for all tensors or one per tensor.
        adaptive: whether to compute c and r from each broadcast's weights instead.
        margin: a factor on the radius, if ranges are adaptive.
        first: the radius of a tensor whose weights are all equal, if ranges are adaptive.
    """

    radius: float | tuple[float, ...] = 1.0
    adaptive: bool = False
    margin: float = 1.0
    first: float = _FLOOR

    def bound_to(self, layout: Layout) -> Self:
        """Return this bound for a model; see ``Bound.bound_to``."""
        found = super().bound_to(layout)
        if not self.adaptive:
            found.fixed  # noqa: B018 (computing the ranges refuses wrong ones)
        return found

    def announce(self, weights: Vector) -> Ranges:
        """Return the ranges for a round that begins with the public ``weights``.

        Raises:
            ConfigError: the number of ranges differs from the number of parameter tensors, or a
                range is invalid.
        """
        if self.adaptive:
            return Ranges.of_public(
                weights, self.sizes, floor=_FLOOR, margin=self.margin, first=self.first
            )
        return self.fixed

    @classmethod
    def of(cls, settings: Any) -> InRange:
        """Return the bound that the settings in ``RANGES`` and ``send`` describe.

        Raises:
            ConfigError: the settings contradict each other.
        """
        adaptive = settings.ranges == "adaptive"
        if settings.send == "update" and adaptive:
            raise ConfigError(
                "send = update: adaptive ranges follow the weights, not their change; "
                "set ranges = fixed"
            )
        radius = settings.range_radius
        return cls(
            send=settings.send,
            radius=tuple(radius) if isinstance(radius, list) else radius,
            adaptive=adaptive,
            margin=settings.range_margin,
            first=settings.range_first,
        )

    @property
    def unused(self) -> dict[str, str]:
        """The settings that have no effect, each with the reason.

        If ranges are adaptive, a fixed range that is also set is not listed, because recipes set
        one as a fallback.
        """
        if self.adaptive:
            return {}
        return dict.fromkeys(("range_margin", "range_first"), "ranges are fixed")

    def accept(self, weights: NDArray[np.floating], state: State) -> NDArray[np.floating]:
        """Return the next weights, if ranges can be computed from them; see ``Bound.accept``."""
        try:
            self.announce(weights)
        except ConfigError as error:
            raise RunError(
                f"round {state.round}: the adaptive ranges diverged, because the noise in so few "
                "reports at this epsilon feeds back into them; set ranges = fixed"
            ) from error
        return weights

    @cached_property
    def fixed(self) -> Ranges:
        """The ranges in every round, if ranges are not adaptive.

        Raises:
            ConfigError: see ``announce``.
        """
        radius = list(self.radius) if isinstance(self.radius, tuple) else self.radius
        return Ranges.fixed(0.0, radius, self.sizes)

    def unbounded(self, rows: NDArray[np.float32], broadcast: Broadcast) -> NDArray[np.floating]:
        """Return x, computed with the broadcast's ranges but not clipped; see ``Bound.apply``."""
        if broadcast.ranges is None:
            raise RunError("ranges: the broadcast has none; the server must announce them")
        values = rows if self.send == "weights" else rows - broadcast.weights
        return broadcast.ranges.normalise(values)

    def restore(self, mean: NDArray[np.float64], state: State) -> NDArray[np.floating]:
        """Return c + r times the mean, in float32; see ``Bound.restore``."""
        return self.announce(state.weights).restore(mean)


def _norms(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the L2 norm of each row, shape (n,)."""
    return np.array([math.sqrt(float(np.sum(np.square(row)))) for row in rows])
