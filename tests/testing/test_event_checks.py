"""Each check of the contract of events notices the mistake that was planted for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from fedldp.accounting.accountants import ACCOUNTANTS, Accountant, Normal, Pure, price_of_pure
from fedldp.accounting.events import Event
from fedldp.core.errors import ConfigError
from fedldp.mechanisms import mechanisms as known
from fedldp.testing import mechanisms
from fedldp.testing.checks import outcome
from fedldp.testing.events import CHECKS, Stated, check_event, stated_in
from fedldp.testing.mechanisms import instances
from fedldp.testing.toys import ToyBits

BY_NAME = {check.name: check for check in CHECKS}


@dataclass(frozen=True, kw_only=True)
class Right(Event):
    """A report that is ``epsilon``-private as a whole."""

    epsilon: float


@dataclass(frozen=True, kw_only=True)
class Shrinks(Right):
    """Its record is read as half of what was charged."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "epsilon", self.epsilon / 2)


class Cheap(Right):
    """A budget is charged half of what the statement says."""


class Nothing(Right):
    """Its loss is that of infinite noise."""


class HalfTrue(Right):
    """Price and loss are both half of the true epsilon."""


class Unstated(Right):
    """Nothing states it."""


def _pure(share: float) -> Any:
    return lambda event: Pure(
        whole=event.epsilon * share, singles=(((event.epsilon * share, 1.0), 1),)
    )


RIGHT = Accountant[Any](
    price=lambda event, kind: price_of_pure(event.epsilon, kind), loss=_pure(1), by_mechanism=True
)
CHEAP = replace(RIGHT, price=lambda event, kind: price_of_pure(event.epsilon / 2, kind))
ROWS = {
    Right: RIGHT,
    Shrinks: RIGHT,
    Cheap: CHEAP,
    Nothing: replace(CHEAP, loss=lambda event: Normal(mu=lambda shares: 0.0)),
    HalfTrue: replace(CHEAP, loss=_pure(0.5)),
}
PLANTED = {Shrinks: "record", Cheap: "price", Nothing: "statement", HalfTrue: "law"}


@dataclass(frozen=True)
class States(ToyBits):
    states = Right

    def event(self, size: int) -> Any:
        bits = super().event(size)
        return self.states(epsilon=bits.epsilon * bits.coordinates)


class StatesShrinks(States):
    states = Shrinks


class StatesCheap(States):
    states = Cheap


class StatesNothing(States):
    states = Nothing


class StatesHalfTrue(States):
    states = HalfTrue


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanisms, "TRIALS", 2000)
    monkeypatch.setattr(mechanisms, "SETTINGS", ((2.0, 1),))
    for kind, row in ROWS.items():
        monkeypatch.setitem(ACCOUNTANTS, kind, row)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_mistake_is_found_by_its_check(kind: Any) -> None:
    found = outcome(BY_NAME[PLANTED[kind]], stated_in(kind))
    assert found.verdict == "fails", kind.__doc__
    assert found.remedy
    assert kind.__name__ in found.text


def test_every_check_has_a_planted_mistake() -> None:
    assert set(PLANTED.values()) == set(BY_NAME)


@pytest.mark.slow
def test_an_honest_event_keeps_the_contract() -> None:
    assert {each.verdict for each in check_event(Right, thorough=True)} == {"ok"}


def test_an_event_that_nothing_states_is_refused() -> None:
    with pytest.raises(ConfigError, match="no mechanism and no system of its module states it"):
        check_event(Unstated)


@pytest.mark.parametrize("name", sorted(known()))
def test_no_price_of_fedldps_own_events_is_below_its_loss(name: str) -> None:
    made = [each for each in instances(known()[name]) if each.asked is None]
    stated = [Stated(each.mechanism.event(each.size), each) for each in made]
    assert outcome(BY_NAME["price"], stated).verdict == "ok"
