"""Bounds: public charts of what clients send, and the limits that mechanisms are made for.

A bound says whether weights or their change are sent, and in which coordinates a mechanism works.
Where a limit is a norm, the mechanism keeps it, exactly, and computes its sensitivity from it; what
a bound does to rows before that costs no privacy, for the mechanism takes any row.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedldp.algorithms.settings import Offer, Positive
from fedldp.core.bounding import LARGEST, SMALLEST_RADIUS, Box, Ranges, longest_blocks
from fedldp.core.errors import ConfigError, RunError
from fedldp.mechanisms.rotation import Rotation, padded_size
from fedldp.protocol.roles import State
from fedldp.protocol.wire import Broadcast, Layout, Vector
from fedldp.training.linear_models import LinearModel, Statistics

Send = Literal["weights", "update"]
"""What a client sends: its weights after training, or their change from the broadcast's."""

Radius = Annotated[float, Field(ge=SMALLEST_RADIUS, le=LARGEST, allow_inf_nan=False)]
Center = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]

RANGES = (
    Offer(
        "ranges",
        Literal["fixed", "adaptive"],
        "fixed: range_center and range_radius; adaptive: from the last weights",
        "fixed",
    ),
    Offer(
        "range_center",
        Center | list[Center],
        "c of the fixed range, for all layers or a list with one for each",
        0.0,
    ),
    Offer(
        "range_radius",
        Radius | list[Radius],
        "r of the fixed range, for all layers or a list with one for each",
        0.1,
    ),
    Offer("range_floor", Radius, "smallest adaptive radius", 1e-3),
    Offer("range_margin", Positive, "factor on the adaptive radius", 1.0),
)
"""The settings of ``InRange``."""


class Chart(Protocol):
    """Public linear coordinates of what is sent, where these are not the model's weights."""

    def bound_to(self, layout: Layout) -> Chart:
        """Return it for a model whose parameters lie as ``layout`` says."""
        ...

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        ...

    def apply(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the coordinates of what clients send, shape (n, ``size``), each by itself."""
        ...

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weights, or their change, that coordinates mean, shape (d,)."""
        ...


@dataclass(frozen=True, kw_only=True)
class InContrasts:
    """A linear model in contrasts of the classes: k - 1 numbers in place of k, of the same norm.

    Attributes:
        model: the model; None until it is bound to one.
    """

    model: LinearModel | None = None

    def bound_to(self, layout: Layout) -> InContrasts:
        """Return it for a linear model."""
        return InContrasts(model=LinearModel.of(layout))

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return self._model.contrasts

    def apply(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the contrasts of weights, or of their change; see ``Chart``."""
        return self._model.in_contrasts(rows).reshape(len(rows), -1)

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weights with these contrasts; see ``Chart``."""
        return self._model.weights(mean.reshape(-1, self._model.inputs))

    @property
    def _model(self) -> LinearModel:
        assert self.model is not None
        return self.model


@dataclass(frozen=True, kw_only=True)
class InLabels:
    """Of a linear model's weights less their mean over the classes, those of one class alone.

    It is the class whose weights are longest, the first of equal ones: of a client whose examples
    all have one label, that label, whose weights say all that its solution says.

    Attributes:
        model: the model; None until it is bound to one.
    """

    model: LinearModel | None = None

    def bound_to(self, layout: Layout) -> InLabels:
        """Return it for a linear model."""
        return InLabels(model=LinearModel.of(layout))

    @property
    def labels(self) -> int:
        """How many classes there are; each is a block of the coordinates."""
        return self._model.classes

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return self._model.classes * self._model.inputs

    def apply(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return zeros but for one class; see ``Chart``."""
        weights = self._model.by_class(rows)
        weights -= weights.mean(1, keepdims=True)
        own = longest_blocks(weights)
        weights[np.arange(self._model.classes) != own[:, None]] = 0
        return weights.reshape(len(rows), -1)

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weights, less their mean over the classes; see ``Chart``."""
        found = mean.reshape(self._model.classes, -1)
        return self._model.of_classes(found - found.mean(0))

    @property
    def _model(self) -> LinearModel:
        assert self.model is not None
        return self.model


@dataclass(frozen=True, kw_only=True)
class OfStatistics:
    """Statistics in place of weights, which the server's ridge regression makes of their mean.

    What is done to a mean of noisy reports is post-processing, and costs nothing.

    Attributes:
        ridge: of the regression; positive.
        model: the model; None until it is bound to one.
    """

    ridge: float
    model: LinearModel | None = None

    def bound_to(self, layout: Layout) -> OfStatistics:
        """Return it for a linear model."""
        return replace(self, model=LinearModel.of(layout))

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return self._statistics.size

    def apply(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return statistics as they are; see ``Chart``."""
        return rows

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weights that statistics determine; see ``Chart``."""
        return self._statistics.solve(mean, self.ridge)

    @property
    def _statistics(self) -> Statistics:
        assert self.model is not None
        return Statistics(self.model)


@dataclass(frozen=True, kw_only=True)
class Bound(ABC):
    """A public chart of what clients send.

    Attributes:
        send: weights, or their change from the broadcast's.
        chart: coordinates in their place, where there are some.
    """

    send: Send = "weights"
    chart: Chart | None = None

    def bound_to(self, layout: Layout) -> Self:
        """Return it for a model whose parameters lie as ``layout`` says."""
        return self if self.chart is None else replace(self, chart=self.chart.bound_to(layout))

    def announce(self, weights: Vector) -> Ranges | None:
        """Return the ranges that a broadcast of public ``weights``, shape (d,), tells of."""
        return None

    def announce_first(self) -> None:  # noqa: B027 (most announce nothing)
        """Refuse what could not be announced whatever the weights are.

        Raises:
            ConfigError: it is that.
        """

    def accept(self, weights: NDArray[np.floating], state: State) -> NDArray[np.floating]:
        """Return the next weights, as the server's step has them, before they are rounded.

        Args:
            weights: shape (d,).
            state: the server's, of the round that ends.

        Raises:
            RunError: the next round could announce nothing of them.
        """
        return weights

    def size(self, size: int) -> int:
        """Return the coordinates of what is randomised, of a model of ``size`` weights."""
        return size if self.chart is None else self.chart.size

    def apply(self, rows: NDArray[np.float32], broadcast: Broadcast) -> NDArray[np.floating]:
        """Return what is to be randomised of clients' weights.

        Args:
            rows: finite, shape (n, d); they are not changed.
            broadcast: that they answer.

        Returns:
            Shape (n, ``size(d)``), each row as it would be by itself; perhaps ``rows`` themselves.
        """
        values = rows if self.send == "weights" else rows - broadcast.weights.astype(np.float64)
        return values if self.chart is None else self.chart.apply(values)

    def restore(
        self, mean: NDArray[np.float64], state: State, factor: float = 1.0
    ) -> NDArray[np.floating]:
        """Return the mean of what clients sent, in the unit of the weights, shape (d,).

        Args:
            mean: a mechanism's estimate, shape (``size(d)``,).
            state: the server's, of the round.
            factor: on what is returned.
        """
        return factor * (mean if self.chart is None else self.chart.restore(mean))

    @abstractmethod
    def limit(self, order: Literal[1, 2], size: int) -> float:
        """Return the norm of ``size`` coordinates for which a mechanism is to be made."""


@dataclass(frozen=True, kw_only=True)
class Unbounded(Bound):
    """No bound: nothing is protected, or the mechanism has a bound of its own."""

    def limit(self, order: Literal[1, 2], size: int) -> float:
        """Return infinity."""
        return math.inf


@dataclass(frozen=True, kw_only=True)
class InNorm(Bound):
    """A norm of at most ``clip``, which the mechanism keeps.

    Attributes:
        clip: positive, in the unit of the weights.
        order: of the norm.
        direction: send the direction alone, with an L2 norm of ``clip``. Zeros have none: a public
            one takes its place, with all coordinates alike.
    """

    clip: float
    order: Literal[1, 2] = 2
    direction: bool = False

    def apply(self, rows: NDArray[np.float32], broadcast: Broadcast) -> NDArray[np.floating]:
        """Return rows of any norm, or directions in float64; see ``Bound.apply``."""
        values = super().apply(rows, broadcast)
        if not self.direction:
            return values
        wide = values.astype(np.float64)  # a copy
        wide[~wide.any(axis=1)] = 1.0
        return wide * (self.clip / _norms(wide))[:, None]

    def limit(self, order: Literal[1, 2], size: int) -> float:
        """Return ``clip``, or for the other norm the most that goes with it."""
        return self.clip * (math.sqrt(size) if order < self.order else 1.0)


@dataclass(frozen=True, kw_only=True)
class Rotated(InNorm):
    """An L2 norm of at most ``clip``, of which each coordinate has a like share.

    A change is divided by ``clip``, scaled down to norm 1 and rotated, by a rotation of the round
    that is public, so that no coordinate of a sum is large.
    """

    send: Send = "update"

    def size(self, size: int) -> int:
        """Return the least power of two that is at least the coordinates."""
        return padded_size(super().size(size))

    def apply(self, rows: NDArray[np.float32], broadcast: Broadcast) -> NDArray[np.floating]:
        """Return rotated rows of norm 1 at most, in float64; see ``Bound.apply``."""
        values = super().apply(rows, broadcast).astype(np.float64, copy=False)
        # Shrunk to norm 1 before, which the rotation is exact for; the mechanism sees to it itself.
        scaled = values / np.maximum(_norms(values), self.clip)[:, None]
        return Rotation(values.shape[1], broadcast.round).forward(scaled)

    def restore(
        self, mean: NDArray[np.float64], state: State, factor: float = 1.0
    ) -> NDArray[np.floating]:
        """Return the mean, rotated back and times ``clip``; see ``Bound.restore``."""
        size = super().size(state.weights.size)
        turned = Rotation(size, state.round).back(mean)
        if self.chart is None:
            return (self.clip * factor) * turned
        return factor * self.chart.restore(self.clip * turned)

    def limit(self, order: Literal[1, 2], size: int) -> float:
        """Return 1, the norm after division by ``clip``, or that of the other norm."""
        return math.sqrt(size) if order < self.order else 1.0


@dataclass(frozen=True, kw_only=True)
class InBox(Bound):
    """Every coordinate within [-limit, limit], of each client alike or as each chose.

    Attributes:
        box: the limit.
    """

    box: Box

    def apply(self, rows: NDArray[np.float32], broadcast: Broadcast) -> NDArray[np.floating]:
        """Return clipped rows, in float64; see ``Bound.apply``."""
        return self.box.clip(super().apply(rows, broadcast))

    def limit(self, order: Literal[1, 2], size: int) -> float:
        """Return the norm of a corner."""
        return self.box.norm(size) if order == 2 else self.box.limit * size


@dataclass(frozen=True, kw_only=True)
class InRange(Bound):
    """Coordinates x = (w - c)/r with the centre c and the radius r of each parameter tensor.

    Everything here is done in float32. The mechanism clips x, each coordinate or as a vector.

    Attributes:
        sizes: coordinates of each tensor; () until it is bound to a model.
        center: c, of all tensors or one for each.
        radius: r, likewise.
        adaptive: take both from the weights of each broadcast instead.
        floor: the least radius, where they are taken so.
        margin: factor on the radius, where it is taken so.
        clip: the norm bound on x, for mechanisms of whole vectors.
    """

    sizes: tuple[int, ...] = ()
    center: float | tuple[float, ...] = 0.0
    radius: float | tuple[float, ...] = 1.0
    adaptive: bool = False
    floor: float = 1e-3
    margin: float = 1.0
    clip: float = 1.0

    def bound_to(self, layout: Layout) -> InRange:
        """Return it with the sizes of a model's tensors."""
        return replace(self, sizes=layout.sizes)

    def announce_first(self) -> None:
        """Refuse fixed ranges that do not fit the model; see ``Bound.announce_first``."""
        if not self.adaptive:
            self.fixed  # noqa: B018 (it refuses them)

    def announce(self, weights: Vector) -> Ranges:
        """Return the ranges of a round that begins with ``weights``, which are public.

        Raises:
            ConfigError: they are not one for each parameter tensor, or not in range.
        """
        if self.adaptive:
            return Ranges.of_public(weights, self.sizes, floor=self.floor, margin=self.margin)
        return self.fixed

    @classmethod
    def of(cls, settings: Any) -> InRange:
        """Return the ranges that ``RANGES``, ``send`` and ``clip`` say.

        Raises:
            ConfigError: they contradict each other.
        """
        adaptive = settings.ranges == "adaptive"
        if settings.send == "update" and adaptive:
            raise ConfigError(
                "send = update: adaptive ranges follow the weights, not their change; "
                "set ranges = fixed"
            )
        center, radius = (
            tuple(value) if isinstance(value, list) else value
            for value in (settings.range_center, settings.range_radius)
        )
        return cls(
            send=settings.send,
            center=center,
            radius=radius,
            adaptive=adaptive,
            floor=settings.range_floor,
            margin=settings.range_margin,
            clip=settings.clip,
        )

    @property
    def unused(self) -> dict[str, str]:
        """The settings that are not used, and why.

        A fixed range beside adaptive ones is none of them: recipes have one to go back to.
        """
        if self.adaptive:
            return {}
        return dict.fromkeys(("range_floor", "range_margin"), "ranges are fixed")

    def accept(self, weights: NDArray[np.floating], state: State) -> NDArray[np.floating]:
        """Return the next weights, of which ranges can be taken; see ``Bound.accept``."""
        try:
            self.announce(weights)
        except ConfigError as error:
            raise RunError(
                f"round {state.round}: the adaptive ranges went astray, for the noise of so "
                "few reports at this epsilon feeds on itself; set ranges = fixed"
            ) from error
        return weights

    @cached_property
    def fixed(self) -> Ranges:
        """The ranges of every round, where they are not adaptive.

        Raises:
            ConfigError: see ``announce``.
        """
        center, radius = (
            list(value) if isinstance(value, tuple) else value
            for value in (self.center, self.radius)
        )
        return Ranges.fixed(center, radius, self.sizes)

    def apply(self, rows: NDArray[np.float32], broadcast: Broadcast) -> NDArray[np.floating]:
        """Return x, of the broadcast's ranges, not clipped; see ``Bound.apply``."""
        values = rows if self.send == "weights" else rows - broadcast.weights
        return ranges_of(broadcast).normalise(values)

    def restore(
        self, mean: NDArray[np.float64], state: State, factor: float = 1.0
    ) -> NDArray[np.floating]:
        """Return c + r times the mean, in float32; see ``Bound.restore``."""
        return factor * self.announce(state.weights).restore(mean)

    def limit(self, order: Literal[1, 2], size: int) -> float:
        """Return ``clip``, whatever the norm: that is the mechanism's."""
        return self.clip


def _norms(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return L2 norms, each summed by itself, shape (n,)."""
    return np.array([math.sqrt(float(np.sum(np.square(row)))) for row in rows])


def ranges_of(broadcast: Broadcast) -> Ranges:
    """Return the ranges that a broadcast tells.

    Raises:
        RunError: it tells none.
    """
    if broadcast.ranges is None:
        raise RunError("ranges: the broadcast tells none; the server must announce them")
    return broadcast.ranges
