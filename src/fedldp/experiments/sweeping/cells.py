"""The results for one combination of settings, and what is stated about its runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedldp.accounting.guarantees import HOUSE, Adversary, Unit
from fedldp.accounting.proven import Proven
from fedldp.accounting.statement import Statement
from fedldp.core.facts import Doubt, Fact
from fedldp.reporting import words
from fedldp.reporting.lines import behind_sums, headline
from fedldp.reporting.scores import Figure, TestSet, is_imbalanced


@dataclass(frozen=True)
class Stated:
    """A statement's headline about a run; see ``fedldp.reporting.lines.headline``.

    Attributes:
        epsilon: the smallest stated epsilon; infinite if none is stated.
        delta: the delta of that epsilon.
        idealised: whether the epsilon holds only for noise in real arithmetic, not for the numbers
            that are sent.
        by: who states the epsilon; see ``fedldp.accounting.guarantees.Guarantee``.
        unit: what is protected.
        adversary: against whom it is protected.
        behind_sums: see ``fedldp.reporting.lines.behind_sums``.
        conditions: what the epsilon rests on, and the warnings of the statement.
    """

    epsilon: float
    delta: float
    idealised: bool
    by: str = HOUSE
    unit: Unit = "client-run"
    adversary: Adversary = "server"
    behind_sums: float | None = None
    conditions: tuple[Fact, ...] = ()

    @property
    def about(self) -> str:
        """What the epsilon covers.

        Empty if it covers all that a client sends, with the server as adversary.
        """
        return words.about(self.unit, self.adversary)

    @property
    def of_client(self) -> bool:
        """Whether the epsilon covers everything that a client sends, in a round or in the run."""
        return self.unit in ("client-round", "client-run")

    @property
    def is_proven(self) -> bool:
        """Whether the epsilon is not stated by the user's own code.

        This is also true if no epsilon is stated.
        """
        return self.by == HOUSE

    @classmethod
    def of(cls, privacy: Statement, guarantee: tuple[Unit, Adversary] | None = None) -> Stated:
        """Return a statement's headline; lines for the numbers that are sent take precedence.

        Args:
            privacy: the statement.
            guarantee: the unit and the adversary; None for the statement's headline.
        """
        line = headline(privacy, guarantee)
        if line is None or line.epsilon is None:
            unit, adversary = guarantee or ("client-run", "server")
            warned = privacy.warnings
            return cls(math.inf, 0.0, False, unit=unit, adversary=adversary, conditions=warned)
        return cls(
            epsilon=float(line.epsilon),
            delta=float(line.delta),
            idealised=line.is_idealised,
            by=line.stated_by,
            unit=line.unit,
            adversary=line.adversary,
            behind_sums=behind_sums(privacy) if guarantee is None else None,
            conditions=Proven.of_line(line, privacy).conditions,
        )


@dataclass(frozen=True)
class Cell:
    """The runs with one combination of settings, for all seeds.

    Attributes:
        settings: the combination.
        runs: the finished runs.
        reason: why a run was refused or failed, or None.
        tested_on: the runs' test sets.
        doubts: what is doubtful about the runs' metrics.
    """

    settings: Mapping[str, Any]
    runs: Sequence[tuple[dict[str, Any], Stated]]
    reason: str | None
    tested_on: Sequence[TestSet] = ()
    doubts: Sequence[Doubt] = ()

    def figure(self, metric: str) -> Figure:
        """Return a metric's mean over seeds, with its baseline and doubts."""
        return Figure.of(
            metric,
            self._values(metric),
            max(self.tested_on, key=lambda on: on.most_frequent or 0.0, default=TestSet()),
            self.doubts,
            calibration_error=self.mean_of("calibration_error"),
        )

    @property
    def mean(self) -> float | None:
        """The mean accuracy, 0 to 1; None if nothing was tested."""
        return self.mean_of("accuracy")

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the accuracy over seeds (n - 1); None for fewer than two."""
        return self.deviation_of("accuracy")

    @property
    def loss(self) -> float | None:
        """The mean loss."""
        return self.mean_of("loss")

    @property
    def is_imbalanced(self) -> bool:
        """Whether most test examples in some run have one class; see ``reporting.scores``."""
        found = [run.get("metrics", {}) for run, _ in self.runs]
        return any(
            is_imbalanced(each.get("most_frequent")) and each.get("auc") is not None
            for each in found
        )

    def mean_of(self, figure: str) -> float | None:
        """Return the mean of a metric over seeds; None if no run has it."""
        found = self._values(figure)
        return statistics.fmean(found) if found else None

    def deviation_of(self, figure: str) -> float | None:
        """Return the standard deviation of a metric over seeds (n - 1); None for fewer than two."""
        found = self._values(figure)
        return statistics.stdev(found) if len(found) > 1 else None

    @property
    def stated(self) -> Stated | None:
        """The largest epsilon of the cell's runs, which holds for each of them."""
        found = [stated for _, stated in self.runs]
        return max(found, key=lambda stated: (stated.epsilon, stated.delta)) if found else None

    @property
    def conditions(self) -> tuple[Fact, ...]:
        """What the epsilons of the cell's runs rest on, and the warnings of their statements."""
        return tuple(dict.fromkeys(each for _, s in self.runs for each in s.conditions))

    def _values(self, name: str) -> list[float]:
        found = [{**run.get("metrics", {}), **run}.get(name) for run, _ in self.runs]
        return [value for value in found if value is not None]
