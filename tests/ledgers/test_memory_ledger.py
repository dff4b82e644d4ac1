"""The ledgers of a simulation: their filter against exact fractions, workers, resumed runs, and
size."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_helpers import KEYS, ONE, One, asked, fresh, never, release
from tables import DOWNLINK, released

from fedldp.accounting.events import BinaryRandomizedResponse, Event, InClear, Memoized, PureReport
from fedldp.accounting.prices import cost
from fedldp.core.errors import AskedOtherwise, ConfigError, NoLongerKept, OverBudget, PrivacyError
from fedldp.ledgers.budget import Budget, BudgetKind
from fedldp.ledgers.columns import MemoryLedger
from fedldp.ledgers.protocol import Place

OTHER = BinaryRandomizedResponse(epsilon=0.5, coordinates=3)


def charge(ledger: MemoryLedger, client: int, round: int, event: Event) -> None:
    release(One(ledger, client), "run", round, event, lambda: b"x")


def again(ledger: MemoryLedger, budget: Budget | None = None) -> MemoryLedger:
    """Return the ledger that a checkpoint restores."""
    return MemoryLedger.from_record(json.loads(json.dumps(ledger.to_record())), budget)


EPSILONS = st.one_of(st.floats(0, 3), st.sampled_from([0.1, 1 / 3, 1e-9, 2.0**-60]))
EVENTS = st.one_of(
    st.builds(PureReport, epsilon=EPSILONS),
    st.builds(
        BinaryRandomizedResponse,
        epsilon=EPSILONS,
        coordinates=st.integers(0, 5),
        whole=st.one_of(st.none(), EPSILONS),
    ),
)


def exact_cost(event: Any, kind: BudgetKind) -> Fraction:
    """Compute the cost independently of the ledger: exactly, and coordinate by coordinate."""

    def single(epsilon: float) -> Fraction:
        exact = Fraction(epsilon)
        return exact if kind == "pure" else min(exact, exact * exact / 2)

    if isinstance(event, PureReport):
        return single(event.epsilon)
    total = sum((single(event.epsilon) for _ in range(event.coordinates)), Fraction(0))
    return total if event.whole is None else min(total, single(event.whole))


@given(
    kind=st.sampled_from(["pure", "zcdp"]),
    limit=st.one_of(st.floats(0, 5), st.sampled_from([0.1, 0.3, 1.0])),
    events=st.lists(EVENTS, max_size=25),
)
def test_the_exact_total_never_passes_the_limit(
    kind: BudgetKind, limit: float, events: list[Event]
) -> None:
    budget = Budget(kind, limit)
    ledger = MemoryLedger(budget)
    total, charged = Fraction(0), []
    for round, event in enumerate(events):
        after = total + exact_cost(event, kind)
        try:
            charge(ledger, 0, round, event)
        except PrivacyError:
            # A release is refused only if it does not fit, up to the rounding of costs to floats.
            assert after > Fraction(limit) * (1 - Fraction(2) ** -48) - Fraction(1e-320)
        else:
            assert after <= limit
            total = after
            charged.append(cost(event, kind))
    assert Fraction(budget.spent(charged)) >= total
    assert Fraction(budget.remaining(charged)) <= Fraction(limit) - total
    assert ledger.history("run", 0).total() == len(charged)
    assert budget.spent(charged) == ledger.spent(0)


def test_without_a_budget_every_release_is_counted() -> None:
    ledger = MemoryLedger()
    for client, round in ((4, 0), (2, 0), (4, 3)):
        charge(ledger, client, round, ONE)
    for _ in range(2):
        charge(ledger, 4, 5, OTHER)
    charge(ledger, 1, 3, InClear(what="weights"))
    assert ledger.history("run", 4) == {ONE: 2, OTHER: 1}
    assert ledger.history("run", 2) == {ONE: 1}
    assert ledger.history("run", 0) == ledger.history("other", 4) == {}
    clear = InClear(what="weights")
    table = {0: {2: ONE, 4: ONE}, 3: {4: ONE, 1: clear}, 5: {4: OTHER}}
    assert ledger.releases("run") == released(table)
    with pytest.raises(ConfigError, match="client_budget"):
        ledger.spent(4)


def test_some_of_many_clients_send_a_kept_answer_again() -> None:
    ledger, place = MemoryLedger(keeps_answers=True), Place("run", 1, 0, asked("?"))
    ledger.release(place, ONE, [1, 2], lambda: [b"a", b"b"])
    assert ledger.check(place, ONE, [1, 2, 3]) == [b"a", b"b", None]
    assert ledger.release(place, ONE, [1, 2, 3], lambda: [b"x", b"b", b"c"]) == [b"a", b"b", b"c"]
    assert ledger.check(place, ONE, [3, 1]) == [b"c", b"a"]


def test_two_priced_events_of_a_client_in_one_round_have_no_statement() -> None:
    ledger = MemoryLedger()
    for round in (1, 2):
        release(One(ledger, 0), "run", round, KEYS, fresh, phase=0)
        release(One(ledger, 0), "run", round, ONE, fresh, phase=1)
    assert ledger.releases("run") == released({1: {0: ONE}, 2: {0: ONE}})
    for event in (ONE, OTHER):
        both = again(ledger)
        release(One(both, 0), "run", 3, ONE, fresh, phase=0)
        release(One(both, 0), "run", 3, event, fresh, phase=1)
        with pytest.raises(ConfigError, match="in the same round; count them as one event"):
            both.releases("run")


def test_releases_of_the_servers_broadcasts_are_kept_apart() -> None:
    ledger = MemoryLedger(Budget("pure", 1.0))
    charge(ledger, 0, 1, ONE)
    for round in (1, 2, 2):
        ledger.count_downlink("run", round, OTHER)
    expected = released({1: {0: ONE, DOWNLINK: OTHER}, 2: {DOWNLINK: OTHER}})
    assert ledger.releases("run") == expected == again(ledger).releases("run")
    assert ledger.spent(0) == 1.0


# Resumed runs


def test_a_resumed_simulation_continues_counting() -> None:
    ledger = MemoryLedger()
    for client, round, event in [(1, 0, ONE), (1, 9, OTHER), (70_000, 200, ONE)]:
        charge(ledger, client, round, event)
    resumed = again(ledger, Budget("pure", 3.0))
    assert resumed.to_record() == ledger.to_record()
    with pytest.raises(OverBudget, match=r"3\.5 in total"):
        charge(resumed, 1, 10, ONE)
    charge(resumed, 2, 10, ONE)
    assert resumed.history("run", 1) == {ONE: 1, OTHER: 1}
    assert resumed.releases("run") != ledger.releases("run")


def test_a_resumed_simulation_answers_nothing_again() -> None:
    ledger = MemoryLedger()
    charge(ledger, 1, 3, ONE)
    resumed = One(again(ledger), 1)
    for request, error in (("!", AskedOtherwise), ("?", NoLongerKept)):
        with pytest.raises(error):
            resumed.recall("run", 3, 0, asked(request))
        with pytest.raises(error):
            release(resumed, "run", 3, ONE, never, request=request)
    with pytest.raises(NoLongerKept, match="round 3 was released since"):
        release(resumed, "run", 2, ONE, never)
    once = Memoized(drawn=ONE, identity="bits")
    charge(ledger, 2, 1, once)
    resumed = One(again(ledger, Budget("pure", 1.0)), 2)
    release(resumed, "run", 2, once, fresh)  # it was paid before


# Worker processes


@pytest.mark.parametrize("other", [(2, OTHER, "?"), (3, ONE, "!"), (3, OTHER, "?")])
def test_workers_that_disagree_are_refused(other: tuple[int, Event, str]) -> None:
    ledger = MemoryLedger()
    charge(ledger, 0, 1, ONE)
    worker = ledger.extract([0])
    for round in (2, 3):
        charge(ledger, 0, round, ONE)
    round, event, request = other
    release(One(worker), "run", round, event, fresh, request=request)
    with pytest.raises(PrivacyError):
        ledger.absorb(worker)
    assert ledger.history("run", 0)[ONE] == 3


# Size
