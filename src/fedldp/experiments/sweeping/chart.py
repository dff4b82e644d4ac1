"""A chart of accuracy against the proven or stated epsilon."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedldp.accounting.guarantees import HOUSE
from fedldp.core.errors import ConfigError, RunError
from fedldp.core.registry import import_extra
from fedldp.experiments.sweeping.cells import Cell
from fedldp.experiments.sweeping.grid import in_words
from fedldp.reporting import words
from fedldp.reporting.scores import Figure

KINDS = (".svg", ".png", ".pdf")
BUDGETS = ("epsilon", "target.epsilon")
"""Settings that vary along a line; every combination of the other settings gets its own line."""

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

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
_MARKERS = "osD^vPX*<>"


def draw(
    cells: Sequence[Cell],
    path: Path | None,
    figure_of: str,
    notes: Sequence[str] = (),
) -> Any:
    """Draw the means of ``cells``, with error bars of one standard deviation in each direction.

    The metric is ``figure_of``; its baseline is a dotted line.

    If nothing is proven, epsilon is infinite, and the mean is drawn as a horizontal line.

    Returns:
        Matplotlib's figure, which is also written to ``path`` if one is given.

    Raises:
        ConfigError: Matplotlib is not installed, or the file's name has an unknown extension.
            RunError: the file cannot be written.
    """
    check_kind(path)
    figure, axes = new_axes()
    lines = _lines(cells, figure_of)
    for place, (name, found) in enumerate(lines.items()):
        _draw_points(axes, name, found, place)
    _set_x(axes, [x for found in lines.values() for x, _, _ in found if 0 < x < math.inf], cells)
    shown = "area under the ROC curve" if figure_of == "auc" else NAMES[figure_of]
    shown += "" if figure_of in AS_IT_IS else " in %"
    axes.set_ylabel(f"{shown}, with its standard deviation over seeds")
    write_notes(figure, notes)
    scale = 1 if figure_of in AS_IT_IS else 100
    draw_baselines(axes, [cell.figure(figure_of) for cell in cells if cell.runs], scale)
    return finished(figure, path, len(lines))


def draw_baselines(axes: Any, figures: Sequence[Figure], scale: float) -> None:
    """Draw each baseline, times ``scale``, as a dotted line with a label."""
    for each in {each.baseline: each for each in figures if each.baseline is not None}.values():
        assert each.baseline is not None
        label = words.baseline(each)
        axes.axhline(scale * each.baseline, label=label, color="#666666", linestyle=":")


def write_notes(figure: Any, notes: Sequence[str]) -> None:
    """Write what a reader of a chart must know below its title."""
    if notes:
        lines = [each for note in notes for each in textwrap.wrap(note, 110)]
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + 0.12 * len(lines))  # the axes keep their size
        figure.suptitle("\n".join(lines), fontsize=7, ha="left", x=0.01)


def check_kind(path: Path | None) -> None:
    """Refuse the path of a picture whose file extension is unknown.

    Raises:
        ConfigError: the file's name has an unknown extension.
    """
    if path is not None and path.suffix.lower() not in KINDS:
        raise ConfigError(f"plot {path}: give a file name that ends in {', '.join(KINDS)}")


def new_axes() -> tuple[Any, Any]:
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


def finished(figure: Any, path: Path | None, lines: int) -> Any:
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

Point = tuple[float, float, float]
"""An epsilon, a mean and its deviation; shares are in percent."""


def _lines(cells: Sequence[Cell], figure: str) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for cell in cells:
        mean = cell.mean_of(figure)
        if mean is None or cell.proven is None:
            continue
        scale = 1 if figure in AS_IT_IS else 100
        point = cell.proven.size, scale * mean, scale * (cell.deviation_of(figure) or 0.0)
        found.setdefault(_name(cell), []).append(point)
    return {name: sorted(points) for name, points in found.items()}


def _name(cell: Cell) -> str:
    others: Mapping[str, Any] = {k: v for k, v in cell.settings.items() if k not in BUDGETS}
    name, found = in_words(others), cell.proven
    if found is None:
        return name
    name += words.about(found.unit, found.adversary)
    name += " (idealised arithmetic)" if found.is_idealised else ""
    return name + ("" if found.stated_by == HOUSE else f" (stated by {found.stated_by})")


def _draw_points(axes: Any, name: str, points: list[Point], place: int) -> None:
    # A logarithmic axis cannot show an epsilon of 0, so that point is drawn at the left end.
    draw_line(axes, name, [point for point in points if 0 < point[0] < math.inf], place)
    for epsilon, mean, deviation in points:
        if not 0 < epsilon < math.inf:
            what = "nothing about the data is sent" if epsilon == 0 else "nothing is proven"
            draw_level(axes, f"{name} ({what})", mean, deviation, place)


def draw_line(axes: Any, name: str, points: Sequence[Point], place: int) -> None:
    """Draw points with their deviations and the line through them; ``place`` sets the colour."""
    if points:
        x, y, deviations = zip(*points, strict=True)
        axes.errorbar(x, y, yerr=deviations, label=name, color=_COLOURS[place % len(_COLOURS)],
                      marker=_MARKERS[place % len(_MARKERS)], markersize=5, linewidth=1.6,
                      capsize=3)  # fmt: skip


def draw_level(axes: Any, name: str, mean: float, deviation: float, place: int) -> None:
    """Draw a horizontal line for a mean without an epsilon."""
    colour = _COLOURS[place % len(_COLOURS)]
    axes.axhline(mean, label=name, color=colour, linestyle="--", linewidth=1.4)
    if deviation:
        axes.axhspan(mean - deviation, mean + deviation, color=colour, alpha=0.12, linewidth=0)


def _set_x(axes: Any, points: Sequence[float], cells: Sequence[Cell]) -> None:
    if not points:
        axes.set_xticks([])
        axes.set_xlabel(words.axis([], []))
        return
    ticker = import_extra("matplotlib.ticker", extra="report")
    axes.set_xscale("log")
    axes.set_xlim(min(points) / 1.5, max(points) * 1.5)
    if max(points) / min(points) < 100:
        axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:,.6g}"))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    found = [cell.proven for cell in cells if cell.proven is not None]
    known = [each for each in found if each.epsilon is not None]
    proven = "proven" if all(each.stated_by == HOUSE for each in known) else ""
    pairs = [(each.unit, each.adversary) for each in known]
    axes.set_xlabel(words.axis(pairs, [each.delta for each in known], proven))
