"""The contract of ``Event`` and its row in the accountants' table, for events of your own.

An event is checked as the mechanisms and systems of its module state it, so put these beside it.
The checks cannot prove an epsilon; ``law`` can refute one.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import get_args

from fedldp.accounting.accountants import (
    BudgetKind,
    Clear,
    Loss,
    Normal,
    Pure,
    accountant,
    from_record,
    loss_of,
    price_of_pure,
)
from fedldp.accounting.events import Event, to_record
from fedldp.accounting.guarantees import proven_epsilon
from fedldp.accounting.prices import cost
from fedldp.core.errors import ConfigError, FedldpError, OverBudget
from fedldp.core.locks import scratch
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.protocol import Place
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.mechanisms import Mechanism, stated_event
from fedldp.testing import mechanisms
from fedldp.testing.cases import RUN, events_of
from fedldp.testing.checks import Check, NotApplicable, Outcome, outcomes
from fedldp.testing.mechanisms import Instance, instances
from fedldp.testing.systems import configs_in

_DELTAS = (1e-9, 1e-5, 1e-2)
_SLACK = 1 - 1e-4
"""Prices and losses may be rounded apart by this factor: mu has more room than rho."""


@dataclass(frozen=True)
class Stated:
    """An event, and who states it.

    Attributes:
        event: the event.
        by: the mechanism that states it for its reports; None if a system does.
    """

    event: Event
    by: Instance | None = None

    def __str__(self) -> str:
        return f"{self.event}" if self.by is None else f"{self.event} of {self.by}"


def stated_in(kind: type[Event]) -> list[Stated]:
    """Return the events of a class that the mechanisms and systems of its module state.

    Raises:
        ConfigError: none of them states such an event.
    """
    module, found = inspect.getmodule(kind), list[Stated]()
    for _, member in inspect.getmembers(module, inspect.isclass):
        if issubclass(member, Mechanism) and not inspect.isabstract(member):
            for each in instances(member):
                with suppress(FedldpError):  # the contract of mechanisms says what is wrong
                    event = each.mechanism.event(each.size)
                    found += [Stated(event, each)] * (type(event) is kind)
    for config in [] if found else configs_in(module):
        found += [Stated(event) for event in events_of(config) if type(event) is kind]
    if not found:
        raise ConfigError(
            f"check {kind.__module__}:{kind.__qualname__}: no mechanism and no system of its "
            "module states it; put one that does into the same file, so that its reports can be "
            "compared with what is stated"
        )
    return found


def record(at: Stated) -> Iterator[str]:
    """A ledger returns the event as it was charged, and the price that it was charged at."""
    event = at.event
    if from_record(json.loads(json.dumps(to_record(event)))) != event:
        yield "its record, as JSON, is read as another event"
    priced = [kind for kind in get_args(BudgetKind) if math.isfinite(_priced(event, kind))]
    for kind in priced:
        budget = Budget(kind, 2.5 * _priced(event, kind))
        with scratch() as folder:
            ledger, covered = SqliteLedger(folder / "ledger", budget), 0
            with suppress(OverBudget):
                for covered in range(3):
                    place = Place(RUN, 1 + covered, 0, bytes([covered] * 32))
                    ledger.release(place, event, [0], lambda: [b"report"], None)
            kept = [each.event for each in SqliteLedger(folder / "ledger", budget).verify()]
        if covered != 2:
            yield f"a {kind} budget of 2.5 times its price does not cover exactly 2 reports"
        if kept != [event] * 2:
            yield "the ledger on disk holds another event"


def _priced(event: Event, kind: BudgetKind) -> float:
    """Return what a report costs; infinity if no budget of this kind covers it."""
    try:
        return cost(event, kind)
    except OverBudget:
        return math.inf


def priced(at: Stated) -> Iterator[str]:
    """A price is at least what the loss says, and the same whenever it is asked for."""
    price, loss = accountant(at.event).price, loss_of(at.event)
    for kind in get_args(BudgetKind):
        found = price(at.event, kind)
        if found is None:
            continue
        if not isinstance(found, Fraction) or found <= 0:
            yield f"its {kind} price is {found!r}: give a Fraction above 0, or None"
        elif price(at.event, kind) != found:
            yield f"its {kind} price changes from one call to the next"
        elif (least := _least(loss, kind)) is not None and found < least * Fraction(_SLACK):
            yield f"its {kind} price is {float(found):.4g}, but its loss says {float(least):.4g}"


def _least(loss: Loss | None, kind: BudgetKind) -> Fraction | None:
    """Return what a loss adds to a budget of a kind; None if that is not known."""
    if isinstance(loss, Pure):
        each = (n * price_of_pure(epsilon, kind) for (epsilon, _), n in loss.singles)
        return min(price_of_pure(loss.whole, kind), sum(each, Fraction(0)))
    if isinstance(loss, Normal) and kind != "pure":
        return Fraction(loss.mu(1)) ** 2 / (1 if kind == "gdp" else 2)
    return None


def lines(at: Stated) -> Iterator[str]:
    """A statement has finite lines, which grow with the number of reports and as delta falls."""
    if isinstance(loss_of(at.event), Clear):
        raise NotApplicable("it states that values are in the clear")
    if at.by is not None:
        stated_event(at.by.mechanism, at.by.size)
    before = 0.0
    for reports in (1, 20):
        found = [
            math.inf if (proven := proven_epsilon(at.event, "client-run", delta, reports)) is None
            else proven
            for delta in _DELTAS
        ]  # fmt: skip
        if not all(math.isfinite(each) for each in found):
            yield f"{reports} reports have no finite epsilon"
        if sorted(found, reverse=True) != found:
            yield f"{reports} reports: a smaller delta gives a smaller epsilon"
        if found[1] < before * _SLACK:
            yield f"{reports} reports cost less than fewer ones"
        before = found[1]


def law(at: Stated) -> Iterator[str]:
    """No two inputs of a mechanism that states it can be told apart better than it says."""
    if at.by is None:
        raise NotApplicable("a system states it, whose own checks attack it")
    yield from mechanisms.law(at.by)


CHECKS: tuple[Check[Stated], ...] = (
    Check("record", record, "give it plain Python fields, and a wire name that no other event has"),
    Check("price", priced, "derive price and loss from one proof; price_of_pure rounds up"),
    Check("statement", lines, "give a loss that is finite and above 0 for these fields"),
    Check("law", law, "the report costs more than is stated: state that", thorough=True),
)


def check_event(kind: type[Event], *, thorough: bool = False) -> list[Outcome]:
    """Check that an event, and its row in the accountants' table, keep their contract.

    Args:
        kind: the event's class. The mechanisms and systems of its module say which events to check.
        thorough: whether reports of the mechanisms that state it are also attacked (``law``).

    Returns:
        One outcome for each check.

    Raises:
        ConfigError: nothing in its module states it.
    """
    return list(outcomes(CHECKS, stated_in(kind), thorough=thorough))
