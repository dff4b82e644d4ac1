"""The choice among tries, by their scores."""

from __future__ import annotations

from collections.abc import Sequence

from fedldp.experiments.runs import Row
from fedldp.reporting.scores import CHOSEN_BY

METRICS = CHOSEN_BY
"""The metrics by which tries are chosen and contestants compared."""

LESS_IS_BETTER = ("loss", "brier")


def score(row: Row, metric: str = "accuracy") -> float | None:
    """Return the value of a metric in a run's line; None if the line has no value."""
    found: float | None = row["accuracy"]
    if metric != "accuracy" and found is not None:
        found = row["metrics"][metric]
    return found


def choose(tried: Sequence[Row], metric: str = "accuracy") -> Row | None:
    """Return the try to measure: the one with the best score on held-out examples.

    If several have the same score, the first is chosen. Refused tries have no score; the result is
    None if all were refused.
    """
    done = [row for row in tried if score(row, metric) is not None]
    sign = -1 if metric in LESS_IS_BETTER else 1
    return max(done, key=lambda row: sign * (score(row, metric) or 0.0)) if done else None
