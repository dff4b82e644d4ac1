"""The only round loop: choose clients, ask them, aggregate their answers, test, record.

    state -> publish -> Broadcast -> transport: answers in any order, some refused, some missing
          -> aggregate -> next state -> evaluator -> recorder, observer

The transport, the test and the recorder are arguments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fedldp.core.bounding import LARGEST_WEIGHT, within_largest_weight
from fedldp.core.errors import Diverged, RunError
from fedldp.protocol.roles import HALF_WIDTH, PRIVATELY, Arrays, Draws, Metrics, ServerRole, State
from fedldp.protocol.wire import (
    Broadcast,
    Counted,
    Incoming,
    Reason,
    Refusal,
    Report,
    Reports,
    RoundRequest,
)

_REASONS = tuple(Reason)


@dataclass(frozen=True, kw_only=True)
class Round:
    """The record of one round.

    Attributes:
        round: counted from 1.
        clients: how many clients took part, that is, sent a report.
        accuracy: the accuracy of the new global model, 0 to 1, on the test data that
            ``RunConfig.tested_on`` names; None where it was not tested.
        loss: the model's mean cross-entropy on the same data.
        uplink_bits_per_client: the mean number of bits sent by a client, including position labels.
        seconds: wall-clock time in seconds, excluding ``waited``.
        arrivals: for shuffled rounds, times in seconds, by name: T (delay), T_S (response), the
            first and the last T_W (wait) of a client, and the first and the last arrival.
        metrics: the system's own metrics, by name.
        refused: how many clients refused, by reason.
        radii: the smallest and the largest radius, over all tensors, of the ranges that were sent
            to clients; None if there were no ranges.
        auc: area under the ROC curve; see ``Evaluation``.
        average_precision: see ``Evaluation``.
        balanced_accuracy: see ``Evaluation``.
        brier: see ``Evaluation``.
        waited: seconds until enough clients were available to ask; 0 if no waiting was needed.
        calibration_error: see ``Evaluation``.
        spent: an upper bound on what all rounds so far cost, by unit and adversary; see
            ``accounting.statement.spent_by_unit``.
        budgets: for each unit, what is spent and what is left at the client that has spent
            the most; empty for real sites, whose own ledgers hold the budgets.
        signal: figures of signal and noise, if a simulation was asked for them; empty for real
            sites. They are computed from private rows, and no line of a statement covers them.
    """

    round: int
    clients: int
    accuracy: float | None = None
    loss: float | None = None
    uplink_bits_per_client: float
    seconds: float
    arrivals: dict[str, float] | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    radii: list[float] | None = None
    auc: float | None = None
    average_precision: float | None = None
    balanced_accuracy: float | None = None
    brier: float | None = None
    waited: float = 0.0
    calibration_error: float | None = None
    spent: list[dict[str, Any]] = field(default_factory=list)
    budgets: list[dict[str, Any]] = field(default_factory=list)
    signal: list[dict[str, Any]] = field(default_factory=list)


class Evaluation(NamedTuple):
    """The result of testing a broadcast's weights.

    Attributes:
        accuracy: 0 to 1; None for labels that are numbers.
        loss: mean cross-entropy, in nats; for labels that are numbers, half the mean squared error
            in units of half their range.
        figures: additional metrics that the system requests, by name.
        auc: area under the ROC curve, 0 to 1: with two classes, the area for class 1; with more,
            the mean over each class against all others. None where a class has no example in the
            test set. Like the metrics below, None where testing gives only accuracy and loss.
        average_precision: area under the step curve of precision against recall; classes as for
            ``auc``.
        balanced_accuracy: mean recall of the classes in the test set, 0 to 1.
        brier: mean squared error of the probabilities: with two classes, that of class 1, 0 to 1;
            with more, the sum over the classes, 0 to 2.
        calibration_error: distance of the probabilities from the observed frequencies, 0 to 1; see
            ``reporting.scores.calibration_error``.
    """

    accuracy: float | None
    loss: float
    figures: Metrics = MappingProxyType({})
    auc: float | None = None
    average_precision: float | None = None
    balanced_accuracy: float | None = None
    brier: float | None = None
    calibration_error: float | None = None


Evaluator = Callable[[Broadcast], Evaluation | None]
"""Tests a broadcast's weights; returns None where nothing is tested."""


@dataclass(frozen=True, kw_only=True)
class Loop:
    """The rounds of a run, as the server carries them out.

    Attributes:
        run: the run's name, which every request carries.
        server: the server's role in the system.
        rounds: the number of rounds.
        participants: returns the clients to ask in a round.
        transport: carries requests to them and their answers back.
        draws: the server's randomness.
        evaluate: see ``Evaluator``.
        evaluate_every: the model is tested after every so many rounds, and after the last one.
        quorum: how many clients must take part in a round, at least 1.
        arrivals: returns the shuffler's times in the latest phase, if there is a shuffler.
        waited: returns the total time, in seconds, for which all rounds so far waited for enough
            clients to ask.
    """

    run: str
    server: ServerRole
    rounds: int
    participants: Callable[[int], Sequence[int]]
    transport: Transport
    draws: Draws
    evaluate: Evaluator
    evaluate_every: int = 1
    quorum: int = 1
    arrivals: Callable[[], dict[str, float] | None] = lambda: None
    waited: Callable[[], float] = lambda: 0.0

    def go(self, state: State, record: Callable[[State, Round], None]) -> State:
        """Continue from ``state`` to the last round, and return the last state.

        Args:
            state: the first state, or the last one that ``record`` received.
            record: receives the new state and the record of every complete round.

        Raises:
            RunError: too few clients took part in a round, or (Diverged) a round gave no usable
                weights. What was recorded stays valid, and the run can continue from there.
        """
        while state.round <= self.rounds:
            state, round = self._one_round(state)
            record(state, round)
        return state

    def _one_round(self, state: State) -> tuple[State, Round]:
        started, waited_before = time.monotonic(), self.waited()
        tally = _Tally(state.round, self.participants(state.round))
        following, metrics = self._aggregated(state, tally)
        weights = following.weights
        if not np.isfinite(weights).all():
            raise Diverged(
                f"round {state.round}: the new weights hold NaN or infinity; lower learning_rate"
            )
        broadcast = self.server.publish(following)
        if not all(map(within_largest_weight, (weights, *broadcast.public.values()))):
            raise Diverged(
                f"round {state.round}: a number to publish is larger than {LARGEST_WEIGHT:g}, so "
                "no client would answer; lower learning_rate"
            )
        tested = None
        if state.round % self.evaluate_every == 0 or state.round == self.rounds:
            tested = self.evaluate(replace(broadcast, weights=self.server.result(following)))
        if tested is not None and not np.isfinite(tested.loss):
            raise Diverged(f"round {state.round}: the loss is {tested.loss}; lower learning_rate")
        waited = self.waited() - waited_before
        scores = {} if tested is None else tested._asdict()
        return following, Round(
            round=state.round,
            clients=tally.took_part,
            uplink_bits_per_client=tally.bits / tally.took_part,
            seconds=time.monotonic() - started - waited,
            arrivals=self.arrivals(),
            metrics={**metrics, **scores.pop("figures", {})},
            refused=tally.refused(),
            radii=tally.radii,
            waited=waited,
            **scores,
        )

    def _aggregated(self, state: State, tally: _Tally) -> tuple[State, Metrics]:
        broadcast, draw = self.server.publish(state), self.draws(state.round)
        if broadcast.ranges is not None:
            radii = broadcast.ranges.radii
            tally.radii = [float(radii.min()), float(radii.max())]

        def ask(
            phase: int,
            broadcast: Broadcast,
            clients: Sequence[int],
            own: Mapping[int, Arrays] = MappingProxyType({}),
        ) -> Incoming:
            if tally.asks_others(clients):
                tally.broken = True
                raise RunError(
                    f"round {state.round}: a client that does not take part was asked; ask only "
                    "participants of the round"
                )
            request = RoundRequest(run=self.run, phase=phase, broadcast=broadcast, own=own)
            return tally.passing(self.transport, request, clients)

        try:
            incoming = (
                ask(0, broadcast, tally.clients)
                if self.server.dialogue is None
                else self.server.dialogue(ask, broadcast, tally.clients, draw)
            )
            outcome = self.server.aggregate(state, incoming, draw)
        except RunError as error:
            if not tally.broken and tally.took_part < self.quorum:
                raise tally.too_few(self.quorum) from error
            raise
        if tally.took_part < self.quorum:
            raise tally.too_few(self.quorum)
        return outcome


class _Tally:
    """Counts the messages that pass to the server step, without keeping them in memory.

    It keeps one byte for each client that was asked, whatever the client's number.
    """

    def __init__(self, round: int, clients: Sequence[int]) -> None:
        self.round = round
        self.clients = clients
        self.bits = 0
        self.radii: list[float] | None = None
        self.broken = False
        """Whether the transport or the server failed; that error is then raised instead of
        ``too_few``."""
        self._asked = np.sort(_numbers(clients))
        self._took_part = np.zeros(self._asked.size, np.bool_)
        self._refused = np.zeros(self._asked.size, np.uint8)  # 0, or a reason's number, from 1

    @property
    def took_part(self) -> int:
        """How many clients sent a report and refused nothing."""
        return int(self._took_part.sum())

    def refused(self) -> dict[str, int]:
        """Return how many clients refused, by reason."""
        counts = np.bincount(self._refused, minlength=len(_REASONS) + 1)[1:]
        return {reason: int(n) for reason, n in zip(_REASONS, counts, strict=True) if n}

    def asks_others(self, clients: Sequence[int]) -> bool:
        """Return whether some of ``clients`` do not take part in the round."""
        return clients is not self.clients and bool((self._places(clients) < 0).any())

    def passing(
        self, transport: Transport, request: RoundRequest, clients: Sequence[int]
    ) -> Iterator[Report | Reports | Counted]:
        """Yield what the server step may read: at most one report from each client asked."""
        waiting = np.full(self._asked.size, clients is self.clients)
        if clients is not self.clients:
            waiting[self._places(clients)] = True
        for sender, content in self._delivered(transport, request, clients):
            if not self._is_of_round(content):
                continue  # late: it belongs to another round
            if sender is not None:
                if isinstance(content, Report) and content.client not in (None, sender):
                    continue  # the report names a client other than its sender
                places = self._places(sender)
                expected = (
                    (places >= 0) & waiting[places] & _first(places)
                )  # clients that were asked and have not answered before
                if isinstance(content, Reports) and content.client is not None:
                    expected &= content.client == _numbers(sender)  # each must name its sender
                waiting[places[expected]] = False
                if not expected.any():
                    continue
                if isinstance(content, Reports) and not expected.all():
                    content = content.chosen(expected)
                if isinstance(content, Refusal):
                    self._refused[places] = 1 + _REASONS.index(content.reason)
                    self._took_part[places] = False  # the client may have answered earlier phases
                    continue
                self._took_part[places[expected]] = True
            if content is not None and not isinstance(content, Refusal):
                self.bits += content.uplink_bits
                yield content

    def _places(self, clients: int | Sequence[int]) -> NDArray[np.intp]:
        """Return clients' positions among the clients asked, shape (n,); -1 for one not asked."""
        if not self._asked.size:
            return np.full(np.size(clients), -1)
        given = _numbers(clients)
        near = np.minimum(np.searchsorted(self._asked, given), self._asked.size - 1)
        return np.where(self._asked[near] == given, near, -1)

    def _is_of_round(self, content: Content) -> bool:
        # A client that cannot read a request names round 0 in its refusal.
        unread = isinstance(content, Refusal) and content.round == 0
        return content is None or unread or content.round == self.round

    def _delivered(
        self, transport: Transport, request: RoundRequest, clients: Sequence[int]
    ) -> Iterator[Delivery]:
        try:
            yield from transport.exchange(request, clients)
        except RunError:
            self.broken = True
            raise

    def too_few(self, quorum: int) -> RunError:
        """Return the error of a round in which fewer than ``quorum`` clients took part."""
        refused = self.refused()
        silent = self._asked.size - self.took_part - sum(refused.values())
        why = [f"{count} refused: {reason}" for reason, count in sorted(refused.items())]
        why += [f"{silent} did not answer"] if silent else []
        kept = "the complete rounds are kept, and the run can be resumed"
        if refused.get(Reason.OVER_BUDGET.value) == self._asked.size - self.took_part:
            kept = (
                "the complete rounds are kept, but a resumed run would end here too: raise the "
                "limit of the budget, or lower rounds or epsilon, in a new run"
            )
        return RunError(
            f"round {self.round}: {self.took_part} of {self._asked.size} clients took part, "
            f"and {quorum} must ({'; '.join(why)}); {kept}"
        )


def _first(places: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return, for each entry of ``places``, whether it is the first entry with its value."""
    first = np.zeros(places.size, np.bool_)
    first[np.unique(places, return_index=True)[1]] = True
    return first


def _numbers(clients: int | Sequence[int]) -> NDArray[np.int64]:
    if isinstance(clients, range):
        return np.arange(clients.start, clients.stop, clients.step)
    return np.atleast_1d(np.asarray(clients, np.int64))


MODEL_SCORES = (
    *("f1_macro", "client_accuracy", "worst_tenth_accuracy"),
    *("r2", "mae", "calibration_gap"),
)
"""The metrics of a round that are scores of its model: of classes, of single clients, of numbers.

See ``reporting.scores.evaluation`` and ``of_numbers``.
"""


def asked_of(rounds: Sequence[Round]) -> dict[str, float]:
    """Return the private figures of the last rounds that have them; see ``PRIVATELY``."""
    means = means_of([one.metrics for one in rounds])
    return {k: v for k, v in means.items() if k.startswith(PRIVATELY)}


def means_of(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each metric over the rounds that have it, and the last private figures.

    ``MODEL_SCORES`` are scores of the model of a round, so they have no mean.
    """
    found: dict[str, list[float]] = {}
    asked: dict[str, float] = {}
    for one in rounds:
        for name, value in one.items():
            if name.startswith(PRIVATELY):
                asked.pop(name.removesuffix(HALF_WIDTH), None)
            elif name not in MODEL_SCORES:
                found.setdefault(name, []).append(value)
        asked |= {name: value for name, value in one.items() if name.startswith(PRIVATELY)}
    return {name: sum(values) / len(values) for name, values in found.items()} | asked


Content = Report | Reports | Refusal | Counted | None
"""What arrived; None for clients that answered, but whose reports arrive without a sender."""

Delivery = tuple[int | Sequence[int] | None, Content]
"""The sender, if visible, and the content. If there are several senders, it is Reports or None."""


class Transport(Protocol):
    """Carries a request to clients and their answers back."""

    def exchange(self, request: RoundRequest, clients: Sequence[int]) -> Iterator[Delivery]:
        """Ask ``clients``; yield what arrives, in any order. Some clients may not answer."""
        ...


def one_by_one(deliveries: Iterable[Delivery]) -> Iterator[tuple[int | None, Content]]:
    """Yield ``deliveries`` one client at a time."""
    for sender, content in deliveries:
        if sender is None or isinstance(sender, int):
            yield sender, content
        elif isinstance(content, Reports):
            yield from zip(sender, content, strict=True)
        else:
            for client in sender:
                yield client, content
