"""The budget that a run has spent after each round according to the accountant, for display."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fedldp.accounting.accountants import Normal, loss_of, sides_of
from fedldp.accounting.statement import run_lines, spent_by_unit
from fedldp.core.errors import OverBudget
from fedldp.ledgers.budget import Budget
from fedldp.simulation.plan import Plan, sum_of

MOST = 20
"""A slow accountant computes the epsilon after at most this many of a run's rounds."""


@dataclass(frozen=True)
class Spending:
    """The budget that the clients of a run will have spent up to a round, according to the plan.

    Guarantee: if no client releases more than planned, a round's epsilon is at least the epsilon in
    a statement about the rounds up to that round. The epsilon of the last round is then that of the
    whole run.

    The accountant is fast for compositions of Gaussian mechanisms, and computes their epsilon after
    every round. It is slower for other compositions: if a run has more than ``MOST`` rounds, the
    accountant computes the epsilon after only some of them. Each of the other rounds then shows the
    epsilon of the next computed round, which is at least as large as the round's own epsilon. Lines
    against a shuffler, and lines against a sum with any noise other than Gaussian noise, take the
    longest to compute; only the last round has them.

    Attributes:
        planned: the plan of the run.
    """

    planned: Plan
    _known: dict[int, list[dict[str, Any]]] = field(default_factory=dict, init=False, repr=False)

    def after(self, round: int) -> list[dict[str, Any]]:
        """Return an upper bound on the cost of the rounds up to ``round``.

        Returns:
            The entries that ``spent_by_unit`` returns; "of" is the planned cost of the whole run.
        """
        asked = self._asked(round)
        if asked not in self._known:
            self._known[asked] = self._after(asked)
        return self._known[asked]

    def budgets(self, round: int) -> list[dict[str, Any]]:
        """Return, for each budget, how much of it is spent by the client that spends the most.

        Returns:
            For each budget: "unit", "kind", "spent" and "left"; "left" is None without a limit.
        """
        histories = self.planned.releases.before(round + 1).histories()
        return [_budget(each, histories) for each in self.planned.config.budgets]

    def _asked(self, round: int) -> int:
        rounds = self.planned.config.rounds
        if rounds <= MOST or self._is_quick:
            return round
        step = math.ceil(round * MOST / rounds)
        return math.ceil(step * rounds / MOST)

    @property
    def _is_quick(self) -> bool:
        releases = self.planned.releases
        return not releases.of_server().events and all(
            not sides_of(event) and isinstance(loss_of(event), Normal) for event in releases.events
        )

    def _after(self, round: int) -> list[dict[str, Any]]:
        planned = self.planned
        config = planned.scheduled
        ends = planned.privacy["guarantees"]
        if round >= config.rounds:
            return spent_by_unit(ends, ends)
        lines = run_lines(
            planned.releases.before(round + 1),
            summed=sum_of(config) if self._is_quick else None,
            delta=config.delta if planned.delta is None else planned.delta,
            persons_at_sites=config.persons_at_sites,
        )
        return spent_by_unit(map(asdict, lines), ends)


def _budget(budget: Budget, histories: Iterable[Mapping[Any, int]]) -> dict[str, Any]:
    try:
        costs = [budget.price_of_run(each.items()) for each in histories]
        spent: float | None = budget.spent([max(costs, default=0.0)])
        left = budget.remaining([max(costs, default=0.0)])
    except OverBudget:
        spent, left = None, math.inf
    return {
        "unit": budget.unit,
        "kind": budget.kind,
        "spent": spent,
        "left": left if math.isfinite(left) else None,
    }
