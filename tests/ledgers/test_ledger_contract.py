"""The contract that every ledger keeps."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_helpers import KEYS, ONE, One, Store, asked, fresh, never

from fedldp.accounting.events import (
    BinaryRandomizedResponse,
    Event,
    GaussianReport,
    GaussianShare,
    InClear,
    Memoized,
    PerPerson,
    PerRecord,
    PureReport,
)
from fedldp.core.errors import AskedOtherwise, ConfigError, FedldpError, NoLongerKept, OverBudget
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.columns import MemoryLedger
from fedldp.ledgers.sqlite import SqliteLedger

FEATURES = Memoized(drawn=PureReport(epsilon=2.0), identity="features")
LABELS = Memoized(drawn=PureReport(epsilon=2.0), identity="labels")
OTHER_FEATURES = Memoized(drawn=PureReport(epsilon=0.5), identity="features")
CLEAR = InClear(what="weights")


def answer(*place: object) -> bytes:
    """Return a client's answer; it follows from the request, as in a simulation."""
    return hashlib.sha256(repr(place).encode()).digest()


def test_nothing_is_recalled_before_a_release(store: Store) -> None:
    ledger, spent = store(Budget("pure", 2.0))
    assert ledger.recall("run", 3, 0, asked("?")) is None
    ledger.admit("run", 10**5, 0, ONE)
    assert spent() == 0.0


def test_the_same_request_gives_the_same_bytes_at_no_cost(store: Store) -> None:
    ledger, spent = store(Budget("pure", 1.0))
    sent = ledger.release("run", 1, 0, asked("?"), ONE, lambda: b"answer")
    ledger.recall("run", 1, 0, asked("?"))
    assert ledger.release("run", 1, 0, asked("?"), ONE, lambda: b"answer") == sent == b"answer"
    assert spent() == 1.0


def test_a_different_request_in_the_same_place_is_refused(store: Store) -> None:
    ledger, spent = store(Budget("pure", 9.0))
    ledger.release("run", 1, 4, asked("?"), ONE, fresh)
    with pytest.raises(AskedOtherwise, match=r"run run round 1 phase 4 .* another request"):
        ledger.recall("run", 1, 4, asked("!"))
    with pytest.raises(AskedOtherwise, match="another request"):
        ledger.release("run", 1, 4, asked("!"), ONE, never)
    with pytest.raises(AskedOtherwise, match="was released as PureReport"):
        ledger.release("run", 1, 4, asked("?"), PureReport(epsilon=0.0), never)
    assert spent() == 1.0


def test_phases_of_a_round_and_runs_are_separate(store: Store) -> None:
    ledger, spent = store(Budget("pure", 9.0))
    for run, phase in (("run", 2), ("run", 0), ("other", 0)):
        assert ledger.recall(run, 1, phase, asked("?")) is None
        ledger.release(run, 1, phase, asked("?"), ONE, lambda: b"x")
    for run, phase in (("run", 2), ("run", 0), ("other", 0)):
        assert ledger.release(run, 1, phase, asked("?"), ONE, lambda: b"x") == b"x"
    assert spent() == 3.0


def test_earlier_rounds_are_refused(store: Store) -> None:
    ledger, spent = store(Budget("pure", 9.0))
    ledger.release("run", 3, 0, asked("?"), ONE, fresh)
    ledger.release("run", 5, 0, asked("?"), ONE, fresh)
    for round, request in ((3, "?"), (3, "!"), (4, "?")):
        with pytest.raises(NoLongerKept, match=f"round {round}: round 5 was released since"):
            ledger.recall("run", round, 0, asked(request))
        with pytest.raises(NoLongerKept):
            ledger.release("run", round, 0, asked(request), ONE, never)
    ledger.release("other", 3, 0, asked("?"), ONE, fresh)
    assert spent() == 3.0


def test_over_the_budget_nothing_is_made(store: Store) -> None:
    ledger, spent = store(Budget("pure", 2.5))
    for round in (1, 2):
        ledger.release("run", round, 0, asked("?"), ONE, fresh)
    for run in ("run", "other"):
        with pytest.raises(OverBudget, match=r"2\.0 is spent already; this release costs 1\.0"):
            ledger.admit(run, 10**5, 0, ONE)
        with pytest.raises(OverBudget, match=r"3\.0 in total"):
            ledger.release(run, 3, 0, asked("?"), ONE, never)
    ledger.admit("run", 10**5, 0, PureReport(epsilon=0.5))
    ledger.release("run", 3, 0, asked("?"), PureReport(epsilon=0.5), fresh)
    assert spent() == 2.5


@pytest.mark.parametrize(
    "event",
    [CLEAR, GaussianReport(mu=1.0, rho=0.5), GaussianShare(squared_distance=64, variance=64)],
)
def test_releases_that_cannot_be_paid_are_refused(store: Store, event: Event) -> None:
    ledger, _ = store(Budget("pure", 1e300))
    for each in (event, PerRecord(record=ONE, client=event), Memoized(drawn=event, identity="x")):
        with pytest.raises(OverBudget, match="no finite cost is proven"):
            ledger.admit("run", 10**5, 0, each)
        with pytest.raises(OverBudget, match="no finite cost is proven"):
            ledger.release("run", 1, 0, asked("?"), each, never)


def test_an_error_while_an_answer_is_made_costs_nothing(store: Store) -> None:
    ledger, spent = store(Budget("pure", 1.0))

    def fail() -> bytes:
        raise RuntimeError("bound")

    with pytest.raises(RuntimeError, match="bound"):
        ledger.release("run", 1, 0, asked("?"), ONE, fail)
    assert ledger.recall("run", 1, 0, asked("?")) is None
    assert spent() == 0.0
    ledger.release("run", 1, 0, asked("!"), ONE, fresh)


def test_messages_without_data_are_free_and_kept_apart(store: Store) -> None:
    ledger, spent = store(Budget("pure", 0.0))
    for phase in range(3):
        ledger.admit("run", 10**5, 0, KEYS)
        ledger.release("run", 1, phase, asked("?"), KEYS, lambda: b"keys")
    with pytest.raises(AskedOtherwise):
        ledger.release("run", 1, 1, asked("!"), KEYS, never)
    assert spent() == 0.0


# Events drawn once


def test_an_event_drawn_once_costs_once_in_each_run(store: Store) -> None:
    ledger, spent = store(Budget("pure", 4.0))
    for round in (1, 2, 3):
        ledger.admit("run", 10**5, 0, FEATURES)
        ledger.release("run", round, 0, asked("?"), FEATURES, fresh)
    ledger.release("run", 3, 1, asked("?"), FEATURES, fresh)
    assert spent() == 2.0
    ledger.release("other", 1, 0, asked("?"), FEATURES, fresh)
    assert spent() == 4.0
    with pytest.raises(OverBudget):
        ledger.admit("third", 10**5, 0, FEATURES)
    ledger.release("run", 4, 0, asked("?"), FEATURES, fresh)
    assert spent() == 4.0


def test_an_event_drawn_once_for_a_person_costs_once_in_each_run(store: Store) -> None:
    ledger, spent = store(Budget("pure", 4.0, "person"))
    for run, round in (("run", 1), ("run", 2), ("other", 1)):
        of_people = PerPerson(person=FEATURES, client=CLEAR)
        ledger.release(run, round, 0, asked("?"), of_people, fresh)
    assert spent() == 4.0


def test_equal_draws_with_two_identities_cost_twice(store: Store) -> None:
    ledger, spent = store(Budget("pure", 9.0))
    for round in (1, 2):
        ledger.release("run", round, 0, asked("?"), FEATURES, fresh)
        ledger.release("run", round, 1, asked("?"), LABELS, fresh)
    assert spent() == 4.0


@pytest.mark.parametrize("inside", [False, True], ids=["plain", "in a PerRecord"])
def test_a_different_event_under_the_same_identity_is_refused(store: Store, inside: bool) -> None:
    def event(drawn: Memoized) -> Event:
        return PerRecord(record=ONE, client=drawn) if inside else drawn

    ledger, spent = store(Budget("pure", 9.0))
    ledger.release("run", 1, 0, asked("?"), event(FEATURES), fresh)
    for each in (event(OTHER_FEATURES), PerRecord(record=ONE, client=OTHER_FEATURES)):
        with pytest.raises(AskedOtherwise, match="features: this run drew it once as"):
            ledger.admit("run", 10**5, 0, each)
        with pytest.raises(AskedOtherwise, match="features: this run drew it once as"):
            ledger.release("run", 2, 0, asked("?"), each, never)
    ledger.admit("other", 10**5, 0, event(OTHER_FEATURES))
    assert spent() == 2.0


def test_a_draw_for_one_record_is_also_one_event(store: Store) -> None:
    ledger, spent = store(Budget("pure", 9.0))
    first = PerRecord(record=FEATURES, client=ONE)
    ledger.release("run", 1, 0, asked("?"), first, fresh)
    ledger.release("run", 2, 0, asked("?"), first, fresh)
    assert spent() == 2.0  # the client is charged its own cost each time
    with pytest.raises(AskedOtherwise):
        ledger.admit("run", 10**5, 0, PerRecord(record=OTHER_FEATURES, client=ONE))


# Arguments


@pytest.mark.parametrize(
    ("place", "what"),
    [
        (("", 1, 0, asked("?")), "run = "),
        ((7, 1, 0, asked("?")), "run = "),
        (("run", -1, 0, asked("?")), "round = -1"),
        (("run", True, 0, asked("?")), "round = True"),
        (("run", 1, -1, asked("?")), "phase = -1"),
        (("run", 1, 0, b"short"), "request: give the 32 bytes"),
    ],
)
def test_malformed_places_are_refused(store: Store, place: Any, what: str) -> None:
    ledger, _ = store(Budget("pure", 9.0))
    with pytest.raises(ConfigError, match=what):
        ledger.recall(*place)
    with pytest.raises(ConfigError, match=what):
        ledger.release(*place, ONE, never)


# One store against the other

EVENTS: list[Event] = [
    ONE,
    PureReport(epsilon=0.1),
    BinaryRandomizedResponse(epsilon=0.3, coordinates=4, whole=1.0),
    KEYS,
    FEATURES,
    LABELS,
    OTHER_FEATURES,
    PerRecord(record=FEATURES, client=Memoized(drawn=PureReport(epsilon=3.0), identity="all")),
    PerRecord(record=ONE, client=Memoized(drawn=PureReport(epsilon=3.0), identity="all")),
    PerRecord(record=ONE, client=Memoized(drawn=PureReport(epsilon=1.5), identity="all")),
    PerRecord(record=KEYS, client=CLEAR),
    CLEAR,
    GaussianReport(mu=1.0, rho=0.25),
]
calls = st.tuples(
    st.sampled_from(["recall", "admit", "release", "release", "release"]),
    st.sampled_from(["run", "other"]),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from(["?", "!"]),
    st.sampled_from(EVENTS),
)


def outcome(ledger: One, call: Any) -> Any:
    """Return the result of a call: bytes, nothing, or the kind of its error."""
    what, run, round, phase, request, event = call
    place = run, round, phase, asked(request)
    try:
        if what == "recall":
            return ledger.recall(*place)
        if what == "admit":
            return ledger.admit(run, 10**5, 0, event)
        return ledger.release(*place, event, lambda: answer(*place))
    except FedldpError as error:
        return type(error), str(error)


@settings(max_examples=15)
@given(
    budget=st.builds(Budget, st.sampled_from(["pure", "zcdp", "gdp"]), st.sampled_from([3.0, 6.5])),
    sequence=st.lists(calls, max_size=25),
    keeps=st.booleans(),
)
def test_the_same_calls_have_the_same_outcomes(
    budget: Budget, sequence: list[Any], keeps: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = SqliteLedger(Path(folder) / "client.ledger", budget)
        memory = MemoryLedger(budget, keeps_answers=keeps)
        for call in sequence:
            expected, found = outcome(One(file), call), outcome(One(memory), call)
            if call[0] == "recall" and isinstance(expected, bytes):
                assert found == (expected if keeps else None)
                assert expected == answer(*call[1:4], asked(call[4]))
            else:
                assert found == expected
            assert file.spent() == memory.spent(0) <= budget.limit
        assert file.verify() == file.releases()
