"""Well-known attacks on any system: membership inference, inversion, property inference.

    attack(config, dataset)
        |
        v
    AttackScenario         the server of a run, and examples that it and the clients have
        |         clients answer through their own runtime, bytes in, bytes out
        v
    membership    was this example among the client's, or among the run's?
    inversion     what did the client's image look like?
    property      what share of the client's examples belongs to one class?
        |
        v
    AttackResult        a figure with its interval beside what guessing gives; curves and pictures

A paper may bring attacks, such as those on the shuffler of LDP-FL: the function ``attacks`` of the
module ``attacks`` in its folder, which is given the scenario and the effort. Those of a paper in
another package run against its own systems only, and under the name of their module.

These attacks prove nothing, since an attack that fails may be weak. They show what a mechanism with
little protection lets through, in terms that need no epsilon.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fedldp.algorithms.config import RunConfig
from fedldp.audit.attacks import inversion, membership, property
from fedldp.audit.attacks.scenario import AttackScenario
from fedldp.audit.efforts import FULL, Effort
from fedldp.audit.results import AttackResult
from fedldp.core.errors import ConfigError
from fedldp.core.registry import PAPERS, paper_modules
from fedldp.data import Dataset

__all__ = [
    "attack",
    "inversion",
    "scenario",
]


def attack(
    config: RunConfig,
    dataset: Dataset | None = None,
    *,
    seed: int = 0,
    effort: Effort = FULL,
    tell: Callable[[str], None] = lambda line: None,
) -> list[AttackResult]:
    """Return the results of known attacks on one system.

    Args:
        config: the configuration of the system, which may be a user's own.
        dataset: the system's data; None: loaded by ``config.dataset``.
        seed: the seed of all the adversary's randomness, at least 0 and below 2**32; the same seed
            repeats the attack.
        effort: how much to try: ``QUICK`` or ``FULL``.
        tell: called with a line before each kind of attack.

    Raises:
        FedldpError: the configuration or the data is refused, or a run fails.
    """
    if not 0 <= seed < 2**32:
        raise ConfigError(f"seed = {seed}: give a number from 0 to {2**32 - 1}")
    scenario = AttackScenario.of(
        config,
        dataset,
        seed=seed,
        most_examples=effort.attack_examples,
        rounds=effort.attack_rounds,
        visits=effort.attack_visits,
    )
    tell("membership, from what the server sees")
    found = membership.of_reports(scenario, effort)
    tell("membership, from the published model")
    found += membership.of_published_model(scenario, effort)
    if inversion.is_images(scenario):
        tell("inversion")
        found += inversion.of_reports(scenario, effort)
    for of_paper in paper_modules("attacks", type(config).__module__):
        more = of_paper.attacks(scenario, effort)
        if not of_paper.__name__.startswith(f"{PAPERS}."):
            more = [_by(of_paper.__name__, each) for each in more]
        found += more
    tell("property")
    return found + property.of_reports(scenario, effort.property_clients)


def _by(module: str, result: AttackResult) -> AttackResult:
    """Return the result of another package's attack, under the name of its module."""
    return replace(result, attack=f"{module}:{result.attack}", stated_by=module)
