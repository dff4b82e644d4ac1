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
from typing import get_args

from fedldp.accounting.accountants import UNITS, Kind
from fedldp.accounting.events import Event
from fedldp.accounting.prices import cost, price, rounded_up
from fedldp.core.errors import ConfigError, OverBudget
from fedldp.core.numbers import check_not_negative


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
                f"{self}: {rounded_up(spent)!r} is spent, this release costs {costs!r}, "
                f"together {rounded_up(total)!r}; nothing was released"
            )
        return costs

    def may_cover(self, event: Event) -> bool:
        """Return whether some limit of this kind, at least this one if it is none, covers it."""
        return self.limit == math.inf or cost(event, self.kind) < math.inf

    def spent(self, costs: Iterable[float | Fraction]) -> float:
        """Return the sum of ``costs``, rounded up."""
        return rounded_up(total_of(costs))

    def remaining(self, costs: Iterable[float | Fraction]) -> float:
        """Return what ``costs`` leave of the limit, rounded down; negative if they pass it."""
        if self.limit == math.inf:
            return math.inf
        total = total_of(costs)
        return (
            -math.inf if math.isinf(total) else -rounded_up(Fraction(total) - Fraction(self.limit))
        )


def total_of(costs: Iterable[float | Fraction]) -> Fraction | float:
    """Return the exact sum of ``costs``; infinity if one of them is."""
    given = list(costs)
    if math.inf in given:
        return math.inf
    return sum((Fraction(each) for each in given), Fraction(0))
