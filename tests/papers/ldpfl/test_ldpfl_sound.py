"""Sound LDPFL: every example is randomised once, and the statement has the requested epsilon.

Budgets of LDPFL's clients hold over many rounds, restarts and losses."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from runtimes import reply_of
from terms import asking, first_broadcast, of_recipe, secret_keys, with_another
from torch.nn import functional

from fedldp.accounting.events import Memoized, PerRecord, PureReport, SelfComposed
from fedldp.accounting.guarantees import Guarantee
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError, PrivacyError, RunError
from fedldp.core.kinds import IDEALISED, SHARED_EXAMPLES
from fedldp.core.randomness import Stream
from fedldp.data import Examples, load_dataset, partition
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.mechanisms.privunit import PrivUnit
from fedldp.papers.ldpfl import training as randomised_sgd
from fedldp.papers.ldpfl.preset_sound import ldpfl_sound
from fedldp.protocol.client_runtime import ClientRuntime
from fedldp.protocol.keys import SecretKeys
from fedldp.protocol.roles import Client
from fedldp.protocol.wire import (
    Broadcast,
    Reason,
    Refusal,
    Report,
)
from fedldp.simulation.plan import plan, problem_of
from fedldp.testing.cases import RUN, Case
from fedldp.testing.clients import Roles, client_of
from fedldp.testing.clients import trained as trained_by
from fedldp.testing.data import SMALL, images

pytestmark = pytest.mark.usefixtures("as_in_a_run")

DIGITS = load_dataset("digits")
PROBLEM = Problem((1, 8, 8), 10, 1437)
FMNIST = Problem((1, 28, 28), 10, 60_000)
OWN = Examples(DIGITS.train.features[:30], DIGITS.train.labels[:30])
ALMOST_NONE = 1e4
"""A budget at which PrivUnit hardly randomises: it sends the gradient with an error below 1 %."""


def config(**changes: Any) -> Settings:
    settings: dict[str, Any] = {
        "dataset": "digits", "num_clients": 4, "rounds": 3, "learning_rate": 2.0, "epsilon": 1.0,
    }  # fmt: skip
    return ldpfl_sound(**{**settings, **changes})


def built(settings: Settings) -> Roles:
    return Roles(settings, PROBLEM)


@pytest.fixture
def client(tmp_path: Path) -> Callable[..., Client]:
    folders = iter(range(1000))

    def make(examples: Examples = OWN, *, round: int = 1) -> Client:
        return client_of(examples, round=round, folder=tmp_path / f"disk-{next(folders)}")

    return make


def broadcast(settings: Settings, round: int = 1) -> Broadcast:
    weights = np.random.default_rng(1).normal(size=1280).astype(np.float32)
    assert built(settings).layout.size == 1280
    return Broadcast(round=round, weights=weights)


def trained(settings: Settings, own: Client, *, round: int = 1) -> np.ndarray:
    return trained_by(built(settings).local_update, broadcast(settings, round), own)


def features_of(settings: Settings, examples: Examples) -> np.ndarray:
    found = settings.composition.features(PROBLEM, broadcast(settings), examples.features)
    assert found is not None
    return found


# One example, one round, one gradient


@pytest.mark.slow
def test_without_noise_training_is_clipped_gradient_descent(client: Callable[..., Client]) -> None:
    settings = config(epsilon=ALMOST_NONE, clip=0.5, rounds=1, batch_size=10)
    found = trained(settings, client())
    features = torch.from_numpy(features_of(settings, OWN))
    order = client().kept("portions").generator().permutation(len(OWN))
    weights = torch.from_numpy(broadcast(settings).weights.reshape(10, 128).copy())
    for places in torch.from_numpy(order).split(10):
        steps = torch.zeros_like(weights)
        for place in places:
            mine = weights.clone().requires_grad_()
            answer = torch.tensor([int(OWN.labels[place])])
            loss = functional.cross_entropy(features[place][None] @ mine.T, answer)
            (gradient,) = torch.autograd.grad(loss, mine)
            steps += gradient * min(1.0, 0.5 / float(gradient.norm()))
        weights = weights - 2.0 * steps / len(places)
    change = found - broadcast(settings).weights
    expected = weights.numpy().reshape(-1) - broadcast(settings).weights
    assert np.linalg.norm(change - expected) < 0.05 * np.linalg.norm(expected)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_example_that_is_not_finite_is_used_like_an_image_without_slopes(
    client: Callable[..., Client], value: float
) -> None:
    """A refusal would reveal such an example; here it does not affect the features of the
    others."""
    features, flat = OWN.features.copy(), OWN.features.copy()
    features[3, 0, 2, 2] = value
    flat[3] = 0.25
    for model in ("linear", "mlp_64"):
        settings = config(rounds=1, model=model)
        told = built(settings).broadcast
        found, expected = (
            trained_by(built(settings).local_update, told, client(Examples(images, OWN.labels)))
            for images in (features, flat)
        )
        assert np.isfinite(found).all()
        assert not np.array_equal(found, told.weights)
        np.testing.assert_array_equal(found, expected)


# The statement


def lines(settings: Settings, problem: Problem = FMNIST) -> dict[str, Guarantee]:
    found = plan(settings, problem).privacy.guarantees
    return {line.unit: line for line in found if line.kind != "approximate"}


@pytest.mark.parametrize(
    ("epsilon", "mechanism"),
    [
        (0.5, "nearest_direction"),
        (1.0, "privunit"),
        (2.0, "piecewise"),
        (4.0, "laplace"),
        (8.0, "privunit"),
    ],
)
def test_a_record_costs_the_requested_epsilon(mechanism: str, epsilon: float) -> None:
    settings = config(num_clients=10, mechanism=mechanism, epsilon=epsilon, rounds=20)
    line = lines(settings)["record"]
    assert (line.kind, line.neighbours) == ("pure", "replace-record")
    assert line.epsilon <= epsilon
    assert line.epsilon == pytest.approx(epsilon, rel=1e-3)
    assert (IDEALISED in line.assumptions) == (mechanism == "privunit")


def test_a_whole_client_costs_all_of_its_records_and_its_number_is_not_protected() -> None:
    found = lines(config(num_clients=10))
    assert found["client-run"].epsilon == pytest.approx(6000, rel=1e-6)
    assert found["client-run"].epsilon <= 6000
    uneven = lines(config(num_clients=10, partition="power-law:1"))
    assert uneven["record"].epsilon == found["record"].epsilon
    assert uneven["client-run"].kind == "none"


def small(**changes: Any) -> Settings:
    settings = {**SMALL, "model": "linear", "epsilon": 8.0, **changes}
    return ldpfl_sound(**settings)


class Watched:
    """PrivUnit that records its input, and randomises zeros instead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: list[NDArray[Any]] = []
        original = PrivUnit.encode

        def encode(mechanism: PrivUnit, values: NDArray[Any], stream: Stream) -> bytes:
            self.given.append(values.copy())
            return original(mechanism, np.zeros_like(values), stream)

        monkeypatch.setattr(PrivUnit, "encode", encode)


def all_rounds(config: Settings, examples: Examples, folder: Path) -> list[bytes]:
    roles = Roles(config)
    first, payloads = roles.broadcast, []
    for round in range(1, config.rounds + 1):
        client = client_of(examples, round=round, folder=folder)
        told = Broadcast(round=round, weights=first.weights + np.float32(round))
        payloads.append(roles.report(told, client).payload)
    return payloads


@pytest.mark.parametrize(
    ("batch_size", "model"), [(1, "linear"), (3, "mlp"), (1000, "own_models:dropout")]
)
def test_one_example_moves_one_input_of_the_mechanism_and_nothing_else(
    model: str, batch_size: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = small(model=model, batch_size=batch_size)
    seen, sent = [], []
    for run, examples in enumerate((images(20), with_another(images(20), 7))):
        with monkeypatch.context() as patch:
            watched = Watched(patch)
            sent.append(all_rounds(config, examples, tmp_path / str(run)))
        seen.append(watched.given)
    assert sent[0] == sent[1]
    assert len(seen[0]) == len(seen[1]) == 20, "every example is randomised exactly once"
    moved = [not np.array_equal(a, b) for a, b in zip(*seen, strict=True)]
    assert sum(moved) == 1


def test_a_repeated_request_draws_nothing_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    roles, watched = Roles(small()), Watched(monkeypatch)
    first = roles.broadcast
    client = client_of(images(20), folder=tmp_path)
    once = roles.report(first, client).payload
    randomised = len(watched.given)
    other = Broadcast(round=1, weights=first.weights + 1)
    assert roles.report(other, client).payload == once
    assert len(watched.given) == randomised


@pytest.mark.parametrize("round", [-1, 0, 5])
def test_a_round_outside_the_run_cannot_use_an_example_twice(
    round: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As an index from the end, round 0 would be the last round under a second name."""
    roles, watched = Roles(small()), Watched(monkeypatch)
    told = Broadcast(round=round, weights=roles.first.weights)
    with pytest.raises(RunError, match=f"round {round}: .* rounds 1 to 4"):
        roles.report(told, client_of(images(20), round=round, folder=tmp_path))
    assert not watched.given


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_client_with_fewer_examples_than_rounds_still_reports(count: int, tmp_path: Path) -> None:
    lengths = {len(payload) for payload in all_rounds(small(), images(count), tmp_path)}
    assert lengths == {4 * Roles(small()).layout.size}


def test_with_equal_draws_the_lines_are_those_of_that_many_examples() -> None:
    """As with equal shares, the number is then public, and every client has exactly that many."""
    config = small(num_clients=5, partition="drawn:7", mechanism="laplace")
    problem = problem_of(config, None)
    event = config.algorithm(problem).encoder(0).event()
    assert isinstance(event, PerRecord)
    assert isinstance(event.client, Memoized)
    assert event.client.drawn == SelfComposed(each=PureReport(epsilon=8.0), count=7)
    parts = partition(images(60).labels, 5, "drawn:7", np.random.default_rng(0))
    assert {len(part) for part in parts} == {7}
    found = plan(config, problem).privacy
    for unit in ("client-round", "client-run"):
        pure, approximate = (line for line in found.guarantees if line.unit == unit)
        assert pure.epsilon == pytest.approx(7 * 8.0, rel=1e-12)
        assert approximate.epsilon <= pure.epsilon
    assert SHARED_EXAMPLES in found.warnings


def test_a_model_that_cannot_take_single_examples_is_refused_in_one_line(tmp_path: Path) -> None:
    roles = Roles(small(model="own_models:branching"))
    with pytest.raises(ConfigError, match=r"torch\.func cannot differentiate it") as refused:
        roles.report(roles.broadcast, client_of(images(8), folder=tmp_path))
    assert "\n" not in str(refused.value)


def test_no_broadcast_makes_sound_ldpfl_refuse_a_single_example(tmp_path: Path) -> None:
    roles = Roles(small(num_clients=4, rounds=1, learning_rate=1.0, epsilon=1.0))
    # An image without slopes has features of 0, so a finite gradient at any weights.
    flat = np.full((6, 1, 8, 8), 0.5, np.float32)
    one = flat.copy()
    one[3, 0, 2:6, 2:4] = 0
    huge = Broadcast(round=1, weights=np.full(roles.layout.size, 3e38, np.float32))
    for i, features in enumerate((flat, one)):
        client = client_of(Examples(features, np.arange(6)), folder=tmp_path / f"disk-{i}")
        assert np.isfinite(trained_by(roles.local_update, huge, client)).all()


PURE = Budget("pure", 1e9)
"""The kind of budget for everything that has a finite zCDP."""

EPSILON = 1.0
"""The epsilon of one example's randomised gradient."""


def start(
    case: Case, folder: Path, *, examples: Examples | None = None, keys: SecretKeys | None = None
) -> ClientRuntime:
    """Return a real client's runtime over a folder, as after a restart."""
    ledger = SqliteLedger(folder / "ledger", PURE)
    return case.start(
        0, keys or secret_keys(0), folder, ledger=ledger, examples=examples,
        failed=lambda error: None,
    )  # fmt: skip


def test_a_lost_draw_is_not_repeated_for_free(tmp_path: Path) -> None:
    """The first draw paid for all rounds, so a second one would be free."""
    case = of_recipe("ldpfl-digits-public")
    told = first_broadcast(case)
    public = {n: -each if each.dtype == np.float32 else each for n, each in told.public.items()}
    assert isinstance(reply_of(start(case, tmp_path).answer(asking(told, 1))), Report)
    shutil.rmtree(tmp_path / "store")
    again = start(case, tmp_path).answer(asking(replace(told, public=public), 2))
    assert reply_of(again) == Refusal(2, Reason.NOT_KEPT)
    assert len(SqliteLedger(tmp_path / "ledger").releases()) == 1


# Examples that are randomised once in a run


def sound(**changes: Any) -> Case:
    """Return the sound LDPFL with reports that cost ``EPSILON`` for each example."""
    return of_recipe(
        "ldpfl-sound-digits", mechanism="nearest_direction", epsilon=EPSILON, **changes
    )


def examples_like_digits(count: int) -> Examples:
    features = np.random.default_rng(0).random((count, 1, 8, 8), dtype=np.float32)
    return Examples(features, np.arange(count) % 10)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Return how often each example has been randomised."""
    found: Counter[int] = Counter()
    original = randomised_sgd.indices_of_round

    def indices(order: NDArray[np.int64], round: int, rounds: int) -> NDArray[np.int64]:
        chosen = original(order, round, rounds)
        found.update(chosen.tolist())
        return chosen

    monkeypatch.setattr(randomised_sgd, "indices_of_round", indices)
    return found


def test_no_more_examples_are_randomised_than_charged(tmp_path: Path, used: Counter[int]) -> None:
    case = sound()
    most = case.config.algorithm(case.problem).most_examples()
    for round in range(1, case.config.rounds + 1):
        runtime = start(case, tmp_path, examples=examples_like_digits(most))
        runtime.answer(asking(first_broadcast(case), round))
    assert 0 < len(used) <= SqliteLedger(tmp_path / "ledger").spent() / EPSILON


def test_an_example_is_used_once_in_a_run_of_any_length(tmp_path: Path, used: Counter[int]) -> None:
    own, case = examples_like_digits(12), sound()
    start(case, tmp_path, examples=own).answer(asking(first_broadcast(case), 1))
    case = sound(rounds=12)
    for round in (2, 3):
        start(case, tmp_path, examples=own).answer(asking(first_broadcast(case), round))
    assert max(used.values()) == 1


# Refused at the start


def refused_at_the_start(case: Case, folder: Path, line: str, **given: Any) -> None:
    with pytest.raises(PrivacyError, match=line) as refused:
        start(case, folder, **given)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("label", [-1, 10])
def test_a_client_with_a_label_outside_the_classes_is_refused_at_the_start(
    label: int, tmp_path: Path
) -> None:
    """Training would fail because of that example, and an answer without training would show it."""
    own = sound().own(0)
    labels = own.labels.copy()
    labels[0] = label
    line = "^examples: a label is not one of 0 to 9; remove that example$"
    refused_at_the_start(sound(), tmp_path, line, examples=Examples(own.features, labels))


def test_keys_of_another_run_are_refused_at_the_start(tmp_path: Path) -> None:
    """What the client draws once for a run would be what it drew for the other run."""
    keys = replace(secret_keys(0), run="another")
    line = f"^keys: they belong to another run; give the keys for run {RUN}$"
    refused_at_the_start(sound(), tmp_path, line, keys=keys)
