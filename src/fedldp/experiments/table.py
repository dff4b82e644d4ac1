"""The table of sets of runs, in text, HTML and CSV, and its chart of scores against epsilon."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.proven import Proven, Together
from fedldp.algorithms.config import RunConfig
from fedldp.core.deferred import special
from fedldp.core.errors import ConfigError, RunError, os_errors
from fedldp.core.facts import Doubt, Fact, Unprotected
from fedldp.core.kinds import CHOOSING, HELD_OUT, SCORES_RELEASED
from fedldp.core.registry import import_extra
from fedldp.experiments.runs import Row, score
from fedldp.reporting import words
from fedldp.reporting.scores import CHOSEN_BY, CHOSEN_BY_FOR_NUMBERS, Figure, TestSet
from fedldp.reporting.text import html_table


def metrics_for(configs: Iterable[RunConfig]) -> Sequence[str]:
    """Return the metrics that suit the labels of runs, the default first."""
    of_numbers = any(config.label_range is not None for config in configs)
    return CHOSEN_BY_FOR_NUMBERS if of_numbers else CHOSEN_BY


_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
_MARKERS = "osD^vPX*<>"


@dataclass(frozen=True, kw_only=True)
class Group:
    """The runs with one combination of settings, for all seeds: a row of a table.

    Attributes:
        name: what a reader calls it.
        epsilon: the epsilon that distinguishes it from others of that name, if there is one.
        runs: the rows of its finished runs.
        each: what is proven for each of them, or stated by the user's own code; no epsilon if
            nothing is.
        on: the test set.
        refused: why there are no scores, or not all, or None.
    """

    name: str
    epsilon: float | None = None
    runs: Sequence[Row] = ()
    each: Sequence[Proven] = ()
    on: TestSet = field(default_factory=TestSet)
    refused: str | None = None

    @property
    def full_name(self) -> str:
        """The name, with the epsilon if there is one."""
        return self.name if self.epsilon is None else f"{self.name} at epsilon {self.epsilon:g}"

    @property
    def conditions(self) -> tuple[Fact, ...]:
        """What the epsilons of its runs rest on, and the warnings of their statements."""
        return tuple(dict.fromkeys(fact for found in self.each for fact in found.conditions))

    @property
    def proven(self) -> Proven | None:
        """The largest epsilon of its runs, which holds for each of them."""
        return max(self.each, key=lambda found: (found.size, found.delta), default=None)

    def values(self, metric: str) -> list[float]:
        """Return the values of a metric, one for each seed that has one."""
        return [value for run in self.runs if (value := score(run, metric)) is not None]

    def mean(self, metric: str) -> float | None:
        """Return the mean over seeds; None if no seed has a value."""
        values = self.values(metric)
        return statistics.fmean(values) if values else None

    def deviation(self, metric: str) -> float | None:
        """Return the standard deviation over seeds (n - 1); None for fewer than two seeds."""
        return deviation_of(self.values(metric))

    def figure(self, metric: str) -> Figure:
        """Return the mean over seeds, with its baseline and doubts."""
        error = self.mean("calibration_error")
        doubts = doubts_of(self.runs)
        return Figure.of(metric, self.values(metric), self.on, doubts, calibration_error=error)

    def in_words(self, metric: str, sign: str = " \u00b1 ") -> str:
        """Return the mean and, after a sign, its deviation; shares are in percent."""
        known = [each for each in (self.mean(metric), self.deviation(metric)) if each is not None]
        if metric in words.IN_LABELS_UNIT:
            return sign.join(words.in_labels_unit(each, known[0]) for each in known)
        scale, decimals = (100, 2) if metric in words.SHARES else (1, 4)
        return sign.join(f"{scale * each:.{decimals}f}" for each in known)

    def shown(self, metric: str) -> str:
        """Return the mean and deviation for a table, with the baseline unless they are above it."""
        found = self.in_words(metric)
        unit = " %" if found and metric in words.SHARES else ""
        return f"{found}{unit}{words.not_better(self.figure(metric))}"


G = TypeVar("G", bound=Group, covariant=True)


@dataclass(frozen=True, repr=False, kw_only=True)
class RunTable(Generic[G]):
    """Sets of runs that are shown as a table with notes.

    Attributes:
        groups: the rows of the table.
        out: the folder of the experiment; None if nothing was kept.
        private_choice: whether something was chosen by scores on clients' private rows.
        private_scores: whether the test set consists of such rows.
        score_releases: what the scores of some runs reveal about clients' examples, by the name of
            what was run.
        together: what the runs on the same rows cost together, tries included, for each data set,
            unit and adversary of an epsilon in the table.
        uncounted: how many other runs in the folder used the same rows; what they cost is unknown.
        ticks_at_points: whether the chart's axis has ticks at the points' epsilons and nowhere
            else.
    """

    ticks_at_points: ClassVar[bool] = False
    groups: Sequence[G]
    out: Path | None = None
    private_choice: bool = False
    private_scores: bool = False
    score_releases: Mapping[str, tuple[Unprotected, ...]] = field(default_factory=dict)
    together: Sequence[Together] = ()
    uncounted: int = 0

    @property
    def first(self) -> str:
        """The metric that is shown first and drawn."""
        raise NotImplementedError

    def shown(self) -> tuple[list[str], list[list[str]]]:
        """Return the table to display: its column headings and its rows."""
        raise NotImplementedError

    def notes(self) -> list[str]:
        """Return, in sentences, what a reader of the numbers must know."""
        raise NotImplementedError

    def to_records(self) -> list[dict[str, Any]]:
        """Return the table as flat mappings, with the same keys in each."""
        raise NotImplementedError

    def warnings(self) -> list[Fact]:
        """Return warnings about releases that no epsilon in the table covers."""
        return [
            *(SCORES_RELEASED(of=name, what=what) for name, what in self.score_releases.items()),
            *((CHOOSING,) if self.private_choice else ()),
            *((HELD_OUT,) if self.private_scores else ()),
        ]

    def facts_in_words(self) -> list[str]:
        """Return conditions of the epsilons, baselines and doubts, and the costs together."""
        done = [each for each in self.groups if each.runs]
        figures = {each.full_name: each.figure(self.first) for each in done}
        return [
            *conditions_in_words(done),
            *words.conditions_together(self.together),
            *words.baselines(figures.values()),
            *words.by_rows("doubt", {name: each.doubts for name, each in figures.items()}),
            *words.together_lines(self.together, self.uncounted),
        ]

    def to_text(self) -> str:
        """Return the table and the notes as plain text."""
        head, rows = self.shown()
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        found = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (head, ["-" * width for width in widths], *rows)
        ]
        return "\n".join([*found, "", *self.notes()]) + "\n"

    def _repr_html_(self) -> str:
        return f"{html_table(*self.shown())}<p>{escape('; '.join(self.notes()))}</p>"

    def to_csv(self) -> str:
        """Return the records as CSV, one a line; the notes follow, each in a comment (#)."""
        records, text = self.to_records(), io.StringIO()
        if records:
            writer = csv.DictWriter(text, records[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows({k: plain(v) for k, v in record.items()} for record in records)
        return text.getvalue() + "".join(f"# {note}\n" for note in self.notes())

    def plot(self, path: Path | str | None = None) -> Any:
        """Draw the first metric against epsilon; a notebook shows the returned figure.

        Args:
            path: where to save the picture (.svg, .png or .pdf); None only draws it.

        Returns:
            Matplotlib's figure.

        Raises:
            ConfigError: Matplotlib is not installed, or the file extension is unknown.
            RunError: the file cannot be written.
        """
        metric = self.first
        scale, unit = (100, " in %") if metric in words.SHARES else (1, "")
        with _drawn(path, (7.2, 4.6), self.facts_in_words) as (figure, (axes,)):
            axes.set_xlabel(self.axis())
            axes.set_ylabel(
                f"{words.names('metric')[metric]}{unit}, with its standard deviation over seeds"
            )
            series: dict[str, list[tuple[float, float, float]]] = {}
            levels: dict[str, tuple[float, float]] = {}
            for group, name, epsilon in self.points():
                mean, deviation = group.mean(metric), group.deviation(metric)
                if mean is None:
                    continue
                value = scale * mean, scale * (deviation or 0.0)
                if epsilon is None:
                    levels[name] = value
                else:
                    series.setdefault(name, []).append((epsilon, *value))
            _draw(axes, series, levels)
            epsilons = {epsilon for points in series.values() for epsilon, _, _ in points}
            _set_ticks(axes, sorted(epsilons), self.ticks_at_points)
            figures = [group.figure(metric) for group in self.groups if group.runs]
            known = [each for each in figures if each.baseline is not None]
            for each in {each.baseline: each for each in known}.values():
                height = scale * (each.baseline or 0.0)
                axes.axhline(height, label=words.baseline(each), color="#666666", linestyle=":")
        return figure

    def points(self) -> Iterator[tuple[Group, str, float | None]]:
        """Yield what the chart shows: groups, their lines, and epsilons; None for a level."""
        raise NotImplementedError

    def axis(self) -> str:
        """Return the label of the chart's axis of epsilons."""
        raise NotImplementedError


def doubts_of(runs: Sequence[Row]) -> list[Doubt]:
    """Return what is doubtful about the metrics of runs, from their rows."""
    return [Doubt.from_json(each) for row in runs for each in row.get("doubts", ())]


def conditions_in_words(groups: Sequence[Group]) -> list[str]:
    """Return the conditions of groups in sentences, by name, or by row where these differ."""
    by_name: dict[str, set[tuple[Fact, ...]]] = {}
    for each in groups:
        by_name.setdefault(each.name, set()).add(each.conditions)
    return words.by_rows(
        "condition",
        {
            each.name if len(by_name[each.name]) == 1 else each.full_name: each.conditions
            for each in groups
        },
    )


def deviation_of(values: Sequence[float]) -> float | None:
    """Return the standard deviation over runs (n - 1); None for fewer than two values."""
    return statistics.stdev(values) if len(values) > 1 else None


def half_width(values: Sequence[float]) -> float | None:
    """Return half of the 95 % interval of a mean, by Student's t; None for fewer than two."""
    deviation = deviation_of(values)
    if deviation is None:
        return None
    return float(special.stdtrit(len(values) - 1, 0.975)) * (deviation / math.sqrt(len(values)))


def plain(value: Any) -> Any:
    """Return a value as one cell of a table holds it: lists and mappings are JSON."""
    return json.dumps(value) if isinstance(value, list | dict) else value


@contextmanager
def _drawn(
    path: Path | str | None,
    size: tuple[float, float],
    notes: Callable[[], Sequence[str]],
    panels: int = 1,
    *,
    stacked: bool = False,
) -> Iterator[tuple[Any, Sequence[Any]]]:
    """Yield an empty figure and the axes of its panels, and finish what was drawn in them.

    Args:
        path: where to save it, if anywhere; see ``RunTable.plot``.
        size: the width and the height of its panels in inches.
        notes: returns what a reader must know; the panels keep their size.
        panels: the number of panels.
        stacked: whether they are below each other, each with its own legend.

    Raises:
        ConfigError: Matplotlib is not installed, or the file extension is unknown.
        RunError: the file cannot be written.
    """
    place = None if path is None else Path(path)
    if place is not None and place.suffix.lower() not in _UNDATED:
        raise ConfigError(f"plot {path}: give a file name that ends in {', '.join(_UNDATED)}")
    figures = import_extra("matplotlib.figure", extra="report")
    lines = [line for note in notes() for line in textwrap.wrap(note, 110)]
    width, height = size
    figure = figures.Figure(figsize=(width, height + 0.12 * len(lines)), layout="constrained")
    rows, columns = (panels, 1) if stacked else (1, panels)
    every = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axes in every:
        axes.grid(color="#d9d9d9", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    yield figure, every
    figure.suptitle("\n".join(lines), fontsize=7, ha="left", x=0.01)
    for axes in every if stacked else ():
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    handles = {
        text: each
        for axes in ([] if stacked else every)
        for each, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center",
                      ncols=1 if len(handles) < 5 else 2, frameon=False)  # fmt: skip
    if place is not None:
        _save(figure, place)


def _draw(
    axes: Any,
    series: Mapping[str, Sequence[tuple[float, float, float]]],
    levels: Mapping[str, tuple[float, float]],
) -> None:
    """Draw means against epsilon, with error bars of one standard deviation in each direction.

    Args:
        axes: Matplotlib's axes.
        series: points by name: epsilon, mean, deviation.
        levels: mean and deviation of what has no epsilon above 0, drawn as horizontal lines.
    """
    for place, (name, points) in enumerate(series.items()):
        x, y, deviations = zip(*sorted(points), strict=True)
        axes.errorbar(x, y, yerr=deviations, label=name, color=_COLOURS[place % len(_COLOURS)],
                      marker=_MARKERS[place % len(_MARKERS)], markersize=5, linewidth=1.6,
                      capsize=3)  # fmt: skip
    for place, (name, (mean, deviation)) in enumerate(levels.items(), start=len(series)):
        colour = _COLOURS[place % len(_COLOURS)]
        axes.axhline(mean, label=name, color=colour, linestyle="--", linewidth=1.4)
        if deviation:
            low, high = mean - deviation, mean + deviation
            axes.axhspan(low, high, color=colour, alpha=0.12, linewidth=0)


Course = tuple[str, Sequence[int], NDArray[np.float64], NDArray[np.float64]]
"""A score by round: a name, the rounds, means over seeds, and deviations."""


def draw_courses(
    panels: Sequence[tuple[str, Sequence[Course]]],
    scale: float,
    label: str,
    notes: Sequence[str],
    path: Path | str | None,
    *,
    stacked: bool = False,
) -> Any:
    """Draw scores by round, with a band of one deviation, and return Matplotlib's figure.

    Args:
        panels: the title of each panel, and its lines.
        scale: the factor on scores.
        label: what the scores are.
        notes: what a reader must know.
        path: where to save the picture, if anywhere; see ``RunTable.plot``.
        stacked: whether panels are below each other, because they have different lines.

    Raises:
        ConfigError: Matplotlib is not installed, or the file extension is unknown.
        RunError: the file cannot be written.
    """
    names = list(dict.fromkeys(name for _, courses in panels for name, *_ in courses))
    size = (9.0, 3.2 * len(panels)) if stacked else (max(7.2, 3.6 * len(panels)), 4.2)
    with _drawn(path, size, lambda: notes, len(panels), stacked=stacked) as (figure, every):
        for axes, (title, courses) in zip(every, panels, strict=True):
            axes.set(title=title, xlabel="round")
            axes.xaxis.get_major_locator().set_params(integer=True)
            for name, rounds, mean, deviation in courses:
                number, ends = names.index(name), (mean - deviation, mean + deviation)
                colour, marker = _COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)]
                axes.plot(rounds, scale * mean, label=name, color=colour, linewidth=1.6,
                          marker=marker, markersize=4,
                          markevery=max(1, len(rounds) // 10))  # fmt: skip
                axes.fill_between(rounds, *(scale * end for end in ends), color=colour, alpha=0.12)
            axes.set_ylabel(label if stacked or axes is every[0] else "")
    return figure


def _set_ticks(axes: Any, epsilons: Sequence[float], at_points: bool) -> None:
    if not epsilons:
        axes.set_xticks([])
        return
    ticker = import_extra("matplotlib.ticker", extra="report")
    axes.set_xscale("log")
    axes.set_xlim(epsilons[0] / 1.4, epsilons[-1] * 1.4)
    if at_points:
        axes.xaxis.set_major_locator(ticker.FixedLocator(epsilons))
        axes.xaxis.set_minor_locator(ticker.NullLocator())
    elif epsilons[-1] / epsilons[0] < 100:
        axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:,.6g}"))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())


def _save(figure: Any, place: Path) -> None:
    """Write a figure to a file.

    Raises:
        RunError: the file cannot be written.
    """
    matplotlib = import_extra("matplotlib", extra="report")
    saving = os_errors(f"plot {place}", "choose a writable folder", RunError)
    with saving, matplotlib.rc_context(_STYLE):
        figure.savefig(place, dpi=150, metadata=_UNDATED[place.suffix.lower()])


_STYLE = {"svg.hashsalt": "fedldp", "svg.fonttype": "none", "pdf.fonttype": 42}
"""Keep text as text in files, because some publishers refuse type 3 fonts, the default."""

_UNDATED: Mapping[str, Mapping[str, None]] = {
    ".svg": {"Date": None}, ".png": {}, ".pdf": {"CreationDate": None},
}  # fmt: skip
"""The kinds of files. Leave the date out of them, so that equal figures give equal files."""
