"""Membership is found if clients overfit, and not at small budgets or by chance."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from scenarios import digits, scenario_of
from scipy.stats import norm

from fedldp.audit.attacks.intervals import curve
from fedldp.audit.attacks.membership import (
    SECRET,
    Played,
    decide,
    lira,
    nearest_centre,
    of_published_model,
    of_reports,
    play,
)
from fedldp.audit.attacks.scenario import AttackScenario
from fedldp.audit.efforts import QUICK

trained_longer = partial(scenario_of, visits=1e8)
EFFORT = replace(QUICK, member_clients=30, member_runs=3, member_rounds=2, member_candidates=200)


@pytest.fixture(scope="module")
def overfitted() -> tuple[AttackScenario, Played, Played]:
    scenario = trained_longer(digits("fedavg-digits", model="mlp_64", local_epochs=10))
    return scenario, play(scenario, 24), play(scenario, 24, 24)


@pytest.mark.slow
def test_membership_in_an_overfitted_client_is_found(
    overfitted: tuple[AttackScenario, Played, Played],
) -> None:
    found = {attack.attack: attack for attack in decide(*overfitted)}
    assert set(found) == {"loss threshold", "LiRA", "gradient threshold", "LiRA, gradient"}
    for attack in found.values():
        assert attack.succeeds
        assert attack.measured is not None
        assert attack.measured.low > 0.8
    roc = found["LiRA"].roc
    assert roc is not None
    assert dict(roc.levels)[0.01].low > 0.1
    assert roc.positives == roc.negatives == 24 * 14


def shuffled(members: NDArray[np.bool_], seed: int) -> NDArray[np.bool_]:
    generator = np.random.default_rng(seed)
    return np.array([generator.permutation(row) for row in members])


@pytest.mark.slow
def test_random_membership_is_not_found(
    overfitted: tuple[AttackScenario, Played, Played],
) -> None:
    """Of 20 intervals at 95 %, fewer than 17 contain 1/2 with probability 0.016."""
    scenario, shadows, targets = overfitted
    scores = nearest_centre(shadows, targets.updates)
    groups = np.repeat(np.arange(len(scores)), scores.shape[1])
    found = [
        curve(scores.ravel(), shuffled(targets.members, seed).ravel(), groups, seed).auc
        for seed in range(20)
    ]
    assert sum(each.low <= 0.5 <= each.high for each in found) >= 17
    assert curve(scores.ravel(), targets.members.ravel(), groups, 0).auc.low > 0.6  # else it is
    of_all = decide(scenario, shadows, replace(targets, members=shuffled(targets.members, 0)))
    for attack in of_all:
        assert attack.measured is not None
        assert abs(attack.measured.value - 0.5) < 0.06


@pytest.mark.slow
def test_nothing_is_found_at_a_small_budget() -> None:
    """At 0.001 per weight, one round of 650 weights costs 0.65 (pure), or 0.06 at delta 1e-5."""
    found = [
        a.measured
        for a in of_reports(trained_longer(digits("ldp-fl-digits", epsilon=0.001)), EFFORT)
    ]
    results = [each for each in found if each is not None]
    assert len(results) == 4
    assert all(abs(each.value - 0.5) < 0.06 for each in results)
    assert sum(each.low <= 0.5 <= each.high for each in results) >= 3


@pytest.mark.slow
def test_a_secure_sum_hides_one_client_among_many() -> None:
    few, many = (
        {
            a.attack: a.measured
            for a in of_reports(
                trained_longer(digits("secure-aggregation-digits", num_clients=n, dropout=0.0)),
                EFFORT,
            )
        }
        for n in (2, 60)
    )
    name = "gradient threshold"
    assert few[name].low > 0.6  # type: ignore[union-attr]
    assert many[name].high < few[name].low  # type: ignore[union-attr]


def test_only_the_shadows_centre_attacks_codes() -> None:
    config = digits("ldpfl-digits", encoder_epochs=1, local_epochs=1)
    scenario = trained_longer(config)
    (attack,) = decide(scenario, play(scenario, 4), play(scenario, 4, 4))
    assert (attack.attack, attack.note) == ("nearest centre", SECRET)
    (blank,) = of_published_model(scenario, EFFORT)
    assert (blank.measured, blank.note, blank.succeeds) == (None, SECRET, False)


def test_lira_is_the_ratio_of_two_gaussians() -> None:
    generator = np.random.default_rng(0)
    members = generator.random((100, 3)) < 0.5
    shadows = np.where(members, generator.normal(2, 1, (100, 3)), generator.normal(0, 3, (100, 3)))
    seen = np.array([[1.0, -2.0, 4.0]])
    right = [
        norm.logpdf(x, of[m].mean(), of[m].std(ddof=1))
        - norm.logpdf(x, of[~m].mean(), of[~m].std(ddof=1))
        for x, of, m in zip(seen[0], shadows.T, members.T, strict=True)
    ]
    np.testing.assert_allclose(lira(shadows, members, seen)[0], right, rtol=1e-9)
    nobody = members.copy()
    nobody[:, 0] = False
    assert lira(shadows, nobody, seen)[0, 0] == 0  # an example that no shadow trained on
    assert lira(shadows, nobody, seen)[0, 1] == pytest.approx(right[1])


def test_the_nearest_centre_agrees_with_distances() -> None:
    generator = np.random.default_rng(0)
    members = generator.random((12, 3)) < 0.5
    updates, seen = generator.normal(size=(12, 2, 5)), generator.normal(size=(4, 2, 5))
    found = nearest_centre(Played(members=members, updates=updates), seen)
    for target, row in zip(seen, found, strict=True):
        for example, score in enumerate(row):
            inside = updates[members[:, example]].mean(0)
            outside = updates[~members[:, example]].mean(0)
            right = np.sum((target - outside) ** 2) - np.sum((target - inside) ** 2)
            assert score == pytest.approx(right)
