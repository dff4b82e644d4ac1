"""The result of a sweep: its runs, a table of means and deviations, and the refused runs."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from fedldp.accounting.guarantees import HOUSE
from fedldp.accounting.proven import Proven, Together
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Doubt, Fact, Note, Unprotected
from fedldp.core.formatting import number
from fedldp.core.kinds import (
    CHOOSING,
    DOUBTFUL_RUNS,
    EPSILON_SHOWN,
    HELD_OUT,
    HOUSE_PROVES,
    IMBALANCED_TEST,
    NOT_OF_CLIENT,
    NOT_PROVEN_HERE,
    ONLY_IDEALISED,
    SCORES_RELEASED,
)
from fedldp.experiments.runs import Row
from fedldp.experiments.sweeping.cells import Cell
from fedldp.experiments.sweeping.grid import in_words
from fedldp.experiments.table import AS_IT_IS, NAMES, Point, RunTable, draw
from fedldp.reporting import words
from fedldp.reporting.record import replace_file
from fedldp.reporting.scores import CHOSEN_BY, FIGURES
from fedldp.reporting.words import area, percent

METRICS = (*FIGURES, "most_frequent")
"""The test metrics that a sweep reports for a run besides accuracy and loss."""

_CLIENTS = ("client-round", "client-run")
"""The units whose epsilon covers everything that a client sends, in a round or in the run."""

SHOWN = CHOSEN_BY
"""Metrics that may be shown first."""

CSV_BEGINS = b"recipe,"
"""The beginning of every table of runs, which identifies a file as such a table."""


@dataclass(frozen=True, repr=False)
class Sweep(RunTable):
    """The result of a sweep.

    Attributes:
        cells: one per combination of settings, in the grid's order.
        failed: the runs that were refused or ended early: "settings", "seed" and "reason".
        out: the sweep's folder; None if nothing was kept.
        private_scores: whether some metrics were measured on clients' private rows.
        metric: the metric that is shown first and drawn, if one was requested.
        score_releases: what the scores of some recipes reveal about clients' examples, by recipe
            name.
        doubts: for every run whose metrics are doubtful, the first reason.
        missing: how many runs have not been made yet.
        together: what the runs on the same rows cost together, for each data set, unit and
            adversary of an epsilon in the table.
        uncounted: how many other runs in the folder used the same rows; what they cost is unknown.
    """

    cells: Sequence[Cell]
    failed: list[dict[str, Any]] = field(default_factory=list)
    out: Path | None = None
    private_scores: bool = False
    metric: str | None = None
    score_releases: Mapping[str, tuple[Unprotected, ...]] = field(default_factory=dict)
    doubts: Sequence[Doubt] = ()
    together: Sequence[Together] = ()
    missing: int = 0
    uncounted: int = 0

    @property
    def runs(self) -> list[dict[str, Any]]:
        """A mapping per run: settings, seed, accuracy, loss, epsilon, seconds, run_dir.

        Its "metrics" are "auc", "average_precision", "balanced_accuracy" and "brier" (see
        ``Evaluation``), and "most_frequent", the share of the test set's most frequent class; each
        is None where it is not defined.

        The epsilon belongs to the requested guarantee, or else to the guarantee of the run's
        target. Without either, it covers everything that a client sends in the run, against the
        server; if the statement has no epsilon for that, it covers one "person" or one "record", if
        the statement has an epsilon for one of these. "unit" and "adversary" name what the epsilon
        covers. It holds at the statement's delta; None means infinity, that is, no guarantee. The
        epsilon is proven if "stated_by" is "fedldp"; otherwise "stated_by" is the address of the
        user's own code that states it. If "idealised" is true, the epsilon holds only for noise in
        ideal arithmetic, and not for the numbers that are sent.
        """
        return [run for cell in self.cells for run, _ in cell.runs]

    @property
    def table(self) -> list[dict[str, Any]]:
        """A mapping per combination that has a run: settings, mean, deviation, number of seeds.

        These are the mean and the standard deviation (n - 1) of the accuracy, 0 to 1, over seeds.
        "stated_by" names who states the epsilon.
        """
        return [
            {
                "settings": dict(cell.settings),
                "mean": cell.mean,
                "deviation": cell.deviation,
                "seeds": len(cell.runs),
                "stated_by": cell.proven.stated_by,
                "conditions": words.facts(cell.conditions),
                "figure": words.figure(cell.figure(self.first)),
            }
            for cell in self.cells
            if cell.proven is not None
        ]

    def summary(self) -> dict[str, Any]:
        """Return the document that ``fedldp sweep --json`` prints."""
        return {
            "runs": self.runs,
            "table": self.table,
            "failed": self.failed,
            "together": [words.together_document(each) for each in self.together],
            "complete": not (self.failed or self.missing),
            "notes": self.notes(),
            "warnings": words.facts(self.warnings()),
        }

    def warnings(self) -> list[Fact]:
        """Return warnings on the metrics and on releases that no epsilon in the table covers."""
        found: list[Fact] = [
            SCORES_RELEASED(of=name, what=what) for name, what in self.score_releases.items()
        ]
        if self.private_scores:
            found += [CHOOSING, HELD_OUT]
        if self.doubts:
            found.append(
                DOUBTFUL_RUNS(runs=len(self.doubts), of=len(self.runs), first=self.doubts[0])
            )
        return found

    def notes(self) -> list[str]:
        """Return, in sentences, what a reader of the numbers must know."""
        found = []
        if self.leads and self.metric is None:
            most = max(cell.mean_of("most_frequent") or 0.0 for cell in self.cells)
            why = words.line(IMBALANCED_TEST(most_frequent=most))
            found.append(f"AUC and balanced accuracy come first: {why}")
        found += [
            f"{'AUC, balanced accuracy and ' if self.leads else ''}accuracy "
            f"{'are means' if self.leads else 'is a mean'} over seeds, with the standard deviation"
        ]
        return [
            *found,
            *map(words.line, self._about_epsilons()),
            *self._facts_in_words(),
            *words.together_lines(self.together, self.uncounted),
            *map(words.line, self.warnings()),
            *([f"not made yet: {self.missing} runs"] if self.missing else []),
        ]

    def _about_epsilons(self) -> Iterator[Note]:
        """Yield what the column of epsilons shows, and who states them."""
        pairs = {(s.unit, s.adversary) for cell in self.cells for _, s in cell.runs}
        ((unit, adversary),) = pairs if len(pairs) == 1 else {("client-run", "server")}
        stated = [s for cell in self.cells for _, s in cell.runs if s.epsilon is not None]
        own = self.own_words()
        yield EPSILON_SHOWN(
            unit=unit,
            adversary=adversary,
            deltas=tuple(sorted({s.delta for s in stated})),
            proven=not own,
        )
        marked = dict.fromkeys((s.unit, s.adversary) for s in stated if s.unit not in _CLIENTS)
        for unit, adversary in marked:
            yield NOT_OF_CLIENT(unit=unit, adversary=adversary)
        if own:
            if any(s.stated_by == HOUSE for s in stated):
                yield HOUSE_PROVES
            yield NOT_PROVEN_HERE(of=tuple(own))
        if ideal := dict.fromkeys(
            str(cell.settings["recipe"])
            for cell in self.cells
            if any(s.is_idealised for _, s in cell.runs)
        ):
            yield ONLY_IDEALISED(of=tuple(ideal))

    def _facts_in_words(self) -> list[str]:
        """Return the conditions of the epsilons, and the baselines and doubts of the metrics."""
        done = {self._name_of(cell): cell for cell in self.cells if cell.runs}
        figures = {name: cell.figure(self.first) for name, cell in done.items()}
        return [
            *words.by_rows("condition", {name: cell.conditions for name, cell in done.items()}),
            *words.conditions_together(self.together),
            *words.baselines(figures.values()),
            *words.by_rows("doubt", {name: each.doubts for name, each in figures.items()}),
        ]

    @property
    def first(self) -> str:
        """The metric that is shown first and drawn."""
        return self.metric or ("auc" if self.leads else "accuracy")

    def _name_of(self, cell: Cell) -> str:
        return ", ".join(_text(cell.settings.get(key)) for key in self.keys()) or "each run"

    @property
    def leads(self) -> bool:
        """Whether AUC and balanced accuracy come before accuracy."""
        return self.metric is None and any(cell.is_imbalanced for cell in self.cells)

    def own_words(self) -> list[str]:
        """Return the addresses of the user's own code that states some of the epsilons."""
        found = dict.fromkeys(s.stated_by for cell in self.cells for _, s in cell.runs)
        return [by for by in found if by != HOUSE]

    def keys(self) -> list[str]:
        """Return the settings that vary, including the recipe if there are several recipes."""
        keys = list(dict.fromkeys(key for cell in self.cells for key in cell.settings))
        several = len({cell.settings["recipe"] for cell in self.cells}) > 1
        return keys if several else [key for key in keys if key != "recipe"]

    def to_records(self) -> list[dict[str, Any]]:
        """Return the runs as flat mappings: a column per setting, then the results.

        "epsilon" is the setting, and "proven_epsilon" is what is proven, infinite if nothing is
        proven. "stated_epsilon" is what "stated_by" states: the same number if "stated_by" is
        "fedldp", and an unproven number if it is the user's own code. Both hold for the numbers
        that are sent, or only in ideal arithmetic if "idealised" is true, and only under the
        "conditions". The scores are to be read beside their "baseline" and "doubts".
        """
        keys = list(dict.fromkeys(key for cell in self.cells for key in cell.settings))
        return [
            {"recipe": run["settings"]["recipe"]}
            | {_column(key): run["settings"].get(key) for key in keys if key != "recipe"}
            | {
                "seed": run["seed"],
                "accuracy": run["accuracy"],
                "loss": run["loss"],
                "proven_epsilon": found.size if found.stated_by == HOUSE else math.inf,
                "proven_delta": found.delta if found.stated_by == HOUSE else 0.0,
                "unit": found.unit,
                "adversary": found.adversary,
                "stated_epsilon": found.size,
                "stated_delta": found.delta,
                "stated_by": found.stated_by,
                "idealised": found.is_idealised,
                "conditions": "; ".join(map(words.line, found.conditions)),
                "baseline": figure.baseline,
                "doubts": "; ".join(map(words.line, figure.doubts)),
                "seconds": run["seconds"],
                "run_dir": run["run_dir"],
                **run.get("metrics", {}),
            }
            for cell in self.cells
            for figure in [cell.figure(self.first)]
            for run, found in cell.runs
        ]

    def to_frame(self) -> Any:
        """Return the runs as a pandas DataFrame.

        Raises:
            ConfigError: pandas is not installed.
        """
        try:
            pandas = import_module("pandas")
        except ImportError as error:
            raise ConfigError(
                f"to_frame: {error}: install it with pip install pandas, or use .to_records(), "
                "which returns a list of mappings"
            ) from error
        return pandas.DataFrame(self.to_records())

    def to_csv(self) -> str:
        """Return the runs as CSV, one run per line, with the columns of ``to_records``.

        The notes follow, each in a comment that begins with #.
        """
        records = self.to_records()
        text = io.StringIO()
        if records:
            writer = csv.DictWriter(text, records[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows({k: _plain(v) for k, v in record.items()} for record in records)
        return self._with_notes(text.getvalue())

    def plot(self, path: Path | str | None = None) -> Any:
        """Draw accuracy against epsilon; a notebook shows the returned figure.

        If most of the test set is one class, the AUC replaces the accuracy.

        Args:
            path: where to save the picture (.svg, .png or .pdf); None only draws it.

        Returns:
            Matplotlib's figure.

        Raises:
            ConfigError: Matplotlib is not installed, or the file extension is unknown.
            RunError: the file cannot be written.
        """
        metric, path = self.first, None if path is None else Path(path)
        scale = 1 if metric in AS_IT_IS else 100
        series: dict[str, list[Point]] = {}
        levels: dict[str, tuple[float, float]] = {}
        for cell in self.cells:
            mean, found = cell.mean_of(metric), cell.proven
            if mean is None or found is None:
                continue
            name, spread = _name_in_chart(cell), scale * (cell.deviation_of(metric) or 0.0)
            if found.epsilon:
                series.setdefault(name, []).append((found.epsilon, scale * mean, spread))
            else:
                what = (
                    "nothing is proven"
                    if found.epsilon is None
                    else "nothing about the data is sent"
                )
                levels[f"{name} ({what})"] = (scale * mean, spread)
        title = "area under the ROC curve" if metric == "auc" else NAMES[metric]
        title += "" if metric in AS_IT_IS else " in %"
        known = [
            each.proven for each in self.cells if each.proven and each.proven.epsilon is not None
        ]
        pairs = [(each.unit, each.adversary) for each in known if each.epsilon]
        proven = "proven" if all(each.stated_by == HOUSE for each in known) else ""
        return draw(
            series,
            levels,
            x_label=words.axis(pairs, [each.delta for each in known], proven),
            y_label=f"{title}, with its standard deviation over seeds",
            path=path,
            figures=[cell.figure(metric) for cell in self.cells if cell.runs],
            scale=scale,
            notes=[*self._facts_in_words(), *map(words.together_line, self.together)],
            ticks_at_points=False,
        )

    def write(self, folder: Path) -> None:
        """Write the result to the sweep's folder."""
        document = json.dumps(self.summary(), indent=2, allow_nan=False) + "\n"
        replace_file(folder / "results.json", document.encode())
        replace_file(folder / "results.csv", self.to_csv().encode())

    def __repr__(self) -> str:
        """Return the number of runs, and the sweep's folder."""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        where = "" if self.out is None else f", out={str(self.out)!r}"
        runs, rows = len(self.runs), len(self.table)
        several = f"{runs} run{'s' * (runs != 1)}, {rows} combination{'s' * (rows != 1)}"
        return f"Sweep({several}{failed}{where})"

    def shown(self) -> tuple[list[str], list[list[str]]]:
        """Return the table to display: its column headings and its rows."""
        keys = self.keys()
        failed = any(cell.reason is not None for cell in self.cells)
        own = bool(self.own_words())
        first = ["auc", "balanced_accuracy"] if self.leads else []
        first += [self.metric] if self.metric not in (None, "accuracy", "loss") else []
        head = [*keys, *(NAMES[each] for each in first), "accuracy", "seeds", "loss"]
        head += ["epsilon of a run", "stated by"] if own else ["proven epsilon"]
        rows = [
            [_text(cell.settings.get(key)) for key in keys]
            + [
                *(_figure_text(cell, each) for each in first),
                _share_text(cell, "accuracy"),
                str(len(cell.runs)),
                "" if cell.loss is None else f"{cell.loss:.4f}",
                _epsilon_text(cell),
            ]
            + ([_by_text(cell.proven)] if own else [])
            + ([cell.reason or ""] if failed else [])
            for cell in self.cells
        ]
        return head + (["failed"] if failed else []), rows


_BUDGETS = ("epsilon", "target.epsilon")
"""Settings that vary along a line; every combination of the other settings gets its own line."""


def _name_in_chart(cell: Cell) -> str:
    name = in_words({key: value for key, value in cell.settings.items() if key not in _BUDGETS})
    found = cell.proven
    assert found is not None
    name += words.about(found.unit, found.adversary)
    name += " (idealised arithmetic)" if found.is_idealised else ""
    return name + ("" if found.stated_by == HOUSE else f" (stated by {found.stated_by})")


def _share_text(cell: Cell, figure: str) -> str:
    mean, deviation = cell.mean_of(figure), cell.deviation_of(figure)
    text = percent(mean)
    if mean is not None and deviation is not None:
        text = f"{100 * mean:.2f} ± {100 * deviation:.2f} %"
    return text + words.not_above(cell.figure(figure))


def _figure_text(cell: Cell, figure: str) -> str:
    """Return a metric's mean and deviation; only shares are in percent."""
    if figure == "balanced_accuracy":
        return _share_text(cell, figure)
    deviation = cell.deviation_of(figure)
    spread = "" if deviation is None else f" ± {deviation:.4f}"
    return area(cell.mean_of(figure)) + spread + words.not_above(cell.figure(figure))


def _epsilon_text(cell: Cell) -> str:
    """Return an epsilon for display, rounded up, and what it covers."""
    found = cell.proven
    if found is None:
        return ""
    if found.epsilon is None:
        return number(None)
    text = number(found.epsilon) + (f" (delta {found.delta!r})" if found.delta else "")
    text += " idealised" if found.is_idealised else ""
    behind = words.behind(cell.behind_sums.get(found))
    return text + words.about(found.unit, found.adversary) + behind


def _by_text(found: Proven | None) -> str:
    return "" if found is None or found.epsilon is None else found.stated_by


def run_of(
    row: Row,
    place: Path | None,
    proven: Proven,
) -> dict[str, Any]:
    """Return a sweep's record of a finished run."""
    return {
        "settings": dict(row["settings"]),
        "seed": row["seed"],
        "accuracy": row["accuracy"],
        "loss": row["metrics"]["loss"],
        "epsilon": proven.epsilon,
        "unit": proven.unit,
        "adversary": proven.adversary,
        "stated_by": proven.stated_by,
        "idealised": proven.is_idealised,
        "conditions": words.facts(proven.conditions),
        "guarantee": {
            "unit": proven.unit,
            "adversary": proven.adversary,
            "delta": proven.delta,
        },
        "seconds": row["seconds"],
        "run_dir": None if place is None else str(place),
        "metrics": {name: row["metrics"][name] for name in METRICS},
    }


def _column(key: str) -> str:
    """Return the column name of a setting, distinct from the names of all result columns."""
    taken = ("seed", "accuracy", "loss", *METRICS, "proven_epsilon", "proven_delta",
             "unit", "adversary", "stated_epsilon", "stated_delta", "stated_by", "idealised",
             "seconds", "run_dir")  # fmt: skip
    return f"setting {key}" if key in taken else key


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def _text(value: Any) -> str:
    return "" if value is None else str(_plain(value))
