"""NbAFL: its reports, its noise levels, the paper's claim, and the true guarantee."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedldp
from fedldp.accounting.numerics.gaussian import gaussian_epsilon
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError
from fedldp.core.kinds import DISCRETE, NUMBER_OF_EXAMPLES
from fedldp.data import Examples, load_dataset
from fedldp.papers.nbafl.parts import NbaflNoise, downlink_noise
from fedldp.papers.nbafl.preset import nbafl
from fedldp.protocol.keys import draws_of_secret, draws_of_seed
from fedldp.protocol.roles import State
from fedldp.protocol.wire import Broadcast, Report
from fedldp.simulation.plan import plan
from fedldp.testing.clients import Roles, client_of, sender_of, trained
from fedldp.training.local_sgd import batches

DIGITS = Problem((1, 8, 8), 10, 1437)
MNIST = Problem((1, 28, 28), 10, 33_600)
SIZE = 650
START = np.linspace(-1, 1, SIZE).astype(np.float32)


def config_of(**settings: Any) -> nbafl:
    config = fedldp.recipe("nbafl-digits", **settings)
    assert isinstance(config, nbafl)
    return config


def roles_of(config: nbafl) -> Roles:
    return Roles(config, DIGITS)


def report_of(config: nbafl, weights: np.ndarray, *, index: int = 0) -> Report:
    told = Broadcast(round=1, weights=START)
    return roles_of(config).encode(weights.astype(np.float32), told, sender_of(7, index))


def values_of(config: nbafl, report: Report) -> np.ndarray:
    return (
        np.frombuffer(report.payload, "<i4")
        * config.algorithm(DIGITS).release(0).mechanism.ball.step
    )


# What is sent


@pytest.mark.parametrize("send", ["weights", "update"])
@pytest.mark.parametrize("norm", [0.5, 40.0])
def test_the_vector_is_clipped_to_norm_c_and_gets_the_published_noise(
    send: str, norm: float
) -> None:
    config = config_of(send=send, clip=3.0, epsilon=2.0, exposures=4)
    direction = np.cos(np.arange(SIZE))
    vector = norm * direction / np.linalg.norm(direction)
    weights = START + vector if send == "update" else vector
    expected = vector * min(1, 3.0 / norm)
    noise = np.array(
        [values_of(config, report_of(config, weights, index=i)) - expected for i in range(20)]
    )
    sigma = math.sqrt(2 * math.log(1.25 / 0.01)) * 4 * (2 * 3.0 / 71) / 2.0  # 71 = 1437 // 20
    # 13,000 draws give a relative standard error of 0.6 %; that of the mean over clients is 0.22
    # sigma.
    assert np.std(noise) == pytest.approx(sigma, rel=0.03)
    assert abs(noise.mean()) < 4 * sigma / math.sqrt(noise.size)
    assert np.abs(noise.mean(axis=0)).max() < 5 * sigma / math.sqrt(20)


def test_the_server_averages_and_adds_its_own_noise() -> None:
    config = config_of(exposures=1, epsilon=1.0, num_clients=3, rounds=10)
    reports = [report_of(config, START * k, index=k) for k in range(3)]
    sent = np.mean([values_of(config, report) for report in reports], axis=0)
    following, _ = roles_of(config).aggregate(reports, State(weights=START))
    scale = math.sqrt(2 * math.log(1.25 / 0.01)) * 2 * 2.0 / 479  # 479 = 1437 // 3
    sigma = scale * math.sqrt(100 - 3) / 3
    assert np.std(following.weights - sent) == pytest.approx(sigma, rel=0.1)
    quiet = config.changed(exposures=10)
    reports = [report_of(quiet, START, index=k) for k in range(3)]
    np.testing.assert_allclose(
        roles_of(quiet).aggregate(reports, State(weights=START))[0].weights,
        np.mean([values_of(quiet, report) for report in reports], axis=0),
        atol=1e-6,
    )


# What is claimed and what holds


def lines(config: nbafl, problem: Problem = DIGITS) -> dict[tuple[str, str], list[Any]]:
    found: dict[tuple[str, str], list[Any]] = {}
    for line in plan(config, problem).privacy.guarantees:
        found.setdefault((line.unit, line.adversary), []).append(line)
    return found


@pytest.mark.parametrize(("name", "epsilon"), [("eps0.5", 0.5), ("eps1", 1), ("eps10", 10)])
def test_what_the_clip_proves_at_the_papers_settings(name: str, epsilon: float) -> None:
    """For a client's whole input, mu = 2 C/sigma for any m."""
    config = fedldp.recipe(f"nbafl-mnist-fig5-{name}")
    assert isinstance(config, nbafl)
    sigma = 1.38728190182689 * 0.5 / epsilon
    found = lines(config, MNIST)
    units = {"record": 25, "client-round": 1, "client-run": 25}
    assert set(found) == {(unit, "server") for unit in units}
    for unit, rounds in units.items():
        (line,) = found[unit, "server"]
        exact = gaussian_epsilon(10.0 / sigma * math.sqrt(rounds), 0.01)
        assert line.epsilon == pytest.approx(exact, rel=1e-4)
        assert line.kind == "approximate"
        assert DISCRETE in line.assumptions
        assert exact > 80 * epsilon  # far more than is claimed, per record or otherwise


def test_a_client_pays_for_the_rounds_it_takes_part_in() -> None:
    every = lines(config_of(rounds=20, exposures=5))["client-run", "server"][0].epsilon
    some = lines(config_of(rounds=20, exposures=5, clients_per_round=4))
    assert some["client-run", "server"][0].epsilon < every


def test_example_counts_are_in_clear() -> None:
    for kinds in lines(config_of(weighting="examples")).values():
        assert [line.kind for line in kinds] == ["none"]
        assert NUMBER_OF_EXAMPLES in kinds[0].reason.values["what"]


# The authors' code


def clipped_config(**settings: Any) -> nbafl:
    code = {"noise": "code", "example_clip": 0.5, "batch_size": 20, "learning_rate": 0.5}
    return config_of(**{**code, "local_epochs": 2, "send": "update", **settings})


@pytest.mark.parametrize("class_weights", [None, [3.0, *[1.0] * 9]])
def test_each_examples_gradient_is_clipped(class_weights: list[float] | None) -> None:
    """Against the closed form of a softmax's gradients, one by one."""
    config = clipped_config(class_weights=class_weights)
    own = load_dataset("digits").train.taken(np.arange(50))
    own = Examples(own.features, np.where(np.arange(50) < 25, 0, own.labels))
    found = trained(
        roles_of(config).local_update, Broadcast(round=1, weights=START), client_of(own)
    )
    factors = np.array(class_weights or [1.0] * 10)
    weight, bias = START[:640].reshape(10, 64).astype(float), START[640:].astype(float)
    inputs, clips = own.features.reshape(50, 64).astype(float), 0
    for few in batches(50, 2, 20, client_of(own).fresh("batches")):
        steps = np.zeros((10, 65))
        for row, label in zip(inputs[few], own.labels[few], strict=True):
            logits = weight @ row + bias
            errors = np.exp(logits - logits.max())
            errors = errors / errors.sum() - np.eye(10)[label]
            gradient = factors[label] * np.outer(errors, [*row, 1.0])
            norm = np.linalg.norm(gradient)
            clips += norm > 0.5
            steps += gradient * min(1, 0.5 / norm) / len(few)
        weight, bias = weight - 0.5 * steps[:, :64], bias - 0.5 * steps[:, 64]
    assert 0 < clips < 100
    np.testing.assert_allclose(found, [*weight.ravel(), *bias], atol=1e-5)


def test_a_clip_of_all_steps_of_the_code_never_cuts() -> None:
    """So the recipe's clip, 7 steps of at most 0.02 x 1.8, changes nothing of the authors' code."""
    recipe = fedldp.recipe("nbafl-mnist-code-gradients-eps10")
    most = math.ceil(800 / recipe.batch_size) * recipe.learning_rate * recipe.example_clip
    assert recipe.clip == pytest.approx(most, rel=1e-12)
    own = load_dataset("digits").train.taken(np.arange(50))
    for name, steps in (("one epoch", 3), ("two", 6)):
        config = clipped_config(local_epochs=steps // 3)
        weights = trained(
            roles_of(config).local_update, Broadcast(round=1, weights=START), client_of(own)
        )
        assert 0 < np.linalg.norm(weights - START) <= steps * 0.5 * 0.5 * (1 + 1e-6), name


def test_what_holds_of_the_authors_code() -> None:
    """What is claimed is for 2 C/m; the clip proves 2 C."""
    for label, epsilon, clip, sigma in (
        ("weights", 8, 20.0, 0.103891133516819), ("gradients", 10, 0.252, 4.73087e-4),
    ):  # fmt: skip
        config = fedldp.recipe(f"nbafl-mnist-code-{label}-eps{epsilon}")
        assert isinstance(config, nbafl)
        claim = plan(config, Problem((1, 28, 28), 10, 8000)).privacy.claim
        assert claim is not None
        assert (claim.epsilon, claim.unit) == (epsilon, "record")
        assert "github.com/AdamWei-boop" in claim.source
        (line,) = lines(config, Problem((1, 28, 28), 10, 8000))["client-round", "server"]
        exact = gaussian_epsilon(2 * clip / sigma, config.delta)
        assert line.epsilon == pytest.approx(exact, rel=1e-3)


# Noise levels


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
