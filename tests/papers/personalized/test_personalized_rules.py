"""Personalised LDP as published: its noise, its three aggregations, and its settings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mpmath import mp
from personalized_settings import DIGITS, SIZE, config, noise
from scipy.special import ndtr

from fedldp.core.errors import ConfigError
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.papers.personalized.parts import moments_sigma
from fedldp.papers.personalized.preset import personalized
from fedldp.protocol.roles import State
from fedldp.protocol.wire import Broadcast, Report
from fedldp.testing.clients import Roles, sender_of

GIVEN = ((np.arange(SIZE) * 37 % 1001 - 500) / 100).astype(np.float32)


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


def test_a_sign_is_positive_with_the_papers_probability() -> None:
    settings = config(perturbation="sign", epsilon=5.0, clip=4.0, delta=1e-5)
    values = np.repeat(np.float32([-9.0, -4.0, -1.0, 0.0, 2.0]), SIZE // 5)
    ones = np.zeros(5)
    rounds = 60
    for round in range(1, rounds + 1):
        payload = encoded(settings, 0, values, round=round).payload
        ones += np.unpackbits(np.frombuffer(payload, np.uint8), count=SIZE).reshape(5, -1).sum(1)
    count = rounds * SIZE // 5
    expected = ndtr(np.array([-4, -4, -1, 0, 2]) / noise(settings).sigma(0))
    deviation = np.sqrt(expected * (1 - expected) / count)
    assert (np.abs(ones / count - expected) < 5 * deviation).all()


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
