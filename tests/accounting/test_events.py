"""Events: the values of their fields, their records, and that no event gives budget back."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_helpers import ONE, never, release

from fedldp.accounting.accountants import ACCOUNTANTS, from_record, real_arithmetic_only
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
    RenyiReport,
    SampledClientsGaussian,
    SampledGaussian,
    SampledShare,
    SubsetResponse,
    to_record,
)
from fedldp.accounting.prices import cost, price
from fedldp.core.errors import ConfigError, FedldpError
from fedldp.ledgers.budget import Budget, BudgetKind
from fedldp.ledgers.columns import MemoryLedger

IDEAL = PureReport(epsilon=1.0, idealised=True)
STEPS = SampledGaussian(noise_multiplier=1.0, sampling_rate=0.1, steps=3)
KEYS = NoRelease(what="public keys")
ONCE = Memoized(drawn=ONE, identity="bits")


SHARE = SampledShare(squared_distance=1, variance=64, sampling_rate=0.1, steps=2**53)
SAMPLED = SampledClientsGaussian(noise_multiplier=1e-300, sample_size=3, population=9)
CLEAR = InClear(what="weights")


NUMBERS = ["-5", "5", True, False, math.nan, math.inf, -math.inf, -1, -1e-300, None, [1.0],
           {}, 10**400, 2**53 + 1, np.float64(1.0), np.float32(1.0), np.int64(1), 1j]  # fmt: skip
OPTIONAL = [each for each in NUMBERS if each is not None]
COUNTS = ["3", True, 3.0, math.nan, -1, None, [3], 2**53 + 1, 10**400, np.int64(3), Fraction(3)]
WEIGHTS = [*(x for x in COUNTS if x != 2**53 + 1), 0, 2**64 + 1]
TEXTS = ["", "a\nb", "\x1b[31m", 5, None, True, "x" * 501, b"bytes"]
FLAGS = ["yes", 1, 0, None, np.bool_(True)]
SUBEVENTS = ["ONE", None, 1.0, {"event": "PureReport", "epsilon": 1.0}, PureReport]
WRONG: list[tuple[Event, dict[str, list[Any]]]] = [
    (ONE, {"epsilon": NUMBERS, "idealised": FLAGS}),
    (
        BinaryRandomizedResponse(epsilon=1.0, coordinates=3, whole=1.0, group=1.0),
        {"epsilon": NUMBERS, "coordinates": COUNTS, "whole": OPTIONAL, "group": OPTIONAL},
    ),
    (
        SubsetResponse(high=9, low=1, closest=1, categories=4),
        {"high": WEIGHTS, "low": [*WEIGHTS, 9, 10], "closest": [*COUNTS, 0, 3],
         "categories": [*COUNTS, 0, 1]},
    ),
    (GaussianReport(mu=1.0, rho=1.0), {"mu": NUMBERS, "rho": NUMBERS}),
    (
        GaussianShare(squared_distance=1, variance=64),
        {"squared_distance": COUNTS, "variance": [*COUNTS, 63]},
    ),
    (STEPS, {"noise_multiplier": NUMBERS, "sampling_rate": NUMBERS, "steps": COUNTS}),
    (
        SHARE,
        {"squared_distance": [*COUNTS, 0], "variance": [*COUNTS, 63], "sampling_rate": NUMBERS,
         "steps": COUNTS},
    ),
    (SAMPLED, {"sample_size": COUNTS}),
    (CLEAR, {"what": TEXTS}),
    (KEYS, {"what": TEXTS}),
    (ONCE, {"identity": TEXTS, "drawn": SUBEVENTS}),
    (PerRecord(record=ONE, client=ONE), {"record": SUBEVENTS, "client": SUBEVENTS}),
    (PerPerson(person=ONE, client=ONE), {"person": SUBEVENTS, "client": SUBEVENTS}),
]  # fmt: skip


@pytest.mark.parametrize(("event", "wrong"), WRONG, ids=[each.wire for each, _ in WRONG])
def test_a_field_of_another_type_or_out_of_range_is_refused(
    event: Event, wrong: dict[str, list[Any]]
) -> None:
    for named, values in wrong.items():
        for value in values:
            refused_in_one_line(named[:7], replace, event, **{named: value})


def test_a_group_of_coordinates_is_checked_too() -> None:
    for value in NUMBERS:
        refused_in_one_line("groups", PureCoordinates, groups=((value, 3),))
    for value in COUNTS:
        refused_in_one_line("groups", PureCoordinates, groups=((1.0, value),))


def refused_in_one_line(named: str, build: Callable[..., Event], *given: Any, **also: Any) -> None:
    with pytest.raises(ConfigError, match=named) as refusal:
        build(*given, **also)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 200


def test_whole_numbers_and_lists_are_normalised() -> None:
    event = PureReport(epsilon=3)
    assert type(event.epsilon) is float
    assert event == PureReport(epsilon=3.0)
    assert math.copysign(1.0, PureReport(epsilon=-0.0).epsilon) == 1.0
    groups: Any = [[1, 2], [0.5, 3]]
    assert PureCoordinates(groups=groups).groups == ((1.0, 2), (0.5, 3))
    assert BinaryRandomizedResponse(epsilon=1.0, coordinates=2**53).coordinates == 2**53


def test_idealised_events_are_found_at_any_depth() -> None:
    noise = SampledClientsGaussian(noise_multiplier=1.0, sample_size=3, population=9)
    for event in (IDEAL, STEPS, noise):
        assert real_arithmetic_only(event)
        assert real_arithmetic_only(Memoized(drawn=event, identity="bits"))
        assert real_arithmetic_only(PerRecord(record=event, client=ONE))
        assert real_arithmetic_only(PerRecord(record=ONE, client=event))
        assert real_arithmetic_only(PerPerson(person=event, client=ONE))
        assert real_arithmetic_only(PerPerson(person=ONE, client=event))
        once = Memoized(drawn=event, identity="bits")
        assert real_arithmetic_only(PerRecord(record=ONE, client=once))
    for event in (ONE, KEYS, ONCE, PerRecord(record=ONCE, client=InClear(what="weights"))):
        assert not real_arithmetic_only(event)


# Records

LEAVES = [
    ONE,
    PureReport(epsilon=2**53, idealised=True),
    BinaryRandomizedResponse(epsilon=1e300, coordinates=2**53),
    BinaryRandomizedResponse(epsilon=0.1, coordinates=0, whole=1e-300),
    PureCoordinates(groups=((1e-300, 2**53), (0.1 + 0.2, 1))),
    SubsetResponse(high=2**64, low=2**20 - 1, closest=50, categories=2**53),
    RenyiReport(curve=((1.5, 0.1), (2.0, 0.1), (1e300, 2**53)), idealised=True),
    GaussianReport(mu=0.0, rho=1 / 3),
    GaussianShare(squared_distance=2**53, variance=64),
    STEPS,
    SHARE,
    SAMPLED,
    CLEAR,
]
PARTS = [*LEAVES, *(Memoized(drawn=each, identity="bits") for each in LEAVES), KEYS]
EVENTS = [
    *PARTS,
    *(PerRecord(record=one, client=other) for one, other in itertools.product(PARTS, PARTS)),
    *(PerPerson(person=one, client=other) for one, other in itertools.product(PARTS, PARTS)),
]


def test_a_record_gives_the_event_back() -> None:
    for event in EVENTS:
        assert from_record(json.loads(json.dumps(to_record(event), allow_nan=False))) == event


# JSON that looks like an event: its names are right, its values arbitrary.
atoms = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from([-1, -1e-9, "1", 10**400, "nan", [], {}, [[-1.0, 1]], [[1.0, -1]], 0, 1.0])
)  # fmt: skip
names = sorted({each.name for kind in ACCOUNTANTS for each in fields(kind)} | {"event", "x"})


def nearly(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def of(kind: type[Event]) -> st.SearchStrategy[Any]:
        own = {each.name: inner for each in fields(kind)}
        return st.fixed_dictionaries({"event": st.just(kind.wire), **own})

    return st.one_of(
        st.sampled_from(list(ACCOUNTANTS)).flatmap(of),
        st.dictionaries(st.sampled_from(names), inner, max_size=4),
        st.lists(inner, max_size=3),
    )


records = st.recursive(atoms, nearly, max_leaves=12) | st.sampled_from(EVENTS).map(to_record)


@pytest.mark.slow
@given(record=records, kind=st.sampled_from(get_args(BudgetKind)))
def test_no_event_from_any_json_lowers_the_spent_budget(record: Any, kind: BudgetKind) -> None:
    try:
        event = from_record(record)
    except ConfigError:
        return
    for costs in (cost(event, kind), price(event, kind, [event]), price(event, kind)):
        assert costs >= 0  # so not NaN; infinite if no budget covers it
    ledger = MemoryLedger(Budget(kind, 10.0))
    release(ledger, "run", 1, ONE, bytes)
    before = ledger.spent(0)
    for round in (2, 3):
        try:
            release(ledger, "run", round, event, bytes)
        except FedldpError:
            assert ledger.spent(0) == before
        assert before <= ledger.spent(0) <= 10.0
        before = ledger.spent(0)


def test_a_record_nested_too_deeply_is_refused() -> None:
    record: dict[str, Any] = {"event": "PureReport", "epsilon": 1.0}
    for _ in range(100_000):
        record = {"event": "DrawnOnce", "drawn": record, "identity": "bits"}
    with pytest.raises(ConfigError, match="nested too deep"):
        from_record(record)
    while "drawn" in record:  # so that freeing the record does not recurse
        record = record.pop("drawn")


# Prices


@pytest.mark.parametrize("kind", get_args(BudgetKind))
def test_an_event_without_data_costs_nothing(kind: BudgetKind) -> None:
    assert cost(KEYS, kind) == 0.0
    assert cost(PerRecord(record=ONE, client=KEYS), kind) == 0.0
    with pytest.raises(FedldpError, match="pure budget of epsilon"):
        release(MemoryLedger(Budget("pure", 0.0)), "run", 1, ONE, never)


def test_an_event_drawn_once_is_charged_once() -> None:
    per_record = PerRecord(record=ONE, client=ONCE)
    for event in (ONCE, per_record):
        assert price(event, "pure") == 1.0
        assert price(event, "pure", [ONE, KEYS]) == 1.0
        for before in (ONCE, per_record):
            assert price(event, "pure", [ONE, before]) == 0.0
    # The event drawn once covers the client; one that covers a record does not change what the
    # client pays.
    assert price(ONCE, "pure", [PerRecord(record=ONCE, client=ONE)]) == 1.0
    assert price(PerRecord(record=ONCE, client=ONE), "pure", [ONCE]) == 1.0
    assert price(ONCE, "pure", [PerPerson(person=ONCE, client=ONE)]) == 1.0
    assert price(ONCE, "pure", [PerPerson(person=ONCE, client=ONE)], side="person") == 0.0
    labels = Memoized(drawn=ONE, identity="labels")
    assert price(labels, "pure", [ONCE]) == 1.0
    clear = Memoized(drawn=InClear(what="weights"), identity="weights")
    assert price(clear, "pure") == math.inf
