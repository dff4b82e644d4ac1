"""The events that a mechanism may state for its report; others are refused before a release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from runtimes import Site, packed_request, refusal_of, sending

import fedldp
from fedldp.accounting.events import (
    BinaryRandomizedResponse,
    Event,
    GaussianReport,
    GaussianShare,
    InClear,
    Memoized,
    NoRelease,
    PerPerson,
    PerRecord,
    PureCoordinates,
    PureReport,
    SampledClientsGaussian,
    SampledGaussian,
    SelfComposed,
)
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError
from fedldp.deployment.agreeing import agree
from fedldp.mechanisms import Mechanism, stated_event
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.protocol.wire import Reason

PURE = PureReport(epsilon=1.0)


@dataclass(frozen=True, kw_only=True)
class Cheaper(PureReport):
    """A subclass that could redefine anything."""


def thawed(event: Event, **changes: Any) -> Event:
    """Return an event with fields that bypassed its checks."""
    for name, value in changes.items():
        object.__setattr__(event, name, value)
    return event


REFUSED: dict[str, Callable[[int], Any]] = {
    "no data": lambda d: NoRelease(what="public keys"),
    "drawn once": lambda d: Memoized(drawn=PURE, identity="bits"),
    "per record": lambda d: PerRecord(record=PURE, client=PURE),
    "per person": lambda d: PerPerson(person=PURE, client=PURE),
    "several": lambda d: SelfComposed(each=PURE, count=2),
    "sampled": lambda d: SampledGaussian(noise_multiplier=1.0, sampling_rate=0.1, steps=3),
    "sampled clients": lambda d: SampledClientsGaussian(
        noise_multiplier=1.0, sample_size=1, population=100
    ),
    "fewer bits": lambda d: BinaryRandomizedResponse(epsilon=1.0, coordinates=d - 1),
    "more bits": lambda d: BinaryRandomizedResponse(epsilon=1.0, coordinates=d + 1),
    "one coordinate": lambda d: PureCoordinates(groups=((1.0, 1),)),
    "a subclass": lambda d: Cheaper(epsilon=1.0),
    "free": lambda d: PureReport(epsilon=0.0),
    "free bits": lambda d: BinaryRandomizedResponse(epsilon=0.0, coordinates=d),
    "free as a whole": lambda d: BinaryRandomizedResponse(epsilon=1.0, coordinates=d, whole=0.0),
    "free noise": lambda d: GaussianReport(mu=1.0, rho=0.0),
    "free of mu": lambda d: GaussianReport(mu=0.0, rho=1.0),
    "free share": lambda d: GaussianShare(squared_distance=0, variance=64),
    "no event": lambda d: 1.0,
    "none": lambda d: None,
    "negative": lambda d: thawed(PureReport(epsilon=1.0), epsilon=-5.0),
    "not a number": lambda d: thawed(PureReport(epsilon=1.0), epsilon=float("nan")),
}
ALLOWED: dict[str, Callable[[int], Event]] = {
    "bits": lambda d: BinaryRandomizedResponse(epsilon=1.0, coordinates=d, whole=2.0),
    "coordinates": lambda d: PureCoordinates(groups=((1.0, d - 1), (2.0, 1))),
    "report": lambda d: PURE,
    "gaussian": lambda d: GaussianReport(mu=1.0, rho=0.5),
    "share": lambda d: GaussianShare(squared_distance=9, variance=64),
    "clear": lambda d: InClear(what="weights"),
}


def own(event: Callable[[int], Any]) -> Mechanism:
    """Return a user's own mechanism that states an event."""

    @dataclass(frozen=True)
    class Own(TwoPoint):
        def event(self, size: int) -> Any:
            return event(size)

    return Own(1.0)


@pytest.mark.parametrize("event", REFUSED.values(), ids=REFUSED.keys())
def test_an_event_that_does_not_describe_the_report_is_refused_in_one_line(
    event: Callable[[int], Any],
) -> None:
    with pytest.raises(ConfigError) as found:
        stated_event(own(event), 8)
    line = str(found.value)
    assert line.startswith("mechanism = ")
    assert "Own" in line
    assert "\n" not in line


@pytest.mark.parametrize("event", ALLOWED.values(), ids=ALLOWED.keys())
def test_an_event_that_describes_the_report_is_accepted(event: Callable[[int], Event]) -> None:
    assert stated_event(own(event), 8) == event(8)


def test_a_client_with_its_own_keys_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mechanism = "):
        Site(tmp_path, encoder=sending(own(REFUSED["per record"]))).start()


def test_a_mechanism_that_changes_its_statement_is_refused_at_that_point(tmp_path: Path) -> None:
    stated: list[Event] = [PURE]
    mechanism = own(lambda size: stated[-1])
    site = Site(tmp_path, encoder=sending(mechanism))
    runtime = site.start()
    stated.append(NoRelease(what="nothing"))
    assert refusal_of(runtime.answer(packed_request())).reason == Reason.POLICY
    assert (site.local_update.calls, site.entries()) == (0, [])


# The user's own file on the command line

FILE = """
from dataclasses import dataclass
from fedldp.accounting.events import NoRelease
from fedldp.mechanisms.two_point import TwoPoint

@dataclass(frozen=True)
class Free(TwoPoint):
    name = "free"

    def event(self, size):
        return NoRelease(what="nothing, says its author")
"""


@pytest.fixture
def free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "free_of_charge.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "free_of_charge:Free"


@pytest.mark.parametrize(
    "command",
    [
        "account --set mechanism={free}",
        "account --set target={unit='client-run',epsilon=1} --set mechanism={free}",
        "run --set mechanism={free}",
        "audit --mechanism {free} --quick",
    ],
)
def test_a_command_refuses_a_free_report(fedldp_command: Any, free: str, command: str) -> None:
    line = fedldp_command(*command.replace("{free}", free).split()).assert_refused()
    assert f"{free}: it states NoRelease for a report" in line
    assert not Path("runs").exists()


def test_sites_cannot_agree_on_a_free_report(free: str) -> None:
    config = fedldp.recipe("quickstart", mechanism=free, num_clients=4, rounds=2)
    sites = {f"site-{index}": f"{index:064x}" for index in range(1, 5)}
    with pytest.raises(ConfigError, match="it states NoRelease for a report"):
        agree(config, Problem((1, 8, 8), 10, 1437), sites, channel="named")
