"""The cost of personalised LDP, compared with its claim."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from personalized_settings import DIGITS, SIZE, config, noise
from scipy.special import ndtr

from fedldp.accounting.events import BinaryRandomizedResponse, GaussianReport
from fedldp.accounting.guarantees import Guarantee
from fedldp.algorithms.recipes import find_recipe
from fedldp.core.errors import ConfigError
from fedldp.papers.personalized.parts import moments_sigma
from fedldp.papers.personalized.preset import personalized
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan, problem_of
from fedldp.testing.clients import Roles


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
