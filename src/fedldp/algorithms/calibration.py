"""Calibrations: which mechanism a budget makes, for each client, and what that budget is about."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedldp.algorithms.problem import EpsilonMeaning, Problem
from fedldp.mechanisms import Mechanism


class Calibration(ABC):
    """Says which mechanism a budget makes, and what that budget is about.

    Attributes:
        meaning: what ``epsilon`` is about, where there is such a setting.
        uses_rounds: whether the noise depends on the number of rounds.
        data_may_refuse: whether the data may refuse a run of which the plan could be made.
    """

    meaning: EpsilonMeaning | None
    uses_rounds: ClassVar[bool] = False
    data_may_refuse: ClassVar[bool] = False

    @abstractmethod
    def mechanism(self, problem: Problem, client: int) -> Mechanism:
        """Return the randomiser of one client.

        Raises:
            ConfigError: the mechanism does not go so far.
        """

    def label(self, client: int) -> float | None:
        """Return the budget that travels with a client's report, where budgets differ."""
        return None

    def check_shares(self, sizes: Sequence[int]) -> None:  # noqa: B027 (most promise nothing)
        """Refuse shares of simulated clients that a setting has promised not to happen.

        Args:
            sizes: how many examples each client got.

        Raises:
            ConfigError: it did happen.
        """


@dataclass(frozen=True, kw_only=True)
class Fixed(Calibration):
    """The same mechanism for all clients, whatever the problem.

    Attributes:
        every: the mechanism.
        meaning: see ``Calibration``.
    """

    every: Mechanism
    meaning: EpsilonMeaning | None = None

    def mechanism(self, problem: Problem, client: int) -> Mechanism:
        """Return it."""
        return self.every
