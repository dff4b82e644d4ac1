"""The one round loop: who takes part, question, answers, next state, record.

    state -> publish -> Broadcast -> transport: answers in any order, some refused, some missing
          -> aggregate -> next state -> evaluator -> recorder, observer

How clients are reached, how a model is tested and what is written are arguments.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedldp.bounding import LARGEST_WEIGHT, within_largest_weight
from fedldp.errors import RunError
from fedldp.parts.sides import Draws, Metrics, ServerSide, State
from fedldp.transport import Delivery, Transport
from fedldp.wire import Broadcast, Question, Refusal, Report, Shuffled


@dataclass(frozen=True, kw_only=True)
class Round:
    """What one round gave.

    Attributes:
        round: counted from 1.
        clients: how many took part: sent a report.
        accuracy: of the new global model, 0 to 1, on what ``SystemConfig.tested_on`` says.
        loss: its mean cross-entropy there.
        uplink_bits_per_client: mean bits that a client sent, position labels included.
        seconds: wall-clock time.
        arrivals: for shuffled rounds, in seconds: T (delay), T_S (response), the first and last of
            the clients' T_W (wait) and of all arrivals.
        metrics: a system's own figures, by name.
        refused: how many clients refused, by reason.
    """

    round: int
    clients: int
    accuracy: float
    loss: float
    uplink_bits_per_client: float
    seconds: float
    arrivals: dict[str, float] | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)


Evaluator = Callable[[Broadcast], tuple[float, float]]
"""Gives accuracy (0 to 1) and mean loss of a broadcast's weights."""


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A server's rounds.

    Attributes:
        run: the run's name, which every question carries.
        server: the system's half.
        rounds: how many.
        participants: gives the clients to ask in a round.
        transport: reaches them.
        draws: the server's randomness.
        evaluate: see ``Evaluator``.
        quorum: how many clients must take part in a round, at least 1.
        arrivals: gives the shuffler's times of the last exchange, where there is one.
    """

    run: str
    server: ServerSide
    rounds: int
    participants: Callable[[int], Sequence[int]]
    transport: Transport
    draws: Draws
    evaluate: Evaluator
    quorum: int = 1
    arrivals: Callable[[], dict[str, float] | None] = lambda: None

    def go(self, state: State, record: Callable[[State, Round], None]) -> State:
        """Go on from ``state`` to the last round, and return the last state.

        Args:
            state: the first, or what ``record`` was given last.
            record: is given the new state and the record of every complete round.

        Raises:
            RunError: too few clients took part in a round, or it gave no usable weights. What
                was recorded stays valid, and a run can be continued from there.
        """
        while state.round <= self.rounds:
            state, round = self._one_round(state)
            record(state, round)
        return state

    def _one_round(self, state: State) -> tuple[State, Round]:
        started = time.monotonic()
        tally = _Tally(state.round, self.participants(state.round))
        following, metrics = self._aggregated(state, tally)
        weights = following.weights
        if not np.isfinite(weights).all():
            raise RunError(
                f"round {state.round}: the new weights hold NaN or infinity; lower learning_rate"
            )
        broadcast = self.server.publish(following)
        if not all(map(within_largest_weight, (weights, *broadcast.public.values()))):
            raise RunError(
                f"round {state.round}: a number to publish is beyond {LARGEST_WEIGHT:g}, which no "
                "client answers; lower learning_rate"
            )
        accuracy, loss = self.evaluate(broadcast)
        if not np.isfinite(loss):
            raise RunError(f"round {state.round}: the loss is {loss}; lower learning_rate")
        return following, Round(
            round=state.round,
            clients=len(tally.took_part),
            accuracy=accuracy,
            loss=loss,
            uplink_bits_per_client=tally.bits / len(tally.took_part),
            seconds=time.monotonic() - started,
            arrivals=self.arrivals(),
            metrics=dict(metrics),
            refused=dict(Counter(tally.refused.values())),
        )

    def _aggregated(self, state: State, tally: _Tally) -> tuple[State, Metrics]:
        broadcast, draw, asked = self.server.publish(state), self.draws(state.round), tally.asked

        def ask(
            exchange: int, broadcast: Broadcast, clients: Sequence[int]
        ) -> Iterator[Report | Shuffled]:
            if not set(clients) <= set(asked):
                tally.broken = True
                raise RunError(
                    f"round {state.round}: a client was asked that does not take part; ask those "
                    "who do"
                )
            question = Question(run=self.run, exchange=exchange, broadcast=broadcast)
            return tally.passing(self.transport, question, clients)

        try:
            incoming = (
                ask(0, broadcast, asked)
                if self.server.dialogue is None
                else self.server.dialogue(ask, broadcast, asked, draw)
            )
            outcome = self.server.aggregate(state, incoming, draw)
        except RunError as error:
            if not tally.broken and len(tally.took_part) < self.quorum:
                raise tally.too_few(self.quorum) from error
            raise
        if len(tally.took_part) < self.quorum:
            raise tally.too_few(self.quorum)
        return outcome


class _Tally:
    """Counts what passes on its way to the server step, without holding it."""

    def __init__(self, round: int, asked: Sequence[int]) -> None:
        self.round = round
        self.asked = asked
        self.took_part: set[int] = set()
        self.refused: dict[int, str] = {}
        self.bits = 0
        self.broken = False
        """Whether the transport or the server itself failed, which has a reason of its own."""

    def passing(
        self, transport: Transport, question: Question, clients: Sequence[int]
    ) -> Iterator[Report | Shuffled]:
        """Yield what the server step may read: of each client asked one report at most."""
        waiting = set(clients)
        for client, content in self._delivered(transport, question, clients):
            if not self._is_of_round(content):
                continue  # late
            if client is not None:
                if client not in waiting or not _is_of(content, client):
                    continue  # twice, unasked, or in another's name
                waiting.discard(client)
                if isinstance(content, Refusal):
                    self.refused[client] = content.reason
                    self.took_part.discard(client)  # of a dialogue it may have answered a part
                    continue
                self.took_part.add(client)
            if isinstance(content, Report | Shuffled):
                self.bits += content.uplink_bits
                yield content

    def _is_of_round(self, content: Report | Refusal | Shuffled | None) -> bool:
        # Who cannot read a question refuses in round 0.
        unread = isinstance(content, Refusal) and content.round == 0
        return content is None or unread or content.round == self.round

    def _delivered(
        self, transport: Transport, question: Question, clients: Sequence[int]
    ) -> Iterator[Delivery]:
        try:
            yield from transport.exchange(question, clients)
        except RunError:
            self.broken = True
            raise

    def too_few(self, quorum: int) -> RunError:
        """Return the error of a round in which fewer than ``quorum`` clients took part."""
        silent = len(self.asked) - len(self.took_part) - len(self.refused)
        counts = sorted(Counter(self.refused.values()).items())
        why = [f"{count} refused: {reason}" for reason, count in counts]
        why += [f"{silent} did not answer"] if silent else []
        return RunError(
            f"round {self.round}: {len(self.took_part)} of {len(self.asked)} clients took part, "
            f"and {quorum} must ({'; '.join(why)}); what was complete is kept, and can be resumed"
        )


def _is_of(content: Report | Refusal | Shuffled | None, client: int) -> bool:
    return not isinstance(content, Report) or content.client in (None, client)


def mean_metrics(rounds: Sequence[Round]) -> Mapping[str, float]:
    """Return the means over ``rounds`` of the system's own figures, by name."""
    names = dict.fromkeys(name for one in rounds for name in one.metrics)
    return {name: sum(r.metrics.get(name, 0.0) for r in rounds) / len(rounds) for name in names}
