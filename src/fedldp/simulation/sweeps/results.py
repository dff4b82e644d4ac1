"""What a sweep gave: its runs, a table of means and deviations, and what was refused."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from fedldp.accounting.statement import CHOOSING, HELD_OUT
from fedldp.core.errors import ConfigError
from fedldp.core.formatting import number
from fedldp.reporting.record import replace_file
from fedldp.reporting.scores import CHOSEN_BY, FIGURES
from fedldp.reporting.text import about, area, imbalance, percent
from fedldp.simulation.sweeps.cells import Cell, Stated
from fedldp.simulation.sweeps.chart import NAMES, draw

METRICS = (*FIGURES, "most_frequent")
"""What a sweep says of a run's test, beside its accuracy and loss."""

SHOWN = CHOSEN_BY
"""Figures that may come first."""

CSV_BEGINS = b"recipe,"
"""With what every table of runs begins, so that no other file is taken for one."""


@dataclass(frozen=True, repr=False)
class Sweep:
    """What a sweep gave.

    Attributes:
        cells: one for each combination of settings, in the grid's order.
        failed: what was refused or ended early: "settings", "seed" and "reason".
        out: its folder, or None where nothing was kept.
        private_scores: whether some of its figures were measured on clients' private rows.
        metric: the figure that comes first and is drawn, where one was asked for.
        score_releases: what the scores of some recipes tell of clients' examples, by name.
        doubts: of every run whose figures are doubtful, the first reason.
    """

    cells: Sequence[Cell]
    failed: list[dict[str, Any]] = field(default_factory=list)
    out: Path | None = None
    private_scores: bool = False
    metric: str | None = None
    score_releases: Mapping[str, str] = field(default_factory=dict)
    doubts: Sequence[str] = ()

    @property
    def runs(self) -> list[dict[str, Any]]:
        """A mapping for each run: settings, seed, accuracy, loss, epsilon, seconds, run_dir.

        In its "metrics" are "auc", "average_precision", "balanced_accuracy" and "brier" (see
        ``Evaluation``), and "most_frequent", the share of the test's most frequent class; each
        None where it is not defined.

        The epsilon is of the guarantee that was asked for, or that is the run's target. Else it is
        of all that a client sends in the run, against the server; where nothing is known of that
        and something of one "person", or one "record", it is of these: "unit" and "adversary" say
        so. It is at the statement's delta; None is infinity: no guarantee. It is proven where
        "stated_by" is "fedldp"; else that is the address of code of the user's own, whose word it
        is. Where "idealised" is true, it holds for noise of ideal arithmetic only, and not for the
        numbers that are sent.
        """
        return [run for cell in self.cells for run, _ in cell.runs]

    @property
    def table(self) -> list[dict[str, Any]]:
        """A mapping for each combination with a run: settings, mean, deviation, seeds (how many).

        The mean and the standard deviation over seeds (n - 1) are of the accuracy, 0 to 1.
        "stated_by" says on whose word what is known of its privacy rests.
        """
        return [
            {
                "settings": dict(cell.settings),
                "mean": cell.mean,
                "deviation": cell.deviation,
                "seeds": len(cell.runs),
                "stated_by": cell.stated.by,
            }
            for cell in self.cells
            if cell.stated is not None
        ]

    def summary(self) -> dict[str, Any]:
        """Return the document that ``fedldp sweep --json`` prints."""
        return {
            "runs": self.runs,
            "table": self.table,
            "failed": self.failed,
            "notes": self.notes(),
            "warnings": self.warnings(),
        }

    def warnings(self) -> list[str]:
        """Return what no epsilon of the table covers, and why its figures may be worth little."""
        found = [
            f"of {name}, {what} are a release of their own, which no epsilon covers"
            for name, what in self.score_releases.items()
        ]
        if self.private_scores:
            found += [CHOOSING, HELD_OUT]
        if self.doubts:
            found.append(
                f"the figures of {len(self.doubts)} of {len(self.runs)} runs are doubtful, the "
                f"first because {self.doubts[0]}"
            )
        return found

    def notes(self) -> list[str]:
        """Return what a reader of the numbers must know, in sentences."""
        stated = [s for cell in self.cells for _, s in cell.runs if s.epsilon < math.inf]
        deltas = " or ".join(f"{delta:g}" for delta in sorted({s.delta for s in stated}))
        at = f", at delta {deltas}" if deltas else ""
        own = self.own_words()
        found = []
        if self.leads and self.metric is None:
            most = max(cell.mean_of("most_frequent") or 0.0 for cell in self.cells)
            found.append(f"AUC and balanced accuracy come first: {imbalance(most)}")
        found += [
            f"{'AUC, balanced accuracy and ' if self.leads else ''}accuracy "
            f"{'are means' if self.leads else 'is a mean'} over seeds, with the standard deviation",
            f"epsilon is what is {'stated' if own else 'proven'} of "
            f"{_of_what(self.cells)}{at}; infinity (in JSON null) where nothing is",
        ]
        found += [
            f"where it says{what}, it is of no client as a whole"
            for what in dict.fromkeys(s.about for s in stated if s.about and not s.of_client)
        ]
        if own:
            if any(s.is_proven for s in stated):
                found.append("what is stated by fedldp is proven")
            what = " or ".join(own)
            found.append(f"what {what} states is an assumption: nothing here proves it")
        if ideal := dict.fromkeys(
            str(cell.settings["recipe"])
            for cell in self.cells
            if any(s.idealised for _, s in cell.runs)
        ):
            found.append(f"of {', '.join(ideal)} it holds in idealised arithmetic: simulation only")
        return found + self.warnings()

    @property
    def leads(self) -> bool:
        """Whether AUC and balanced accuracy come before accuracy."""
        return self.metric is None and any(cell.is_imbalanced for cell in self.cells)

    def own_words(self) -> list[str]:
        """Return the addresses of the user's own code on whose word figures rest."""
        found = dict.fromkeys(s.by for cell in self.cells for _, s in cell.runs if not s.is_proven)
        return list(found)

    def keys(self) -> list[str]:
        """Return the settings that vary, the recipe only where there are several."""
        keys = list(dict.fromkeys(key for cell in self.cells for key in cell.settings))
        several = len({cell.settings["recipe"] for cell in self.cells}) > 1
        return keys if several else [key for key in keys if key != "recipe"]

    def to_records(self) -> list[dict[str, Any]]:
        """Return the runs as flat mappings: a column for each setting, and then what came of it.

        The setting is "epsilon", and what is proven "proven_epsilon", infinite where nothing is.
        What "stated_by" states is "stated_epsilon": the same where that is "fedldp", and proven by
        nobody where it is code of the user's own. Both hold for the numbers that are sent, or only
        for "idealised" ones.
        """
        keys = list(dict.fromkeys(key for cell in self.cells for key in cell.settings))
        return [
            {"recipe": run["settings"]["recipe"]}
            | {_column(key): run["settings"].get(key) for key in keys if key != "recipe"}
            | {
                "seed": run["seed"],
                "accuracy": run["accuracy"],
                "loss": run["loss"],
                "proven_epsilon": stated.epsilon if stated.is_proven else math.inf,
                "proven_delta": stated.delta if stated.is_proven else 0.0,
                "unit": stated.unit,
                "adversary": stated.adversary,
                "stated_epsilon": stated.epsilon,
                "stated_delta": stated.delta,
                "stated_by": stated.by,
                "idealised": stated.idealised,
                "seconds": run["seconds"],
                "run_dir": run["run_dir"],
                **run.get("metrics", {}),
            }
            for cell in self.cells
            for run, stated in cell.runs
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
                f"to_frame: {error}: install it with pip install pandas, or take .to_records(), "
                "a list of mappings"
            ) from error
        return pandas.DataFrame(self.to_records())

    def to_csv(self) -> str:
        """Return the runs as CSV, one a line, with the columns of ``to_records``.

        The warnings follow, a comment each, which begins with #.
        """
        records = self.to_records()
        text = io.StringIO()
        if records:
            writer = csv.DictWriter(text, records[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows({k: _plain(v) for k, v in record.items()} for record in records)
        return text.getvalue() + "".join(f"# {warning}\n" for warning in self.warnings())

    def plot(self, path: Path | str | None = None) -> Any:
        """Draw accuracy against epsilon; a notebook shows what is returned.

        Where one class has most of the test, it is the AUC in place of the accuracy.

        Args:
            path: where to keep the picture (.svg, .png or .pdf); it is only drawn where it is None.

        Returns:
            Matplotlib's figure.

        Raises:
            ConfigError: Matplotlib is not installed, or the file is of another kind.
            RunError: the file cannot be written.
        """
        return draw(self.cells, None if path is None else Path(path), self.metric)

    def write(self, folder: Path) -> None:
        """Write the result into the sweep's folder."""
        document = json.dumps(self.summary(), indent=2, allow_nan=False) + "\n"
        replace_file(folder / "results.json", document.encode())
        replace_file(folder / "results.csv", self.to_csv().encode())

    def __repr__(self) -> str:
        """Return how much there is of it, and where."""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        where = "" if self.out is None else f", out={str(self.out)!r}"
        runs, rows = len(self.runs), len(self.table)
        several = f"{runs} run{'s' * (runs != 1)}, {rows} combination{'s' * (rows != 1)}"
        return f"Sweep({several}{failed}{where})"

    def _repr_html_(self) -> str:
        head, rows = self.shown()
        lines = [f"<tr>{''.join(f'<th>{escape(text)}</th>' for text in head)}</tr>"]
        lines += [f"<tr>{''.join(f'<td>{escape(t)}</td>' for t in row)}</tr>" for row in rows]
        return f"<table>{''.join(lines)}</table><p>{escape('; '.join(self.notes()))}</p>"

    def shown(self) -> tuple[list[str], list[list[str]]]:
        """Return the table for people: what its columns are called, and its rows."""
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
                _epsilon_text(cell.stated),
            ]
            + ([_by_text(cell.stated)] if own else [])
            + ([cell.reason or ""] if failed else [])
            for cell in self.cells
        ]
        return head + (["failed"] if failed else []), rows


def _share_text(cell: Cell, figure: str) -> str:
    mean, deviation = cell.mean_of(figure), cell.deviation_of(figure)
    if mean is None or deviation is None:
        return percent(mean)
    return f"{100 * mean:.2f} ± {100 * deviation:.2f} %"


def _figure_text(cell: Cell, figure: str) -> str:
    """Return a figure's mean and deviation: a share in percent, another as it is."""
    if figure == "balanced_accuracy":
        return _share_text(cell, figure)
    deviation = cell.deviation_of(figure)
    return area(cell.mean_of(figure)) + ("" if deviation is None else f" ± {deviation:.4f}")


def _of_what(cells: Sequence[Cell]) -> str:
    """Return of what the runs' epsilons are, where that is one thing."""
    pairs = {(s.unit, s.adversary) for cell in cells for _, s in cell.runs}
    if len(pairs) != 1 or pairs == {("client-run", "server")}:
        return "all that a client sends in the run, against the server"
    ((unit, adversary),) = pairs
    return f"the unit {unit}, against the adversary {adversary}"


def _epsilon_text(stated: Stated | None) -> str:
    """Return an epsilon for people, never too small, and of what it is."""
    if stated is None:
        return ""
    if stated.epsilon == math.inf:
        return number(None)
    text = number(stated.epsilon) + (f" (delta {stated.delta!r})" if stated.delta else "")
    text += " idealised" if stated.idealised else ""
    return text + about(stated.unit, stated.adversary, stated.behind_sums)


def _by_text(stated: Stated | None) -> str:
    return "" if stated is None or stated.epsilon == math.inf else stated.by


def run_of(
    settings: Mapping[str, Any],
    seed: int,
    summary: Mapping[str, Any],
    place: Path | None,
    stated: Stated,
) -> dict[str, Any]:
    """Return what a sweep says of a finished run, and where it lies."""
    return {
        "settings": dict(settings),
        "seed": seed,
        "accuracy": summary["final"]["accuracy"],
        "loss": summary["final"]["loss"],
        "epsilon": None if stated.epsilon == math.inf else stated.epsilon,
        "unit": stated.unit,
        "adversary": stated.adversary,
        "stated_by": stated.by,
        "idealised": stated.idealised,
        "guarantee": {
            "unit": stated.unit,
            "adversary": stated.adversary,
            "delta": stated.delta,
        },
        "seconds": summary["seconds"],
        "run_dir": None if place is None else str(place),
        # A run of an earlier version, which a sweep takes as it is, has none of these.
        "metrics": {name: summary["final"].get(name) for name in METRICS},
    }


def _column(key: str) -> str:
    """Return a setting's column, which none of what came of a run may have too."""
    taken = ("seed", "accuracy", "loss", *METRICS, "proven_epsilon", "proven_delta",
             "unit", "adversary", "stated_epsilon", "stated_delta", "stated_by", "idealised",
             "seconds", "run_dir")  # fmt: skip
    return f"setting {key}" if key in taken else key


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def _text(value: Any) -> str:
    return "" if value is None else str(_plain(value))
