"""Noise on sums: of a server that clients trust, and in shares of the clients themselves.

Central DP is compared with Algorithm 1 of Geyer, Klein, Nabi 2017."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm

import fedldp
from fedldp.accounting.events import SampledClientsGaussian
from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.numerics.gaussian import gaussian_epsilon, gaussian_sigma
from fedldp.accounting.numerics.moments import LARGEST_ORDER, moments_epsilon
from fedldp.accounting.numerics.subsampled import fixed_size_sample, sampled_epsilon
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.presets.central_dp import (
    FollowedClip,
    central_dp,
    gaussian,
    of_broadcast,
)
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.settings import ClientBudget
from fedldp.core.errors import ConfigError
from fedldp.core.kinds import NOISE_SCALE, SECRET_SAMPLE, SENT_IN_CLEAR, SERVER_TRUSTED, TAKES_PART
from fedldp.core.randomness import Stream
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.protocol.keys import draws_of_secret, draws_of_seed
from fedldp.protocol.roles import State, publish_weights
from fedldp.protocol.wire import Report
from fedldp.simulation.engine import simulate
from fedldp.simulation.participation import participants
from fedldp.simulation.plan import plan
from fedldp.testing.clients import Roles, sender_of
from fedldp.testing.data import PROBLEM as TINY
from fedldp.testing.data import SMALL

PROBLEM = Problem((1, 8, 8), 10, 1437)
SIZE = 650


def config_of(**settings: Any) -> RunConfig:
    return fedldp.recipe("central-dp-digits", **settings)


def step(config: RunConfig, updates: NDArray[np.float64], *, round: int = 1) -> NDArray[Any]:
    """Return how the server step changes the weights, given each client's change."""
    reports = [
        Report(round=round, size=SIZE, payload=(START + u).astype("<f4").tobytes(), chunk=SIZE)
        for u in updates
    ]
    state = State(round=round, weights=START)
    there = config.changed(num_clients=max(1, len(reports)), clients_per_round=None)
    following, _ = Roles(there, PROBLEM).aggregate(reports, state)
    assert following.round == round + 1
    return following.weights - START.astype(np.float64)


START = np.linspace(-1, 1, SIZE).astype(np.float32)


def updates_of(norms: list[float], seed: int = 0) -> NDArray[np.float64]:
    drawn = np.random.default_rng(seed).normal(size=(len(norms), SIZE))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True) * np.array(norms)[:, None]


# Algorithm 1


def test_updates_are_scaled_down_to_the_median_of_their_norms() -> None:
    norms = [0.5, 1.0, 2.0, 3.0, 10.0]
    updates = updates_of(norms)
    scaled = updates / np.maximum(1, np.array(norms) / 2.0)[:, None]  # S = 2
    change = step(config_of(clip=None, noise_multiplier=1e-3), updates)
    # The noise is 2e-3/5 in each coordinate.
    np.testing.assert_allclose(change, scaled.mean(axis=0), atol=2.5e-3)


@pytest.mark.parametrize("clip", [None, 2.0])
def test_the_noise_has_deviation_sigma_s_over_m(clip: float | None) -> None:
    updates = updates_of([2.0] * 4)
    config = config_of(clip=clip, noise_multiplier=5.0)
    noise = [step(config, updates, round=r) - updates.mean(axis=0) for r in range(1, 21)]
    # 13,000 draws: a relative standard error of 0.6 %.
    assert np.std(noise) == pytest.approx(5 * 2.0 / 4, rel=0.03)
    assert abs(np.mean(noise)) < 0.1
    assert not np.array_equal(noise[0], noise[1])


@pytest.mark.slow
@given(
    st.lists(st.floats(0, 1e6), min_size=2, max_size=4),
    st.floats(0, 1e30),
    st.integers(0, 1000),
)
def test_replacing_one_client_moves_the_sum_by_twice_the_clip_at_most(
    norms: list[float], other: float, seed: int
) -> None:
    config = config_of(clip=0.5, noise_multiplier=1.0)
    updates = updates_of(norms, seed)
    replaced = updates.copy()
    replaced[0] = updates_of([other], seed + 1)[0]
    # The noise is the same: it comes from the seed and the round.
    moved = step(config, updates) - step(config, replaced)
    assert np.linalg.norm(moved) * len(norms) <= 2 * 0.5 * (1 + 1e-5)


# The statement


def lines(config: RunConfig) -> dict[tuple[str, str], Guarantee]:
    found = plan(config, PROBLEM).privacy.guarantees
    return {(line.unit, line.adversary): line for line in found}


def test_a_median_of_private_norms_guarantees_nothing() -> None:
    line = lines(config_of(clip=None))["client-run", "downlink"]
    assert (line.kind, line.epsilon) == ("none", None)
    assert line.reason == SENT_IN_CLEAR(what=(NOISE_SCALE,))


def test_a_fixed_clip_has_the_guarantee_of_sampled_gaussian_rounds() -> None:
    config = config_of(noise_multiplier=4.0, rounds=15, clients_per_round=50, delta=1e-3)
    line = lines(config)["client-run", "downlink"]
    expected = sampled_epsilon({fixed_size_sample(4.0, 50, 99): 15}, 1e-3)
    assert line.epsilon == pytest.approx(expected, rel=1e-5)
    assert (line.kind, line.delta) == ("approximate", 1e-3)
    assert {SERVER_TRUSTED, SECRET_SAMPLE(of="client")} <= line.assumptions
    everyone = lines(config.changed(clients_per_round=None))["client-run", "downlink"]
    assert everyone.epsilon > line.epsilon


@pytest.mark.parametrize(("per_round", "noise"), [(None, 1e-3), (1, 0.7), (2, 1e3), (3, 0.7)])
def test_the_downlink_line_overstates_neither_noise_nor_rarity_of_samples(
    noise: float, per_round: int | None
) -> None:
    config = central_dp(**SMALL, noise_multiplier=noise, clip=0.3, clients_per_round=per_round)
    event, mechanism = Roles(config).server.downlink(1), gaussian(config.noise_multiplier, 0.3)
    assert isinstance(event, SampledClientsGaussian)
    assert event.noise_multiplier * mechanism.ball.radius < 2.0**mechanism.scale_bits
    # Of three clients, one that was not drawn knows this, so it sees a sample of the other two.
    assert event.population == 2
    assert event.sample_size == min(per_round or 3, 2)
    for line in plan(config, TINY).privacy.guarantees:
        assert (line.kind == "none") == (line.adversary == "server")


# A clip that follows a quantile


def following(**settings: Any) -> RunConfig:
    return config_of(clip=0.5, clip_quantile=0.5, **settings)


@pytest.mark.parametrize("noise", [1e-2, 1.0, 4.0, 9.9])
@pytest.mark.parametrize("quantile", [0.1, 0.9])
def test_both_sums_together_have_the_noise_that_is_charged(noise: float, quantile: float) -> None:
    given = {"clients_per_round": None, "noise_multiplier": noise}
    config = config_of(clip=0.5, clip_quantile=quantile, **given)
    both = FollowedClip.of(config)
    # A client moves each sum by twice its largest norm; squares of mu add up.
    mus = [2 * each.clip / each.sigma for each in (both.vectors, both.counts)]
    assert math.hypot(*mus) == pytest.approx(2 / noise, rel=1e-12)
    assert both.counts.sigma == 100 / 20
    event = of_broadcast(config, SIZE)
    assert isinstance(event, SampledClientsGaussian)
    assert event.noise_multiplier == pytest.approx(noise, rel=1e-3)
    exact = [
        2 * each.ball.radius / float(each.proven_scale) for each in (both.vectors, both.counts)
    ]
    assert 2 / event.noise_multiplier >= math.hypot(*exact)
    fixed = config.changed(clip_quantile=None)
    line, expected = (lines(each)["client-run", "downlink"].epsilon for each in (config, fixed))
    assert line == pytest.approx(expected, rel=1e-2)


@pytest.mark.slow
@given(
    st.lists(st.floats(0, 1e6), min_size=2, max_size=4),
    st.floats(0, 1e30),
    st.floats(1e-3, 1e3),
    st.integers(0, 99),
)
def test_replacing_one_client_moves_both_sums_by_what_is_charged(
    norms: list[float], other: float, clip: float, seed: int
) -> None:
    both = FollowedClip.of(following(noise_multiplier=0.1, num_clients=2, clients_per_round=None))
    sums = []
    for kept in (0, 1):
        given = updates_of([other, *norms[1:]] if kept else norms, seed + kept)
        given[1:] = updates_of(norms, seed)[1:]
        sums.append(noiseless(both, given, clip))
    moved = [np.linalg.norm(a - b) for a, b in zip(*sums, strict=True)]
    assert moved[0] <= 2 * clip * (1 + 1e-9)
    assert moved[1] <= 1 + 1e-9


def noiseless(
    both: FollowedClip, updates: NDArray[np.float64], clip: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the sum of the clipped updates and the shifted count, without noise."""
    still = replace(both, vectors=Still(1.0, 1.0), counts=Still(0.5, 1.0), number=len(updates))
    state = State(round=1, weights=np.zeros(SIZE, np.float32), arrays={"clip": np.array([clip])})
    reports = [
        Report(round=1, size=SIZE, payload=own.astype("<f4").tobytes(), chunk=SIZE)
        for own in updates
    ]
    found = still(state, iter(reports), draws_of_seed(0)(1))
    assert found.values is not None
    within = both.quantile + np.log(clip / found.arrays["clip"]) / 0.2
    return found.values * len(updates), (within - 0.5) * len(updates)


class Still(Gaussian):
    """No noise, to show what it is added to."""

    def noise(self, size: int, stream: Stream) -> NDArray[np.int64]:
        return np.zeros(size, np.int64)


@pytest.mark.slow
def test_the_clip_approaches_the_quantile() -> None:
    updates, clip = updates_of(list(np.linspace(0.1, 4.0, 40))), 0.01
    both = FollowedClip.of(following(noise_multiplier=0.1))
    clips = []
    for _ in range(150):
        _, count = noiseless(replace(both, quantile=0.75), updates, clip)
        clip *= math.exp(0.2 * (0.75 - (count[0] / 40 + 0.5)))
        clips.append(clip)
    assert clips[0] > 0.01
    assert clips[-1] == pytest.approx(np.quantile(np.linspace(0.1, 4.0, 40), 0.75), rel=0.05)


def test_a_run_shows_its_clip() -> None:
    config = following(rounds=3, num_clients=20, clients_per_round=None, noise_multiplier=0.5)
    clips = [record.metrics["clip"] for record in simulate(config).rounds]
    assert clips[0] == 0.5
    assert len(set(clips)) == 3
    assert all(math.exp(-0.2) < b / a < math.exp(0.2) for a, b in itertools.pairwise(clips))


# Sizes


def test_account_refuses_a_vector_that_a_run_would_refuse() -> None:
    config = central_dp(**SMALL, noise_multiplier=1e3, clip=1.0)
    length = 4 * gaussian(config.noise_multiplier, 1.0).ball.radius ** 2
    with pytest.raises(ConfigError, match="too long for this much noise"):
        of_broadcast(config, length)


# Against clients that pool their knowledge


def pooled_delta(
    clients: int, drawn: int, pooling: int, multiplier: float, epsilon: float
) -> float:
    """Return the delta of one round's broadcast for adversaries who know their own contributions.

    All clients that do not pool have the vector -1, except that one has 1 or -1. The delta is
    summed over all samples. Besides the noisy sum, the adversaries see how many of them are in the
    sample; their vectors are 0.
    """
    points = np.linspace(-clients - 12 * multiplier, clients + 12 * multiplier, 10_001)
    step = points[1] - points[0]
    count = 0
    by_seen: dict[int, dict[tuple[int, int], int]] = {}
    for sample in itertools.combinations(range(clients), drawn):
        count += 1
        honest = [client for client in sample if client >= pooling]
        sums = -len(honest) + 2 * (honest[-1:] == [clients - 1]), -len(honest)
        each = by_seen.setdefault(drawn - len(honest), {})
        each[sums] = each.get(sums, 0) + 1
    lost = 0.0
    for each in by_seen.values():
        p, q = np.zeros_like(points), np.zeros_like(points)
        for (one, other), times in each.items():
            p += times / count * norm.pdf(points, one, multiplier)
            q += times / count * norm.pdf(points, other, multiplier)
        lost += float(np.maximum(p - math.exp(epsilon) * q, 0).sum() * step)
    return lost


def pooled_epsilon(
    clients: int, drawn: int, pooling: int, multiplier: float, delta: float
) -> float:
    """Return the epsilon of the same broadcast, by bisection."""
    low, high = 0.0, 20.0
    for _ in range(25):
        middle = (low + high) / 2
        if pooled_delta(clients, drawn, pooling, multiplier, middle) > delta:
            low = middle
        else:
            high = middle
    return low


def downlink_of(**settings: Any) -> dict[str, Any]:
    return lines(config_of(**{"clip": 0.5, "rounds": 1, **settings}))["client-run", "downlink"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("multiplier", "delta", "clients", "drawn", "pooling"),
    [
        (1.0, 1e-5, 2, 1, 0),
        (1.0, 1e-5, 6, 4, 3),
        (4.0, 1e-3, 9, 3, 2),
        (1.0, 1e-5, 5, 5, 4),
    ],
)
def test_broadcasts_guarantee_no_less_against_any_clients_that_pool(
    clients: int, drawn: int, pooling: int, multiplier: float, delta: float
) -> None:
    line = downlink_of(
        num_clients=clients, clients_per_round=drawn, untrusted_clients=pooling,
        noise_multiplier=multiplier, delta=delta,
    )  # fmt: skip
    for fewer in range(pooling + 1):
        exact = pooled_epsilon(clients, drawn, fewer, multiplier, delta)
        assert line.epsilon >= exact * (1 - 1e-4)  # the grid has slightly more noise


# Exact noise on exact sums


def discrete_of(**settings: Any) -> RunConfig:
    return fedldp.recipe("central-dp-digits-discrete", **settings)


def test_exact_noise_has_the_guarantee_of_gaussian_rounds_without_sampling() -> None:
    # Neighbours are two clips apart, so mu = 2 sqrt(T)/sigma for T rounds in which a client is
    # drawn.
    exact = gaussian_epsilon(2 * math.sqrt(15) / 4.0, 1e-3)
    for per_round in (None, 10):
        given = {"rounds": 15, "delta": 1e-3, "clients_per_round": per_round}
        found = lines(discrete_of(noise_multiplier=4.0, **given))
        line = found["client-run", "downlink"]
        # The clip is rounded down to whole steps.
        assert exact * (1 - 1e-4) < line.epsilon <= exact * (1 + 1e-9)
        assert found["client-run", "server"].kind == "none"
        assert not line.is_idealised
        assert SERVER_TRUSTED in line.assumptions


def test_exact_noise_is_on_the_clipped_sum_and_new_for_another_sum() -> None:
    config = discrete_of(clip=1.5, noise_multiplier=1e-3, num_clients=3)
    roles, state = Roles(config, PROBLEM), State(weights=np.zeros(SIZE, np.float32))
    updates = updates_of([0.5, 3.0, 10.0])
    scaled = updates / np.maximum(1, np.array([0.5, 3.0, 10.0]) / 1.5)[:, None]
    steps = config.algorithm(PROBLEM).release(0).mechanism

    def following(rows: NDArray[np.float64], secret: int = 1) -> NDArray[Any]:
        payloads = [(row / steps.ball.step).round().astype("<i8").tobytes() for row in rows]
        reports = [Report(round=1, size=SIZE, payload=each, chunk=SIZE) for each in payloads]
        draw = draws_of_secret(bytes([secret]) * 32, "run")(1)
        return roles.server.aggregate(state, reports, draw)[0].weights

    # The server clips a single report again, whatever its sender says.
    np.testing.assert_allclose(following(updates), scaled.mean(axis=0), atol=4e-3)
    np.testing.assert_array_equal(following(updates), following(updates))
    noise = [following(rows) - rows.mean(axis=0) for rows in (scaled, scaled * (1 - 1e-6))]
    assert abs(np.corrcoef(noise)[0, 1]) < 0.2
    assert abs(np.corrcoef(noise[0], following(scaled, 2) - scaled.mean(axis=0))[0, 1]) < 0.2


def distributed_of(**settings: Any) -> Any:
    return fedldp.recipe("distributed-gaussian-digits", **settings)


def reports_of(roles: Roles, updates: np.ndarray) -> list[Report]:
    told = publish_weights(State(weights=START))
    return [
        roles.encode((START + update).astype(np.float32), told, sender_of(1, index))
        for index, update in enumerate(updates)
    ]


def one_round(updates: np.ndarray, **settings: Any) -> np.ndarray:
    """Return how a round changes the weights, given each client's change."""
    roles = Roles(distributed_of(num_clients=len(updates), **settings), PROBLEM)
    following, _ = roles.aggregate(reports_of(roles, updates), State(weights=START))
    return following.weights - START.astype(np.float64)


# A round


def test_with_a_huge_budget_a_round_adds_the_mean_of_the_clipped_changes() -> None:
    clipped = updates_of([0.4, 0.8, 0.8, 0.8, 1.0])
    found = one_round(updates_of([0.4, 0.8, 0.8, 0.8, 8.0]), epsilon=1e4, clip=1.0, rounds=1)
    np.testing.assert_allclose(found, clipped.mean(axis=0), atol=0.02)


def test_the_noise_of_a_round_is_exactly_what_the_sum_needs() -> None:
    clients, rounds, clip = 200, 10, 0.5
    updates = np.repeat(updates_of([0.3]), clients, axis=0)
    found = one_round(updates, epsilon=4.0, clip=clip, rounds=rounds)
    deviation = 2 * clip * math.sqrt(rounds) * gaussian_sigma(4.0, 1e-5) / clients
    error = found - updates[0]
    assert np.std(error) == pytest.approx(deviation, rel=0.12)
    assert abs(error @ updates[0] / 0.3) < 4 * deviation


# What it costs


def test_if_fewer_clients_answer_the_sum_protects_less() -> None:
    """If clients' budgets refuse, sums have fewer shares of noise, which the plan counts."""
    config = distributed_of(clients_per_round=60, rounds=2)
    event = config.algorithm(PROBLEM).release(0).mechanism.event(1024)
    once = event.squared_distance / (2 * event.variance)
    limited = config.changed(client_budget=ClientBudget(kind="zcdp", limit=1.5 * once))
    # Of the 60 clients in the second round, 20 were in the first, and refuse.
    mu = math.sqrt(60 / 40 / 2) / gaussian_sigma(8.0, 1e-5)
    found = lines(limited)["client-run", "summing-server"].epsilon
    assert found == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-5)
    result = simulate(limited)
    assert [record.clients for record in result.rounds] == [60, 40]
    assert result.privacy == plan(limited, PROBLEM).privacy


def test_clients_take_turns_that_all_of_them_can_count() -> None:
    config = distributed_of(num_clients=10, clients_per_round=4, rounds=7, epsilon=50.0)
    draws = draws_of_seed(3)
    times = np.zeros(10, int)
    for round in range(1, 8):
        there = list(participants(config, round, draws))
        assert there == sorted(set(there))
        assert len(there) == 4
        times[there] += 1
    assert set(times) == {2, 3}
    assert config.composition.participation.max_rounds(0) == 3
    assert TAKES_PART(rounds=3) in lines(config)["client-run", "summing-server"].assumptions


# The published moments accountant


def by_integrals(s: float, q: float, releases: int, delta: float) -> float:
    """Abadi et al. 2016, section 3.2: the moments as integrals over one coordinate.

    The integrand is a sum of Gaussians of deviation s, centred between 0 and the order plus one.
    For each of them, an equidistant sum in steps of s/2 misses the integral by a share of
    2 exp(-8 pi^2), below 1e-33.
    """
    steps = math.ceil(2 * (12 * s + LARGEST_ORDER + 1) / s)
    with mpmath.workdps(30):
        points = [mpmath.mpf(s) / 2 * k for k in range(-steps, steps + 1)]
        near, moved = ([mpmath.npdf(z, mean, s) for z in points] for mean in (0, 1))
        mixed = [(1 - q) * a + q * b for a, b in zip(near, moved, strict=True)]
        ratios = [a / b for a, b in zip(mixed, near, strict=True)]
        moments = [
            s / 2 * mpmath.fdot((a, r**order) for a, r in zip(mixed, ratios, strict=True))
            for order in range(1, LARGEST_ORDER + 1)
        ]
        return float(
            min(
                (releases * mpmath.log(moment) - mpmath.log(delta)) / order
                for order, moment in enumerate(moments, start=1)
            )
        )


def test_the_papers_example() -> None:
    """Abadi et al. 2016, section 3.2: q 0.01, sigma 4, delta 1e-5, 10,000 steps give 1.26."""
    assert moments_epsilon(4.0, 0.01, 10_000, 1e-5) == pytest.approx(1.26, abs=0.005)


@pytest.mark.parametrize(
    ("s", "q", "releases", "delta"), [(1.0, 0.3, 14, 1e-3), (2.0, 0.05, 100, 1e-5)]
)
def test_the_closed_form_against_integrals(s: float, q: float, releases: int, delta: float) -> None:
    expected = by_integrals(s, q, releases, delta)
    assert moments_epsilon(s, q, releases, delta) == pytest.approx(expected, rel=1e-9)


def test_without_sampling_the_moments_are_those_of_the_plain_gaussian() -> None:
    """At rate 1 the moment of order l is l (l + 1)/(2 s^2)."""
    expected = min(3 * (order + 1) / 8 + math.log(1e5) / order for order in range(1, 33))
    assert moments_epsilon(2.0, 1.0, 3, 1e-5) == pytest.approx(expected, rel=1e-12)
