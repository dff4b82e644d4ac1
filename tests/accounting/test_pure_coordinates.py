"""The event of independent pure coordinates: its record, its cost, and its guarantees."""

from __future__ import annotations

from collections import Counter

import pytest
from accounting_oracles import mixed
from tables import released

from fedldp.accounting.events import (
    BinaryRandomizedResponse,
    GaussianReport,
    PureCoordinates,
    PureReport,
)
from fedldp.accounting.guarantees import local_guarantees
from fedldp.accounting.numerics.compose import revealing_epsilon
from fedldp.accounting.prices import cost
from fedldp.accounting.statement import ShufflerInPath, statement
from fedldp.core.errors import ConfigError

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
    pure, approximate = local_guarantees(Counter({EVENT: 2}), "client-run", 1e-3)
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
    pure, _ = local_guarantees(Counter({EVENT: 1, bits: 1}), "client-run", 1e-5)
    assert pure.epsilon == 13.0
    assert pure.lower is not None
    whole, composed = local_guarantees(
        Counter({EVENT: 1, PureReport(epsilon=1.0): 1}), "client-run", 1e-5
    )
    assert whole.epsilon == 12.0
    assert composed.epsilon <= 12.0
    noise = GaussianReport(mu=1.0, rho=0.5)
    (with_noise,) = local_guarantees(Counter({EVENT: 1, noise: 1}), "client-run", 1e-5)
    as_reports = Counter({PureReport(epsilon=0.5): 10, PureReport(epsilon=2.0): 3, noise: 1})
    (expected,) = local_guarantees(as_reports, "client-run", 1e-5)
    assert with_noise.epsilon == pytest.approx(expected.epsilon, rel=1e-12)


def test_a_statement_names_the_worst_coordinate_and_no_shuffler() -> None:
    releases = released({1: {0: EVENT, 1: PureCoordinates(groups=((0.5, 13),))}})
    stated = statement(releases, claim=None, shuffler=None, delta=0.0)
    lines = {line.unit: line for line in stated.guarantees}
    assert lines["weight"].epsilon == 2.0
    assert lines["weight"].lower == pytest.approx(2.0, rel=1e-8)
    assert lines["client-round"].epsilon == 11.0
    shuffler = ShufflerInPath(chunk=1, untrusted_clients=0, prediction_error=0.0)
    with pytest.raises(ConfigError, match="shuffler"):
        statement(releases, claim=None, shuffler=shuffler, delta=1e-5)
