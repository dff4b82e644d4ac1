"""Personalised LDP as published: its noise, aggregations and settings, and its cost."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp
from scipy.special import ndtr

from fedldp.accounting.events import BinaryRandomizedResponse, GaussianReport
from fedldp.accounting.guarantees import Guarantee
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.recipes import find_recipe
from fedldp.core.errors import ConfigError, RunError
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.papers.personalized.parts import PublishedNoise, moments_sigma
from fedldp.papers.personalized.preset import personalized
from fedldp.protocol.roles import State
from fedldp.protocol.wire import Broadcast, Report
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan, problem_of
from fedldp.testing.clients import Roles, sender_of

DIGITS = Problem((1, 8, 8), 10, 1437)
SIZE = 650
GIVEN = ((np.arange(SIZE) * 37 % 1001 - 500) / 100).astype(np.float32)


def config(**changes: Any) -> personalized:
    settings: dict[str, Any] = {
        "dataset": "digits", "num_clients": 3, "rounds": 10, "epsilon": [1.0, 5.0, 10.0],
        "clip": 2.0, "sampling_probability": 0.8, "delta": 1 / 500, "num_examples": 300,
        "local_epochs": 3, "batch_size": 100,
    }  # fmt: skip
    return personalized(**{**settings, **changes})


def noise(settings: personalized) -> PublishedNoise:
    """Return the calibration of settings with noise."""
    found = settings.composition.calibration
    assert isinstance(found, PublishedNoise)
    return found


def roles_of(settings: personalized) -> Roles:
    return Roles(settings, DIGITS)


def encoded(
    settings: personalized, client: int, values: np.ndarray = GIVEN, *, round: int = 1
) -> Report:
    told = Broadcast(round=round, weights=np.zeros(SIZE, np.float32))
    return roles_of(settings).encode(values, told, sender_of(7, client, round=round))


def decoded(settings: personalized, report: Report) -> np.ndarray:
    """Return a report's values, read from its grid indices."""
    assert report.client is not None
    mechanism = noise(settings).of_size(report.client, SIZE)
    assert isinstance(mechanism, Gaussian)
    return np.frombuffer(report.payload, "<i4") * mechanism.ball.step


# The noise


@pytest.mark.parametrize(
    ("epsilon", "delta", "q", "rounds"),
    [(1.0, 1 / 500, 0.8, 10), (0.05, 1e-3, 0.9, 20), (10.0, 1 / 50000, 0.8, 50)],
)
def test_the_gaussian_sigma_is_the_root_of_the_papers_variance(
    epsilon: float, delta: float, q: float, rounds: int
) -> None:
    with mp.workdps(30):
        front = 4 * mp.mpf(q) ** 2 * rounds / (1 - mp.mpf(q))
        tail = 2 * mp.log(1 / mp.mpf(delta)) / mp.mpf(epsilon) ** 2 + 1 / mp.mpf(epsilon)
        expected = float(mp.sqrt(front * tail))
    assert moments_sigma(epsilon, delta, q, rounds) == pytest.approx(expected, rel=1e-12)


def test_a_gaussian_report_is_clipped_weights_plus_noise_of_that_deviation() -> None:
    settings = config(clip=[0.5, 2.0, 3.0])
    for client in range(3):
        limit = (0.5, 2.0, 3.0)[client]
        drawn = np.concatenate(
            [
                decoded(settings, encoded(settings, client, round=round))
                - np.clip(GIVEN, -limit, limit)
                for round in range(1, 11)
            ]
        )
        sigma = noise(settings).sigma(client)
        # 6,500 normal numbers: the probability beyond five deviations is below 1e-6.
        assert abs(drawn.mean()) < 5 * sigma / math.sqrt(drawn.size)
        assert drawn.std() == pytest.approx(sigma, rel=5 / math.sqrt(2 * drawn.size))


# The aggregations


def reports_of(settings: personalized, *, round: int = 1) -> list[Report]:
    return [
        encoded(settings, client, GIVEN * np.float32(1 + client), round=round)
        for client in range(settings.num_clients)
    ]


def next_weights(settings: personalized, round: int = 1) -> tuple[np.ndarray, Any]:
    start = State(round=round, weights=np.full(SIZE, 7, np.float32))
    following, metrics = roles_of(settings).aggregate(reports_of(settings, round=round), start)
    assert following.round == round + 1
    return following.weights, metrics


def test_a_takes_the_mean_and_b_weighs_by_one_over_sigma() -> None:
    plain = config()
    values = [decoded(plain, report) for report in reports_of(plain)]
    np.testing.assert_allclose(next_weights(plain)[0], np.mean(values, 0), rtol=1e-5, atol=1e-5)
    rho = np.array([1 / noise(plain).sigma(client) for client in range(3)])
    expected = (rho / rho.sum()) @ np.array(values)
    found, _ = next_weights(config(aggregation="weighted"))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_c_takes_the_mean_of_the_clients_that_one_omega_selects() -> None:
    settings = config(aggregation="selection")
    order = np.argsort([noise(settings).sigma(client) for client in range(3)])
    seen = set()
    for round in range(1, 11):
        found, metrics = next_weights(settings, round)
        chosen = order[: int(metrics["selected"])]  # those with the least noise
        values = [decoded(settings, report) for report in reports_of(settings, round=round)]
        expected = np.mean([values[client] for client in chosen], 0)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        assert metrics["redrawn"] >= 0
        seen.add(metrics["selected"])
    assert seen >= {1.0, 2.0}


def test_if_c_selects_nobody_it_draws_again_or_keeps_the_last_weights() -> None:
    common: dict[str, Any] = {"aggregation": "selection", "epsilon": 5.0}
    _, metrics = next_weights(config(**common), round=1)
    assert metrics["selected"] == 3
    kept = 0
    for round in range(1, 11):
        found, metrics = next_weights(config(**common, empty_selection="keep"), round)
        if metrics["selected"] == 0:
            kept += 1
            np.testing.assert_array_equal(found, np.full(SIZE, 7, np.float32))
        assert metrics["redrawn"] == 0
    # A draw selects nobody with probability 2/3.
    assert 2 <= kept <= 9


def bits(values: list[int]) -> bytes:
    return np.packbits(np.array([(v + 1) // 2 for v in values] + [0] * (SIZE - 4))).tobytes()


def test_the_sign_of_the_aggregate_is_zero_where_votes_are_even() -> None:
    """The weights 1/sigma are in the ratio 5 : 5 : 5 : 15 here, and 1 : 1 : 1 : 1 in (A)."""
    shared: dict[str, Any] = {
        "perturbation": "sign", "num_clients": 4, "epsilon": [5.0, 5.0, 5.0, 15.0], "clip": 4.0,
    }  # fmt: skip
    votes = [[1, 1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1], [-1, 1, -1, -1]]
    reports = [
        Report(round=1, size=SIZE, payload=bits(vote), chunk=SIZE, client=client)
        for client, vote in enumerate(votes)
    ]
    start = State(weights=np.zeros(SIZE, np.float32))
    for aggregation, expected in (("mean", [1, 1, -1, -1]), ("weighted", [0, 1, -1, -1])):
        system = roles_of(config(**shared, aggregation=aggregation))
        following, _ = system.aggregate(reports, start)
        assert following.weights[:4].tolist() == expected
        assert set(following.weights.tolist()) <= {-1.0, 0.0, 1.0}
    even = [replace(reports[0], client=c, payload=bits(votes[0])) for c in (0, 1)]
    against = [replace(reports[0], client=c, payload=bits([-1, -1, -1, 1])) for c in (2, 3)]
    following, _ = roles_of(config(**shared)).aggregate(even + against, start)
    assert following.weights[:4].tolist() == [0, 0, 0, 0]


def test_without_noise_clipped_weights_or_their_signs_are_sent() -> None:
    clear = encoded(config(perturbation="none", epsilon=None), 1)
    np.testing.assert_array_equal(np.frombuffer(clear.payload, "<f4"), np.clip(GIVEN, -2, 2))
    signs = encoded(config(perturbation="bare-sign", epsilon=None), 1)
    np.testing.assert_array_equal(np.frombuffer(signs.payload, "<f4"), np.sign(GIVEN))
    assert 0 in np.sign(GIVEN)


def test_a_mean_by_sender_needs_reports_of_its_size_and_their_senders() -> None:
    system, sent = roles_of(config()), reports_of(config())[0]
    with pytest.raises(RunError, match="no report arrived"):
        system.aggregate([])
    for client in (None, -1, 3):
        with pytest.raises(RunError, match="whose report"):
            system.aggregate([replace(sent, client=client)])
    short = Report(round=1, size=1, payload=b"\0" * 4, chunk=1, client=0)
    with pytest.raises(RunError, match=f"a report with 1 values for {SIZE} coordinates"):
        system.aggregate([short])


# Invalid settings


def test_a_client_refuses_settings_that_do_not_fit_by_itself() -> None:
    """A client knows only its own choices."""
    settings = config(clip=[1.0, 1.0, 1e9])
    for client in range(2):
        settings.for_client(client).algorithm(DIGITS).encoder(client)
    with pytest.raises(ConfigError, match=r"^clip = 1e\+09 for client 2: "):
        settings.for_client(2).algorithm(DIGITS).encoder(2)


def test_a_server_needs_the_choices_of_all() -> None:
    with pytest.raises(
        ConfigError, match=r"^epsilon = 5.0 is the value of one client, .* give one"
    ):
        config().for_client(1).algorithm(DIGITS).server()


# The cost, compared with the claim


def lines(settings: personalized) -> dict[tuple[str, str], Guarantee]:
    """Return the first line for each unit and kind."""
    found: dict[tuple[str, str], Guarantee] = {}
    for line in plan(settings, problem_of(settings, None)).privacy.guarantees:
        found.setdefault((line.unit, line.kind), line)
    return found


def test_the_statement_of_the_randomised_sign() -> None:
    """Independent values for MNIST's eps 5 with 650 weights and ten rounds, at delta 1e-5."""
    found = lines(
        config(perturbation="sign", epsilon=5.0, clip=4.0, delta=1e-5, sampling_probability=1.0)
    )
    expected = {
        ("weight", "pure"): 0.833424791950697,
        ("client-round", "pure"): 541.726,
        ("client-round", "approximate"): 293.841,
        ("client-run", "pure"): 5417.26,
        ("client-run", "approximate"): 2395.72,
    }
    for key, epsilon in expected.items():
        digits = 1e-13 if key[0] == "weight" else 2e-6
        assert found[key].epsilon == pytest.approx(epsilon, rel=digits), key


@given(st.floats(1e-3, 1e3), st.floats(0.1, 20), st.integers(1, 400), st.integers(0, 2**32 - 1))
def test_no_two_clipped_vectors_are_further_apart_than_the_event_says(
    limit: float, epsilon: float, size: int, seed: int
) -> None:
    settings = config(clip=limit, epsilon=epsilon)
    try:
        mechanism = noise(settings).of_size(0, size)
    except ConfigError:
        return  # more noise, or less, than the mechanism can draw
    event = mechanism.event(size)
    assert isinstance(event, GaussianReport)
    generator = np.random.default_rng(seed)
    ends = np.where(generator.random(size) < 0.5, -limit, limit)
    near = generator.uniform(-limit, limit, size)
    for other in (-ends, near):
        distance = np.linalg.norm(mechanism.bound(ends) - mechanism.bound(other))
        assert distance / noise(settings).sigma(0) <= event.mu * (1 + 1e-12)


def test_the_claim_is_quoted_and_the_true_figure_is_much_larger() -> None:
    settings = find_recipe("personalized-mnist-fig2-low").config
    privacy = plan(settings, problem_of(settings, None)).privacy
    assert privacy.claim.epsilon == 1.0
    assert privacy.claim.delta == 1 / 500
    assert privacy.claim.unit == "record"
    mu = math.sqrt(10) * 2 * 200 * math.sqrt(7850) / moments_sigma(1.0, 1 / 500, 0.8, 10)
    run = [line.epsilon for line in privacy.guarantees if line.unit == "client-run"]
    assert min(run) > mu**2 / 2 > 1e6


@pytest.mark.parametrize("perturbation", ["gaussian", "sign"])
def test_the_statement_is_that_of_the_worst_client(perturbation: str) -> None:
    mixed = lines(config(perturbation=perturbation))
    alone = {e: lines(config(perturbation=perturbation, epsilon=e)) for e in (1.0, 5.0, 10.0)}
    for key, line in mixed.items():
        assert line.epsilon == max(found[key].epsilon for found in alone.values()), key


@pytest.mark.parametrize("perturbation", ["gaussian", "sign"])
def test_every_client_pays_for_every_round_even_if_its_report_is_not_used(
    perturbation: str,
) -> None:
    found = [
        lines(config(perturbation=perturbation, aggregation=aggregation))
        for aggregation in ("mean", "weighted", "selection")
    ]
    assert found[0] == found[1] == found[2]
    result = simulate(config(perturbation=perturbation, aggregation="selection", rounds=3))
    assert all(len(result.ledger.history(result.run, client)) == 1 for client in range(3))
    assert all(sum(result.ledger.history(result.run, client).values()) == 3 for client in range(3))


def test_the_sign_releases_bits_of_the_clients_own_epsilon() -> None:
    settings = config(perturbation="sign", clip=[1.0, 2.0, 4.0])
    for client in range(3):
        event = Roles(settings, DIGITS).encoder(client).event()
        ratio = (1.0, 2.0, 4.0)[client] / noise(settings).sigma(client)
        assert isinstance(event, BinaryRandomizedResponse)
        assert event.epsilon == pytest.approx(math.log(ndtr(ratio) / ndtr(-ratio)), rel=1e-9)
        assert (event.coordinates, event.whole) == (SIZE, None)
