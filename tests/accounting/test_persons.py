"""Lines for a person at one site or at several, also against all neighbours in small cases."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from numpy.typing import NDArray
from tables import DOWNLINK, lines_against, of_unit, stated

from fedldp.accounting.accountants import PARTS
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
    SampledGaussian,
)
from fedldp.accounting.guarantees import (
    Adversary,
    Guarantee,
    guarantees_of,
    sampled_guarantee,
    summing_guarantees,
)
from fedldp.accounting.numerics.gaussian import gaussian_epsilon, zcdp_epsilon
from fedldp.accounting.prices import price
from fedldp.accounting.statement import Claim
from fedldp.core.errors import ConfigError
from fedldp.core.kinds import AT_SITES, PART_OF_CLIENT, SECRET_SAMPLE, TAKES_PART

CLEAR = InClear(what="all that many people add up to")
DELTA = 1e-5
SITES, ROUNDS = 10, 3


def of_people(event: Event) -> PerPerson:
    return PerPerson(person=event, client=CLEAR)


def lines_of(
    event: Event, adversary: Adversary, sites: int, unit: str = "person", **also: Any
) -> list[Guarantee]:
    lines = lines_against(adversary, event, SITES, ROUNDS, persons_at_sites=sites, **also)
    return [line for line in lines if line.unit == unit]


SHARE = GaussianShare(squared_distance=90_000, variance=2**14)
REPORT = GaussianReport(mu=0.3, rho=0.045)
BITS = BinaryRandomizedResponse(epsilon=0.5, coordinates=3)


@pytest.mark.parametrize(
    ("event", "sites"), [(SHARE, 1), (REPORT, 3), (BITS, 3), (PureReport(epsilon=2.0), 1)]
)
def test_a_person_at_some_sites_costs_as_many_releases(event: Event, sites: int) -> None:
    lines = lines_of(of_people(event), "server", sites)
    alone = guarantees_of(Counter({event: sites * ROUNDS}), "person", DELTA)
    assert [line.epsilon for line in lines] == [line.epsilon for line in alone]
    for line in lines:
        assert {AT_SITES(sites=sites), TAKES_PART(rounds=ROUNDS)} <= line.assumptions
        assert line.neighbours == "replace-person"


@pytest.mark.parametrize("sites", [1, 2, 5])
def test_in_one_sum_the_squared_distance_grows_with_the_square(sites: int) -> None:
    further = GaussianShare(squared_distance=sites**2 * 90_000, variance=2**14)
    _, expected = summing_guarantees(
        {further: ROUNDS}, summands=SITES - 1, untrusted=1, delta=DELTA
    )
    (line,) = lines_of(of_people(SHARE), "summing-server", sites)
    assert line.epsilon == pytest.approx(expected.epsilon, rel=1e-12)
    assert AT_SITES(sites=sites) in line.assumptions
    (line,) = lines_of(of_people(REPORT), "downlink", sites)
    as_far = GaussianReport(mu=sites * 0.3, rho=sites**2 * 0.045)
    (alone,) = guarantees_of(Counter({as_far: ROUNDS}), "person", DELTA)
    assert line.epsilon == pytest.approx(alone.epsilon, rel=1e-12)
    assert AT_SITES(sites=sites) in line.assumptions
    pure, _ = lines_of(of_people(PureReport(epsilon=2.0)), "downlink", sites)
    assert (pure.kind, pure.epsilon) == ("pure", 2.0 * sites * ROUNDS)


def test_noise_with_zcdp_only_costs_the_square_of_the_sites() -> None:
    # With a pure report, only zCDP composes: rho is 0.045 and 0.02 for a person at a site.
    def mixed(sites: int, adversary: Adversary) -> float:
        who = DOWNLINK if adversary == "downlink" else 0
        table = {1: {who: of_people(REPORT)}, 2: {who: of_people(PureReport(epsilon=0.2))}}
        (line,) = of_unit(stated(table, persons_at_sites=sites), "person", adversary)
        assert line.kind == "approximate"
        assert line.epsilon is not None
        return line.epsilon

    def by_rho(rho: float) -> float:
        (line,) = guarantees_of(Counter({GaussianReport(mu=1e6, rho=rho): 1}), "person", DELTA)
        assert line.epsilon is not None
        return line.epsilon

    assert mixed(3, "server") == pytest.approx(by_rho(3 * 0.065), rel=1e-9)
    assert mixed(3, "downlink") == pytest.approx(by_rho(9 * 0.065), rel=1e-9)


def test_an_event_drawn_once_is_drawn_at_every_site() -> None:
    once = Memoized(drawn=PureReport(epsilon=1.0), identity="bits")
    pure, _ = lines_of(of_people(once), "server", 3)
    assert pure.epsilon == 3.0  # for any number of rounds


def test_sites_with_different_releases_are_all_counted_as_the_worst() -> None:
    one, other = of_people(PureReport(epsilon=1.0)), of_people(PureReport(epsilon=5.0))
    table = {1: {0: one, 1: one}, 2: {0: one, 1: other}}
    (line,) = of_unit(stated(table, 0.0, persons_at_sites=2), "person")
    assert 7.0 + 1.0 <= line.epsilon == 2 * (2 * 1.0 + 5.0)
    assert line.lower is None


def test_sampling_gains_nothing_if_a_person_is_in_one_sum_several_times() -> None:
    steps = SampledGaussian(noise_multiplier=4.0, sampling_rate=0.1, steps=2)
    times = Counter({steps: ROUNDS})
    for sites in (1, 2):
        alone = sampled_guarantee(Counter({steps: sites * ROUNDS}), "person", "server", DELTA)
        (line,) = lines_of(of_people(steps), "server", sites)
        assert line.epsilon == alone.epsilon
    (line,) = lines_of(of_people(steps), "downlink", 1)
    assert line.epsilon == sampled_guarantee(times, "person", "server", DELTA).epsilon
    (line,) = lines_of(of_people(steps), "downlink", 2)
    # Two vectors of norm 1 are replaced in every step, so mu is 2 * 2/4.
    mu = math.sqrt(2 * ROUNDS) * 2 * 2 / 4.0
    assert line.epsilon == pytest.approx(gaussian_epsilon(mu, DELTA), rel=1e-3)
    assert line.epsilon >= gaussian_epsilon(mu, DELTA)
    assert SECRET_SAMPLE(of="person") in line.assumptions


def test_rows_and_clients_are_at_one_site_whatever_is_said_about_people() -> None:
    for event in (
        PerRecord(record=SHARE, client=CLEAR),
        SHARE,
        PerRecord(record=BITS, client=BITS),
    ):
        for adversary in ("server", "summing-server"):
            for unit in ("weight", "record", "client-round", "client-run"):
                assert lines_of(event, adversary, 1, unit) == lines_of(event, adversary, 7, unit)
            assert not lines_of(event, adversary, 7)


def test_a_claim_for_a_person_has_a_line_that_counts_the_sites() -> None:
    claim = Claim(epsilon=1.0, delta=DELTA, unit="person", source="a test")
    for sites in (1, 2):
        pure, _ = lines_of(BITS, "server", sites, claim=claim)
        assert pure.epsilon == 1.5 * ROUNDS * sites
        assert pure.method is not None
        assert (pure.method.kind, pure.method.values["part"]) == (PART_OF_CLIENT.name, "person")
        assert pure.neighbours == "replace-person"


@pytest.mark.parametrize("event", [SHARE, BITS])
def test_without_lower_bounds_the_figures_are_those_of_the_statement(event: Event) -> None:
    table = {1: dict.fromkeys(range(SITES), of_people(event))}
    for sites in (1, 4):
        whole, quick = (
            stated(table, persons_at_sites=sites, searched=searched)
            for searched in (None, "client-run")
        )
        assert [g.epsilon for g in quick] == [g.epsilon for g in whole if g.unit != "client-round"]


def test_a_sum_of_bits_does_not_cover_several_clients_at_once() -> None:
    with pytest.raises(ConfigError, match="a sum of bits"):
        summing_guarantees({BITS: 1}, summands=9, untrusted=1, delta=DELTA, shift=2)


# All neighbours in small cases, and another accountant


Law = NDArray[np.float64]
Vectors = NDArray[np.int64]


def coarse(sums: Vectors, step: int) -> Vectors:
    return (sums + step // 2) // step


def log_pair(shift: tuple[int, ...], variance: float, deviations: int) -> tuple[Law, Law]:
    """Return the log-laws of two releases whose rounded sums differ by ``shift``.

    They cover all outcomes within ``deviations`` of either.
    """
    reach = math.ceil(deviations * math.sqrt(variance)) + max(map(abs, shift))
    y = np.arange(-reach, reach + 1)
    log_normaliser = math.log(np.exp(-(y**2) / (2 * variance)).sum())
    first, second = np.zeros(1), np.zeros(1)
    for each in shift:
        first = np.add.outer(first, -(y**2) / (2 * variance) - log_normaliser).ravel()
        second = np.add.outer(second, -((y - each) ** 2) / (2 * variance) - log_normaliser).ravel()
    return first, second


def delta_at(shift: tuple[int, ...], variance: float, epsilon: float) -> float:
    first, second = log_pair(shift, variance, deviations=9)
    return float(np.maximum(np.exp(first) - np.exp(epsilon + second), 0).sum())


SHIFTS = [
    shift for shift in itertools.product(range(-5, 6), repeat=2) if sum(x * x for x in shift) <= 25
]


@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_all_neighbours_in_two_dimensions_satisfy_the_printed_figure(delta: float) -> None:
    share = GaussianShare(squared_distance=25, variance=64)
    (line,) = guarantees_of(Counter({share: 1}), "person", delta)
    assert line.epsilon is not None
    reached = max(delta_at(shift, 64.0, line.epsilon) for shift in SHIFTS)
    assert delta / 20 < reached <= delta


@pytest.mark.parametrize("steps", [1, 2])
def test_several_steps_of_all_neighbours_on_a_line_satisfy_the_printed_figure(steps: int) -> None:
    # A person's whole number is within 4, and the step is 2. If the second step's sums depend on
    # the first release, its shift may be any of these, and the largest is the worst.
    shifts = {
        int(x)
        for others in range(-8, 9)
        for v, w in itertools.product(range(-4, 5), repeat=2)
        for x in [abs(coarse(np.array(others + v), 2) - coarse(np.array(others + w), 2))]
    }
    assert max(shifts) == 4 <= 8 / 2 + 1
    share = GaussianShare(squared_distance=25, variance=64)
    (line,) = guarantees_of(Counter({share: steps}), "person", 1e-3)
    assert line.epsilon is not None
    for chosen in itertools.product(sorted(shifts | {5}), repeat=steps):
        assert delta_at(chosen, 64.0, line.epsilon) <= 1e-3
    assert delta_at((5,) * steps, 64.0, line.epsilon) > 1e-3 / 5


def by_dp_accounting(variance: float, shift: int, times: int) -> tuple[float, float]:
    """Return bounds on the true epsilon from a library that does not use our proofs."""
    below, above = (
        privacy_loss_distribution.from_discrete_gaussian_mechanism(
            math.sqrt(variance),
            sensitivity=shift,
            value_discretization_interval=1e-3,
            pessimistic_estimate=pessimistic,
        )
        .self_compose(times)
        .get_epsilon_for_delta(DELTA)
        for pessimistic in (False, True)
    )
    return float(below), float(above)


SITES, STEPS, DISTANCE, VARIANCE = 5, 4, 6, 2**10


def printed(adversary: Adversary, sites: int) -> float:
    event = PerPerson(
        person=GaussianShare(squared_distance=DISTANCE**2, variance=VARIANCE), client=CLEAR
    )
    lines = lines_against(adversary, event, SITES, STEPS, persons_at_sites=sites)
    (line,) = [line for line in lines if line.unit == "person"]
    assert line.epsilon is not None
    return line.epsilon


@pytest.mark.parametrize("sites", [1, 3])
def test_another_accountant_agrees(sites: int) -> None:
    # Shares are counted as a single discrete Gaussian with their total variance.
    of_all = (SITES - 1) * VARIANCE
    for adversary, (below, above) in {
        "server": by_dp_accounting(VARIANCE, DISTANCE, sites * STEPS),
        "downlink": by_dp_accounting(VARIANCE, sites * DISTANCE, STEPS),
        "summing-server": by_dp_accounting(of_all, sites * DISTANCE, STEPS),
    }.items():
        assert below <= printed(adversary, sites) <= 1.02 * above  # type: ignore[arg-type]


def test_a_ledger_charges_a_person_the_zcdp_of_a_step() -> None:
    share = GaussianShare(squared_distance=25, variance=64)
    event = PerPerson(person=share, client=CLEAR)
    for part in PARTS:
        assert price(event, "zcdp", side=part) == pytest.approx(25 / 128, rel=1e-15)
    epsilon = zcdp_epsilon(25 / 128, 1e-5)
    assert delta_at((3, 4), 64.0, epsilon) <= 1e-5
