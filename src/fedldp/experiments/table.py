"""The table of a set of runs, in text and HTML, and its chart of scores against epsilon."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from fedldp.core.errors import ConfigError, RunError
from fedldp.core.registry import import_extra
from fedldp.reporting import words
from fedldp.reporting.scores import Figure

_KINDS = (".svg", ".png", ".pdf")

NAMES = {
    "accuracy": "accuracy",
    "loss": "loss",
    "auc": "AUC",
    "average_precision": "average precision",
    "balanced_accuracy": "balanced accuracy",
    "brier": "Brier score",
}
"""The names of metrics in charts."""

AS_IT_IS = ("loss", "brier")
"""Metrics that are not shares, so they are not shown in percent."""

Point = tuple[float, float, float]
"""An epsilon, a mean and its deviation; shares are in percent."""

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
_MARKERS = "osD^vPX*<>"


class RunTable:
    """A set of runs that is shown as a table with notes."""

    def shown(self) -> tuple[list[str], list[list[str]]]:
        """Return the table to display: its column headings and its rows."""
        raise NotImplementedError

    def notes(self) -> list[str]:
        """Return, in sentences, what a reader of the numbers must know."""
        raise NotImplementedError

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
        head, rows = self.shown()
        lines = [f"<tr>{''.join(f'<th>{escape(text)}</th>' for text in head)}</tr>"]
        lines += [f"<tr>{''.join(f'<td>{escape(t)}</td>' for t in row)}</tr>" for row in rows]
        return f"<table>{''.join(lines)}</table><p>{escape('; '.join(self.notes()))}</p>"

    def _with_notes(self, csv: str) -> str:
        """Return CSV with the notes, each in a comment that begins with #."""
        return csv + "".join(f"# {note}\n" for note in self.notes())


def mean_of(values: Sequence[float]) -> float | None:
    """Return the mean over runs; None if no run has a value."""
    return statistics.fmean(values) if values else None


def deviation_of(values: Sequence[float]) -> float | None:
    """Return the standard deviation over runs (n - 1); None for fewer than two values."""
    return statistics.stdev(values) if len(values) > 1 else None


def draw(
    series: Mapping[str, Sequence[Point]],
    levels: Mapping[str, tuple[float, float]],
    *,
    x_label: str,
    y_label: str,
    path: Path | None,
    figures: Sequence[Figure],
    scale: float,
    notes: Sequence[str],
    ticks_at_points: bool,
) -> Any:
    """Draw means against epsilon, with error bars of one standard deviation in each direction.

    Args:
        series: points by name: epsilon, mean, deviation.
        levels: mean and deviation of what has no epsilon above 0, drawn as horizontal lines.
        x_label: the label of the epsilon axis, which is logarithmic.
        y_label: the label of the metric's axis.
        path: where to write the chart (.svg, .png or .pdf), or None.
        figures: the scores, whose baselines are dotted lines.
        scale: the factor by which the scores were multiplied.
        notes: what a reader must know, written above the chart.
        ticks_at_points: whether the axis has ticks at the points' epsilons and nowhere else.

    Returns:
        Matplotlib's figure.

    Raises:
        ConfigError: Matplotlib is not installed, or the file's name has an unknown extension.
        RunError: the file cannot be written.
    """
    if path is not None and path.suffix.lower() not in _KINDS:
        raise ConfigError(f"plot {path}: give a file name that ends in {', '.join(_KINDS)}")
    figure, axes = _new_axes()
    for place, (name, points) in enumerate(series.items()):
        _draw_line(axes, name, sorted(points), place)
    for place, (name, (mean, deviation)) in enumerate(levels.items(), start=len(series)):
        _draw_level(axes, name, mean, deviation, place)
    epsilons = sorted({epsilon for points in series.values() for epsilon, _, _ in points})
    _set_ticks(axes, epsilons, ticks_at_points)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if notes:
        lines = [each for note in notes for each in textwrap.wrap(note, 110)]
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + 0.12 * len(lines))  # the axes keep their size
        figure.suptitle("\n".join(lines), fontsize=7, ha="left", x=0.01)
    for each in {each.baseline: each for each in figures if each.baseline is not None}.values():
        assert each.baseline is not None
        label = words.baseline(each)
        axes.axhline(scale * each.baseline, label=label, color="#666666", linestyle=":")
    return _finished(figure, path, len(series) + len(levels))


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


def _new_axes() -> tuple[Any, Any]:
    """Return an empty figure and its axes, in the style of all charts.

    Raises:
        ConfigError: Matplotlib is not installed.
    """
    import_extra("matplotlib", extra="report")
    figures = import_extra("matplotlib.figure", extra="report")
    figure = figures.Figure(figsize=(7.2, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.grid(which="major", color="#d9d9d9", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _draw_line(axes: Any, name: str, points: Sequence[Point], place: int) -> None:
    """Draw points with their deviations and the line through them; ``place`` sets the colour."""
    if points:
        x, y, deviations = zip(*points, strict=True)
        axes.errorbar(x, y, yerr=deviations, label=name, color=_COLOURS[place % len(_COLOURS)],
                      marker=_MARKERS[place % len(_MARKERS)], markersize=5, linewidth=1.6,
                      capsize=3)  # fmt: skip


def _draw_level(axes: Any, name: str, mean: float, deviation: float, place: int) -> None:
    """Draw a horizontal line for a mean without an epsilon."""
    colour = _COLOURS[place % len(_COLOURS)]
    axes.axhline(mean, label=name, color=colour, linestyle="--", linewidth=1.4)
    if deviation:
        axes.axhspan(mean - deviation, mean + deviation, color=colour, alpha=0.12, linewidth=0)


def _finished(figure: Any, path: Path | None, lines: int) -> Any:
    """Return a figure with a legend for ``lines`` lines, written to ``path`` if one is given.

    Raises:
        RunError: the file cannot be written.
    """
    matplotlib = import_extra("matplotlib", extra="report")
    if lines:
        figure.legend(loc="outside lower center", ncols=1 if lines < 5 else 2, frameon=False)
    if path is None:
        return figure
    try:
        with matplotlib.rc_context(_STYLE):
            dated = {} if path.suffix.lower() == ".png" else _UNDATED[path.suffix.lower()]
            figure.savefig(path, dpi=150, metadata=dated)
    except OSError as error:
        raise RunError(f"plot {path}: {error.strerror}; choose a writable folder") from error
    return figure


_STYLE = {"svg.hashsalt": "fedldp", "svg.fonttype": "none", "pdf.fonttype": 42}
"""Keep text as text in files, because some publishers refuse type 3 fonts, the default."""

_UNDATED = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
"""Leave the date out of files, so that equal figures give equal files."""
