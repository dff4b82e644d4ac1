"""NbAFL's noise levels, and its server's average."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedldp
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError
from fedldp.papers.nbafl.parts import NbaflNoise, downlink_noise
from fedldp.protocol.keys import draws_of_secret, draws_of_seed


def noise(**changes: Any) -> NbaflNoise:
    settings: dict[str, Any] = {
        "bounded": 5.0, "delta": 0.01, "rounds": 25, "exposures": 25, "clients": 30,
        "smallest": 1120,
    }  # fmt: skip
    return NbaflNoise(**{**settings, **changes})


def test_noise_levels_against_independent_values() -> None:
    often, once = noise(), noise(exposures=1)
    assert often.uplink_sigma(0.5) == pytest.approx(1.38728190182689, rel=1e-14)
    assert often.downlink_sigma(0.5) == 0
    assert once.uplink_sigma(1.0) == pytest.approx(0.0277456380365379, rel=1e-14)
    assert once.downlink_sigma(1.0) == pytest.approx(0.022559628540147, rel=1e-13)


@given(
    clip=st.floats(0.1, 10),
    delta=st.floats(1e-10, 0.5),
    rounds=st.integers(1, 100),
    data=st.data(),
    clients=st.integers(1, 200),
    smallest=st.integers(1, 5000),
    epsilon=st.floats(0.01, 100),
)
def test_equations_4_and_5(
    clip: float,
    delta: float,
    rounds: int,
    data: st.DataObject,
    clients: int,
    smallest: int,
    epsilon: float,
) -> None:
    exposures = data.draw(st.integers(1, rounds))
    levels = noise(
        bounded=clip, delta=delta, rounds=rounds, exposures=exposures, clients=clients,
        smallest=smallest,
    )  # fmt: skip
    with mpmath.workdps(30):
        c = mpmath.sqrt(2 * mpmath.log(mpmath.mpf("1.25") / mpmath.mpf(delta)))
        uplink = c * exposures * (2 * mpmath.mpf(clip) / smallest) / epsilon
        downlink = mpmath.mpf(0)
        if rounds > exposures * mpmath.sqrt(clients):
            root = mpmath.sqrt(rounds**2 - exposures**2 * clients)
            downlink = 2 * c * clip * root / (smallest * clients * mpmath.mpf(epsilon))
    assert levels.uplink_sigma(epsilon) == pytest.approx(float(uplink), rel=1e-12)
    assert levels.downlink_sigma(epsilon) == pytest.approx(float(downlink), rel=1e-12)
    # Together they give the noise that T exposures of the average need, if that is more.
    total = levels.uplink_sigma(epsilon) ** 2 / clients + levels.downlink_sigma(epsilon) ** 2
    needed = (float(c) * rounds * 2 * clip / (smallest * clients * epsilon)) ** 2
    assert total >= needed * (1 - 1e-9)


def test_the_noise_of_the_authors_code_against_independent_values() -> None:
    """Its two states, as Privacy_account computes them; the values are by mpmath."""
    common: dict[str, Any] = {"rounds": 30, "exposures": 30, "clients": 10, "smallest": 800}
    weights = NbaflNoise(bounded=20.0, delta=0.01, share=1.0, **common)
    assert weights.uplink_sigma(8.0) == pytest.approx(0.103891133516819, rel=1e-14)
    assert weights.downlink_sigma(8.0) == 0
    common |= {"rounds": 200, "exposures": 200}
    gradients = NbaflNoise(bounded=0.02 * 1.8, delta=0.001, share=0.5, **common)
    assert gradients.uplink_sigma(10.0) == pytest.approx(3.34522996996485e-4, rel=1e-14)


def calibration(num_examples: int = 33_600, **settings: Any) -> tuple[Any, Problem]:
    config = fedldp.recipe("nbafl-mnist", num_examples=None, **settings)
    return config.composition.calibration, Problem((1, 28, 28), 10, num_examples)


def test_a_budget_beyond_the_mechanism_is_refused() -> None:
    for epsilon, turn in ((1e9, "smaller"), (1e-9, "larger")):
        found, problem = calibration(epsilon=epsilon)
        with pytest.raises(ConfigError, match=rf"^epsilon = 1e.*09, .*; give a {turn} epsilon$"):
            found.mechanism(problem, 0)


def test_the_smallest_local_data_set_comes_from_public_facts() -> None:
    def smallest(setting: int | None, partition: str, clients: int = 30, **facts: Any) -> int:
        found, problem = calibration(
            min_client_examples=setting, partition=partition, num_clients=clients
        )
        least: int = found.smallest(replace(problem, **facts))
        return least

    assert smallest(None, "iid") == 1120
    assert smallest(None, "iid", 37) == 908
    assert smallest(None, "iid", num_clients=30) == 1120  # others are held out from a comparison
    assert smallest(7, "shards:2") == 7
    for partition, facts in (("shards:2", {}), ("iid", {"people": 900}), ("drawn:7", {})):
        with pytest.raises(ConfigError, match="min_client_examples is not set"):
            smallest(None, partition, **facts)
    with pytest.raises(ConfigError, match="num_clients = 33601"):
        smallest(None, "iid", 33_601)
    assert smallest(1120, "dirichlet:0.1") == 1120
    for partition in ("iid", "dirichlet:0.1"):
        with pytest.raises(ConfigError, match=r"min_client_examples = 1121: .* has 1120; give"):
            smallest(1121, partition)


def test_no_noise_is_for_more_examples_than_the_smallest_client_has() -> None:
    """Clients that the data name, in a column or as they are given, may have any sizes."""
    sizes = [1120] * 29 + [16]
    found, problem = calibration()
    found.check_shares([1120] * 29 + [1121])
    with pytest.raises(ConfigError, match="min_client_examples is not set: the smallest client"):
        found.check_shares(sizes)
    named: dict[str, Any] = {"dataset": "visits.csv", "standardise": False, "client_column": "site"}
    found, _ = calibration(**named)
    with pytest.raises(ConfigError, match="is not set: with client_column = site"):
        found.smallest(problem)
    found, _ = calibration(**named, min_client_examples=16)
    found.check_shares(sizes)
    assert found.smallest(problem) == 16


def test_the_servers_noise_has_its_deviation_and_is_new_for_each_round_secret_and_run() -> None:
    secrets = ((bytes(32), "a"), (bytes(32), "b"), (bytes([1]) * 32, "a"))
    draws = [draws_of_seed(0)(3), draws_of_seed(0)(4), draws_of_seed(1)(3)]
    draws += [draws_of_secret(*each)(3) for each in secrets]
    drawn = [downlink_noise(0.25, 2000, draw) for draw in draws]
    # 2,000 draws: a relative standard error of 1.6 %.
    assert [np.std(each) for each in drawn] == pytest.approx([0.25] * 6, rel=0.08)
    assert np.abs(np.corrcoef(drawn) - np.eye(6)).max() < 0.1
    again = downlink_noise(0.25, 2000, draws_of_secret(*secrets[0])(3))
    np.testing.assert_array_equal(again, drawn[3])
