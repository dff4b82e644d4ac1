"""Each check of the contract of attacks notices the mistake that was planted for it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedldp.audit.attacks import membership
from fedldp.audit.attacks.intervals import curve, judged
from fedldp.audit.attacks.scenario import AttackScenario
from fedldp.audit.efforts import Effort
from fedldp.audit.results import AttackResult
from fedldp.testing.attacks import CHECKS, check_attack, is_attack


def honest(scenario: AttackScenario, effort: Effort) -> list[AttackResult]:
    return membership.of_reports(scenario, effort)


def _judged(scenario: AttackScenario, scores: Any, members: Any) -> list[AttackResult]:
    groups = np.repeat(np.arange(len(members)), members.shape[1])
    auc = curve(scores.ravel(), members.ravel(), groups, scenario.seed).auc
    told = {"against": "one client's report", "baseline": 0.5}
    return [judged(scenario.config.name(), "membership", "planted", "AUC", auc, **told)]


def outside(scenario: AttackScenario, effort: Effort) -> list[AttackResult]:
    """It moves the figure, and leaves its interval where it was."""
    found = honest(scenario, effort)
    return [
        replace(each, measured=replace(each.measured, value=2.0))  # type: ignore[type-var]
        for each in found
    ]


def boasts(scenario: AttackScenario, effort: Effort) -> list[AttackResult]:
    """It says that it succeeds, whatever it finds."""
    return [replace(each, baseline=1.0, verdict="succeeds") for each in honest(scenario, effort)]


def _drawing(draw: Any) -> Any:
    def unseeded(scenario: AttackScenario, effort: Effort) -> list[AttackResult]:
        members = membership.play(scenario, effort.member_clients).members
        drawn = np.array([draw() for _ in range(members.size)])
        return _judged(scenario, drawn.reshape(members.shape), members)

    return unseeded


def reads_the_answer(scenario: AttackScenario, effort: Effort) -> list[AttackResult]:
    """Its score is whether an example is a member."""
    members = membership.play(scenario, effort.member_clients).members
    return _judged(scenario, members.astype(float), members)


def trains_itself(scenario: AttackScenario, effort: Effort) -> list[AttackResult]:
    """It reads the clients' own examples: the mean of them is near to the members'."""
    members = membership.play(scenario, effort.member_clients).members
    flat = scenario.pool.features.reshape(len(scenario.pool), -1)
    means = np.array([flat[row].mean(0) for row in members])
    return _judged(scenario, -np.linalg.norm(means[:, None] - flat, axis=2), members)


def blind(scenario: AttackScenario, effort: Effort) -> list[AttackResult]:
    """Its scores are random."""
    members = membership.play(scenario, effort.member_clients).members
    scores = np.random.default_rng(scenario.seed).random(members.shape)
    return _judged(scenario, scores, members)


DRAWS = {
    "numpy's global": np.random.random,
    "Python's global": random.random,
    "torch's global": lambda: float(torch.rand(())),
    "the system's": np.random.default_rng().random,
}
PLANTED: dict[str, tuple[Any, str]] = {
    **{name: (_drawing(draw), "one seed") for name, draw in DRAWS.items()},
    "outside": (outside, "results"),
    "boasts": (boasts, "results"),
    "reads the answer": (reads_the_answer, "only what is seen"),
    "trains itself": (trains_itself, "only what is seen"),
    "blind": (blind, "power"),
    "no list": (lambda scenario, effort: {"AUC": 1.0}, "results"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found_by_its_check(name: str) -> None:
    attack, check = PLANTED[name]
    found = {each.name: each for each in check_attack(attack)}[check]
    assert found.verdict == "fails"
    assert "Error" not in found.text
    assert found.remedy


def test_every_check_has_a_planted_mistake() -> None:
    assert {check for _, check in PLANTED.values()} == {check.name for check in CHECKS}


def test_an_honest_attack_keeps_the_contract() -> None:
    assert is_attack(honest)
    assert {each.verdict for each in check_attack(honest)} == {"ok"}


def test_an_attack_on_other_systems_is_not_judged() -> None:
    def attacks(scenario: AttackScenario, effort: Effort) -> list[AttackResult]:
        return []

    assert {each.verdict for each in check_attack(attacks)} == {"not applicable"}
