"""Targets for a person at one site and at several: calibration finds the least noise that meets
them.

Clients release the events of systems that protect whole clients, here taken to protect people.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from tables import DOWNLINK, released, table_of

import fedldp
from fedldp.accounting.accountants import drawn_once
from fedldp.accounting.events import Event, GaussianReport, GaussianShare, InClear, PerPerson
from fedldp.accounting.numerics.gaussian import gaussian_epsilon
from fedldp.accounting.releases import ReleaseHistory
from fedldp.core.errors import ConfigError
from fedldp.simulation import plan as planning
from fedldp.simulation.plan import plan, problem_of

CLEAR = InClear(what="all that many people add up to")
DELTA = 1e-5
SMALL = {"num_clients": 6, "rounds": 3, "local_epochs": 1}


@pytest.fixture
def of_people(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that turns the events of clients, or of the server, into events of
    people."""

    def begin(*, by_server: bool = False) -> None:
        def wrapped(*given: Any) -> ReleaseHistory:
            table: dict[int, dict[int, Event]] = {}
            for round, clients in table_of(planned(*given)).items():
                of_round = {
                    client: PerPerson(person=event, client=CLEAR)
                    for client, event in clients.items()
                }
                table[round] = {DOWNLINK: of_round[0]} if by_server else of_round
            return released(table)

        planned = planning.planned_releases
        monkeypatch.setattr(planning, "planned_releases", wrapped)

    return begin


def calibrated(recipe: str, adversary: str, sites: int, **settings: Any) -> Any:
    target = {"unit": "person", "epsilon": 2.0, "delta": DELTA, "adversary": adversary}
    config = fedldp.recipe(recipe, **SMALL, **settings, target=target, persons_at_sites=sites)
    return plan(config, problem_of(config, None))


def reached(planned: Any, adversary: str) -> float:
    (line,) = [
        g for g in planned.privacy.guarantees if (g.unit, g.adversary) == ("person", adversary)
    ]
    return float(line.epsilon)


def mu_of(planned: Any, shares: int = 1) -> float:
    """Return the mu of one release for a person at one site."""
    events = [e for each in table_of(planned.releases).values() for e in each.values()]
    person = events[0].person
    assert not drawn_once(person)
    if isinstance(person, GaussianShare):
        return math.sqrt(person.squared_distance / (shares * person.variance - 16))
    assert isinstance(person, GaussianReport)
    return person.mu


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("by_server", [False, True])
def test_noise_of_a_site_or_of_the_server_is_the_least_that_meets_the_target(
    of_people: Callable[..., None], sites: int, by_server: bool
) -> None:
    of_people(by_server=by_server)
    adversary = "downlink" if by_server else "server"
    planned = calibrated("quickstart", adversary, sites, mechanism="gaussian", channel="named")
    times = sites if by_server else math.sqrt(sites)
    expected = gaussian_epsilon(mu_of(planned) * math.sqrt(3) * times, DELTA)
    assert reached(planned, adversary) == pytest.approx(expected, rel=1e-7)
    least = 1e-3 if by_server else 1e-6  # the accuracy of the calibration
    assert 2.0 * (1 - least) < reached(planned, adversary) <= 2.0


@pytest.mark.parametrize("sites", [1, 2])
def test_shares_of_noise_are_the_smallest_whose_sum_meets_the_target(
    of_people: Callable[..., None], sites: int
) -> None:
    of_people()
    planned = calibrated("distributed-gaussian-digits", "summing-server", sites)
    expected = gaussian_epsilon(mu_of(planned, shares=6) * math.sqrt(3) * sites, DELTA)
    assert reached(planned, "summing-server") == pytest.approx(expected, rel=1e-6)
    assert 1.9 < reached(planned, "summing-server") <= 2.0


def test_a_system_without_a_guarantee_for_people_says_so() -> None:
    with pytest.raises(ConfigError, match="nothing is proven per person against the server at"):
        calibrated("quickstart", "server", 1, mechanism="gaussian", channel="named")
