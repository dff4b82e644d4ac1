"""A simulation's ledgers for many clients at once, against one client after the other."""

from __future__ import annotations

import hashlib
import json
import pickle
import time
import tracemalloc
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledgers import ONE, asked, never

from fedldp.accounting.budget import Budget
from fedldp.accounting.events import (
    DrawnOnce,
    Event,
    GaussianReport,
    InClear,
    NoData,
    PureReport,
    TwoValuedBits,
)
from fedldp.accounting.ledger import check_turn
from fedldp.accounting.memory_ledger import MemoryLedger
from fedldp.accounting.memory_run import LARGEST_CLIENT
from fedldp.errors import ConfigError, FedldpError, PrivacyError
from fedldp.parts.sides import State
from fedldp.reporting.record import RunFolder

CLIENTS = 6
EVENTS: list[Event] = [
    ONE,
    ONE,
    PureReport(epsilon=0.1),
    NoData(what="public keys"),
    DrawnOnce(drawn=PureReport(epsilon=2.0), identity="bits"),
    DrawnOnce(drawn=PureReport(epsilon=0.5), identity="bits"),
    GaussianReport(mu=1.0, rho=0.25),
    InClear(what="weights"),
]


class Step(NamedTuple):
    """What some clients are asked at once."""

    run: str
    round: int
    exchange: int
    question: str
    event: Event
    clients: list[int]
    most_rounds: int | None

    @property
    def place(self) -> tuple[str, int, int, bytes]:
        return self.run, self.round, self.exchange, asked(self.question)

    def answer(self, client: int) -> bytes:
        """Return what a client answers: it follows from the question."""
        return hashlib.sha256(repr((self[:4], client)).encode()).digest()

    def answers(self) -> Any:
        rows = [np.frombuffer(self.answer(client), np.uint8) for client in self.clients]
        return np.stack(rows) if rows else np.zeros((0, 32), np.uint8)


steps = st.builds(
    Step,
    st.sampled_from(["run", "run", "run", "other"]),
    st.one_of(st.integers(0, 3), st.integers(30, 34)),
    st.integers(0, 1),
    st.sampled_from(["?", "?", "?", "!"]),
    st.sampled_from(EVENTS),
    st.lists(st.integers(0, CLIENTS - 1), unique=True),
    st.none() | st.integers(1, 3),
)
sequences = st.lists(steps, max_size=12)
ordered = sequences.map(lambda each: sorted(each, key=lambda step: step[1:3]))
budgets = st.none() | st.builds(
    Budget, st.sampled_from(["pure", "zcdp"]), st.sampled_from([1.0, 3.0])
)


def passes(ledger: MemoryLedger, step: Step, client: int) -> bool:
    """Return whether one client's ledger would let a new release pass, as a client asks it."""
    one = ledger.of(client)
    answered = ledger.history(step.run, client).total()
    try:
        one.recall(*step.place)
        check_turn(one.rounds_before(step.run, step.round), step.most_rounds)
        one.admit(*step.place[:3], step.event)
        copy = pickle.loads(pickle.dumps(ledger))  # it may have been released before
        one_by_one(copy, step, client)
    except FedldpError:
        return False
    return bool(copy.history(step.run, client).total() > answered)


def one_by_one(ledger: MemoryLedger, step: Step, client: int) -> None:
    ledger.of(client).release(
        *step.place, step.event, lambda: step.answer(client), most_rounds=step.most_rounds
    )


def each_alone(ledger: MemoryLedger, step: Step) -> list[Any]:
    """Release to one client after the other, and return who was refused, and why."""
    found: list[Any] = []
    for client in step.clients:
        try:
            one_by_one(ledger, step, client)
        except FedldpError as error:
            found.append((type(error), str(error)))
    return found


def state(ledger: MemoryLedger) -> Any:
    """Return all that a ledger holds."""
    answers = {
        (name, exchange, client): int(column[run.row(client)])
        for name, run in ledger._runs.items()
        for exchange, column in run.answers.items()
        for client in run.known()[0].tolist()
        if column[run.row(client)]
    }
    return json.dumps(ledger.to_record()), answers


@pytest.mark.slow
@settings(deadline=None)
@given(sequences | ordered, budgets)
def test_many_at_once_are_as_one_after_the_other(sequence: list[Step], budget: Any) -> None:
    together, alone = MemoryLedger(budget), MemoryLedger(budget)
    for step in sequence:
        arguments = *step.place, step.event, step.clients
        ready = together.ready(*arguments, most_rounds=step.most_rounds)
        assert ready == all(passes(alone, step, client) for client in step.clients)
        assert state(together) == state(alone)  # to ask changes nothing
        if ready and step.clients:
            rows = together.release_all(*arguments, step.answers, most_rounds=step.most_rounds)
            assert rows.tobytes() == step.answers().tobytes()
            assert each_alone(alone, step) == []
            assert each_alone(together, step) == []  # the same again costs nothing
        elif not ready:
            with pytest.raises(PrivacyError, match=r"not every one .* nothing was released"):
                together.release_all(*arguments, never, most_rounds=step.most_rounds)
            assert state(together) == state(alone)
            assert each_alone(together, step) == each_alone(alone, step)
        assert state(together) == state(alone)
        if budget is not None:
            for client in range(CLIENTS):
                assert together.spent(client) == alone.spent(client) <= budget.limit
    back = MemoryLedger.from_record(json.loads(json.dumps(together.to_record())), budget)
    assert back.to_record() == together.to_record()
    for step in sequence:  # resumed: what was answered is refused
        rest = [client for client in step.clients if passes(together, step, client)]
        arguments = *step.place, step.event, step.clients
        assert back.ready(*arguments, most_rounds=step.most_rounds) == (rest == step.clients)


@pytest.mark.slow
@settings(deadline=None)
@given(ordered, st.lists(st.integers(0, 2), min_size=CLIENTS, max_size=CLIENTS), budgets)
def test_workers_together_are_as_one(
    sequence: list[Step], worker_of: list[int], budget: Any
) -> None:
    whole, ledger = MemoryLedger(budget), MemoryLedger(budget)
    for step in sequence:
        for worker in range(3):
            batch = [client for client in step.clients if worker_of[client] == worker]
            part = step._replace(clients=batch)
            each_alone(whole, part)
            there = pickle.loads(pickle.dumps(ledger.extract(batch)))
            arguments = *part.place, part.event, batch
            if batch and there.ready(*arguments, most_rounds=step.most_rounds):
                there.release_all(*arguments, part.answers, most_rounds=step.most_rounds)
            else:
                each_alone(there, part)
            before = state(ledger) if there.to_record() == ledger.extract(batch).to_record() else 0
            for _ in range(2):  # the same twice changes nothing
                ledger.absorb(there)
            assert before in (0, state(ledger))
        assert state(ledger) == state(whole)


released_by = st.lists(
    st.tuples(
        st.sampled_from([0, 3]), st.integers(0, 40), st.integers(0, 1), st.sampled_from(EVENTS[1:4])
    ),
    max_size=10,
)


@settings(deadline=None)
@given(released_by, released_by)
def test_what_two_ledgers_have_counted_is_counted_once(some: Any, others: Any) -> None:
    tables: list[dict[tuple[int, int, int], Event]] = []
    ledgers = []
    for releases in (some, others):
        ledger, table = MemoryLedger(), {}
        for client, round, exchange, event in sorted(releases, key=lambda each: each[:3]):
            step = Step("run", round, exchange, "?", event, [client], None)
            if (client, round, exchange) not in table:
                one_by_one(ledger, step, client)
                table[client, round, exchange] = event
        ledgers.append(ledger)
        tables.append(table)
    agree = all(tables[1].get(place, event) == event for place, event in tables[0].items())
    ledger = ledgers[0]
    if not agree:
        before = state(ledger)
        with pytest.raises(PrivacyError):
            ledger.absorb(ledgers[1])
        assert state(ledger) == before
        return
    ledger.absorb(ledgers[1])
    both = tables[0] | tables[1]
    for client in (0, 3):
        mine = {place[1:]: event for place, event in both.items() if place[0] == client}
        history = ledger.history("run", client)
        assert history.total() == len(mine)
        assert all(list(mine.values()).count(event) == n for event, n in history.items())
        for round in range(42):
            before = len({r for r, _ in mine if r < round})
            assert ledger.of(client).rounds_before("run", round) == before


# What is refused


def rows(n: int) -> Any:
    return np.arange(3 * n, dtype=np.uint8).reshape(n, 3)


@pytest.mark.parametrize(
    "clients",
    [[0, 1, 0], [-1], [True, False], [0.0, 1.0], [[0, 1]], [LARGEST_CLIENT + 1], [2**63]],
    ids=str,
)
def test_clients_are_indices_each_once(clients: Any) -> None:
    ledger = MemoryLedger()
    assert not ledger.ready("run", 1, 0, asked("?"), ONE, clients)
    with pytest.raises(PrivacyError, match="nothing was released"):
        ledger.release_all("run", 1, 0, asked("?"), ONE, clients, never)
    assert ledger.runs() == []


@pytest.mark.parametrize(
    "place",
    [("", 1, 0, asked("?")), ("run", -1, 0, asked("?")), ("run", 10**6 + 1, 0, asked("?")),
     ("run", 1, True, asked("?")), ("run", 1, 0, b"short")],
)  # fmt: skip
def test_a_malformed_place_is_not_ready(place: Any) -> None:
    assert not MemoryLedger().ready(*place, ONE, [0])


@pytest.mark.parametrize(
    "wrong", [rows(2), rows(4), rows(3)[0], rows(3).astype(np.int8), rows(3)[None]]
)
def test_rows_that_are_no_answers_cost_nothing(wrong: Any) -> None:
    ledger = MemoryLedger()
    with pytest.raises(ConfigError, match=r"answers: .* nothing was released"):
        ledger.release_all("run", 1, 0, asked("?"), ONE, [0, 1, 2], lambda: wrong)
    assert ledger.runs() == []


def test_an_error_while_they_are_made_costs_nothing() -> None:
    ledger = MemoryLedger(Budget("pure", 1.0))

    def fail() -> Any:
        raise RuntimeError("bound")

    with pytest.raises(RuntimeError, match="bound"):
        ledger.release_all("run", 1, 0, asked("?"), ONE, range(3), fail)
    assert ledger.runs() == []
    assert ledger.ready("run", 1, 0, asked("!"), ONE, range(3))


def test_one_client_that_cannot_pay_holds_up_all() -> None:
    ledger = MemoryLedger(Budget("pure", 2.0))
    for round, clients in ((1, [0, 1, 2]), (2, [1])):
        sent = rows(len(clients))
        ledger.release_all("run", round, 0, asked("?"), ONE, clients, lambda sent=sent: sent)
    assert not ledger.ready("run", 3, 0, asked("?"), ONE, [0, 1, 2])
    assert ledger.ready("run", 3, 0, asked("?"), ONE, [0, 2])
    assert not ledger.ready("other", 1, 0, asked("?"), ONE, [0, 1, 2])  # all runs count
    assert ledger.ready("other", 1, 0, asked("?"), ONE, [0, 2])


def test_rows_may_lie_anyhow_in_memory() -> None:
    ledger = MemoryLedger()
    square = np.arange(16, dtype=np.uint8).reshape(4, 4)
    ledger.release_all("run", 1, 0, asked("?"), ONE, [3, 1, 2, 0], lambda: square.T)
    for place, client in enumerate([3, 1, 2, 0]):
        sent = square.T[place].tobytes()
        one = ledger.of(client)
        assert one.release("run", 1, 0, asked("?"), ONE, lambda sent=sent: sent) == sent


# Weight


def test_shapes_that_no_client_has_any_more_are_forgotten() -> None:
    ledger, plain = MemoryLedger(), MemoryLedger()
    for round in range(40):
        for client in range(100):
            question = f"{round} {client}"  # each client is asked something else
            for each in (ledger, plain) if round == 39 else (ledger,):
                step = Step("run", round, 0, question, ONE, [client], None)
                one_by_one(each, step, client)
    assert len(ledger._runs["run"].shapes) <= 1001
    record = ledger.to_record()["runs"][0]
    assert record["shapes"] == plain.to_record()["runs"][0]["shapes"]
    assert ledger.history("run", 7) == {ONE: 40}


def filled(clients: int, rounds: int, share: float = 1.0) -> MemoryLedger:
    ledger, generator = MemoryLedger(), np.random.default_rng(0)
    event = TwoValuedBits(epsilon=1.0, coordinates=3)
    for round in range(1, rounds + 1):
        chosen = np.flatnonzero(generator.random(clients) < share)
        sent = np.zeros((chosen.size, 1), np.uint8)
        ledger.release_all("run", round, 0, asked("?"), event, chosen, lambda sent=sent: sent)
    return ledger


@pytest.mark.slow
@pytest.mark.parametrize(("share", "rounds", "most"), [(1.0, 2, 1e5), (0.1, 20, 1e7)])
def test_a_checkpoint_of_many_clients_is_small_and_fast(
    tmp_path: Path, share: float, rounds: int, most: float
) -> None:
    ledger = filled(300_000, rounds, share)
    folder = RunFolder.create(tmp_path / "run", {}, {})
    began = time.process_time()
    folder.write_round(State(weights=np.zeros(5, np.float32)), [], ledger)
    saved = folder.read_checkpoint()
    assert time.process_time() - began < 3.0
    assert (tmp_path / "run" / "checkpoint").stat().st_size < most
    assert saved is not None
    assert saved[2].to_record() == ledger.to_record()
    assert saved[2].releases("run") == ledger.releases("run")


@pytest.mark.slow
def test_a_client_takes_a_few_bytes() -> None:
    tracemalloc.start()
    ledger = filled(2**16, 2)
    ledger.release_all("run", 3, 0, asked("?"), ONE, range(64), lambda: rows(64))
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 24 * 2**16  # a second kind of release is a column more


def test_two_answers_to_one_question_are_not_joined() -> None:
    """Of clients who were asked in two places: whoever joined them would hide a second release."""
    here, there = MemoryLedger(), MemoryLedger()
    here.of(3).release("run", 1, 0, asked("?"), ONE, lambda: b"one")
    there.of(3).release("run", 1, 0, asked("?"), ONE, lambda: b"other")
    before = here.to_record()
    with pytest.raises(PrivacyError, match="two different answers"):
        here.absorb(there)
    assert here.to_record() == before
