"""One entry point attacks every system unchanged, including a user's own."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from fedldp.algorithms.presets.fedavg import fedavg
from fedldp.algorithms.recipes import find_recipe
from fedldp.audit.attacks import attack
from fedldp.audit.attacks.scenario import AttackScenario
from fedldp.audit.efforts import QUICK
from fedldp.audit.harness import weakest
from fedldp.audit.results import AttackResult
from fedldp.data import Dataset, Examples, load_dataset
from fedldp.papers.ldp_fl import attacks as ldp_fl

TINY = replace(
    QUICK, attack_examples=6, attack_rounds=1, attack_visits=1e5, member_clients=5, member_runs=2,
    member_rounds=1, member_candidates=30, image_count=3, image_known=12, image_public=40,
    property_clients=8, timing_trials=20, content_trials=2, content_clients=4,
)  # fmt: skip


class OwnConfig(fedavg):
    system: Literal["test_attacks:OwnConfig"] = "test_attacks:OwnConfig"  # type: ignore[assignment]


def check(found: list[AttackResult]) -> None:
    assert {each.kind for each in found} >= {"membership", "property"}
    for each in found:
        told = json.loads(json.dumps(each.as_json(), allow_nan=False))
        assert told["span" if each.kind == "linkage" else "kind"]
        if each.measured is None:
            assert each.note
            continue
        assert each.measured.low <= each.measured.value <= each.measured.high
        if each.measure == "AUC":
            assert each.roc is not None
            assert each.roc.auc == each.measured
        elif each.kind == "linkage":
            assert each.setting.startswith(("messages ", "the slowest client's messages "))
        else:
            assert each.pictures


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["fedavg-digits", "quickstart", "distributed-gaussian-digits", "person-dp-sgd-digits"]
)
def test_systems_are_attacked_through_every_channel(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ldp_fl, "SHADOWS", 4)
    check(attack(find_recipe(name).config, effort=TINY))


def test_a_users_own_system_and_data_are_attacked() -> None:
    config = OwnConfig(
        dataset="digits", num_clients=4, rounds=1, model="logistic", learning_rate=0.1
    )
    generator = np.random.default_rng(0)
    data = Dataset.from_arrays(generator.random((80, 5)), generator.integers(0, 2, 80))
    found = attack(config, data, effort=TINY)
    check(found)
    assert "inversion" not in {each.kind for each in found}  # its data are a table, not images
    clients = [(generator.random((n, 5)), generator.integers(0, 2, n)) for n in (20, 30, 40)]
    check(attack(config, Dataset.from_clients(clients), effort=TINY))


def test_the_client_with_the_largest_budget_is_attacked() -> None:
    config = find_recipe("personalized-digits").config
    assert config.epsilon == [1.0, 5.0, 10.0]  # type: ignore[attr-defined]
    assert weakest(config) == 2
    assert weakest(find_recipe("quickstart").config) == 0


def test_no_broadcast_depends_on_clients_of_the_pool() -> None:
    """Broadcasts of later rounds come from a run in which other examples replace those of the
    pool."""
    config = find_recipe("quickstart").config.changed(standardise=False)
    data = load_dataset("digits")

    def scenario_of(dataset: Dataset) -> AttackScenario:
        return AttackScenario.of(config, dataset, seed=0, most_examples=5, rounds=3, visits=1e6)

    one = scenario_of(data)
    rows = np.random.default_rng([0, 1]).permutation(len(data.train))[: len(one.pool)]
    features = data.train.features.copy()
    features[rows] = 100.0
    two = scenario_of(replace(data, train=Examples(features, data.train.labels)))
    assert two.pool.features.min() == 100
    assert len(one.states) == 3
    for state, other in zip(one.states, two.states, strict=True):
        np.testing.assert_array_equal(state.weights, other.weights)
    assert (one.states[0].weights != one.states[2].weights).any()


@pytest.mark.parametrize(
    ("name", "rounds", "seen"),
    [
        ("fedavg-digits", 1, "one client's report"),
        ("fedavg-digits", 3, "one client's reports in 3 rounds"),
        ("ldp-fl-digits", 1, "one client's report, before the shuffler"),
        ("secure-aggregation-digits", 2, "sums of 10 clients' reports in 2 rounds"),
    ],
)
def test_an_attack_says_what_the_server_sees(name: str, rounds: int, seen: str) -> None:
    config = find_recipe(name).config
    assert AttackScenario.of(config, None, seed=0, most_examples=5, rounds=rounds).against == seen
