"""The contract of an attack of your own: a function of a scenario and an effort.

It is the function that a paper's folder has in ``attacks.py``. It attacks small runs of the digits:
of the systems of its module, of FedAvg, which protects nothing, and of a toy.
"""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.systems import find_system
from fedldp.audit.attacks.scenario import AttackScenario
from fedldp.audit.efforts import QUICK, Effort
from fedldp.audit.results import AttackResult, verdict_of_attack
from fedldp.testing.boundary import Held
from fedldp.testing.checks import Check, NotApplicable, Outcome, outcomes
from fedldp.testing.systems import configs_in, small_config
from fedldp.testing.toys import TOY

Attack = Callable[[AttackScenario, Effort], list[AttackResult]]

EFFORT = replace(
    QUICK, attack_examples=6, attack_rounds=1, attack_visits=1e5, member_clients=12, member_runs=8,
    member_rounds=4, member_candidates=60, image_count=6, image_known=12, image_public=60,
    property_clients=24,
)  # fmt: skip
IN_CLEAR = "fedavg"
"""A system that protects nothing."""
SEEDS = (0, 1, 2, 3, 4)
"""An attack that guesses has a whole 95 % interval above guessing at all of them by chance with a
probability of 1e-8."""


@dataclass(frozen=True, eq=False)
class Attacked:
    """An attack, and a run that it attacks.

    Attributes:
        attack: the attack.
        config: the configuration of the run.
    """

    attack: Attack
    config: RunConfig

    def __str__(self) -> str:
        return f"system = {self.config.name()}"

    def results(self, seed: int = 0) -> list[AttackResult]:
        """Return what the attack finds; the global generators start with other numbers each time.

        Raises:
            NotApplicable: it does not attack this system.
        """
        scenario = AttackScenario.of(
            self.config,
            None,
            seed=seed,
            most_examples=EFFORT.attack_examples,
            rounds=EFFORT.attack_rounds,
            visits=EFFORT.attack_visits,
        )
        found = self.attack(scenario, EFFORT)
        if isinstance(found, list) and not found:
            raise NotApplicable("it attacks none of the systems that are tried")
        return found

    @cached_property
    def first(self) -> list[AttackResult]:
        """What it finds with the seed 0."""
        return self.results()


def results(at: Attacked) -> Iterator[str]:
    """Each result has a figure within its interval, or a note that says why it has none."""
    found = at.first
    if not isinstance(found, list) or not all(isinstance(each, AttackResult) for each in found):
        yield f"it returns {type(found).__name__}, not a list of AttackResult"
    for each in found:
        json.dumps(each.as_json(), allow_nan=False)
        if each.subject != at.config.name() or not each.attack or not each.against:
            yield "a result names no attack, not the system, or not what the adversary sees"
        if each.measured is None:
            if not each.note:
                yield f"{each.attack}: neither a figure nor a note"
        elif not each.measured.low <= each.measured.value <= each.measured.high:
            yield f"{each.attack}: {each.measured} is not within its interval"
        elif each.succeeds and not _beats(each):
            yield f"{each.attack}: it says that it succeeds, but guessing is in {each.measured}"


def _beats(result: AttackResult) -> bool:
    """Return whether a result's whole interval is better than guessing."""
    verdict = verdict_of_attack(result.measure, result.measured, result.baseline)
    return verdict == "succeeds"


def one_seed(at: Attacked) -> Iterator[str]:
    """With one seed, an attack finds the same, whatever ran before."""
    torch_state, state, own = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        for number in (1, 2):
            random.seed(number)
            np.random.seed(number)
            torch.manual_seed(number)
            for one, other in zip(at.first, at.results(), strict=True):
                if one.as_json() != other.as_json():
                    yield f"{one.attack}: the same seed gives another figure"
    finally:
        torch.set_rng_state(torch_state)
        np.random.set_state(state)
        random.setstate(own)


def seen_only(at: Attacked) -> Iterator[str]:
    """An attack finds nothing if every report is the report of zeros, whatever the examples are."""
    succeeded: set[str] = {each.attack for each in at.first if each.attack is not None}
    for seed in SEEDS:
        with Held().on():
            found = at.results(seed)
        succeeded &= {str(each.attack) for each in found if _beats(each)}
        if not succeeded:
            return
    for name in sorted(succeeded):
        yield f"{name}: it beats guessing at reports that do not depend on the examples"


def power(at: Attacked) -> Iterator[str]:
    """An attack finds something in reports that protect nothing."""
    if at.config.name() != IN_CLEAR:
        raise NotApplicable("its reports may protect the examples")
    if not any(_beats(each) for each in at.first):
        yield "nothing is found in reports in the clear"


CHECKS: tuple[Check[Attacked], ...] = (
    Check("results", results, "return AttackResults, for instance those of intervals.judged"),
    Check("one seed", one_seed, "draw from generators seeded by scenario.seed alone"),
    Check(
        "only what is seen",
        seen_only,
        "use scenario.reports, scenario.report_updates and scenario.public, and no client's own",
    ),
    Check("power", power, "the attack is too weak to tell anything; try it on fedavg first"),
)


def is_attack(found: object) -> bool:
    """Return whether something may be an attack: a function of ``scenario`` and ``effort``."""
    return inspect.isfunction(found) and [*inspect.signature(found).parameters] == [
        "scenario",
        "effort",
    ]


def check_attack(attack: Attack) -> list[Outcome]:
    """Check that an attack keeps its contract.

    Args:
        attack: the function ``attacks`` of a paper's ``attacks.py``, or one like it.

    Returns:
        One outcome for each check. The probability that an honest attack fails any of them is at
        most 1e-6.
    """
    toys = [small_config(find_system(name)) for name in (IN_CLEAR, TOY)]
    configs = [*configs_in(inspect.getmodule(attack)), *toys]
    return list(outcomes(CHECKS, [Attacked(attack, config) for config in configs]))
