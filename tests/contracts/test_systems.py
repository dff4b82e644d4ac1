"""Systems keep their contract with every kind of part: one configuration stands for each kind.

For all recipes, ``tests/gate`` records the configuration, what a client is told, and the statement.
"""

from __future__ import annotations

import pytest
from subjects import candidates, kinds, subjects

from fedldp.algorithms.bounds import Bound
from fedldp.algorithms.channel import Channel
from fedldp.algorithms.composition import Local
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.systems import systems
from fedldp.testing.checks import outcomes
from fedldp.testing.systems import CHECKS, System, shortened

SUBJECTS = subjects()
WITHOUT = {"InContrasts", "InLabels"}
"""Parts that no short configuration of the digits has; they have tests of their own."""


@pytest.mark.slow
@pytest.mark.parametrize("config", SUBJECTS.values(), ids=SUBJECTS)
def test_a_system_keeps_its_contract(config: RunConfig) -> None:
    on = [System(shortened(config))]
    found = list(outcomes(CHECKS, on))
    assert [each for each in found if each.verdict == "fails"] == []


def test_every_system_and_every_kind_of_part_is_tested() -> None:
    assert {config.system for config in SUBJECTS.values()} >= set(systems())
    covered = set[str]().union(*map(set, map(kinds, SUBJECTS.values())))
    assert covered == set[str]().union(*map(set, map(kinds, candidates().values())))
    for base in (Local, Bound, Channel):
        made = {each.__name__ for each in _below(base) if each.__module__.startswith("fedldp.")}
        tested = {kind.split()[-1] for kind in covered}
        assert made - tested == {name for name in WITHOUT if name in made}


def _below(base: type) -> set[type]:
    """Return the concrete subclasses of a class that presets use as they are."""
    found = {base} if not base.__subclasses__() else set()
    return found.union(*map(_below, base.__subclasses__()))
