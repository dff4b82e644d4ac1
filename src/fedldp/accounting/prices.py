"""What an event costs under each kind of budget.

The price is that of the accountants' table, with what is drawn once paid for once. Costs are
rounded up, so their sum is never below what was spent.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from fractions import Fraction
from functools import lru_cache

from fedldp.accounting.accountants import (
    Kind,
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
    event: Event, kind: Kind, paid_before: Collection[Event] = (), side: Side = "client"
) -> float:
    """Return what ``event`` adds to a budget of ``kind`` after what the same run released before.

    What is drawn once costs nothing where the same was drawn before: what is released then follows
    from it. In all else it is the ``cost``.

    Args:
        event: to release.
        kind: of the budget.
        paid_before: the events that the client released in the same run.
        side: that the budget is of.

    Raises:
        AskedOtherwise: one of these drew another event under the same identity.
        UnknownEvent: the event is unknown.
    """
    costs = cost(event, kind, side)
    before = {key: drawn for each in paid_before for key, drawn in drawn_once(each).items()}
    now = drawn_once(event)
    for (of, identity), drawn in now.items():
        if before.get((of, identity), drawn) != drawn:
            raise AskedOtherwise(
                f"{identity}: this run drew it once as {before[of, identity]}, not as {drawn}; "
                "nothing was released"
            )
    return 0.0 if any(of == side and (of, identity) in before for of, identity in now) else costs


def price_of_run(
    history: Iterable[tuple[Event, int]], kind: Kind, side: Side = "client"
) -> Fraction:
    """Return the exact sum of the prices of one run's releases: of each event as often as given.

    Args:
        history: the events, and how often each.
        kind: of the budget.
        side: that the budget is of.

    Raises:
        OverBudget: no budget of ``kind`` covers one of them.
    """
    total, before = Fraction(0), list[Event]()
    for event, times in history:
        first = price(event, kind, before, side)
        before.append(event)
        if math.isinf(first):
            raise OverBudget(
                f"{type(event).__name__}: it was released, and no {kind} budget covers it"
            )
        total += Fraction(first) + (times - 1) * Fraction(price(event, kind, before, side))
    return total


def draws_once(event: Event) -> bool:
    """Return whether the price of ``event``, or of a later one, depends on what was drawn."""
    return bool(drawn_once(event))


def cost(event: Event, kind: Kind, side: Side = "client") -> float:
    """Return what ``event`` alone costs under a budget of ``kind``, rounded up.

    Args:
        event: to release.
        kind: of the budget.
        side: that the budget is of.

    Returns:
        A finite number of at least 0, or infinity: it cannot be paid, for nothing is proven.

    Guarantee: the release is epsilon-DP, rho-zCDP or mu-GDP, replacing the client's whole input or
    what else ``side`` is, with the cost as epsilon, rho or mu^2. Bits count singly or as a whole,
    whichever is less. Gaussian reports cost their rho under zCDP and nothing finite elsewhere; so
    do Gaussian shares, each by itself. Values in clear never have a finite cost; a message without
    any data costs nothing.

    Raises:
        UnknownEvent: the event is unknown.

    >>> from fedldp.accounting.events import BinaryRandomizedResponse
    >>> cost(BinaryRandomizedResponse(epsilon=0.5, coordinates=8), "pure")
    4.0
    >>> cost(BinaryRandomizedResponse(epsilon=0.5, coordinates=8), "zcdp")
    1.0
    """
    return _known_cost(event, kind, side)


@lru_cache
def _known_cost(event: Event, kind: Kind, side: Side) -> float:
    stated = sides_of(event)
    for each in stated.values():
        cost(each, kind, side)  # raises if it is unknown
    if stated:
        return cost(on_side(event, side), kind, side)
    content = content_of(event)
    if content is not None:
        once = cost(content.event, kind, side)
        return math.inf if math.isinf(once) else rounded_up(content.count * Fraction(once))
    if releases_nothing(event):
        return 0.0
    exact = accountant(event).price(event, kind)
    if exact is None:
        return math.inf
    assert exact >= 0
    return rounded_up(exact)


def rounded_up(exact: Fraction | float) -> float:
    """Return the least float of at least ``exact``; infinity if there is none."""
    if exact == math.inf:
        return math.inf
    try:
        return round_up(Fraction(exact))
    except OverflowError:
        return math.inf
