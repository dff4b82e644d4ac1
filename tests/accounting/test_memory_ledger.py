"""The ledgers of a simulation, and the filter against exact fractions."""

from __future__ import annotations

import json
import time
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledgers import ONE

from fedldp.accounting.budget import Budget, Kind, cost
from fedldp.accounting.events import Event, PureReport, TwoValuedBits
from fedldp.accounting.memory_ledger import MemoryLedger
from fedldp.errors import PrivacyError

EPSILONS = st.one_of(st.floats(0, 3), st.sampled_from([0.1, 1 / 3, 1e-9, 2.0**-60]))
EVENTS = st.one_of(
    st.builds(PureReport, epsilon=EPSILONS),
    st.builds(
        TwoValuedBits,
        epsilon=EPSILONS,
        coordinates=st.integers(0, 5),
        whole=st.one_of(st.none(), EPSILONS),
    ),
)


def exact_cost(event: Any, kind: Kind) -> Fraction:
    """Compute the cost in another way than the ledger: exactly, and one coordinate at a time."""

    def single(epsilon: float) -> Fraction:
        exact = Fraction(epsilon)
        return exact if kind == "pure" else min(exact, exact * exact / 2)

    if isinstance(event, PureReport):
        return single(event.epsilon)
    total = sum((single(event.epsilon) for _ in range(event.coordinates)), Fraction(0))
    return total if event.whole is None else min(total, single(event.whole))


@settings(deadline=None)
@given(
    kind=st.sampled_from(["pure", "zcdp"]),
    limit=st.one_of(st.floats(0, 5), st.sampled_from([0.1, 0.3, 1.0])),
    events=st.lists(EVENTS, max_size=25),
)
def test_the_exact_total_never_passes_the_limit(
    kind: Kind, limit: float, events: list[Event]
) -> None:
    budget = Budget(kind, limit)
    ledger = MemoryLedger(budget)
    total, charged = Fraction(0), []
    for round, event in enumerate(events):
        after = total + exact_cost(event, kind)
        try:
            ledger.charge(0, round, event)
        except PrivacyError:
            # Refused only if it did not fit, but for the rounding of costs to floats.
            assert after > Fraction(limit) * (1 - Fraction(2) ** -48) - Fraction(1e-320)
        else:
            assert after <= limit
            total = after
            charged.append(cost(event, kind))
    assert Fraction(budget.spent(charged)) >= total
    assert Fraction(budget.remaining(charged)) <= Fraction(limit) - total
    assert sum(ledger.history(0).values()) == len(charged)


@settings(deadline=None)
@given(st.integers(1, 40), st.floats(1e-3, 2))
def test_a_file_and_memory_admit_the_same(rounds: int, epsilon: float) -> None:
    event = PureReport(epsilon=epsilon)
    budget = Budget("pure", 10.0)
    spent = Fraction(0)
    memory = MemoryLedger(budget)
    for round in range(rounds):
        try:
            spent += Fraction(budget.admit(event, spent))
        except PrivacyError:
            with pytest.raises(PrivacyError):
                memory.charge(3, round, event)
            break
        memory.charge(3, round, event)
    assert memory.history(3)[event] == spent / Fraction(epsilon)


def test_a_simulation_counts_true_participation() -> None:
    ledger = MemoryLedger()
    other = PureReport(epsilon=0.5)
    for client, round, event in [(4, 0, ONE), (2, 0, ONE), (4, 3, ONE), (4, 2, other), (4, 3, ONE)]:
        ledger.charge(client, round, event)
    assert {c for by_client in ledger.releases().values() for c in by_client} == {2, 4}
    assert ledger.history(4) == {ONE: 2, other: 1}
    assert ledger.history(2) == {ONE: 1}
    assert ledger.history(0) == {}
    with pytest.raises(PrivacyError, match="client 4 round 2: it released another event"):
        ledger.charge(4, 2, ONE)


def test_a_resumed_simulation_counts_on() -> None:
    ledger = MemoryLedger()
    other = TwoValuedBits(epsilon=0.5, coordinates=3)
    for client, round, event in [(1, 0, ONE), (1, 9, other), (70_000, 200, ONE)]:
        ledger.charge(client, round, event)
    record = json.loads(json.dumps(ledger.to_record()))
    resumed = MemoryLedger.from_record(record, Budget("pure", 3.0))
    assert resumed.to_record() == ledger.to_record()
    resumed.charge(1, 0, ONE)
    with pytest.raises(PrivacyError, match=r"together 3\.5"):
        resumed.charge(1, 10, ONE)
    resumed.charge(2, 10, ONE)
    assert resumed.history(1) == {ONE: 1, other: 1}


def test_a_budget_is_each_clients_own() -> None:
    ledger = MemoryLedger(Budget("zcdp", 1.0))
    for client in range(3):
        for round in range(2):
            ledger.charge(client, round, ONE)
        with pytest.raises(PrivacyError, match="zcdp budget of rho"):
            ledger.charge(client, 2, ONE)
        ledger.charge(client, 1, ONE)


def test_many_clients_are_fast() -> None:
    ledger = MemoryLedger()
    began = time.process_time()
    for round in range(20):
        for client in range(10_000):
            ledger.charge(client, round, ONE)
    assert len(json.dumps(ledger.to_record())) < 300_000
    assert time.process_time() - began < 1.0
    assert ledger.history(9_999) == {ONE: 20}
