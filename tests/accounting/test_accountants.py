"""The table of accountants has every event; a new event needs a class and an entry."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, get_args

import pytest
from accounting_oracles import mixed
from ledger_helpers import release
from tables import of_unit, released, stated

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
    GaussianReport,
    GaussianShare,
    InClear,
    Memoized,
    NoRelease,
    PerPerson,
    PerRecord,
    PureCoordinates,
    PureReport,
    SampledGaussian,
    SelfComposed,
    to_record,
)
from fedldp.accounting.guarantees import guarantees_of, shuffled_guarantees
from fedldp.accounting.numerics.compose import revealing_epsilon
from fedldp.accounting.prices import cost, price
from fedldp.accounting.statement import ShufflerInPath, SumInPath
from fedldp.core.errors import ConfigError
from fedldp.core.kinds import DISCRETE, IDEALISED, ONCE, SECRET_SAMPLE, TAKES_PART
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
        lambda event: guarantees_of(Counter([event]), "client-run", 0.0),
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
    shuffler = ShufflerInPath(chunk=1, untrusted_clients=0, prediction_error=0.0)
    path = {"shuffler": shuffler, "summed": SumInPath(untrusted_clients=1)}
    found, expected = (
        stated({round: dict.fromkeys(range(50), each) for round in (1, 2)}, **path)
        for each in (subset, as_known)
    )
    (pure, approximate) = of_unit(found, "client-run")
    assert (pure.epsilon, pure.kind) == (1.0, "pure")
    assert approximate.epsilon is not None
    assert 0 < approximate.epsilon <= 1.0
    for unit, adversary in (("weight", "server"), ("weight", "shuffled-server"),
                            ("client-run", "shuffled-server"),
                            ("client-run", "summing-server")):  # fmt: skip
        assert of_unit(found, unit, adversary) == of_unit(expected, unit, adversary) != []


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
    found = stated({1: dict.fromkeys(range(50), event)}, summed=SumInPath(untrusted_clients=1))
    assert of_unit(found, "record")
    assert of_unit(found, "client-run", "summing-server")
    assert not of_unit(found, "record", "summing-server")


# Mixed or nested events: no line is too small, and no event is free


BITS = BinaryRandomizedResponse(epsilon=1.0, coordinates=10)
CLEAR = InClear(what="weights")
NOISE = GaussianReport(mu=1.0, rho=0.5)
STEPS = SampledGaussian(noise_multiplier=1.0, sampling_rate=0.01, steps=10)


# Clients whose events differ


@pytest.mark.parametrize("other", [CLEAR, NOISE, PureReport(epsilon=9.0)])
def test_no_epsilon_of_a_weight_is_printed_that_does_not_hold_for_every_client(
    other: Event,
) -> None:
    assert of_unit(stated({1: {0: BITS, 1: BITS}}), "weight")
    assert not of_unit(stated({1: {0: BITS, 1: other}}), "weight")
    assert not of_unit(stated({1: {0: BITS}, 2: {0: other}}), "weight")


def test_a_line_for_all_clients_counts_discrete_noise_where_one_of_them_adds_it() -> None:
    (alone,) = of_unit(stated({1: {1: NOISE}}), "client-run")
    for pure in (3.0, 4.6):  # the noise costs 4.38
        both = of_unit(stated({1: {0: PureReport(epsilon=pure), 1: NOISE}}), "client-run")
        assert both[0].epsilon == pytest.approx(max(alone.epsilon, pure), rel=1e-5)
        assert DISCRETE in both[0].assumptions


def test_a_line_for_all_clients_has_the_assumptions_of_each() -> None:
    ideal = PureReport(epsilon=3.0, idealised=True)
    worst = PureReport(epsilon=8.0)
    for line in of_unit(stated({1: {0: ideal, 1: worst}}), "client-run"):
        assert line.epsilon > 7
        assert IDEALISED in line.assumptions
    for line in of_unit(stated({1: {0: ideal}, 2: {0: NOISE}}), "client-run"):
        assert IDEALISED in line.assumptions
    once = Memoized(drawn=BITS, identity="all")
    for line in of_unit(stated({1: {0: once, 1: worst, 2: BITS}}), "client-run"):
        assert ONCE in line.assumptions
    record = PerRecord(record=STEPS, client=CLEAR)
    (line,) = of_unit(stated({1: {0: record, 1: BITS}}), "record")
    assert {SECRET_SAMPLE(of="record"), IDEALISED} <= set(line.assumptions)


@pytest.mark.parametrize(
    ("both", "deltas"),
    [
        ((CLEAR, BITS), (0.0, 1e-5)),
        ((Memoized(drawn=CLEAR, identity="all"), BITS), (0.0, 1e-5)),
        ((CLEAR, NOISE), (0.0, 1e-5)),
        ((NOISE, BITS), (0.0,)),
    ],
)
def test_where_one_client_has_no_guarantee_nobody_has_an_epsilon(
    both: tuple[Event, Event], deltas: tuple[float, ...]
) -> None:
    """A client in clear has none at any delta, and one with Gaussian noise none at delta 0."""
    for delta in deltas:
        found = stated({1: dict(enumerate(both))}, delta)
        for unit in ("client-round", "client-run"):
            assert {line.kind for line in of_unit(found, unit)} == {"none"}
        in_turn = stated({1: {0: both[0]}, 2: {0: both[1]}}, delta)
        assert {line.kind for line in of_unit(in_turn, "client-run")} == {"none"}


# Events that contain other events


def test_events_drawn_once_and_drawn_anew_both_count() -> None:
    once = Memoized(drawn=PureReport(epsilon=2.0), identity="features")
    other = Memoized(drawn=PureReport(epsilon=3.0), identity="labels")
    fresh = PureReport(epsilon=2.0)
    releases = {1: {0: once}, 2: {0: once}, 3: {0: other}, 4: {0: fresh}, 5: {0: fresh}}
    pure, _ = of_unit(stated(releases), "client-run")
    assert pure.epsilon == 2.0 + 3.0 + 2 * 2.0
    # The client takes part in five rounds, and the line must not rest on fewer.
    assert TAKES_PART(rounds=5) in pure.assumptions


# Independent pure coordinates: their record, their cost, and their guarantees


EVENT = PureCoordinates(groups=((0.5, 10), (2.0, 3)))


def test_costs_are_sums_over_coordinates() -> None:
    assert cost(EVENT, "pure") == 11.0
    assert cost(EVENT, "zcdp") == 10 * 0.125 + 3 * 2.0
    one, two = (cost(PureReport(epsilon=e), "gdp") for e in (0.5, 2.0))
    assert cost(EVENT, "gdp") == pytest.approx(10 * one + 3 * two, rel=1e-14)
    # One group costs as much as the same number of bits.
    bits = BinaryRandomizedResponse(epsilon=0.7, coordinates=33)
    for kind in ("pure", "zcdp", "gdp"):
        assert cost(PureCoordinates(groups=((0.7, 33),)), kind) == cost(bits, kind)


def test_guarantees_of_a_run() -> None:
    pure, approximate = guarantees_of(Counter({EVENT: 2}), "client-run", 1e-3)
    assert (pure.kind, pure.epsilon) == ("pure", 22.0)
    assert pure.lower == pytest.approx(22.0, rel=1e-8)
    assert pure.lower < 22.0
    assert approximate.epsilon == revealing_epsilon({(0.5, 1.0): 20, (2.0, 1.0): 6}, 1e-3)
    assert approximate.epsilon < 22.0
    # An independent evaluation of delta there, over all numbers of truthful answers.
    assert float(mixed({0.5: 20, 2.0: 6}, approximate.epsilon)) == pytest.approx(1e-3, rel=1e-6)
    # A coordinate may have more than two outcomes, so this is a bound, not the true value.
    assert approximate.lower is None


def test_pure_coordinates_mix_with_other_events() -> None:
    bits = BinaryRandomizedResponse(epsilon=0.5, coordinates=4)
    pure, _ = guarantees_of(Counter({EVENT: 1, bits: 1}), "client-run", 1e-5)
    assert pure.epsilon == 13.0
    assert pure.lower is not None
    whole, composed = guarantees_of(
        Counter({EVENT: 1, PureReport(epsilon=1.0): 1}), "client-run", 1e-5
    )
    assert whole.epsilon == 12.0
    assert composed.epsilon <= 12.0
    noise = GaussianReport(mu=1.0, rho=0.5)
    (with_noise,) = guarantees_of(Counter({EVENT: 1, noise: 1}), "client-run", 1e-5)
    as_reports = Counter({PureReport(epsilon=0.5): 10, PureReport(epsilon=2.0): 3, noise: 1})
    (expected,) = guarantees_of(as_reports, "client-run", 1e-5)
    assert with_noise.epsilon == pytest.approx(expected.epsilon, rel=1e-12)


def test_a_statement_names_the_worst_coordinate_and_no_shuffler() -> None:
    releases = {1: {0: EVENT, 1: PureCoordinates(groups=((0.5, 13),))}}
    lines = {line.unit: line for line in stated(releases, delta=0.0)}
    assert lines["weight"].epsilon == 2.0
    assert lines["weight"].lower == pytest.approx(2.0, rel=1e-8)
    assert lines["client-round"].epsilon == 11.0
    shuffler = ShufflerInPath(chunk=1, untrusted_clients=0, prediction_error=0.0)
    with pytest.raises(ConfigError, match="shuffler"):
        stated(releases, shuffler=shuffler)
