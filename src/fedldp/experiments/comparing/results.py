"""The file that holds every run of a comparison, and the choice among tries."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedldp.core.errors import RunError
from fedldp.reporting.record import environment
from fedldp.reporting.scores import CHOSEN_BY

Row = dict[str, Any]
"""One run, as a line of the file: see ``Comparison.made``."""


class Results:
    """The lines of a results file; each run adds a line.

    Attributes:
        path: the file's path.
        rows: its lines, in order.
    """

    def __init__(self, path: Path) -> None:
        """Read the file, if it exists; an incomplete last line is removed.

        Raises:
            RunError: it cannot be read, or is not a results file.
        """
        self.path = path
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            whole, _, cut = text.rpartition("\n")
            self.rows: list[Row] = [json.loads(line) for line in whole.splitlines() if line]
            if not all(isinstance(row, dict) and "digest" in row for row in self.rows):
                raise ValueError("a line is not a run")
            if cut:  # the process died while writing this line; its run is repeated
                path.write_text(f"{whole}\n" if whole else "", encoding="utf-8")
        except (OSError, ValueError) as error:
            raise RunError(
                f"results = {path}: it cannot be used as a results file ({error}); choose a "
                "different file"
            ) from error

    def find(self, key: str, cell: Mapping[str, Any]) -> Row | None:
        """Return the line of a cell with this digest, or None; two contestants may be equal."""
        found = (row for row in self.rows if row["digest"] == key and row.get("cell") == cell)
        return next(found, None)

    def add(self, row: Row) -> Row:
        """Add a line.

        Raises:
            RunError: the file cannot be written.
        """
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise RunError(
                f"results = {self.path}: {error.strerror}; choose a writable file"
            ) from error
        self.rows.append(row)
        return row


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


def where() -> Row:
    """Return the date, versions and hardware that every line records."""
    found = environment()
    return {
        "date": found["date"],
        "python": found["python"],
        "versions": found["packages"],
        "hardware": f"{_processor()}, {found['cores']} cores, {found['gpu'] or 'no GPU'}",
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
