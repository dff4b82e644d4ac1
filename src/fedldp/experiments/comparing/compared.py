"""The result of a comparison: a row per contestant and epsilon, with tables and a chart."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedldp.accounting.guarantees import HOUSE, Adversary, Unit
from fedldp.accounting.proven import Together, together
from fedldp.accounting.statement import WHOLE_RUN
from fedldp.algorithms.systems import whose_word
from fedldp.core.facts import Doubt, Fact, Unprotected
from fedldp.core.formatting import number
from fedldp.core.kinds import (
    CHOOSING,
    EPSILON_COMPARED,
    HELD_OUT,
    NOT_PROVEN_HERE,
    ONLY_IDEALISED,
    SCORES_RELEASED,
)
from fedldp.data import Dataset
from fedldp.experiments.comparing.cells import Cell
from fedldp.experiments.comparing.choosing import LESS_IS_BETTER, score
from fedldp.experiments.comparing.comparison import Comparison, Measured
from fedldp.experiments.comparing.design import Design
from fedldp.experiments.proving import GuaranteeKind
from fedldp.experiments.runs import Row
from fedldp.experiments.store import RunStore
from fedldp.experiments.table import NAMES, Point, RunTable, deviation_of, draw, mean_of
from fedldp.reporting import words
from fedldp.reporting.record import as_json, replace_file
from fedldp.reporting.scores import Figure, TestSet


@dataclass(frozen=True)
class Line:
    """One contestant at one epsilon.

    Attributes:
        name: the contestant's name.
        epsilon: the epsilon for which its budget was solved; None for a reference.
        scores: values of the metric, one per measured seed.
        seeds: the number of seeds to measure.
        chosen: the chosen hyperparameters, with the budget that was solved for.
        stated: the largest epsilon in the statements of its runs; None if none is stated.
        idealised: whether that epsilon holds only for real numbers, and so only in simulation.
        stated_by: who states that epsilon: "fedldp", which proves it, or the user's own code.
        conditions: what it rests on, and the warnings of the statements; None if that is not known.
        figure: the mean, with its baseline and doubts.
        refused: why there are no scores, or None.
        tries: the number of candidate hyperparameters tried; incompatible ones do not count.
        of_tries: the largest number of tries that a contestant may have.
        cpu_seconds: the CPU seconds of its tries and measured runs.
    """

    name: str
    epsilon: float | None
    scores: Sequence[float]
    seeds: int
    chosen: Mapping[str, Any]
    stated: float | None
    idealised: bool
    stated_by: str
    conditions: tuple[Fact, ...] | None
    figure: Figure
    refused: str | None
    tries: int
    of_tries: int
    cpu_seconds: float

    @property
    def mean(self) -> float | None:
        """The mean over seeds; None if no seed has a score."""
        return mean_of(self.scores)

    @property
    def deviation(self) -> float | None:
        """The standard deviation over seeds (n - 1); None for fewer than two seeds."""
        return deviation_of(self.scores)

    @property
    def proven(self) -> float | None:
        """The stated epsilon if fedldp proves it, else None."""
        return self.stated if self.stated_by == HOUSE else None

    @property
    def had_fewer(self) -> bool:
        """Whether the contestant had fewer tries than allowed."""
        return self.tries < self.of_tries

    @property
    def missing(self) -> str | None:
        """The seeds that have not been measured, or None."""
        if self.refused is not None or len(self.scores) >= self.seeds:
            return None
        at = "" if self.epsilon is None else f" at epsilon {self.epsilon:g}"
        return f"{self.name}{at}: {self.seeds - len(self.scores)} of {self.seeds} seeds"


@dataclass(frozen=True, repr=False)
class Compared(RunTable):
    """The result of ``fedldp.compare``.

    Attributes:
        guarantee: the unit, the adversary and delta.
        metric: the metric of the scores.
        lines: one per contestant and epsilon, sorted by epsilon.
        out: the folder, or None if nothing was kept.
        private_choice: whether tries were scored on clients' private rows.
        private_scores: whether the test set also consists of such rows.
        score_releases: what some contestants' scores reveal about clients' examples, by contestant.
        together: what all runs, tries included, cost together.
        uncounted: how many other runs in the folder used the same rows; what they cost is unknown.
    """

    guarantee: GuaranteeKind
    metric: str
    lines: Sequence[Line]
    out: Path | None = None
    private_choice: bool = False
    private_scores: bool = False
    score_releases: Mapping[str, tuple[Unprotected, ...]] = field(default_factory=dict)
    together: Sequence[Together] = ()
    uncounted: int = 0

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A mapping per contestant and epsilon, as in the JSON document.

        The keys: "name"; "epsilon", for which the budget was solved (None for a reference); "mean"
        and "deviation" (n - 1) over the number of "seeds"; "settings", the chosen settings;
        "proven", the epsilon that the statement proves: None if the statement proves nothing, or if
        only the user's own code, which "stated_by" then names, states the epsilon; "idealised",
        whether the epsilon holds only for real numbers; "conditions", what it rests on and warnings
        (None if that is unknown); "refused", why there is no mean, or None.
        """
        return [
            {
                "name": line.name,
                "epsilon": line.epsilon,
                "mean": line.mean,
                "deviation": line.deviation,
                "seeds": len(line.scores),
                "settings": dict(line.chosen),
                "proven": line.proven,
                "idealised": line.idealised,
                "stated_by": line.stated_by,
                "conditions": (None if line.conditions is None else words.facts(line.conditions)),
                "figure": words.figure(line.figure),
                "refused": line.refused,
            }
            for line in self.lines
        ]

    def summary(self) -> dict[str, Any]:
        """Return the document that ``fedldp compare --json`` prints."""
        kind = self.guarantee
        return {
            "guarantee": {"unit": kind.unit, "adversary": kind.adversary, "delta": kind.delta},
            "metric": self.metric,
            "rows": self.rows,
            "together": [words.together_document(each) for each in self.together],
            "complete": all(len(line.scores) >= line.seeds for line in self.lines),
            "warnings": words.facts(self.warnings()),
        }

    @property
    def missing(self) -> list[str]:
        """The runs that have not been measured.

        The same command with the same folder makes them.
        """
        return [line.missing for line in self.lines if line.missing is not None]

    @property
    def refused(self) -> list[Line]:
        """The rows that have no scores because their runs were refused."""
        return [line for line in self.lines if line.refused is not None]

    def notes(self) -> list[str]:
        """Return, in sentences, what a reader of the numbers must know."""
        kind, name = self.guarantee, NAMES[self.metric]
        found = [
            f"{name} is a mean over seeds, with the standard deviation across seeds"
            + ("; lower is better" if self.metric in LESS_IS_BETTER else ""),
            words.line(
                EPSILON_COMPARED(unit=kind.unit, adversary=kind.adversary, delta=kind.delta)
            ),
        ]
        fewer = dict.fromkeys(line.name for line in self.lines if self._is_marked(line))
        if fewer:
            most = max(line.of_tries for line in self.lines)
            found.append(f"* fewer than {most} tries: {', '.join(fewer)}")
        if ideal := dict.fromkeys(line.name for line in self.lines if line.idealised):
            found.append(words.line(ONLY_IDEALISED(of=tuple(ideal))))
        own = dict.fromkeys(line.stated_by for line in self.lines if line.stated_by != HOUSE)
        if own:
            found.append(words.line(NOT_PROVEN_HERE(of=tuple(own))))
        found += [*self.facts_in_words(), *map(words.line, self.warnings())]
        if missing := self.missing:
            found.append(f"not measured yet: {'; '.join(missing)}")
        return found

    def facts_in_words(self) -> list[str]:
        """Return the conditions of the epsilons, and what all runs cost together."""
        done = [each for each in self.lines if each.scores]
        told = conditions_in_words([(each.name, each.epsilon, each.conditions) for each in done])
        return [
            *told,
            *words.conditions_together(self.together),
            *words.baselines(each.figure for each in done),
            *words.by_rows("doubt", {_row_name(each): each.figure.doubts for each in done}),
            *words.together_lines(self.together, self.uncounted),
        ]

    def warnings(self) -> list[Fact]:
        """Return warnings about scores on private rows, which no epsilon in the table covers."""
        return [
            *(SCORES_RELEASED(of=name, what=what) for name, what in self.score_releases.items()),
            *((CHOOSING,) if self.private_choice else ()),
            *((HELD_OUT,) if self.private_scores else ()),
        ]

    def shown(self) -> tuple[list[str], list[list[str]]]:
        """Return the table to display: its column headings and its rows."""
        head = ["contestant", "epsilon", NAMES[self.metric], "seeds", "tries",
                "CPU s", "of its statement", "idealised", "stated by", "chosen"]  # fmt: skip
        rows = [
            [
                line.name,
                "none" if line.epsilon is None else f"{line.epsilon:g}",
                self.in_words(line),
                f"{len(line.scores)}" + (f" of {line.seeds}" if line.missing else ""),
                f"{line.tries}{' *' if self._is_marked(line) else ''}",
                f"{line.cpu_seconds:,.0f}",
                "" if line.stated is None and line.missing else number(line.stated),
                "yes" if line.idealised else "no",
                line.stated_by,
                line.refused or ", ".join(f"{k} {_short(v)}" for k, v in line.chosen.items()),
            ]
            for line in self.lines
        ]
        return head, rows

    def in_words(self, line: Line) -> str:
        """Return the mean of a row in words, with its deviation."""
        if line.refused is not None:
            return "refused"
        if line.mean is None:
            return "-"
        unit = " %" if self.metric in words.SHARES else ""
        return f"{self._mean(line, ' ± ')}{unit}{words.not_above(line.figure)}"

    def _mean(self, line: Line, sign: str) -> str:
        """Return a mean and, after a sign, its deviation; shares are in percent."""
        scale, decimals = (100, 2) if self.metric in words.SHARES else (1, 4)
        known = [each for each in (line.mean, line.deviation) if each is not None]
        return sign.join(f"{scale * each:.{decimals}f}" for each in known)

    def to_csv(self) -> str:
        """Return the rows as CSV, with tries and CPU seconds; then the notes, one comment per note.

        "proven_epsilon" is empty if nothing is proven, and "stated_epsilon" if nothing is stated.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(
            ("name", "epsilon", self.metric, "deviation", "seeds", "of_seeds", "tries", "of_tries",
             "cpu_seconds", "proven_epsilon", "stated_epsilon", "unit", "adversary", "delta",
             "idealised", "stated_by", "baseline", "settings", "refused")
        )  # fmt: skip
        kind = self.guarantee
        for line in self.lines:
            writer.writerow(
                (line.name, line.epsilon, line.mean, line.deviation, len(line.scores), line.seeds,
                 line.tries, line.of_tries, line.cpu_seconds, line.proven, line.stated, kind.unit,
                 kind.adversary, kind.delta, line.idealised, line.stated_by, line.figure.baseline,
                 json.dumps(dict(line.chosen)), line.refused)
            )  # fmt: skip
        return self._with_notes(text.getvalue())

    def to_latex(self) -> str:
        """Return a LaTeX table: a row per contestant, a column per epsilon.

        The table needs no LaTeX package. A star marks fewer tries, a dagger idealised arithmetic.
        """
        epsilons = list(dict.fromkeys(line.epsilon for line in self.lines if line.epsilon))
        by_name: dict[str, list[Line]] = {}
        for line in self.lines:
            by_name.setdefault(line.name, []).append(line)
        head = [f"$\\varepsilon = {epsilon:g}$" for epsilon in epsilons]
        rows = []
        for name, lines in by_name.items():
            at = {line.epsilon: line for line in lines}
            if None in at:  # a reference has the same values at every epsilon
                at = dict.fromkeys(epsilons, at[None])
            cells = [self._latex(at[epsilon]) for epsilon in epsilons]
            rows.append([_escaped(name), *cells, _escaped(lines[0].stated_by)])
        title = NAMES[self.metric]
        title += " in \\%" if self.metric in words.SHARES else ""
        columns = "l" + "c" * len(epsilons) + "l"
        body = [
            f"\\begin{{tabular}}{{{columns}}}",
            "\\hline",
            " & ".join([title, *head, "stated by"]) + " \\\\",
            "\\hline",
            *(" & ".join(row) + " \\\\" for row in rows),
            "\\hline",
            "\\end{tabular}",
            "",
            "\\par\\footnotesize",
        ]
        sentences = [_escaped(note[:1].upper() + note[1:]) + "." for note in self.notes()]
        if any(line.idealised for line in self.lines):
            sentences.append("$\\dagger$: idealised arithmetic.")
        below = dict.fromkeys(words.not_above(line.figure) for line in self.lines if line.scores)
        if told := "".join(filter(None, below)):
            sentences.append(f"$\\ddagger$:{_escaped(told)}.")
        return "\n".join([*body, *sentences]) + "\n"

    def plot(self, path: Path | str | None = None) -> Any:
        """Draw the metric against epsilon, a line per contestant; a notebook shows the chart.

        Args:
            path: the file to write (.svg, .pdf or .png); with None, the chart is only drawn.

        Returns:
            Matplotlib's figure.

        Raises:
            ConfigError: Matplotlib is not installed, or the file extension is unknown.
            RunError: the file cannot be written.
        """
        kind = self.guarantee
        scale = 100 if self.metric in words.SHARES else 1
        series: dict[str, list[Point]] = {}
        levels: dict[str, tuple[float, float]] = {}
        for line in self.lines:
            if line.mean is None:
                continue
            mean, spread = scale * line.mean, scale * (line.deviation or 0.0)
            name = self._name_in_chart(line.name)
            if line.epsilon is None:
                levels[f"{name} (no guarantee)"] = (mean, spread)
            else:
                series.setdefault(name, []).append((line.epsilon, mean, spread))
        title = NAMES[self.metric] + (" in %" if scale == 100 else "")
        fewer = ["* fewer tries"] if any(map(self._is_marked, self.lines)) else []
        below = "; ".join([*fewer, self._seeds_in_words()])
        return draw(
            series,
            levels,
            figures=[line.figure for line in self.lines if line.scores],
            scale=scale,
            notes=self.facts_in_words(),
            x_label=f"{words.axis([(kind.unit, kind.adversary)], [kind.delta])}\n{below}",
            y_label=title,
            path=None if path is None else Path(path),
            ticks_at_points=True,
        )

    def write(self, folder: Path) -> None:
        """Write the tables into a folder."""
        replace_file(folder / "results.json", as_json(self.summary()))
        for name, text in (
            ("table.txt", self.to_text()),
            ("table.csv", self.to_csv()),
            ("table.tex", self.to_latex()),
        ):
            replace_file(folder / name, text.encode())

    def _name_in_chart(self, name: str) -> str:
        """Return a contestant's name, with marks for caveats about some of its points."""
        own = [line for line in self.lines if line.name == name and line.scores]
        by = dict.fromkeys(line.stated_by for line in own if line.stated_by != HOUSE)
        return (
            name
            + (" *" if any(map(self._is_marked, own)) else "")
            + (" (idealised arithmetic)" if any(line.idealised for line in own) else "")
            + (f" (stated by {', '.join(by)})" if by else "")
        )

    def _seeds_in_words(self) -> str:
        """Return, in words, how many seeds a point has, and what its bars show."""
        counts: dict[int, list[str]] = {}
        for line in self.lines:
            if line.scores:
                at = "no guarantee" if line.epsilon is None else f"{line.epsilon:g}"
                known = counts.setdefault(len(line.scores), [])
                known += [] if at in known else [at]
        if len(counts) == 1:
            (count,) = counts
            told = f"{count} seeds" if count > 1 else "one seed"
        else:
            told = ", ".join(f"{count} seeds at {', '.join(at)}" for count, at in counts.items())
        return f"means over {told}; bars: one standard deviation across seeds"

    def _is_marked(self, line: Line) -> bool:
        return line.had_fewer and bool(line.scores)

    def _latex(self, line: Line) -> str:
        if line.refused is not None or line.mean is None:
            return "refused" if line.refused is not None else "--"
        text = self._mean(line, " \\pm ")
        marks = ("*" if self._is_marked(line) else "") + ("\\dagger" if line.idealised else "")
        marks += "\\ddagger" if line.figure.is_above is False else ""
        return f"${text}{f'^{{{marks}}}' if marks else ''}$"

    def __repr__(self) -> str:
        """Return the number of rows, and where the result is kept."""
        names = len({line.name for line in self.lines})
        missing = f", {len(self.missing)} not measured yet" if self.missing else ""
        where = "" if self.out is None else f", out={str(self.out)!r}"
        return f"Compared({names} contestants, {len(self.lines)} rows{missing}{where})"


def compared(
    design: Design,
    comparison: Comparison,
    store: RunStore,
    data: Dataset,
    out: Path | None = None,
) -> Compared:
    """Return the result of a comparison from the rows so far.

    Args:
        design: what is compared.
        comparison: the design's contestants and task.
        store: the rows; rows of other comparisons count only in what all runs cost together.
        data: the data of all contestants.
        out: the folder.

    Raises:
        ComparisonError: a run's statement has a larger epsilon or delta than its label.
    """
    on = TestSet.of(np.bincount(data.test.labels), data.scores_are_private)
    lines = [
        _line(design, comparison, cell, comparison.result(cell, store.rows, store.failed), on)
        for cell in sorted(design.cells(comparison), key=lambda cell: cell.epsilon)
    ]
    kind = design.guarantee
    rows = store.rows.values()
    cost, uncounted = cost_together(comparison, rows, [(kind.unit, kind.adversary)], data.name)
    return Compared(
        design.guarantee,
        design.metric,
        lines,
        out,
        private_choice=not data.is_public,
        private_scores=data.scores_are_private,
        score_releases={
            name: tuple(told)
            for name, entry in design.entries.items()
            if (told := entry.config.composition.local.private_scores)
        },
        together=cost,
        uncounted=uncounted,
    )


def conditions_in_words(
    rows: Sequence[tuple[str, float | None, tuple[Fact, ...] | None]],
) -> list[str]:
    """Return the conditions of rows in sentences, by name, or by row where these differ.

    Args:
        rows: each row's name, epsilon, and conditions; None if they are unknown.
    """
    by_name: dict[str, dict[float | None, tuple[Fact, ...]]] = {}
    for name, epsilon, conditions in rows:
        if conditions is not None:
            by_name.setdefault(name, {})[epsilon] = conditions
    found: dict[str, tuple[Fact, ...]] = {}
    for name, own in by_name.items():
        if len(set(own.values())) == 1:
            found[name] = next(iter(own.values()))
        else:
            found |= {f"{name} at epsilon {epsilon:g}": each for epsilon, each in own.items()}
    unknown = dict.fromkeys(name for name, _, conditions in rows if conditions is None)
    told = f"the conditions of {', '.join(unknown)} were not recorded and are unknown"
    return [*words.by_rows("condition", found), *([told] if unknown else [])]


def cost_together(
    comparison: Comparison,
    rows: Iterable[Row],
    shown: Sequence[tuple[Unit, Adversary]],
    data: str,
) -> tuple[list[Together], int]:
    """Return what all runs in a results file cost together, by unit and adversary.

    Args:
        comparison: the contestants.
        rows: all rows.
        shown: the units and adversaries; a unit that covers one round becomes the whole run.
        data: the name of the rows that all runs used.

    Returns:
        The costs, and the number of runs whose releases are unknown.
    """
    found = [comparison.released(row) for row in rows if row.get("begun", True)]
    known = [each for each in found if each is not None]
    pairs = {(unit if unit in WHOLE_RUN else "client-run", who): None for unit, who in shown}
    costs = [together(known, unit, who, data) for unit, who in pairs] if known else []
    return costs, len(found) - len(known)


def _line(design: Design, comparison: Comparison, cell: Cell, found: Measured, on: TestSet) -> Line:
    runs = found.runs
    found_scores = [score(row, design.metric) for row in runs]
    scores = [each for each in found_scores if each is not None]
    stated = [row["proven"] for row in runs if row.get("proven")]
    entry = design.entries[cell.contestant]
    chosen: dict[str, Any] = {}
    if runs:
        chosen = {**runs[0]["try"], **{k: v for k, v in runs[0]["settings"].items()
                                       if v is not None and k not in runs[0]["try"]}}  # fmt: skip
    by = dict.fromkeys(each["stated_by"] for each in stated)
    return Line(
        name=cell.contestant,
        epsilon=cell.epsilon or None,
        scores=scores,
        seeds=len(comparison.seeds_of(cell)),
        chosen=chosen,
        stated=max((each["epsilon"] for each in stated), default=None),
        idealised=any(each["idealised"] for each in stated),
        stated_by=", ".join(by) or whose_word(entry.config),
        conditions=found.conditions,
        figure=Figure.of(
            design.metric,
            scores,
            on,
            doubts_of(runs),
            calibration_error=mean_of(_values(runs, "calibration_error")),
        ),
        refused=found.refused,
        tries=sum(bool(row.get("begun")) for row in found.tries),
        of_tries=design.tries,
        cpu_seconds=round(found.cpu_seconds, 1),
    )


def doubts_of(runs: Sequence[Row]) -> list[Doubt]:
    """Return what is doubtful about the metrics of runs, from their lines."""
    return [Doubt.from_json(each) for row in runs for each in row.get("doubts", ())]


def _values(runs: Sequence[Row], metric: str) -> list[float]:
    return [value for row in runs if (value := row["metrics"].get(metric)) is not None]


def _row_name(line: Line) -> str:
    return line.name if line.epsilon is None else f"{line.name} at epsilon {line.epsilon:g}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_SPECIAL = {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}",
            "±": "$\\pm$"} | {each: f"\\{each}" for each in "&%$#_{}"}  # fmt: skip


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(letter, letter) for letter in text)
