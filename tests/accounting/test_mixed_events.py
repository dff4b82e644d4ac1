"""Statements and prices of mixed or nested events: no line is too small, and no event is free."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tables import Table, released

from fedldp.accounting.events import (
    BinaryRandomizedResponse,
    Event,
    GaussianReport,
    InClear,
    Memoized,
    PerRecord,
    PureReport,
    SampledGaussian,
)
from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.statement import statement
from fedldp.core.kinds import DISCRETE, IDEALISED, ONCE, SECRET_SAMPLE, TAKES_PART

BITS = BinaryRandomizedResponse(epsilon=1.0, coordinates=10)
CLEAR = InClear(what="weights")
NOISE = GaussianReport(mu=1.0, rho=0.5)
STEPS = SampledGaussian(noise_multiplier=1.0, sampling_rate=0.01, steps=10)


def lines(table: Table, delta: float = 1e-5) -> tuple[Guarantee, ...]:
    return statement(released(table), claim=None, shuffler=None, delta=delta).guarantees


def of_unit(found: Iterable[Guarantee], unit: str, adversary: str = "server") -> list[Guarantee]:
    return [line for line in found if (line.unit, line.adversary) == (unit, adversary)]


# Clients whose events differ


@pytest.mark.parametrize("other", [CLEAR, NOISE, PureReport(epsilon=9.0)])
def test_no_epsilon_of_a_weight_is_printed_that_does_not_hold_for_every_client(
    other: Event,
) -> None:
    assert of_unit(lines({1: {0: BITS, 1: BITS}}), "weight")
    assert not of_unit(lines({1: {0: BITS, 1: other}}), "weight")
    assert not of_unit(lines({1: {0: BITS}, 2: {0: other}}), "weight")


def test_a_line_for_all_clients_counts_discrete_noise_where_one_of_them_adds_it() -> None:
    (alone,) = of_unit(lines({1: {1: NOISE}}), "client-run")
    for pure in (3.0, 4.6):  # the noise costs 4.38
        mixed = of_unit(lines({1: {0: PureReport(epsilon=pure), 1: NOISE}}), "client-run")
        assert mixed[0].epsilon == pytest.approx(max(alone.epsilon, pure), rel=1e-5)
        assert DISCRETE in mixed[0].assumptions


def test_a_line_for_all_clients_has_the_assumptions_of_each() -> None:
    ideal = PureReport(epsilon=3.0, idealised=True)
    worst = PureReport(epsilon=8.0)
    for line in of_unit(lines({1: {0: ideal, 1: worst}}), "client-run"):
        assert line.epsilon > 7
        assert IDEALISED in line.assumptions
    for line in of_unit(
        lines({1: {0: Memoized(drawn=BITS, identity="all"), 1: worst, 2: BITS}}), "client-run"
    ):
        assert ONCE in line.assumptions
    record = PerRecord(record=STEPS, client=CLEAR)
    (line,) = of_unit(lines({1: {0: record, 1: BITS}}), "record")
    assert {SECRET_SAMPLE(of="record"), IDEALISED} <= set(line.assumptions)


def test_idealised_pure_noise_stays_idealised_next_to_gaussian_noise() -> None:
    ideal = PureReport(epsilon=3.0, idealised=True)
    for line in of_unit(lines({1: {0: ideal}, 2: {0: NOISE}}), "client-run"):
        assert IDEALISED in line.assumptions


def test_with_a_client_in_clear_nobody_has_an_epsilon_at_any_delta() -> None:
    for delta in (0.0, 1e-5):
        for events in (
            (CLEAR, BITS),
            (Memoized(drawn=CLEAR, identity="all"), BITS),
            (CLEAR, NOISE),
        ):
            by_client = dict(enumerate(events))
            for unit in ("client-round", "client-run"):
                assert {x.kind for x in of_unit(lines({1: by_client}, delta), unit)} == {"none"}


def test_gaussian_noise_among_pure_reports_has_no_line_at_delta_zero() -> None:
    for releases in ({1: {0: BITS, 1: NOISE}}, {1: {0: BITS}, 2: {0: NOISE}}):
        assert {x.kind for x in of_unit(lines(releases, 0.0), "client-run")} == {"none"}


# Events that contain other events


def test_events_drawn_once_and_drawn_anew_both_count() -> None:
    once = Memoized(drawn=PureReport(epsilon=2.0), identity="features")
    other = Memoized(drawn=PureReport(epsilon=3.0), identity="labels")
    fresh = PureReport(epsilon=2.0)
    releases = {1: {0: once}, 2: {0: once}, 3: {0: other}, 4: {0: fresh}, 5: {0: fresh}}
    pure, _ = of_unit(lines(releases), "client-run")
    assert pure.epsilon == 2.0 + 3.0 + 2 * 2.0
    # The client takes part in five rounds, and the line must not rest on fewer.
    assert TAKES_PART(rounds=5) in pure.assumptions
