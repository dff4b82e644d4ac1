"""If the data name persons, attacks use whole persons in scenarios, clients and answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedldp.algorithms.presets.fedavg import fedavg
from fedldp.audit.attacks import membership as of_members
from fedldp.audit.attacks.scenario import AttackScenario, client_of, persons_in, rows_of
from fedldp.audit.efforts import QUICK
from fedldp.core.errors import ConfigError
from fedldp.data import Dataset, Examples

FEW = replace(
    QUICK, attack_examples=30, attack_rounds=2, attack_visits=2e4, member_clients=6, member_runs=2,
    member_rounds=1, member_candidates=12, property_clients=8,
)  # fmt: skip

SITES = 3


def visits(people: int = 40, rows: int = 5, heavy: frozenset[int] = frozenset()) -> Dataset:
    """Return persons at three sites with 1 to ``rows`` rows each; labels are random by person.

    Heavy persons have each row thirty times.
    """
    rng = np.random.default_rng(0)
    sites = []
    for site in range(SITES):
        whose = rng.permutation(np.repeat(np.arange(people), rng.integers(1, rows + 1, people)))
        features = rng.normal(size=(len(whose), 12)).astype(np.float32)
        times = np.where(np.isin(whose + people * site, list(heavy)), 30, 1)
        features, whose = np.repeat(features, times, axis=0), np.repeat(whose, times)
        sites.append((features, rng.integers(0, 2, people)[whose], whose + people * site))
    return Dataset.from_clients(sites, test=(np.zeros((9, 12), np.float32), np.arange(9) % 2))


def overfitting(**more: Any) -> Any:
    given: dict[str, Any] = {
        "dataset": "visits", "num_clients": SITES, "rounds": 2, "model": "mlp_64",
        "learning_rate": 0.5, "local_epochs": 20, "batch_size": 10,
    }  # fmt: skip
    return fedavg(**given | more)


def scenario_of(config: Any, dataset: Dataset, **more: Any) -> AttackScenario:
    given = {"seed": 0, "most_examples": 30, "rounds": 2} | more
    return AttackScenario.of(config, dataset, **given)  # type: ignore[arg-type]


def test_no_persons_rows_are_split() -> None:
    data = visits()
    scenario = scenario_of(overfitting(), data)
    whose = [set(each.people) for each in (scenario.pool, scenario.public, scenario.private)]
    assert sum(map(len, whose)) == len(set.union(*whose)) == SITES * 40
    rows = len(scenario.pool) + len(scenario.public) + len(scenario.private)
    assert rows == len(data.train)
    assert persons_in(scenario.pool) == 2 * scenario.size
    assert scenario.counted == "persons"


def test_an_earlier_round_has_nobody_of_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """This also holds if persons of the pool have the most rows."""
    data = visits()
    pool = frozenset(scenario_of(overfitting(), data).pool.people.tolist())
    told: list[Any] = []

    def published(config: Any, inputs: Any, **more: Any) -> Any:
        told.append(inputs.dataset.train)
        return []

    monkeypatch.setattr("fedldp.audit.attacks.scenario.published", published)
    for dataset in (data, visits(heavy=pool)):
        scenario = scenario_of(overfitting(), dataset)
        assert not scenario.states
        assert not set(told[-1].people) & set(scenario.pool.people)
    assert frozenset(scenario.pool.people.tolist()) <= pool
    assert len(scenario.pool) > len(scenario.private)


def test_a_person_drawn_twice_is_two_persons() -> None:
    examples = Examples(
        np.arange(5, dtype=np.float32)[:, None], np.zeros(5, np.int64), np.array([7, 3, 7, 3, 9])
    )
    found = client_of(examples, np.array([1, 2, 1]))  # persons 7, 9 and 7 again, by their places
    np.testing.assert_array_equal(found.features[:, 0], [0, 2, 4, 0, 2])
    np.testing.assert_array_equal(found.people, [0, 0, 1, 2, 2])
    np.testing.assert_array_equal(rows_of(examples, np.array([0])), [1, 3])
    rows = replace(examples, people=None)
    np.testing.assert_array_equal(rows_of(rows, np.array([4, 0])), [4, 0])
    assert client_of(rows, np.array([4, 4])).people is None


def test_whole_runs_have_whole_persons_and_are_asked_about_persons() -> None:
    data = visits()
    scenario = scenario_of(overfitting(), data, visits=5e6)
    for share, own in zip(scenario.shares(4, 1), scenario.inputs.members, strict=True):
        whose = data.train.people[np.asarray(own)]
        for who in set(data.train.people[share]):
            assert np.sum(data.train.people[share] == who) == np.sum(whose == who)
        assert 0 < len(share) < len(np.asarray(own))
    for found in of_members.of_published_model(scenario, FEW):
        assert found.roc is not None
        assert "12 persons are candidates" in str(found.setting)
        assert found.roc.positives + found.roc.negatives == 12 * FEW.member_runs


def test_too_few_persons_are_refused_in_one_line() -> None:
    rng = np.random.default_rng(0)
    rows = (rng.random((45, 3)), rng.integers(0, 2, 45), np.repeat(np.arange(5), 9))
    data = Dataset.from_clients([rows], test=(rng.random((9, 3)), rng.integers(0, 2, 9)))
    with pytest.raises(ConfigError, match="belong to 5 persons; give 6 or more"):
        scenario_of(overfitting(num_clients=1), data)
