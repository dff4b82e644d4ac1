"""The server's update: an estimate from a round's reports, then a step of the global weights.

    reports -> estimate   of the clients' mean: of their weights, or of their change from W
            -> noise      the server's own, if it adds any
            -> step       W + rate times what an optimiser makes of the change -> the next W
            -> average    of the last iterates: what is tested and kept as the model

Everything after the estimate is computed from what clients have already released (or, if the server
itself adds the noise, from the noisy values). It is post-processing, so no step, rate or average
changes a line of a statement.

Source: S. Reddi, Z. Charles, M. Zaheer, Z. Garrett, K. Rush, J. Konecny, S. Kumar, H. B. McMahan,
"Adaptive Federated Optimization", ICLR 2021: FedOpt (Algorithm 1) with FedAvgM (T.-M. H. Hsu, H.
Qi, M. Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification", 2019) and FedAdam (Algorithm 2).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import Event
from fedldp.algorithms.bounds import Send
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Needs, Release
from fedldp.core.bounding import within_largest_weight
from fedldp.core.errors import Diverged, RunError
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Counts, Mechanism, SumAggregate
from fedldp.mechanisms.none import Plain, read_plain
from fedldp.protocol.roles import Arrays, Draw, Initial, Metrics, ServerRole, State, publish_weights
from fedldp.protocol.updates import whole
from fedldp.protocol.wire import Broadcast, Counted, Incoming, Report, Reports, Vector

Values: TypeAlias = NDArray[np.floating]

Optimizer = Literal["none", "momentum", "adam"]

ADAM_DECAY = 0.99
"""beta_2 of FedAdam, as in the experiments of Reddi et al. 2021."""

ADAM_FLOOR = 1e-3
"""tau of FedAdam, its "degree of adaptivity": Reddi et al. 2021 find 10^-3 good for all tasks."""

_MOMENTUM, _SQUARES = "momentum", "second_moment"
_SUM, _COUNT = "iterate_sum", "iterates"


# Estimates


@dataclass(frozen=True, kw_only=True)
class Estimated:
    """The result of estimating from one round's reports.

    Attributes:
        values: the estimate of the clients' mean, shape (d,), in float64, or in the float32 of
            ranges; None if the round's rule uses no report, which leaves the weights unchanged.
        weight: the total weight of all reports.
        metrics: the system's own metrics of the round.
        arrays: the state's arrays that change.
    """

    values: Values | None
    weight: float = 0.0
    metrics: Metrics = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)

    def change(self, gives: Send, weights: Values) -> Values:
        """Return the change of the weights if ``values`` are what an estimate ``gives``."""
        assert self.values is not None
        return self.values if gives == "update" else self.values - weights


FirstArrays = Callable[[Draw], Arrays]
"""Computes the initial values of the server's arrays from the server's randomness."""


Shown = Callable[[Estimated, Send, State], None]
"""Is called with each estimate of a round, what it gives, and the state."""


@dataclass(frozen=True, kw_only=True)
class Estimate(ABC):
    """What the server computes from a stream of reports: the clients' mean, in O(d) memory.

    ``needs`` decides what a client sends in addition to its payload: its name, or its example count
    in the clear.

    Attributes:
        release: the release of the reports; None until ``reading``.
        needs: what the estimate must have; a channel that cannot provide this is incompatible with
            the estimate.
        setting: the user's setting that selects this estimate.
    """

    release: Release | None = None

    if TYPE_CHECKING:

        @property
        def needs(self) -> Needs: ...

        @property
        def setting(self) -> str: ...

    @property
    def released(self) -> Release:
        """The release of the reports."""
        assert self.release is not None
        return self.release

    @property
    def gives(self) -> Send:
        """Whether ``Estimated.values`` holds weights or their change."""
        return self.released.bound.send

    def reading(self, release: Release) -> Self:
        """Return the estimate from reports of ``release``."""
        return replace(self, release=release)

    def arrays(self, problem: Problem) -> FirstArrays:
        """Return what gives the other arrays that the server keeps, before the first round."""
        return lambda draw: {}

    def told(self, state: State) -> Arrays:
        """Return what a broadcast tells clients besides the weights and their ranges."""
        return {}

    def model(self, weights: Values, arrays: Arrays) -> Values:
        """Return the model, given the server's weights and arrays."""
        return weights

    @abstractmethod
    def __call__(self, state: State, reports: Incoming, draw: Draw) -> Estimated:
        """Return the estimate.

        Raises:
            RunError: there are no reports, or some cannot be read.
        """


@dataclass(frozen=True, kw_only=True)
class Around(Estimate):
    """An estimate that is made around another.

    Attributes:
        inner: the other estimate.
    """

    inner: Estimate

    @property
    def needs(self) -> Needs:
        """What the other estimate needs."""
        return self.inner.needs

    @property
    def setting(self) -> str:
        """The user's setting that selects the other estimate."""
        return self.inner.setting

    def reading(self, release: Release) -> Self:
        """Return the estimate from reports of ``release``; see ``Estimate``."""
        return replace(super().reading(release), inner=self.inner.reading(release))


@dataclass(frozen=True, kw_only=True)
class OwnMean(Estimate):
    """The mean, estimated by the mechanism's own aggregate, which needs only a sum.

    Attributes:
        scale: if reports are bits and clients' budgets differ, gives the scale for a budget and a
            report's size.
    """

    needs: ClassVar[Needs] = "sum"
    setting: ClassVar[str] = "weighting = uniform"

    scale: Callable[[float, int], float] | None = None

    def __call__(self, state: State, reports: Incoming, draw: Draw) -> Estimated:
        """Return the estimate; see ``Estimate``."""
        release = self.released.at(state.round)
        aggregate = release.mechanism.aggregate(release.coordinates)
        if isinstance(aggregate, Counts):
            for report in reports:
                if report.epsilon is not None and self.scale is not None:
                    aggregate.use_scale(self.scale(report.epsilon, report.size))
                count(aggregate, report)
        elif isinstance(aggregate, SumAggregate):
            for report in whole(reports):
                aggregate.add(report.payload, 1 if report.weight is None else int(report.weight))
        else:
            for report in whole(reports):
                aggregate.add(report.payload)
        return Estimated(values=release.bound.restore(aggregate.mean(), state))


@dataclass(frozen=True, kw_only=True)
class WeightedMean(Estimate):
    """The weighted mean of reports that are read one by one.

    Attributes:
        by_examples: whether the weights are the example counts that clients report; else a report
            that carries no weight has weight 1.
    """

    by_examples: bool = False

    @property
    def needs(self) -> Needs:
        """What the estimate needs: each report's weight in the clear, or only the reports."""
        return "weight" if self.by_examples else "reports"

    @property
    def setting(self) -> str:
        """The user's setting that chooses the weights."""
        return f"weighting = {'examples' if self.by_examples else 'uniform'}"

    def __call__(self, state: State, reports: Incoming, draw: Draw) -> Estimated:
        """Return the estimate, and the sum of the weights; see ``Estimate``."""
        release = self.released.at(state.round)
        total, weight = np.zeros(release.coordinates), 0.0
        for report in whole(reports):
            share = 1.0 if report.weight is None else report.weight
            total += share * read_report(release.mechanism, report.payload, total.size)
            weight += share
        if weight == 0:
            raise RunError("no report arrived, so there is no mean to compute")
        return Estimated(values=release.bound.restore(total / weight, state), weight=weight)


def stream_of_noise(total: NDArray[np.int64], draw: Draw) -> Stream:
    """Return the stream of a server's noise on a sum, which depends on the sum.

    A second sum for the same round, for example after the server is restored from a copy of its
    disk, gets different noise. With the same noise, the two broadcasts would reveal the exact
    difference of the sums.
    """
    return draw("mechanism").bound_to(lambda: hashlib.sha256(total.tobytes()).digest())


def read_report(mechanism: Mechanism, payload: bytes, size: int) -> Values:
    """Return the estimate from one payload of ``mechanism``, shape (size,)."""
    if isinstance(mechanism, Plain):
        return read_plain(payload, size)
    aggregate = mechanism.aggregate(size)
    aggregate.add(payload)
    return aggregate.mean()


# Steps


@dataclass(frozen=True, kw_only=True)
class Step:
    """The server's step: what it adds to W for an estimated change D, before applying its rate.

        none      D
        momentum  M, with M = momentum M + D                                  (FedAvgM)
        adam      M/(sqrt(V) + 1e-3), with M = momentum M + (1 - momentum) D,
                  V = 0.99 V + 0.01 D^2, and V = 1e-6 before the first round  (FedAdam)

    If clients send weights, D is their mean minus W: the negative "pseudo-gradient" of Reddi et al.

    Attributes:
        optimizer: none, momentum or adam.
        rate: the server's learning rate.
        momentum: the fraction of M that remains after a round: beta, or beta_1 of Adam.
    """

    optimizer: Optimizer = "none"
    rate: float = 1.0
    momentum: float = 0.9

    def arrays(self, size: int) -> Arrays:
        """Return the arrays of the step before the first round, for ``size`` weights."""
        if self.optimizer == "none":
            return {}
        rest = {_MOMENTUM: np.zeros(size)}
        if self.optimizer == "adam":
            # The smallest initial value that the paper allows.
            rest[_SQUARES] = np.full(size, ADAM_FLOOR**2)
        return rest

    def direction(self, change: Values, kept: Arrays) -> tuple[Values, Arrays]:
        """Return what is added to W, before the rate is applied, and the arrays to keep.

        Args:
            change: D, shape (d,).
            kept: arrays of the state; see ``arrays``.
        """
        if self.optimizer == "none":
            return change, {}
        if self.optimizer == "momentum":
            moved = self.momentum * kept[_MOMENTUM] + change
            return moved, {_MOMENTUM: moved}
        mean = self.momentum * kept[_MOMENTUM] + (1 - self.momentum) * change
        squares = ADAM_DECAY * kept[_SQUARES] + (1 - ADAM_DECAY) * np.square(change)
        return mean / (np.sqrt(squares) + ADAM_FLOOR), {_MOMENTUM: mean, _SQUARES: squares}


@dataclass(frozen=True, kw_only=True)
class ServerUpdate:
    """The server's rule: how to estimate, how to step, and which weights are the run's model.

    With the step ``none`` and rate 1, the next W is the estimate itself, or W plus the estimate.

    Attributes:
        estimate: the estimate from a round's reports.
        step: the step from the estimate to the next weights.
        noise: gives the server's own noise on the estimate, shape (d,), from its size.
        finish: the last operation on the next weights, in float64; it may refuse them.
        averaged: consecutive rounds whose weights are averaged. Empty if the model is the last
            weights.
        restarts: whether the rounds after these start from the average.
        shown: see ``Shown``; it changes nothing.
    """

    estimate: Estimate
    step: Step = Step()
    noise: Callable[[int, Draw], Values] | None = None
    finish: Callable[[Values, State], Values] | None = None
    averaged: range = range(0)
    restarts: bool = False
    shown: Shown | None = None

    def role(
        self,
        first: Initial,
        *,
        publish: Callable[[State], Broadcast] = publish_weights,
        downlink: Callable[[int], Event] | None = None,
    ) -> ServerRole:
        """Return the server's role in a system.

        Args:
            first: gives the first weights, and any arrays that the estimate or ``publish`` needs.
            publish: see ``ServerRole``; the arrays of the step are not sent to clients.
            downlink: see ``ServerRole``.
        """

        def initial(draw: Draw) -> State:
            state = first(draw)
            return replace(state, arrays={**state.arrays, **self._kept(state.weights.size)})

        plain = replace(self, step=Step(), averaged=range(0), shown=None)
        return ServerRole(
            initial=initial,
            publish=publish,
            aggregate=self,
            downlink=downlink,
            result=self.result,
            plain=plain,
            skipped=lambda state, round: self._ended(replace(state, round=round)),
        )

    def __call__(
        self, state: State, reports: Incoming, draw: Draw
    ) -> tuple[State, Mapping[str, float]]:
        """Return the next state, and the system's own metrics.

        Raises:
            RunError: there are no reports, or (Diverged) their mean must not be published.
        """
        straight = self.step.optimizer == "none"
        found = self.estimate(state, reports, draw)
        if self.shown is not None:
            self.shown(found, self.estimate.gives, state)
        if found.values is None:
            return self._ended(state.next(state.weights, **found.arrays)), found.metrics
        noise = None if self.noise is None else self.noise(state.weights.size, draw)
        kept: Arrays = {}
        if straight:
            weights = self._straight(state, found.values, noise)
        else:
            change = found.values.astype(np.float64)
            if not self._gives_change:
                change -= state.weights
            if noise is not None:
                change += noise
            self._check(state, change)
            direction, kept = self.step.direction(change, state.arrays)
            weights = state.weights + self.step.rate * direction
        if self.finish is not None:
            weights = self.finish(weights, state)
        following = state.next(weights, **found.arrays, **kept)
        return self._ended(self._averaged(following)), found.metrics

    def result(self, state: State) -> Vector:
        """Return the weights that are tested and kept as the run's model, float32, shape (d,).

        Up to the last averaged round, they are the mean of the averaged iterates so far.
        """
        found: Values = state.weights
        if state.round <= self.averaged.stop and self._has_average(state):
            found = _mean(state.arrays)
        return self.estimate.model(found, state.arrays).astype(np.float32)

    @property
    def _gives_change(self) -> bool:
        return self.estimate.gives == "update"

    def _kept(self, size: int) -> Arrays:
        """Return the arrays of the step and of the average before the first round."""
        kept = dict(self.step.arrays(size))
        if self.averaged:
            kept |= {_SUM: np.zeros(size), _COUNT: np.zeros(1, np.int64)}
        return kept

    def _straight(self, state: State, values: Values, noise: Values | None) -> Values:
        """Return the next weights without an optimiser."""
        rate = self.step.rate
        weights: Values
        if self._gives_change:
            weights = state.weights + rate * values
        elif rate == 1:
            weights = values
        else:
            weights = state.weights + rate * (values.astype(np.float64) - state.weights)
        return weights if noise is None else weights + rate * noise

    def _check(self, state: State, change: Values) -> None:
        """Refuse a mean too large or not finite, because an optimiser would hide and keep it."""
        if not within_largest_weight(state.weights + change):
            raise Diverged(
                f"round {state.round}: the mean of the reports is not finite, or too large for a "
                "broadcast; lower learning_rate"
            )

    def _averaged(self, following: State) -> State:
        round = following.round - 1
        if round not in self.averaged:
            return following
        arrays = dict(following.arrays)
        arrays[_SUM] = arrays[_SUM] + following.weights
        arrays[_COUNT] = arrays[_COUNT] + 1
        return replace(following, arrays=arrays)

    def _ended(self, following: State) -> State:
        """Return the state with the average as its weights, if the next round starts from it."""
        if not self.restarts or following.round != self.averaged.stop:
            return following
        if not self._has_average(following):
            return following
        return replace(following, weights=_mean(following.arrays))

    def _has_average(self, state: State) -> bool:
        return len(self.averaged) > 0 and bool(state.arrays[_COUNT][0])


def _mean(arrays: Arrays) -> Vector:
    found: Vector = (arrays[_SUM] / arrays[_COUNT][0]).astype(np.float32)
    return found


def last_of(rounds: range, share: float) -> range:
    """Return the last ``share`` of some rounds, but at least one round, unless ``share`` is 0.

    >>> last_of(range(1, 11), 0.25), last_of(range(1, 11), 0.01), last_of(range(1, 11), 0)
    (range(9, 11), range(10, 11), range(11, 11))
    """
    count = max(1, round(share * len(rounds))) if share else 0
    return rounds[len(rounds) - count :]


def count(counts: Counts, report: Report | Reports | Counted) -> None:
    """Add reports of bits to ``counts``, in whatever form they arrive."""
    if isinstance(report, Report):
        counts.add(report.payload)
    elif isinstance(report, Reports):
        counts.add_many(report.payloads)
    else:
        counts.add_counts(report.ones, report.reports)
