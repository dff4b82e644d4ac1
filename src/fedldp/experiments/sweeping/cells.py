"""The results for one combination of settings, and what is proven about its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedldp.accounting.guarantees import Adversary, Unit
from fedldp.accounting.proven import Proven
from fedldp.accounting.statement import Statement
from fedldp.core.facts import Doubt, Fact
from fedldp.experiments.table import deviation_of, mean_of
from fedldp.reporting.lines import headline
from fedldp.reporting.scores import Figure, TestSet, is_imbalanced


def shown_of(privacy: Statement, guarantee: tuple[Unit, Adversary] | None = None) -> Proven:
    """Return a statement's headline; lines for the numbers that are sent take precedence.

    Args:
        privacy: the statement.
        guarantee: the unit and the adversary; None for the statement's headline, see
            ``reporting.lines.headline``.
    """
    line = headline(privacy, guarantee)
    if line is not None and line.epsilon is not None:
        return Proven.of_line(line, privacy)
    unit, adversary = guarantee or ("client-run", "server")
    return Proven(
        epsilon=None, delta=0.0, unit=unit, adversary=adversary, conditions=privacy.warnings
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
        behind_sums: smaller epsilons against a server that sees only sums; see ``reporting.lines``.
    """

    settings: Mapping[str, Any]
    runs: Sequence[tuple[dict[str, Any], Proven]]
    reason: str | None
    tested_on: Sequence[TestSet] = ()
    doubts: Sequence[Doubt] = ()
    behind_sums: Mapping[Proven, float] = field(default_factory=dict)

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
        return mean_of(self._values(figure))

    def deviation_of(self, figure: str) -> float | None:
        """Return the standard deviation of a metric over seeds (n - 1); None for fewer than two."""
        return deviation_of(self._values(figure))

    @property
    def proven(self) -> Proven | None:
        """The largest epsilon of the cell's runs, which holds for each of them."""
        found = [proven for _, proven in self.runs]
        return max(found, key=lambda proven: (proven.size, proven.delta)) if found else None

    @property
    def conditions(self) -> tuple[Fact, ...]:
        """What the epsilons of the cell's runs rest on, and the warnings of their statements."""
        return tuple(dict.fromkeys(each for _, s in self.runs for each in s.conditions))

    def _values(self, name: str) -> list[float]:
        found = [{**run.get("metrics", {}), **run}.get(name) for run, _ in self.runs]
        return [value for value in found if value is not None]
