"""The round loop, with answers that are late, repeated, in another's name, or missing."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from fedldp.algorithms.bounds import Unbounded
from fedldp.algorithms.release import Release
from fedldp.algorithms.server_update import ServerUpdate, WeightedMean
from fedldp.core.bounding import LARGEST_WEIGHT
from fedldp.core.errors import RunError
from fedldp.mechanisms.none import Plain
from fedldp.protocol.keys import draws_of_secret, draws_of_seed
from fedldp.protocol.roles import Ask, Draw, ServerRole, State
from fedldp.protocol.server_loop import Delivery, Evaluation, Loop, Round, means_of
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

SIZE = 2
FIRST = State(weights=np.zeros(SIZE, np.float32))


def report(round: int, value: float, **fields: Any) -> Report:
    payload = np.full(SIZE, value, "<f4").tobytes()
    return Report(round=round, size=SIZE, payload=payload, chunk=SIZE, **fields)


@dataclass
class Script:
    """A transport that delivers what a test prescribes, whatever it is asked.

    Attributes:
        deliveries: by round and phase; without an entry, every client reports its number.
        asked: the requests, and the clients that received them.
    """

    deliveries: dict[tuple[int, int], Iterable[Delivery]] = field(default_factory=dict)
    asked: list[tuple[RoundRequest, list[int]]] = field(default_factory=list)

    def exchange(self, request: RoundRequest, clients: Sequence[int]) -> Iterator[Delivery]:
        self.asked.append((request, list(clients)))
        round = request.broadcast.round
        default = [(client, report(round, client)) for client in clients]
        yield from self.deliveries.get((round, request.phase), default)


def averaging(**parts: Any) -> ServerRole:
    mean = ServerUpdate(
        estimate=WeightedMean(release=Release(bound=Unbounded(), mechanism=Plain(), size=SIZE))
    )
    return ServerRole(**{"initial": lambda draw: FIRST, "aggregate": mean, **parts})


def loop_of(transport: Any, **parts: Any) -> Loop:
    given: dict[str, Any] = {
        "run": "run",
        "server": averaging(),
        "rounds": 1,
        "participants": lambda round: range(4),
        "transport": transport,
        "draws": draws_of_seed(0),
        "evaluate": lambda broadcast: Evaluation(0.5, float(broadcast.weights.sum())),
    }
    return Loop(**{**given, **parts})


@dataclass
class Records:
    """Stores what a loop's recorder received."""

    states: list[State] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)

    def __call__(self, state: State, round: Round) -> None:
        self.states.append(state)
        self.rounds.append(round)


def one_round(deliveries: Iterable[Delivery], **parts: Any) -> tuple[State, Round]:
    records = Records()
    loop = loop_of(Script({(1, 0): deliveries}), **parts)
    state = loop.go(FIRST, records)
    return state, records.rounds[0]


def refused_line(loop: Loop, state: State = FIRST) -> str:
    """Return the line with which the loop ends."""
    with pytest.raises(RunError) as ended:
        loop.go(state, Records())
    line = str(ended.value)
    assert line
    assert "\n" not in line
    return line


# Rounds


def test_the_loop_asks_participants_and_broadcasts_each_rounds_result() -> None:
    script, records = Script(), Records()
    loop = loop_of(script, rounds=3, participants=lambda round: [round, round + 4])
    last = loop.go(FIRST, records)
    assert [clients for _, clients in script.asked] == [[1, 5], [2, 6], [3, 7]]
    for place, (request, _) in enumerate(script.asked):
        assert (request.run, request.phase) == ("run", 0)
        assert request.broadcast.round == place + 1
        told = (FIRST, *records.states)[place]
        np.testing.assert_array_equal(request.broadcast.weights, told.weights)
    assert [state.round for state in records.states] == [2, 3, 4]
    assert last is records.states[-1]
    assert [float(state.weights[0]) for state in records.states] == [3, 4, 5]


def test_a_record_has_the_incoming_answers_and_the_evaluation() -> None:
    calls: list[Broadcast] = []

    def evaluate(broadcast: Broadcast) -> Evaluation:
        calls.append(broadcast)
        return Evaluation(0.25, 1.5, {"of a test": 0.75})

    state, record = one_round(
        [(0, report(1, 2.0, weight=3.0)), (2, report(1, 6.0, weight=1.0))],
        evaluate=evaluate,
        arrivals=lambda: {"delay": 2.0},
    )
    np.testing.assert_array_equal(state.weights, np.full(SIZE, 3, np.float32))
    assert (record.round, record.clients) == (1, 2)
    assert (record.accuracy, record.loss) == (0.25, 1.5)
    assert record.uplink_bits_per_client == 32 * SIZE + 64
    assert record.seconds >= 0
    assert record.arrivals == {"delay": 2.0}
    assert (record.metrics, record.refused) == ({"of a test": 0.75}, {})
    np.testing.assert_array_equal(calls[0].weights, state.weights)


def test_a_system_has_its_own_metrics_and_arrays_and_publishes_what_it_wants() -> None:
    def aggregate(state: State, reports: Incoming, draw: Draw) -> tuple[State, dict[str, float]]:
        count = len(list(reports))
        arrays = {"secret": state.arrays["secret"] + 1, "public": np.array([count])}
        return state.next(state.weights, **arrays), {"count": float(count)}

    def publish(state: State) -> Broadcast:
        return Broadcast(
            round=state.round, weights=state.weights, public={"public": state.arrays["public"]}
        )

    script, records = Script(), Records()
    first = replace(FIRST, arrays={"secret": np.zeros(1), "public": np.zeros(1)})
    server = averaging(publish=publish, aggregate=aggregate)
    last = loop_of(script, server=server, rounds=2).go(first, records)
    assert [record.metrics for record in records.rounds] == [{"count": 4.0}] * 2
    assert last.arrays["secret"] == 2
    for request, _ in script.asked:
        assert set(request.broadcast.public) == {"public"}
    assert means_of([one.metrics for one in records.rounds]) == {"count": 4.0}
    without = replace(records.rounds[0], metrics={})  # a missing metric is not 0
    assert means_of([one.metrics for one in (without, *records.rounds[1:])]) == {"count": 4.0}


def test_the_servers_randomness_is_an_argument_and_differs_by_round() -> None:
    drawn: list[bytes] = []

    def aggregate(state: State, reports: Incoming, draw: Draw) -> tuple[State, dict[str, float]]:
        list(reports)
        drawn.append(draw("mechanism").bytes(16).tobytes())
        drawn.append(draw("selection").bytes(16).tobytes())
        return state.next(state.weights), {}

    for draws in (draws_of_seed(0), draws_of_seed(1), draws_of_secret(bytes(32), "run")) * 2:
        loop = loop_of(Script(), server=averaging(aggregate=aggregate), rounds=2, draws=draws)
        loop.go(FIRST, Records())
    assert drawn[:12] == drawn[12:]
    assert len(set(drawn)) == 12


# Incoming answers


def test_the_order_of_answers_does_not_change_the_round() -> None:
    deliveries = [(client, report(1, 2.0**client)) for client in range(4)]
    found = {
        (state.weights.tobytes(), record.clients, record.uplink_bits_per_client)
        for state, record in map(one_round, itertools.permutations(deliveries))
    }
    assert len(found) == 1


def test_some_answers_may_be_missing_and_some_refused() -> None:
    state, record = one_round(
        [
            (3, Refusal(1, Reason.OVER_BUDGET)),
            (0, report(1, 1.0)),
            (1, Refusal(0, Reason.MALFORMED)),
        ]
    )
    assert record.clients == 1
    assert record.refused == {"over-budget": 1, "malformed": 1}
    np.testing.assert_array_equal(state.weights, np.ones(SIZE, np.float32))
    assert record.uplink_bits_per_client == 32 * SIZE


UNUSED = {
    "a second report": [(0, report(1, 1.0)), (0, report(1, 100.0))],
    "the same report again": [(0, report(1, 1.0)), (0, report(1, 1.0))],
    "a report after a refusal": [
        (1, Refusal(1, Reason.LEDGER)), (1, report(1, 100.0)), (0, report(1, 1.0))
    ],
    "a refusal after a report": [(0, report(1, 1.0)), (0, Refusal(1, Reason.LEDGER))],
    "a report of a client that was not asked": [(7, report(1, 100.0)), (0, report(1, 1.0))],
    "a refusal of a client that was not asked": [
        (7, Refusal(1, Reason.LEDGER)), (0, report(1, 1.0))
    ],
    "a report in another's name": [(1, report(1, 100.0, client=2)), (0, report(1, 1.0, client=0))],
    "a report in another's name, who then answers": [
        (1, report(1, 100.0, client=2)), (2, report(1, 1.0, client=2))
    ],
    "reports in others' names": [
        ([0, 1], Reports.of([report(1, 1.0, client=0), report(1, 100.0, client=2)]))
    ],
    "a report of an earlier round": [(1, report(0, 100.0)), (0, report(1, 1.0))],
    "a report of a later round": [(1, report(2, 100.0)), (0, report(1, 1.0))],
    "an earlier report before the right one": [(0, report(0, 100.0)), (0, report(1, 1.0))],
    "an earlier refusal before the right report": [
        (0, Refusal(7, Reason.OVER_BUDGET)), (0, report(1, 1.0))
    ],
}  # fmt: skip


@pytest.mark.parametrize("deliveries", UNUSED.values(), ids=UNUSED.keys())
def test_answers_to_other_rounds_are_not_read(deliveries: list[Delivery]) -> None:
    state, record = one_round(deliveries)
    np.testing.assert_array_equal(state.weights, np.ones(SIZE, np.float32))
    assert record.clients == 1
    assert record.uplink_bits_per_client == 32 * SIZE
    refused = 1 if isinstance(deliveries[0][1], Refusal) and deliveries[0][0] == 1 else 0
    assert sum(record.refused.values()) == refused
    assert 0 not in record.refused.values()


def test_messages_without_a_sender_are_read_and_their_senders_counted_apart() -> None:
    def aggregate(state: State, reports: Incoming, draw: Draw) -> tuple[State, dict[str, float]]:
        return state.next(state.weights), {"messages": float(sum(1 for _ in reports))}

    messages = Counted(round=1, size=SIZE, chunk=1, ones=np.ones(SIZE, np.int64), reports=2)
    _, record = one_round(
        [(0, None), (1, None), (2, Refusal(1, Reason.LEDGER)), (None, messages)],
        server=averaging(aggregate=aggregate),
    )
    assert (record.clients, record.metrics) == (2, {"messages": 1.0})
    assert record.refused == {"ledger": 1}
    assert record.uplink_bits_per_client == messages.uplink_bits / 2


def test_reports_are_read_as_they_arrive() -> None:
    """The loop keeps no report, so a server step may hold one at a time."""
    passed: list[int] = []

    def deliver() -> Iterator[Delivery]:
        for client in range(4):
            passed.append(client)
            yield client, report(1, 1.0)

    def aggregate(state: State, reports: Incoming, draw: Draw) -> tuple[State, dict[str, float]]:
        for place, _ in enumerate(reports):
            assert len(passed) == place + 1
        return state.next(state.weights), {}

    one_round(deliver(), server=averaging(aggregate=aggregate))
    assert passed == [0, 1, 2, 3]


# Too few


@pytest.mark.parametrize("quorum", [1, 2, 3])
def test_too_few_answers_end_the_round_with_one_line(quorum: int) -> None:
    came: list[Delivery] = [(client, report(1, 1.0)) for client in range(quorum - 1)]
    refusals: list[Delivery] = [(3, Refusal(1, Reason.OVER_BUDGET))]
    line = refused_line(loop_of(Script({(1, 0): came + refusals}), quorum=quorum))
    assert f"round 1: {quorum - 1} of 4 clients took part, and {quorum} must" in line
    assert "1 refused: over-budget" in line
    assert f"{4 - quorum} did not answer" in line
    one_round([*came, (2, report(1, 1.0)), *refusals], quorum=quorum)


@pytest.mark.parametrize("value", [np.nan, np.inf, 2 * LARGEST_WEIGHT, -2 * LARGEST_WEIGHT])
def test_weights_that_no_client_would_answer_end_the_round(value: float) -> None:
    line = refused_line(loop_of(Script({(1, 0): [(0, report(1, value))]})))
    assert "round 1: " in line
    assert "lower learning_rate" in line


@pytest.mark.parametrize("loss", [np.nan, np.inf])
def test_a_loss_of_nan_ends_the_round(loss: float) -> None:
    records = Records()
    with pytest.raises(RunError, match="round 1: the loss is"):
        loop_of(Script(), evaluate=lambda broadcast: Evaluation(0.5, loss)).go(FIRST, records)
    assert not records.rounds


# Dialogues


def two_phases(ask: Ask, broadcast: Broadcast, clients: Sequence[int], draw: Draw) -> Incoming:
    """Ask everyone, then the clients that answered, with another broadcast."""
    there = [int(np.frombuffer(one.payload, "<f4")[0]) for one in ask(0, broadcast, clients)]
    told = replace(broadcast, public={"there": np.array(there)})
    yield from ask(1, told, there)


TALKING = averaging(dialogue=two_phases)


def test_a_dialogue_sends_several_requests_in_one_round() -> None:
    script, records = Script({(1, 0): [(c, report(1, c)) for c in (3, 1, 0)]}), Records()
    state = loop_of(script, server=TALKING).go(FIRST, records)
    assert [(q.phase, clients) for q, clients in script.asked] == [
        (0, [0, 1, 2, 3]),
        (1, [3, 1, 0]),
    ]
    assert {request.broadcast.round for request, _ in script.asked} == {1}
    assert script.asked[1][0].broadcast.public["there"].tolist() == [3, 1, 0]
    assert records.rounds[0].clients == 3
    assert records.rounds[0].uplink_bits_per_client == 2 * 32 * SIZE
    np.testing.assert_allclose(state.weights, 4 / 3, rtol=1e-6)


def test_a_phase_counts_only_clients_that_were_asked_in_it() -> None:
    first = [(client, report(1, client)) for client in (0, 1)]
    second = [(2, report(1, 100.0)), (0, report(1, 0.0)), (1, report(1, 2.0))]
    script, records = Script({(1, 0): first, (1, 1): second}), Records()
    state = loop_of(script, server=TALKING).go(FIRST, records)
    np.testing.assert_array_equal(state.weights, np.ones(SIZE, np.float32))


def test_a_dialogue_cannot_ask_clients_that_do_not_take_part() -> None:
    def elsewhere(ask: Ask, broadcast: Broadcast, clients: Sequence[int], draw: Draw) -> Incoming:
        yield from ask(0, broadcast, [*clients, 9])

    script = Script()
    line = refused_line(loop_of(script, server=averaging(dialogue=elsewhere), quorum=1))
    assert line
    assert not script.asked


def test_the_message_of_a_failed_dialogue_counts_every_client_once() -> None:
    """Two clients answer first and refuse later; one refuses both times; one never answers."""
    first = [(0, report(1, 0.0)), (1, report(1, 1.0)), (2, Refusal(1, Reason.LEDGER))]
    second = [(c, Refusal(1, Reason.OVER_BUDGET)) for c in (0, 1)]
    loop = loop_of(Script({(1, 0): first, (1, 1): second}), server=TALKING, quorum=3)
    line = refused_line(loop)
    took_part, asked = map(int, re.findall(r"(\d+) of (\d+) clients took part", line)[0])
    others = [int(n) for n in re.findall(r"(-?\d+) (?:refused|did not answer)", line)]
    assert took_part + sum(others) == asked == 4, line
    assert min(others) > 0, line


# What a server knows
