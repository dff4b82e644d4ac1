"""Noisy sums over samples of people, against all neighbours in small cases and dp-accounting."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from numpy.typing import NDArray
from tables import lines_against

from fedldp.accounting.events import InClear, PerPerson, PerRecord, SampledShare
from fedldp.accounting.guarantees import Adversary, Guarantee, sampled_guarantee
from fedldp.accounting.numerics.gaussian import gaussian_epsilon
from fedldp.accounting.numerics.subsampled import poisson_noise, poisson_sample, sampled_epsilon
from fedldp.core.kinds import IDEALISED, SAMPLED, SAMPLED_SHARES, SECRET_SAMPLE

Law = NDArray[np.float64]

CLEAR = InClear(what="all that many people add up to")
DELTA = 1e-5
SITES, ROUNDS = 5, 4
SHARE = SampledShare(squared_distance=900, variance=2**10, sampling_rate=0.2, steps=3)


def lines_of(adversary: Adversary, sites: int = 1, event: Any = None) -> list[Guarantee]:
    event = event or PerPerson(person=SHARE, client=CLEAR)
    lines = lines_against(adversary, event, SITES, ROUNDS, persons_at_sites=sites)
    return [line for line in lines if line.unit in ("person", "record")]


def by_dp_accounting(noise: float, rate: float, steps: int) -> float:
    """Return the epsilon for replacing a member; its Gaussian has sensitivity 1 per vector."""
    one = privacy_loss_distribution.from_gaussian_mechanism(
        noise,
        sampling_prob=rate,
        value_discretization_interval=1e-3,
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE,
    )
    return float(one.self_compose(steps).get_epsilon_for_delta(DELTA))


@pytest.mark.parametrize(
    ("adversary", "shares"), [("server", 1), ("downlink", 1), ("summing-server", SITES - 1)]
)
def test_another_accountant_agrees(adversary: Adversary, shares: int) -> None:
    (line,) = lines_of(adversary)
    theirs = by_dp_accounting(math.sqrt((shares * 2**10 - 16) / 900), 0.2, 3 * ROUNDS)
    assert line.epsilon == pytest.approx(theirs, rel=1e-3)
    assert line.lower is None
    assert IDEALISED in line.assumptions
    assert SECRET_SAMPLE(of="person") in line.assumptions
    steps = 3 * ROUNDS
    assert line.method == (
        SAMPLED_SHARES(steps=steps, shares=shares)
        if adversary == "summing-server"
        else SAMPLED(releases=steps, of="part")
    )


def test_a_person_at_several_sites_is_in_as_many_samples() -> None:
    (line,) = lines_of("server", sites=3)
    alone = sampled_epsilon({poisson_sample(math.sqrt((2**10 - 16) / 900), 0.2): 9 * ROUNDS}, DELTA)
    assert line.epsilon == pytest.approx(alone, rel=1e-6)


@pytest.mark.parametrize(("adversary", "shares"), [("downlink", 1), ("summing-server", SITES - 1)])
def test_in_one_sum_sampling_gains_nothing_for_a_person_at_several_sites(
    adversary: Adversary, shares: int
) -> None:
    (line,) = lines_of(adversary, sites=2)
    mu = 2 * 2 * math.sqrt(900 / (shares * 2**10 - 16)) * math.sqrt(3 * ROUNDS)
    assert line.epsilon == pytest.approx(gaussian_epsilon(mu, DELTA), rel=1e-6)


def test_a_sampled_row_has_the_same_figure_and_says_what_is_secret() -> None:
    (line,) = lines_of("summing-server", event=PerRecord(record=SHARE, client=CLEAR))
    assert (line.unit, line.neighbours) == ("record", "replace-record")
    assert SECRET_SAMPLE(of="record") in line.assumptions
    assert line.epsilon == lines_of("summing-server")[0].epsilon


# All neighbours in small cases: integers, the grid, the discrete noise, and other people's sums

NORM, STEP, VARIANCE, RATE = 58, 5, 2**10, 0.3


def noise_at(points: NDArray[np.int64]) -> Law:
    whole = np.arange(-1000, 1001)
    total = np.exp(-(whole**2) / (2 * VARIANCE)).sum()
    return np.asarray(np.exp(-(points**2) / (2 * VARIANCE)) / total)


def coarse(total: int) -> int:
    return (total + STEP // 2) // STEP


REACH = np.arange(-320, 321)


def law(others: int, vector: int) -> Law:
    """Return the law of a release if a person has that vector and the others give that sum."""
    without = noise_at(REACH - coarse(others))
    return (1 - RATE) * without + RATE * noise_at(REACH - coarse(others + vector))


def excess(pairs: list[tuple[Law, Law]], epsilon: float) -> float:
    """Return the delta of several releases of independent pairs, over all outcomes of each."""
    first, second = np.ones(1), np.ones(1)
    for p, q in pairs:
        first, second = np.outer(first, p).ravel(), np.outer(second, q).ravel()
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


def printed(steps: int, delta: float) -> float:
    distance = -(-NORM // STEP) + 1
    one = SampledShare(
        squared_distance=distance**2, variance=VARIANCE, sampling_rate=RATE, steps=steps
    )
    found = sampled_guarantee(Counter({one: 1}), "person", "server", delta).epsilon
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("delta", [1e-2, 1e-4])
def test_no_neighbours_on_a_line_cost_more_than_the_printed_figure(
    steps: int, delta: float
) -> None:
    epsilon, reached = printed(steps, delta), 0.0
    for chosen in itertools.product(PAIRS if steps == 1 else EXTREMES, repeat=steps):
        reached = max(reached, excess(list(chosen), epsilon))
    assert delta / 20 < reached <= delta


VECTORS = (-NORM, -3, 0, 2, NORM)
PAIRS = [
    (law(z, v), law(z, w)) for z, v, w in itertools.product(range(STEP), VECTORS, VECTORS) if v != w
]
EXTREMES = [(law(z, v), law(z, -v)) for z, v in itertools.product(range(STEP), (-NORM, NORM))]


# The noise for an epsilon


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "rate", "steps", "delta"),
    [
        (1.0, 0.1, 100, 1e-5),
        (30.0, 0.9, 1, 1e-9),
        (1e4, 0.1, 5, 1e-5),
        (0.5, 1.0, 7, 1e-5),
    ],
)
def test_noise_for_an_epsilon_costs_no_more_and_little_less(
    epsilon: float, rate: float, steps: int, delta: float
) -> None:
    noise = poisson_noise(epsilon, rate, steps, delta)
    found = sampled_epsilon({poisson_sample(noise, rate): steps}, delta)
    assert 0.998 * epsilon < found <= epsilon
    for more in (1 + 1e-9, 1 + 1e-6, 1.01):  # as a grid would make it
        assert sampled_epsilon({poisson_sample(noise * more, rate): steps}, delta) <= epsilon
