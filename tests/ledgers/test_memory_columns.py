"""A simulation's ledgers for many clients at once, compared with one client after another."""

from __future__ import annotations

import hashlib
import json
import pickle
import tracemalloc
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_helpers import ONE, One, asked, never

from fedldp.accounting.accountants import drawn_once
from fedldp.accounting.events import (
    BinaryRandomizedResponse,
    Event,
    GaussianReport,
    InClear,
    Memoized,
    NoRelease,
    PureReport,
)
from fedldp.accounting.prices import price
from fedldp.core.errors import (
    AskedOtherwise,
    ConfigError,
    FedldpError,
    NoLongerKept,
    OutOfTurn,
    PrivacyError,
)
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.columns import LARGEST_CLIENT, MemoryLedger, RunHistory
from fedldp.ledgers.protocol import Place, Verdict
from fedldp.protocol.roles import State
from fedldp.reporting.record import RunFolder

CLIENTS = 6
PLACE = Place("run", 1, 0, asked("?"))
EVENTS: list[Event] = [
    ONE,
    ONE,
    PureReport(epsilon=0.1),
    NoRelease(what="public keys"),
    Memoized(drawn=PureReport(epsilon=2.0), identity="bits"),
    Memoized(drawn=PureReport(epsilon=0.5), identity="bits"),
    GaussianReport(mu=1.0, rho=0.25),
    InClear(what="weights"),
]


class Step(NamedTuple):
    """A request to several clients at once."""

    run: str
    round: int
    phase: int
    request: str
    event: Event
    clients: list[int]
    max_rounds: int | None
    gone: frozenset[int] = frozenset()
    """The clients that have lost what they drew once."""

    @property
    def place(self) -> Place:
        return Place(self.run, self.round, self.phase, asked(self.request))

    def check(self, ledger: MemoryLedger) -> list[Verdict]:
        return ledger.check(
            self.place, self.event, self.clients, self.max_rounds, lambda one: one not in self.gone
        )

    def release(self, ledger: MemoryLedger, make: Any = None) -> Any:
        make = self.answers if make is None else make
        return ledger.release(self.place, self.event, self.clients, make, self.max_rounds)

    def answer(self, client: int) -> bytes:
        """Return a client's answer; it follows from the request."""
        return hashlib.sha256(repr((self[:4], client)).encode()).digest()

    def of(self, *clients: int) -> Step:
        """Return the same request, sent to these clients."""
        return self._replace(clients=list(clients))

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
    st.just(frozenset[int]()) | st.frozensets(st.integers(0, CLIENTS - 1)),
)
sequences = st.lists(steps, max_size=12)
ordered = sequences.map(lambda each: sorted(each, key=lambda step: step[1:3]))
budgets = st.none() | st.builds(
    Budget, st.sampled_from(["pure", "zcdp"]), st.sampled_from([1.0, 3.0])
)


def told(verdict: Verdict) -> tuple[type, str] | bytes | None:
    """Return a verdict in a comparable form."""
    return (type(verdict), str(verdict)) if isinstance(verdict, Exception) else verdict


def each_alone(ledger: MemoryLedger, step: Step) -> list[Any]:
    """Release to one client after another; return who was refused, and why."""
    found: list[Any] = []
    for client in step.clients:
        one = step.of(client)
        try:
            (row,) = one.release(ledger)
        except FedldpError as error:
            found.append((type(error), str(error)))
        else:
            assert bytes(row) == one.answer(client)
    return found


def slowly(ledger: MemoryLedger, step: Step, client: int) -> Any:
    """Return the expected kind of reply to one client, from that client's releases alone."""
    run = ledger._runs.get(step.run, RunHistory())
    row = run.row(client)
    history, done, again = run.client_history(row), 0, False
    if step.round < history.round:
        return NoLongerKept
    if step.round == history.round:
        for there, request, event in history.answered:
            if there == step.phase and request != asked(step.request):
                return AskedOtherwise
            again |= there == step.phase and event == step.event
    for bits in run.rounds(row):
        done |= bits & ((1 << step.round) - 1)
    if step.max_rounds is not None and not again and done.bit_count() >= step.max_rounds:
        return OutOfTurn
    if done and drawn_once(step.event) and client in step.gone:
        return NoLongerKept
    if again:
        return None
    before = list(ledger.history(step.run, client))
    try:
        if ledger.budget is None:
            price(step.event, "pure", before)
        else:
            ledger.budget.admit(step.event, Fraction(ledger.spent(client)), before)
    except PrivacyError as error:
        return type(error)
    return None


def state(ledger: MemoryLedger) -> Any:
    """Return everything that a ledger holds."""
    answers = {
        (name, phase, client): int(column[run.row(client)])
        for name, run in ledger._runs.items()
        for phase, column in run.answers.items()
        for client in run.known()[0].tolist()
        if column[run.row(client)]
    }
    return json.dumps(ledger.to_record()), answers


@pytest.mark.slow
@given(sequences | ordered, budgets)
def test_many_clients_at_once_are_as_one_by_one(sequence: list[Step], budget: Any) -> None:
    together, alone = MemoryLedger(budget), MemoryLedger(budget)
    for step in sequence:
        verdicts = [told(each) for each in step.check(together)]
        assert verdicts == [told(step.of(one).check(alone)[0]) for one in step.clients]
        kinds = [each[0] if isinstance(each, tuple) else each for each in verdicts]
        assert kinds == [slowly(alone, step, client) for client in step.clients]
        assert state(together) == state(alone)  # asking changes nothing
        may = step.of(*(one for one, each in zip(step.clients, verdicts, strict=True) if not each))
        before = state(together)
        try:
            sent = b"".join(map(bytes, may.release(together)))
        except PrivacyError:  # one of the clients released another event in this place
            assert each_alone(alone, may) != []
            assert state(together) == before
            each_alone(together, may)
        else:
            assert sent == may.answers().tobytes()
            assert each_alone(alone, may) == []
            assert each_alone(together, may) == []  # repeating it costs nothing
            assert b"".join(map(bytes, may.release(together))) == sent
        if kinds.count(None) < len(kinds) and not step.gone:
            before = state(together)
            with pytest.raises(PrivacyError):  # one client that may not release stops all of them
                step.release(together, never)
            assert state(together) == before
        assert state(together) == state(alone)
        if budget is not None:
            for client in range(CLIENTS):
                assert together.spent(client) == alone.spent(client) <= budget.limit
    back = MemoryLedger.from_record(json.loads(json.dumps(together.to_record())), budget)
    assert back.to_record() == together.to_record()
    for step in sequence:  # after a resume, requests that were answered are refused
        for one, two in zip(step.check(together), step.check(back), strict=True):
            assert told(one) == told(two) or isinstance(two, NoLongerKept)


@pytest.mark.slow
@given(ordered, st.lists(st.integers(0, 2), min_size=CLIENTS, max_size=CLIENTS), budgets)
def test_several_workers_count_as_one(
    sequence: list[Step], worker_of: list[int], budget: Any
) -> None:
    whole, ledger = MemoryLedger(budget), MemoryLedger(budget)
    for step in sequence:
        for worker in range(3):
            batch = [client for client in step.clients if worker_of[client] == worker]
            part = step._replace(clients=batch)
            each_alone(whole, part)
            there = pickle.loads(pickle.dumps(ledger.extract(batch)))
            try:
                part.release(there)
            except PrivacyError:
                each_alone(there, part)
            before = state(ledger) if there.to_record() == ledger.extract(batch).to_record() else 0
            for _ in range(2):  # repeating it changes nothing
                ledger.absorb(there)
            assert before in (0, state(ledger))
        assert state(ledger) == state(whole)


released_by = st.lists(
    st.tuples(
        st.sampled_from([0, 3]), st.integers(0, 40), st.integers(0, 1), st.sampled_from(EVENTS[1:4])
    ),
    max_size=10,
)


@given(released_by, released_by, released_by)
def test_what_a_worker_counted_replaces_only_what_it_began_with(
    before: Any, meanwhile: Any, there: Any
) -> None:
    def count(ledger: MemoryLedger, releases: Any) -> None:
        for client, round, phase, event in sorted(releases, key=lambda each: each[:3]):
            with suppress(PrivacyError):  # it was released as another event, or in a later round
                Step("run", round, phase, "?", event, [client], None).release(ledger)
                table[ledger is worker].setdefault((client, round, phase), event)

    table: list[dict[tuple[int, int, int], Event]] = [{}, {}]
    worker = ledger = MemoryLedger()
    count(ledger, before)
    worker, table[0] = ledger.extract([0, 3]), dict(table[1])
    count(ledger, meanwhile)
    count(worker, there)
    seen = {client for client, _, _ in table[1]}
    held = {client: ledger.history("run", client) for client in (0, 3)}
    try:
        ledger.absorb(worker)
    except PrivacyError:
        for client in (0, 3):  # it holds at least what it held
            assert held[client] <= ledger.history("run", client)
        assert any(step[0] in seen for step in meanwhile)
        return
    both = table[0] | table[1]
    for client in (0, 3):
        mine = {place[1:]: event for place, event in both.items() if place[0] == client}
        history = ledger.history("run", client)
        assert history.total() == len(mine)
        assert all(list(mine.values()).count(event) == n for event, n in history.items())
        for round in range(42):
            earlier = len({r for r, _ in mine if r < round})
            run = ledger._runs.get("run", RunHistory())
            assert run.rounds_before(np.array([run.row(client)]), round) == earlier


def test_a_client_that_lost_its_draw_is_told_from_one_that_has_not_drawn() -> None:
    """Both have released the same kinds of events, one of them in this round only."""
    ledger, once = MemoryLedger(), EVENTS[4]
    for round, clients in ((1, [0]), (2, [0, 1])):
        Step("run", round, 0, "?", EVENTS[3], clients, None).release(ledger)
    asked_both = Step("run", 2, 1, "?", once, [0, 1], None, frozenset({0, 1}))
    drew, new = asked_both.check(ledger)
    assert isinstance(drew, NoLongerKept)
    assert new is None


# Refusals


def rows(n: int) -> Any:
    return np.arange(3 * n, dtype=np.uint8).reshape(n, 3)


@pytest.mark.parametrize(
    "clients",
    [[0, 1, 0], [-1], [True, False], [0.0, 1.0], [[0, 1]], [LARGEST_CLIENT + 1], [2**63]],
    ids=str,
)
def test_clients_are_distinct_indices(clients: Any) -> None:
    ledger = MemoryLedger()
    with pytest.raises(ConfigError, match="clients: "):
        ledger.check(PLACE, ONE, clients)
    with pytest.raises(ConfigError, match="clients: "):
        ledger.release(PLACE, ONE, clients, never)
    assert ledger.runs() == []


@pytest.mark.parametrize(
    "wrong",
    [rows(2), rows(4), rows(3)[0], rows(3).astype(np.int8), rows(3)[None], [b"x"] * 2, ["x"] * 3],
)
def test_malformed_rows_cost_nothing(wrong: Any) -> None:
    ledger = MemoryLedger()
    with pytest.raises(ConfigError, match=r"answers: .* nothing was released"):
        ledger.release(PLACE, ONE, [0, 1, 2], lambda: wrong)
    assert ledger.runs() == []


def test_one_client_that_would_answer_differently_is_refused_alone() -> None:
    ledger = MemoryLedger()
    first = [b"one", b"two", b"three"]
    assert ledger.release(PLACE, ONE, [4, 5, 6], lambda: first) == first
    before = ledger.to_record()
    again = ledger.release(PLACE, ONE, [6, 4, 5], lambda: [b"three", b"other", b"two"])
    assert again[0] == b"three"
    assert isinstance(again[1], NoLongerKept)
    assert "client 4, run run round 1 phase 0" in str(again[1])
    assert again[2] == b"two"
    assert ledger.to_record() == before


# Size


def test_histories_that_no_client_has_any_more_are_deleted() -> None:
    ledger, plain = MemoryLedger(), MemoryLedger()
    for round in range(40):
        for client in range(100):
            request = f"{round} {client}"  # each client gets a different request
            for each in (ledger, plain) if round == 39 else (ledger,):
                step = Step("run", round, 0, request, ONE, [client], None)
                step.release(each)
    assert len(ledger._runs["run"].histories) <= 1001
    record = ledger.to_record()["runs"][0]
    assert record["shapes"] == plain.to_record()["runs"][0]["shapes"]
    assert ledger.history("run", 7) == {ONE: 40}


def filled(clients: int, rounds: int, share: float = 1.0) -> MemoryLedger:
    ledger, generator = MemoryLedger(), np.random.default_rng(0)
    event = BinaryRandomizedResponse(epsilon=1.0, coordinates=3)
    for round in range(1, rounds + 1):
        chosen = np.flatnonzero(generator.random(clients) < share)
        sent = np.zeros((chosen.size, 1), np.uint8)
        ledger.release(PLACE._replace(round=round), event, chosen, lambda sent=sent: sent)
    return ledger


@pytest.mark.slow
@pytest.mark.parametrize(("share", "rounds", "most"), [(1.0, 2, 1e5), (0.1, 20, 1e7)])
def test_a_checkpoint_of_many_clients_is_small(
    tmp_path: Path, share: float, rounds: int, most: float
) -> None:
    ledger = filled(300_000, rounds, share)
    (tmp_path / "run").mkdir()
    folder = RunFolder.create(tmp_path / "run", {}, {})
    folder.write_round(State(weights=np.zeros(5, np.float32)), [], ledger)
    saved = folder.read_checkpoint()
    assert (tmp_path / "run" / "checkpoint").stat().st_size < most
    assert saved[2].to_record() == ledger.to_record()
    assert saved[2].releases("run") == ledger.releases("run")


@pytest.mark.slow
def test_a_client_takes_a_few_bytes() -> None:
    tracemalloc.start()
    ledger = filled(2**16, 2)
    ledger.release(PLACE._replace(round=3), ONE, range(64), lambda: rows(64))
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 24 * 2**16  # a second kind of release needs another column


def test_two_answers_to_one_request_are_not_joined() -> None:
    """For clients asked in two places, joining the answers would hide a second release."""
    here, there = MemoryLedger(), MemoryLedger().extract([3])
    One(here, 3).release("run", 1, 0, asked("?"), ONE, lambda: b"one")
    One(there, 3).release("run", 1, 0, asked("?"), ONE, lambda: b"other")
    before = here.to_record()
    with pytest.raises(PrivacyError, match="counted differently in two places"):
        here.absorb(there)
    assert here.to_record() == before
