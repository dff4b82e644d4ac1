"""What an event costs under each kind of budget.

Prices come from the accountants' table; a value that is drawn once is paid for once. Costs are
rounded up, so their sum is never below what was spent.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from functools import lru_cache

from fedldp.accounting.accountants import (
    BudgetKind,
    Side,
    accountant,
    content_of,
    drawn_once,
    on_side,
    releases_nothing,
    sides_of,
)
from fedldp.accounting.events import Event
from fedldp.core.errors import AskedOtherwise, OverBudget
from fedldp.core.numbers import round_up


def price(
    event: Event, kind: BudgetKind, paid_before: Collection[Event] = (), side: Side = "client"
) -> float:
    """Return what ``event`` adds to a budget of ``kind``, given the run's earlier releases.

    A value that is drawn once costs nothing if the same run drew it before, because the new release
    is computed from the earlier draw. Every other event costs its ``cost``.

    Args:
        event: the event to release.
        kind: the kind of the budget.
        paid_before: the events that the client released earlier in the same run.
        side: the side that the budget protects.

    Raises:
        AskedOtherwise: an earlier release drew another event under the same identity.
        UnknownEvent: the event is unknown.
    """
    before = {key: drawn for each in paid_before for key, drawn in drawn_once(each).items()}
    return _price(event, kind, before, side)


def _price(
    event: Event, kind: BudgetKind, before: Mapping[tuple[Side, str], Event], side: Side
) -> float:
    costs, now = cost(event, kind, side), drawn_once(event)
    for (of, identity), drawn in now.items():
        if before.get((of, identity), drawn) != drawn:
            raise AskedOtherwise(
                f"{identity}: this run drew it once as {before[of, identity]}, not as {drawn}; "
                "nothing was released"
            )
    return 0.0 if any(of == side and (of, identity) in before for of, identity in now) else costs


def price_of_run(
    history: Iterable[tuple[Event, int]], kind: BudgetKind, side: Side = "client"
) -> Fraction:
    """Return the exact sum of the prices of one run's releases.

    Args:
        history: the events, each with its number of releases.
        kind: the kind of the budget.
        side: the side that the budget protects.

    Raises:
        OverBudget: no budget of ``kind`` covers one of the events.
    """
    total, before = Fraction(0), dict[tuple[Side, str], Event]()
    for event, times in history:
        first = _price(event, kind, before, side)
        before |= drawn_once(event)
        if math.isinf(first):
            raise OverBudget(f"what was released has no finite cost under a {kind} budget")
        total += Fraction(first) + (times - 1) * Fraction(_price(event, kind, before, side))
    return total


@lru_cache
def cost(event: Event, kind: BudgetKind, side: Side = "client") -> float:
    """Return what one release of ``event`` costs under a budget of ``kind``, rounded up.

    Args:
        event: the event to release.
        kind: the kind of the budget.
        side: the side that the budget protects.

    Returns:
        A finite number of at least 0; infinity if nothing is proven, so that no budget covers it.

    Guarantee: the release is epsilon-DP, rho-zCDP or mu-GDP for neighbours that differ in ``side``
    (the client's whole input by default), with the cost as epsilon, rho or mu^2. Bits are charged
    one by one or as a whole, whichever is less. Gaussian reports and single Gaussian shares cost
    their rho under zCDP, and infinity under the other kinds. Unprotected values never have a finite
    cost. A message computed from no data costs nothing.

    Raises:
        UnknownEvent: the event is unknown.

    >>> from fedldp.accounting.events import BinaryRandomizedResponse
    >>> cost(BinaryRandomizedResponse(epsilon=0.5, coordinates=8), "pure")
    4.0
    >>> cost(BinaryRandomizedResponse(epsilon=0.5, coordinates=8), "zcdp")
    1.0
    """
    stated = sides_of(event)
    for each in stated.values():
        cost(each, kind, side)  # raises if the event is unknown
    if stated:
        return cost(on_side(event, side), kind, side)
    content = content_of(event)
    if content is not None:
        once = cost(content.event, kind, side)
        return math.inf if math.isinf(once) else round_up(content.count * Fraction(once))
    if releases_nothing(event):
        return 0.0
    exact = accountant(event).price(event, kind)
    if exact is None:
        return math.inf
    assert exact >= 0
    return round_up(exact)
