"""What a release costs under a privacy budget, and the filter that enforces the budget.

A filter lets a client choose each release, and its privacy cost, based on everything that happened
before, and stops before the budget would be exceeded. For the three kinds here, it compares the sum
of the costs with the limit. A budget covers everything that a client ever releases, across all
runs. Neighbouring inputs differ in the client's whole input, in all data of one person at the
client, or in one record.

Source: pure: Rogers, Roth, Ullman, Vadhan, "Privacy Odometers and Filters", NeurIPS 2016; zCDP:
Feldman, Zrnic, "Individual Privacy Accounting via a Renyi Filter", NeurIPS 2021, and Whitehouse,
Ramdas, Rogers, Wu, "Fully-Adaptive Composition in Differential Privacy", ICML 2023; GDP: Smith,
Thakurta, "Fully Adaptive Composition for Gaussian Differential Privacy", 2022, and Koskela,
Tobaben, Honkela, "Individual Privacy Accounting with Gaussian Differential Privacy", ICLR 2023.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import get_args

from fedldp.accounting.accountants import SIDES, UNITS, BudgetKind, Side
from fedldp.accounting.events import Event
from fedldp.accounting.prices import cost, price, price_of_run
from fedldp.core.errors import ConfigError, OverBudget
from fedldp.core.formatting import number
from fedldp.core.numbers import check_at_least, round_up

_OF_ONE: dict[Side, str] = {
    "client": "",
    "person": " for each person",
    "record": " for each record",
}


@dataclass(frozen=True)
class Budget:
    """How much a client may release in total.

    Attributes:
        kind: "pure", "zcdp" or "gdp".
        limit: the largest epsilon, rho or mu^2 (not mu), at least 0. A budget with an infinite
            limit only adds up costs: it covers every known event, even unprotected values.
        unit: what is protected: "client", the client's whole input; "person", all data of any one
            person at this client; "record", any one row.
    """

    kind: BudgetKind
    limit: float
    unit: Side = "client"

    def __post_init__(self) -> None:
        if self.unit not in SIDES:
            raise ConfigError(f"unit = {self.unit}: choose {', '.join(SIDES)}")
        if self.kind not in get_args(BudgetKind):
            raise ConfigError(f"kind = {self.kind}: choose {', '.join(get_args(BudgetKind))}")
        if self.limit != math.inf:
            check_at_least("limit", self.limit, 0)

    def __str__(self) -> str:
        if self.limit == math.inf:
            return f"{self.kind} budget without a limit{self.of_one}"
        return f"{self.kind} budget of {UNITS[self.kind]} {self.limit!r}{self.of_one}"

    @property
    def of_one(self) -> str:
        """What the budget protects, in words that follow a number; "" for the whole client."""
        return _OF_ONE[self.unit]

    def amount(self, cost: float, *, up: bool = True) -> str:
        """Return a cost under this budget in words, such as "rho 0.5 for each person"."""
        return f"{UNITS[self.kind]} {number(cost, up=up)}{self.of_one}"

    def price(self, event: Event, paid_before: Collection[Event] = ()) -> float:
        """Return the price of ``event``; infinity if this kind cannot cover it. See ``prices``."""
        return price(event, self.kind, paid_before, self.unit)

    def price_of_run(self, history: Iterable[tuple[Event, int]]) -> Fraction:
        """Return what the releases of a run have cost; see ``prices``."""
        return price_of_run(history, self.kind, self.unit)

    def admit(
        self, event: Event, spent: Fraction | float, paid_before: Collection[Event] = ()
    ) -> float:
        """Return the price of ``event`` if the budget still covers it after ``spent``.

        The comparison is exact: it uses the prices, which are rounded up, and the exact value of
        the limit as a float. So ten releases with epsilon 0.1 exceed a limit of 1.0, because the
        float 0.1 is above 1/10. With a price slightly below the limit divided by the number of
        releases, they do not exceed it.

        Args:
            event: the event to release.
            spent: the cost of all earlier releases.
            paid_before: the events that were released in the same run.

        Raises:
            OverBudget: the budget does not cover the event, or the event has no proven cost.
            AskedOtherwise: the run drew another event under the same identity.
        """
        costs = self.price(event, paid_before)
        if self.limit == math.inf:
            return costs
        if math.isinf(costs):
            raise OverBudget(
                f"no finite cost is proven for this release under a {self.kind} budget"
                f'{self.of_one}; set kind = "zcdp", which covers all that has a cost, or, for what '
                'it protects, give a person_budget with unit = "person" or "record"; nothing was '
                "released"
            )
        total = math.inf if math.isinf(spent) else Fraction(spent) + Fraction(costs)
        if total > Fraction(self.limit):
            raise OverBudget(
                f"{self}: {round_up(spent)!r} is spent already; this release costs {costs!r}, "
                f"{round_up(total)!r} in total; nothing was released"
            )
        return costs

    def may_cover(self, event: Event) -> bool:
        """Return whether this kind of budget can cover ``event``, or the limit is infinite."""
        return self.limit == math.inf or cost(event, self.kind, self.unit) < math.inf

    def spent(self, costs: Iterable[float | Fraction]) -> float:
        """Return the sum of ``costs``, rounded up."""
        return round_up(total_of(costs))

    def remaining(self, costs: Iterable[float | Fraction]) -> float:
        """Return what ``costs`` leave of the limit, rounded down; negative if they exceed it."""
        if self.limit == math.inf:
            return math.inf
        total = total_of(costs)
        return -math.inf if math.isinf(total) else -round_up(Fraction(total) - Fraction(self.limit))


def each_of(given: Budget | Iterable[Budget] | None) -> tuple[Budget, ...]:
    """Return the budgets of one ledger, the largest unit first; an empty tuple for None.

    Raises:
        ConfigError: two budgets have the same unit.
    """
    found = [given] if isinstance(given, Budget) else list(given or ())
    units = [budget.unit for budget in found]
    if len(set(units)) < len(units):
        raise ConfigError(f"budgets: give at most one per unit, not {' and '.join(units)}")
    return tuple(sorted(found, key=lambda budget: -SIDES.index(budget.unit)))


def admit_by_all(
    budgets: Sequence[Budget],
    event: Event,
    spent: Sequence[Fraction | float],
    paid_before: Collection[Event] = (),
) -> tuple[float, ...]:
    """Return the price of ``event`` under each budget, if all cover it: see ``Budget.admit``.

    Args:
        budgets: the budgets of one ledger.
        event: the event to release.
        spent: the cost of all earlier releases, under each budget.
        paid_before: the events that were released in the same run.
    """
    return tuple(
        budget.admit(event, before, paid_before)
        for budget, before in zip(budgets, spent, strict=True)
    )


def total_of(costs: Iterable[float | Fraction]) -> Fraction | float:
    """Return the exact sum of ``costs``; infinity if one of them is infinite."""
    given = list(costs)
    if math.inf in given:
        return math.inf
    return sum((Fraction(each) for each in given), Fraction(0))
