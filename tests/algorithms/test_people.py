"""A guarantee for people at a few sites: its statement, and what leaves a site."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedldp
from fedldp.accounting.accountants import on_side
from fedldp.accounting.events import (
    GaussianShare,
    InClear,
    PerPerson,
    PerRecord,
)
from fedldp.accounting.guarantees import Guarantee
from fedldp.algorithms.people import largest_number, people_of
from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.kinds import (
    AT_SITES,
    IDEALISED,
    SECRET_SAMPLE,
)
from fedldp.core.randomness import Stream
from fedldp.data import Dataset, load_dataset
from fedldp.data.examples import Examples
from fedldp.deployment.deployable import check_told, without_simulation
from fedldp.mechanisms.integer_gaussian import IntegerGaussian
from fedldp.models import layers_of, layout_of
from fedldp.protocol.client_store import MemoryStore
from fedldp.protocol.roles import Batch, Client
from fedldp.protocol.wire import Broadcast
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan, problem_of, problem_with
from fedldp.training.exact_sums import NORM
from fedldp.training.person_gradients import (
    SUMS,
    DenseGradients,
    PersonGradients,
    dense_layers,
)
from fedldp.training.questions import ASKED

CHANNELS = {"named": "server", "sum": "summing-server", "central": "downlink"}


def config(**more: Any) -> Any:
    return fedldp.recipe("person-dp-sgd-digits", **{"rounds": 5, **more})


def trained(made: Any, dataset: Dataset | None = None) -> np.ndarray:
    weights = simulate(made, dataset=dataset).weights
    return np.concatenate([np.asarray(each, np.float64).ravel() for each in weights.values()])


def lines(made: Any, dataset: Dataset | None = None) -> dict[tuple[str, str], Guarantee]:
    problem = problem_of(made, None) if dataset is None else problem_with(made, dataset, None)
    found = plan(made, problem).privacy.guarantees
    return {(line.unit, line.adversary): line for line in found}


def visits(seed: int = 0) -> Dataset:
    """Return 60 people with one to four rows each, at three sites."""
    rng = np.random.default_rng(seed)
    sites = []
    for site in range(3):
        whose = np.repeat(np.arange(20), rng.integers(1, 5, 20)) + 100 * site
        features = rng.normal(size=(len(whose), 4)).astype(np.float32)
        sites.append((features, (features.sum(axis=1) > 0).astype(int), whose))
    test = rng.normal(size=(50, 4)).astype(np.float32)
    return Dataset.from_clients(sites, test=(test, (test.sum(axis=1) > 0).astype(int)))


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize(
    "more",
    [{"epsilon": 0.5}, {"epsilon": 8.0}, {"epsilon": 0.5, "sample_rate": 0.1},
     {"sample_rate": 0.7}],
    ids=str,
)  # fmt: skip
def test_a_run_costs_a_row_its_epsilon_and_little_less(channel: str, more: dict[str, Any]) -> None:
    """On samples, it is called idealised."""
    made = config(channel=channel, **more)
    found = lines(made)
    line = found["record", CHANNELS[channel]]
    assert 0.99 * made.epsilon < line.epsilon <= made.epsilon
    assert (line.neighbours, line.stated_by) == ("replace-record", "fedldp")
    sampled = {IDEALISED, SECRET_SAMPLE(of="record")} & line.assumptions
    assert len(sampled) == (2 if "sample_rate" in more else 0)
    assert found["client-run", "server"].kind == "none"


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("sites", [1, 2])
def test_with_persons_in_the_data_a_person_is_protected(channel: str, sites: int) -> None:
    made = config(channel=channel, num_clients=3, epsilon=2.0, persons_at_sites=sites)
    line = lines(made, visits())["person", CHANNELS[channel]]
    assert 1.9 < line.epsilon <= 2
    assert line.neighbours == "replace-person"
    assert AT_SITES(sites=sites) in line.assumptions


def test_the_event_is_of_one_person_and_of_no_client() -> None:
    rows = config().algorithm(problem_of(config(), None)).encoder(0).event()
    assert isinstance(rows, PerRecord)
    assert isinstance(rows.record, GaussianShare)
    assert isinstance(rows.client, InClear)
    problem = replace(problem_of(config(), None), people=100)
    people = config().algorithm(problem).encoder(0).event()
    assert isinstance(people, PerPerson)
    assert on_side(people, "record") == people.person


def test_the_server_takes_the_step_of_plain_gradient_descent() -> None:
    """Compared with a slow version in numpy, with a clip that never binds and hardly any noise."""
    made = config(
        rounds=3, epsilon=1e4, clip=20.0, learning_rate=0.5, server_optimizer="none", average=0.0
    )
    found = trained(made)
    data = load_dataset("digits")
    x = data.train.features.reshape(len(data.train), -1).astype(np.float64)
    x = np.hstack([x, np.ones((len(x), 1))])
    y = np.eye(10)[data.train.labels]
    weights = np.zeros((10, 65))
    for _ in range(3):
        logits = x @ weights.T
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        error = powers / powers.sum(axis=1, keepdims=True) - y
        weights -= 0.5 * error.T @ x / len(x)
    expected = np.concatenate([weights[:, :64].ravel(), weights[:, 64]])
    np.testing.assert_allclose(found, expected, atol=0.02)


def one_site(examples: Examples, key: int = 0, *, simulated: bool = True) -> Batch:
    def drawn(purpose: str) -> Stream:
        return Stream(bytes([key]) * 32, simulated=simulated)

    return Batch.of_one(
        Client(index=0, examples=examples, fresh=drawn, kept=drawn, store=MemoryStore())
    )


def of_nobody(features: np.ndarray) -> Batch:
    """Return a deployed site whose rows are of one class."""
    return one_site(Examples(features, np.zeros(len(features), np.int64)), simulated=False)


def dense(kind: type[DenseGradients] = DenseGradients) -> DenseGradients:
    """Return the sums of a small model's gradients."""
    layers = dense_layers(layers_of("logistic", (4,), 2) or [])
    assert layers is not None
    return kind(layers=layers, layout=layout_of("logistic", (4,), 2), clip=0.5)


@pytest.mark.parametrize(("number", "stated"), [(7, 1), (68, 60), (618, 610), (2_085, 2_000)])
def test_sums_are_divided_by_a_public_number(number: int, stated: int) -> None:
    made = config(num_clients=3)
    problem = replace(problem_of(made, None), people=number)
    assert people_of(made, problem) == number
    assert people_of(made, replace(problem, counted_in_private=True)) == stated


SUMS_OF_MANY: list[dict[str, Any]] = [
    {},
    {"num_clients": 400},
    {"persons_at_sites": 3},
    {"sample_rate": 0.5, "rounds": 1},
]


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("more", SUMS_OF_MANY, ids=str)
def test_a_sum_with_everybody_in_one_coordinate_never_wraps(
    channel: str, more: dict[str, Any]
) -> None:
    """Of the moduli that are accepted, the one with the least room holds the sum of all reports."""
    clients = more.get("num_clients", 3)
    found: list[tuple[float, Any, int]] = []
    for epsilon in (1.0, 4.0) if "sample_rate" in more else (0.5, 3.0, 20.0, 150.0, 1e3, 1e4):
        made = config(channel=channel, epsilon=epsilon, **{"num_clients": 3, **more})
        for people in (499, 999, 4_099, 10_999, 109_999, 1_099_999):
            problem = replace(problem_of(config(), None), people=people, counted_in_private=True)
            mechanism = made.composition.calibration.mechanism(problem, 0)
            most = made.persons_at_sites * people * largest_number(made)
            bits = getattr(mechanism, "bits", 64)
            room = (
                2 ** (bits - 1) - most / getattr(mechanism, "step", 1) - noise(mechanism, clients)
            )
            assert room > 0, (epsilon, people)
            found.append((room / 2**bits, mechanism, most))
    _, mechanism, most = min(found, key=lambda each: each[0])
    total, step = mechanism.aggregate(2), getattr(mechanism, "step", 1)
    for client in range(clients):  # everybody is in one cell, once with each sign
        own = most // clients + (most % clients if client == 0 else 0)
        stream = Stream(bytes([client % 256]) * 32, simulated=False)
        total.add(mechanism.encode(np.array([own, -own], np.float64), stream))
    apart = total.total() - np.array([most, -most]) / step
    assert abs(apart).max() < noise(mechanism, clients)


def noise(mechanism: Any, clients: int) -> float:
    """Return what the noise of all reports stays below, except with probability 2^-60."""
    deviation = 2**mechanism.scale_bits if isinstance(mechanism, IntegerGaussian) else 0
    return clients + 9.2 * clients**0.5 * float(deviation)


# Samples of people


def test_the_statement_about_samples_covers_the_added_noise() -> None:
    """One person's vector and the noise are on the coarse grid; the sum of the others is known."""
    made = config(sample_rate=0.25, channel="sum")
    algorithm = made.algorithm(problem_of(made, None))
    mechanism, event = algorithm.release(0).mechanism, algorithm.encoder(0).event().record
    assert mechanism.distance == 2 * NORM
    assert event.variance == 4**mechanism.scale_bits
    assert event.squared_distance >= (NORM / mechanism.step + 650**0.5) ** 2
    assert event.sampling_rate == 0.25


def test_each_step_samples_people_anew_with_all_their_rows() -> None:
    taken: list[np.ndarray] = []

    class Seen(DenseGradients):
        def __call__(self, weights: np.ndarray, examples: Examples) -> np.ndarray:
            taken.append(examples.people)
            return super().__call__(weights, examples)

    summed = dense(Seen)
    update = PersonGradients(summed=summed, sampled=0.3)
    whose = np.repeat(np.arange(500), 3)
    examples = Examples(np.zeros((1500, 4), np.float32), np.zeros(1500, np.int64), whose)
    told = Broadcast(round=1, weights=np.zeros(10, np.float32))
    for key in range(6):
        update(told, one_site(examples, key))
    assert len(taken) == 6
    for each in taken:
        assert set(np.unique(each, return_counts=True)[1]) == {3}
        assert 100 < len(np.unique(each)) < 200  # 150 on average, deviation 10
    assert len({each.tobytes() for each in taken}) == 6


def test_samples_are_for_simulations_only() -> None:
    made = config(sample_rate=0.5)
    for refuse in (without_simulation, check_told):
        with pytest.raises(ConfigError, match=r"sample_rate = 0.5: .* set sample_rate = 1$"):
            refuse(made)
    features = np.zeros((3, 6), np.float32)
    update = PersonGradients(summed=dense(), sampled=0.5)
    with pytest.raises(PrivacyError, match=r"set sample_rate = 1$"):
        update(Broadcast(round=1, weights=np.zeros(6, np.float32)), of_nobody(features))


# Held-out people, who vote


def voters(held_out: float, summed: Any = None) -> PersonGradients:
    return PersonGradients(summed=summed or dense(), held_out=held_out)


def test_replacing_any_person_moves_the_sum_by_at_most_twice_the_norm() -> None:
    """This holds in exact integers for any person who trains or votes, with any number of rows."""
    rng = np.random.default_rng(2)
    weights = rng.normal(size=10).astype(np.float32)
    whose = np.repeat(np.arange(12), 3)
    features = rng.normal(size=(36, 4)).astype(np.float32)
    labels = rng.integers(0, 2, 36)
    update, broadcast = voters(0.4), Broadcast(round=1, weights=weights)

    def sums(features: np.ndarray, labels: np.ndarray) -> list[int]:
        found = update(broadcast, one_site(Examples(features, labels, whose))).open()
        return [int(each) for each in found.aux[SUMS][0]]

    before, moved = sums(features, labels), []
    for person in range(12):
        other = features.copy()
        other[whose == person] *= -100
        after = sums(other, labels)
        moved.append([one != two for one, two in zip(before, after, strict=True)])
        assert sum((a - b) ** 2 for a, b in zip(after, before, strict=True)) <= (2 * NORM) ** 2
    voted = [any(each[-2:]) and not any(each[:-2]) for each in moved]
    trained = [any(each[:-2]) and not any(each[-2:]) for each in moved]
    assert any(voted)
    assert any(trained)
    assert not any(any(each[-2:]) and any(each[:-2]) for each in moved), "nobody does both"


def test_voters_are_drawn_once_and_independently_of_the_data() -> None:
    asked: list[np.ndarray] = []

    class Seen(DenseGradients):
        def logits(self, weights: np.ndarray, examples: Examples) -> np.ndarray:
            asked.append(examples.people)
            return super().logits(weights, examples)

    seen = dense(Seen)
    rng = np.random.default_rng(3)
    for scale in (1.0, 100.0):
        examples = Examples(
            (scale * rng.normal(size=(200, 4))).astype(np.float32), rng.integers(0, 2, 200),
            np.arange(200),
        )  # fmt: skip
        for round in (1, 2):
            told = Broadcast(round=round, weights=rng.normal(size=10).astype(np.float32))
            voters(0.25, seen)(told, one_site(examples))
    assert all(np.array_equal(each, asked[0]) for each in asked)
    assert 30 < len(asked[0]) < 70


def test_a_held_out_person_gives_the_shares_of_rows_that_are_wrong_and_right() -> None:
    weights = np.array([-1, 0, 0, 0, 1, 0, 0, 0, 0, 0], np.float32)  # class 1 where x_0 > 0
    features = np.zeros((6, 4), np.float32)
    features[:, 0] = [1, 1, -1, 1, -1, -1]
    labels = np.ones(6, np.int64)  # right on two of three rows of a person, and on one of another
    examples = Examples(features, labels, np.array([7, 7, 7, 3, 3, 3]))
    found = voters(1.0)(Broadcast(round=1, weights=weights), one_site(examples)).open()
    each = [ASKED // 3, 2 * ASKED // 3]
    assert found.aux[SUMS][0, -2:].tolist() == [sum(each), sum(each)]
    assert not found.aux[SUMS][0, :-2].any()
