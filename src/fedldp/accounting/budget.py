"""What a release costs under a privacy budget, and the filter that keeps the total within it.

A filter lets a client choose each release from what happened before, its privacy cost included, and
stops before the budget would be passed; for the three kinds here, it compares the sum of the costs
with the limit. The unit is whatever the budget covers: a client's ledger covers all that it ever
releases, whole inputs replaced.

Source: pure: Rogers, Roth, Ullman, Vadhan, "Privacy Odometers and Filters", NeurIPS 2016; zCDP:
Feldman, Zrnic, "Individual Privacy Accounting via a Renyi Filter", NeurIPS 2021, and Whitehouse,
Ramdas, Rogers, Wu, "Fully-Adaptive Composition in Differential Privacy", ICML 2023; GDP: Smith,
Thakurta, "Fully Adaptive Composition for Gaussian Differential Privacy", 2022, and Koskela,
Tobaben, Honkela, "Individual Privacy Accounting with Gaussian Differential Privacy", ICLR 2023.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import get_args

from fedldp.accounting.accountants import (
    UNITS,
    Kind,
    Side,
    accountant,
    content_of,
    drawn_once,
    on_side,
    releases_nothing,
    sides_of,
)
from fedldp.accounting.check import check_not_negative, round_up
from fedldp.accounting.events import Event
from fedldp.errors import AskedOtherwise, ConfigError, OverBudget


@dataclass(frozen=True)
class Budget:
    """How much a client may release in all.

    Attributes:
        kind: "pure", "zcdp" or "gdp".
        limit: the largest epsilon, rho or mu^2 (not mu), from 0. Infinity only counts: it covers
            everything that an event is known of, what is sent in clear too.
    """

    kind: Kind
    limit: float

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ConfigError(f"kind = {self.kind}: choose {', '.join(get_args(Kind))}")
        if self.limit != math.inf:
            check_not_negative("limit", self.limit)

    def __str__(self) -> str:
        if self.limit == math.inf:
            return f"{self.kind} budget without a limit"
        return f"{self.kind} budget of {UNITS[self.kind]} {self.limit!r}"

    def admit(
        self, event: Event, spent: Fraction | float, paid_before: Collection[Event] = ()
    ) -> float:
        """Return the price of ``event``, if after ``spent`` the budget still covers it.

        The comparison is exact: of the prices, which are rounded up, and of the limit as it is. So
        ten releases of epsilon 0.1 do not fit a limit of 1.0, since the float 0.1 is above 1/10;
        a share slightly below the limit over the number of releases does fit.

        Args:
            event: to release.
            spent: on all releases before.
            paid_before: the events that were released in the same run.

        Raises:
            OverBudget: the budget does not cover it, or nothing is proven for the event.
            AskedOtherwise: the run drew another event under the same identity.
        """
        costs = price(event, self.kind, paid_before)
        if self.limit == math.inf:
            return costs
        if math.isinf(costs):
            covers = self.kind != "zcdp" and cost(event, "zcdp") < math.inf
            remedy = "; a zcdp budget covers it" if covers else ""
            raise OverBudget(
                f"{type(event).__name__}: no finite cost is proven for it under a {self.kind} "
                f"budget{remedy}; nothing was released"
            )
        total = math.inf if math.isinf(spent) else Fraction(spent) + Fraction(costs)
        if total > Fraction(self.limit):
            raise OverBudget(
                f"{self}: {_up(spent)!r} is spent, this release costs {costs!r}, "
                f"together {_up(total)!r}; nothing was released"
            )
        return costs

    def may_cover(self, event: Event) -> bool:
        """Return whether some limit of this kind, at least this one if it is none, covers it."""
        return self.limit == math.inf or cost(event, self.kind) < math.inf

    def spent(self, costs: Iterable[float | Fraction]) -> float:
        """Return the sum of ``costs``, rounded up."""
        return _up(total_of(costs))

    def remaining(self, costs: Iterable[float | Fraction]) -> float:
        """Return what ``costs`` leave of the limit, rounded down; negative if they pass it."""
        if self.limit == math.inf:
            return math.inf
        total = total_of(costs)
        return -math.inf if math.isinf(total) else -_up(Fraction(total) - Fraction(self.limit))


def total_of(costs: Iterable[float | Fraction]) -> Fraction | float:
    """Return the exact sum of ``costs``; infinity if one of them is."""
    given = list(costs)
    if math.inf in given:
        return math.inf
    return sum((Fraction(each) for each in given), Fraction(0))


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


def price_of_run(history: Iterable[tuple[Event, int]], kind: Kind) -> Fraction:
    """Return the exact sum of the prices of one run's releases: of each event as often as given.

    Raises:
        OverBudget: no budget of ``kind`` covers one of them.
    """
    total, before = Fraction(0), list[Event]()
    for event, times in history:
        first = price(event, kind, before)
        before.append(event)
        if math.isinf(first):
            raise OverBudget(
                f"{type(event).__name__}: it was released, and no {kind} budget covers it"
            )
        total += Fraction(first) + (times - 1) * Fraction(price(event, kind, before))
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

    >>> from fedldp.accounting.events import TwoValuedBits
    >>> cost(TwoValuedBits(epsilon=0.5, coordinates=8), "pure")
    4.0
    >>> cost(TwoValuedBits(epsilon=0.5, coordinates=8), "zcdp")
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
        return math.inf if math.isinf(once) else _up(content.count * Fraction(once))
    if releases_nothing(event):
        return 0.0
    exact = accountant(event).price(event, kind)
    if exact is None:
        return math.inf
    assert exact >= 0
    return _up(exact)


def _up(exact: Fraction | float) -> float:
    if exact == math.inf:
        return math.inf
    try:
        return round_up(Fraction(exact))
    except OverflowError:
        return math.inf
