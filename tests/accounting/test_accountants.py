"""The table of accountants has every event; a new event needs a class and an entry."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, get_args

import pytest
from ledger_helpers import release
from tables import released

from fedldp.accounting import events
from fedldp.accounting.accountants import (
    ACCOUNTANTS,
    SIDES,
    Accountant,
    BudgetKind,
    CountedBits,
    Pure,
    UnknownEvent,
    accountant,
    drawn_once,
    from_record,
    on_side,
    price_of_pure,
    protects_in_training,
    real_arithmetic_only,
    releases_nothing,
    sent_in_clear,
)
from fedldp.accounting.events import (
    BinaryRandomizedResponse,
    Event,
    GaussianShare,
    InClear,
    Memoized,
    NoRelease,
    PerPerson,
    PerRecord,
    PureReport,
    SampledGaussian,
    SelfComposed,
    to_record,
)
from fedldp.accounting.guarantees import Guarantee, local_guarantees, shuffled_guarantees
from fedldp.accounting.prices import cost, price
from fedldp.accounting.statement import ShufflerInPath, Statement, SumInPath, statement
from fedldp.core.errors import ConfigError
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.columns import MemoryLedger
from fedldp.ledgers.sqlite import SqliteLedger

# Ledgers and run folders hold these names, so they stay even if the classes are renamed.
WIRE = {
    "TwoValuedBits", "PureCoordinates", "PureReport", "GaussianReport", "GaussianShare",
    "SampledGaussian", "SampledClientsGaussian", "InClear", "NoData", "PerRecord", "PerPerson",
    "DrawnOnce", "Several", "SubsetResponse", "SampledShare", "RenyiReport", "ProfileReport",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Subset(Event):
    """A report that names k of M things; whose bits a shuffler and a sum protect, if told so."""

    epsilon: float
    chosen: int


def _bits(event: Subset) -> CountedBits:
    return CountedBits(epsilon=event.epsilon, coordinates=event.chosen, whole=event.epsilon)


@pytest.fixture
def subset(monkeypatch: pytest.MonkeyPatch) -> Subset:
    """Return an event that the table has for one test."""
    entry = Accountant[Subset](
        price=lambda event, kind: price_of_pure(event.epsilon, kind),
        loss=lambda event: Pure(whole=event.epsilon, singles=(((event.epsilon, 1.0), 1),)),
        coordinate=lambda event: Subset(epsilon=event.epsilon, chosen=1),
        summed=_bits,
        shuffled=_bits,
        by_mechanism=True,
        size=lambda event: event.chosen,
    )
    monkeypatch.setitem(ACCOUNTANTS, Subset, entry)
    return Subset(epsilon=0.5, chosen=3)


def lines_of(found: Statement, unit: str, adversary: str) -> list[Guarantee]:
    return [g for g in found.guarantees if (g.unit, g.adversary) == (unit, adversary)]


# The table


def test_every_event_has_an_entry_and_a_lasting_name() -> None:
    classes = {
        each
        for each in vars(events).values()
        if isinstance(each, type) and issubclass(each, Event) and each is not Event
    }
    assert set(ACCOUNTANTS) == classes
    assert {cls.wire for cls in ACCOUNTANTS} == WIRE
    assert len(WIRE) == len(ACCOUNTANTS)


def test_two_events_with_the_same_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a record of one event would be read and priced as the other."""

    @dataclass(frozen=True, kw_only=True)
    class Cheap(Event):
        wire: ClassVar[str] = "PureReport"
        epsilon: float
        idealised: bool = False

    kept = MemoryLedger()
    release(kept, "run", 1, PureReport(epsilon=5.0), lambda: b"sent")
    monkeypatch.setitem(ACCOUNTANTS, Cheap, Accountant(nothing=lambda event: "cheap"))
    for record in (to_record(PureReport(epsilon=5.0)), to_record(NoRelease(what="keys"))):
        with pytest.raises(ConfigError, match="PureReport: two event classes"):
            from_record(record)
    with pytest.raises(ConfigError, match="two event classes"):
        MemoryLedger.from_record(kept.to_record())


def test_an_entry_gives_exactly_one_kind_of_meaning() -> None:
    for wrong in ({}, {"nothing": lambda e: "x", "sides": lambda e: {"client": e}}):
        with pytest.raises(TypeError, match="exactly one"):
            Accountant(**wrong)  # type: ignore[arg-type]


def test_every_query_about_an_unknown_event_raises() -> None:
    class Weaker(PureReport):
        """A subclass, which may protect less."""

    event = Weaker(epsilon=1.0)
    once = Memoized(drawn=event, identity="all")
    queries = [
        accountant, drawn_once, releases_nothing, real_arithmetic_only, sent_in_clear,
        protects_in_training,
        lambda event: on_side(event, "record"), lambda event: cost(event, "pure"),
        lambda event: price(event, "zcdp"), lambda event: released({1: {0: event}}),
        lambda event: local_guarantees(Counter([event]), "client-run", 0.0),
        lambda event: shuffled_guarantees(event, 1, anonymity_set=9, chunk=1, delta=1e-5),
    ]  # fmt: skip
    for query in queries:
        with pytest.raises(UnknownEvent, match="event Weaker: no accountant knows it"):
            query(event)
    for query in (real_arithmetic_only, sent_in_clear, lambda event: cost(event, "pure")):
        with pytest.raises(UnknownEvent, match="event Weaker: no accountant knows it"):
            query(once)
    with pytest.raises(ConfigError, match="this version knows TwoValuedBits"):
        from_record(to_record(event))


def test_a_guarantee_for_a_larger_unit_holds_for_a_smaller_one() -> None:
    one, two = PureReport(epsilon=1.0), PureReport(epsilon=2.0)
    event = PerRecord(record=one, client=two)
    assert [on_side(event, side) for side in SIDES] == [one, two, two]
    of_people = PerPerson(person=one, client=two)
    assert [on_side(of_people, side) for side in SIDES] == [one, one, two]
    assert [on_side(one, side) for side in SIDES] == [one] * 3
    once = Memoized(drawn=two, identity="all")
    assert {side for side, _ in drawn_once(once)} == set(SIDES)
    assert set(drawn_once(PerRecord(record=once, client=one))) == {("record", "all")}
    assert set(drawn_once(PerPerson(person=once, client=one))) == {
        ("record", "all"),
        ("person", "all"),
    }


def test_protection_during_training_is_distinguished_from_protection_afterwards() -> None:
    bits = BinaryRandomizedResponse(epsilon=1.0, coordinates=3)
    for event in (bits, SelfComposed(each=bits, count=2), NoRelease(what="keys"),
                  GaussianShare(squared_distance=1, variance=64)):  # fmt: skip
        assert not protects_in_training(event)
    steps = SampledGaussian(noise_multiplier=1.0, sampling_rate=0.1, steps=3)
    clear = InClear(what="weights")
    for event in (steps, clear, Memoized(drawn=bits, identity="all"),
                  PerRecord(record=bits, client=bits), PerPerson(person=bits, client=bits),
                  SelfComposed(each=clear, count=2)):  # fmt: skip
        assert protects_in_training(event)


# A new event: a class and an entry


@pytest.mark.parametrize("kind", get_args(BudgetKind))
def test_a_new_event_is_paid_for_and_kept(subset: Subset, tmp_path: Path, kind: BudgetKind) -> None:
    assert cost(subset, kind) == cost(PureReport(epsilon=0.5), kind) > 0
    assert cost(SelfComposed(each=subset, count=3), "pure") == 1.5
    assert price(Memoized(drawn=subset, identity="all"), "pure") == 0.5
    budget = Budget(kind, 3.0)
    ledger = SqliteLedger(tmp_path / "ledger.sqlite", budget)
    release(ledger, "run", 1, subset, lambda: b"report")
    assert [each.event for each in SqliteLedger(ledger.path, budget).verify()] == [subset]
    simulated = MemoryLedger(budget)
    release(simulated, "run", 1, subset, lambda: b"report")
    assert MemoryLedger.from_record(simulated.to_record()).releases("run").events == [subset]


def test_a_new_event_is_stated(subset: Subset) -> None:
    as_known = BinaryRandomizedResponse(epsilon=0.5, coordinates=3, whole=0.5)
    found, expected = (
        statement(
            released({round: dict.fromkeys(range(50), each) for round in (1, 2)}),
            claim=None,
            shuffler=ShufflerInPath(chunk=1, untrusted_clients=0, prediction_error=0.0),
            summed=SumInPath(untrusted_clients=1),
            delta=1e-5,
        )
        for each in (subset, as_known)
    )
    (pure, approximate) = lines_of(found, "client-run", "server")
    assert (pure.epsilon, pure.kind) == (1.0, "pure")
    assert approximate.epsilon is not None
    assert 0 < approximate.epsilon <= 1.0
    for unit, adversary in (("weight", "server"), ("weight", "shuffled-server"),
                            ("client-run", "shuffled-server"),
                            ("client-run", "summing-server")):  # fmt: skip
        assert lines_of(found, unit, adversary) == lines_of(expected, unit, adversary) != []


# A person


def test_a_budget_for_a_person_covers_what_leaves_many_people_in_clear() -> None:
    share = GaussianShare(squared_distance=10_000, variance=400)
    event = PerPerson(person=share, client=InClear(what="all that many people add up to"))
    for side in ("record", "person"):
        assert price(event, "zcdp", side=side) == cost(share, "zcdp") < math.inf
    assert price(event, "zcdp") == math.inf


def test_in_a_sum_other_clients_bits_hide_a_client_but_not_its_records() -> None:
    # A client's bits may be nearly certain when a single record changes little.
    nearly_certain = BinaryRandomizedResponse(epsilon=30.0, coordinates=3)
    event = PerRecord(
        record=BinaryRandomizedResponse(epsilon=0.5, coordinates=3), client=nearly_certain
    )
    found = statement(
        released({1: dict.fromkeys(range(50), event)}),
        claim=None,
        shuffler=None,
        summed=SumInPath(untrusted_clients=1),
        delta=1e-5,
    )
    assert lines_of(found, "record", "server")
    assert lines_of(found, "client-run", "summing-server")
    assert not lines_of(found, "record", "summing-server")
