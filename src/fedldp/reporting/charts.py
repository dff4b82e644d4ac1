"""Charts as inline SVG, drawn by Matplotlib; text remains text, and colours are those of the page.

Charts contain only numbers and our own words: runs are identified by number, so that no text from a
run folder gets into a chart. Matplotlib comes with the extra ``report``; without it there are no
charts.
"""

from __future__ import annotations

import base64
import io
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fedldp.accounting.guarantees import HOUSE, Guarantee
from fedldp.accounting.statement import Claim, Statement
from fedldp.core.formatting import number
from fedldp.core.registry import is_installed
from fedldp.reporting import words
from fedldp.reporting.lines import best_lines
from fedldp.reporting.runs import FinishedRun
from fedldp.reporting.scores import Band, calibrations_of

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

# Placeholders for colours of the page: for text and axes, for the grid, and for danger.
_INK, _GRID, _BAD = "#010201", "#010202", "#010203"
_SERIES = tuple(f"#01030{i}" for i in range(6))
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
_MARKERS = "os^Dv<>ph*"
_COLOURS = {_INK: "currentColor", _GRID: "var(--grid)", _BAD: "var(--bad)"} | {
    colour: f"var(--series-{i})" for i, colour in enumerate(_SERIES)
}
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fedldp",
    "text.parse_math": False,
    "axes.unicode_minus": False,
    "font.size": 11,
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
}
_INCHES = 4.4
"""The width of charts in inches: on a phone the whole chart is visible, with readable text."""

_NUMBERS, _NOTHING = 0.68, 0.24
"""Inches left of the vertical axis: with room for numbers at its ticks, and without."""

_MOST_MARKED = 40
"""The largest number of rounds for which every point of a line is marked."""


def available() -> bool:
    """Return whether Matplotlib is installed."""
    return is_installed("report")


def guarantees(name: str, privacy: Statement) -> str:
    """Return an SVG of claimed and proven (or stated) epsilons, on a logarithmic scale.

    There is a row for each unit and adversary, showing its strongest line. A bar goes from the
    proven lower bound on the true epsilon to the line's epsilon; a cross at the right end means no
    guarantee. The claim is shown in the rows of its unit, or in a separate row, and as a line
    through all rows.

    Args:
        name: the chart's name, unique on its page.
        privacy: the statement.
    """
    lines: list[Guarantee | None] = [*best_lines(privacy).values()]
    claim = privacy.claim
    if claim and claim.unit not in {line.unit for line in lines if line}:
        lines.insert(0, None)
    known = [size for line in lines if line for size in (line.epsilon, line.lower) if size]
    known += [claim.epsilon] if claim and claim.epsilon else []
    low = 10 ** math.floor(math.log10(min([*known, 0.1])) - 0.3)
    high = 10 ** math.ceil(math.log10(max([*known, 100.0])) + 0.3)
    end = high * (high / low) ** 0.16  # the position of lines without a guarantee

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.set_xscale("log")
        axes.set_xlim(low, end * (high / low) ** 0.06)
        axes.set_ylim(len(lines) - 0.6, -0.85)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        ticks = 10.0 ** _steps(round(math.log10(low)), round(math.log10(high)))
        axes.set_xticks([*ticks, end], [*map(_plain, ticks), "none"])
        axes.minorticks_off()
        axes.set_xlabel("epsilon (logarithmic): left is better")
        axes.grid(axis="x")
        axes.axvline(words.MEANINGLESS, color=_BAD, linestyle=(0, (1, 2)), linewidth=1.2)
        place = (claim and claim.epsilon) or low
        if claim:
            axes.axvline(place, color=_SERIES[1], linestyle=(0, (6, 3)), linewidth=1)
        for row, line in enumerate(lines):
            claimed = claim if claim and (line is None or claim.unit == line.unit) else None
            _name_row(axes, row, line, claimed)
            if line:
                _draw_line(axes, row, line, low, end)
            if claimed:
                axes.plot([place], [row], "D", color=_SERIES[1], fillstyle="none", ms=8)

    return _svg(name, draw, 0.7 + 0.72 * max(1, len(lines)), left=_NOTHING)


def _name_row(axes: Axes, row: int, line: Guarantee | None, claim: Claim | None) -> None:
    """Write a row's title and numbers above its marks, because they might not fit beside them."""
    about, told = "", "nothing is stated"
    if line is not None:
        about = f"{line.unit}, {words.names('against')[line.adversary]}"
        # Do not show who stated it: that name comes from the run folder.
        how = "" if line.epsilon is None else "proven " if line.stated_by == HOUSE else "stated "
        told = how + words.amount(line)
    if claim is not None:
        about, told = about or claim.unit, f"claimed {number(claim.epsilon)}; {told}"
    for height, text, weight in ((0.56, about, "bold"), (0.28, told, "normal")):
        axes.text(0, row - height, text, transform=axes.get_yaxis_transform(), va="center",
                  fontsize=10, fontweight=weight)  # fmt: skip


def _draw_line(axes: Axes, row: int, line: Guarantee, low: float, end: float) -> None:
    if line.epsilon is None:
        axes.plot([end], [row], "X", color=_BAD, ms=11)
        return
    place = line.epsilon or low
    if line.lower:
        axes.plot([line.lower, place], [row, row], color=_SERIES[0], linewidth=4, alpha=0.5,
                  solid_capstyle="butt")  # fmt: skip
        axes.plot([line.lower], [row], "|", color=_SERIES[0], ms=12, mew=2)
    axes.plot([place], [row], "o", color=_SERIES[0], ms=8)


def curves(name: str, runs: Sequence[FinishedRun], key: str, twins: Sequence[bool]) -> str | None:
    """Return an SVG that plots one metric of several runs by round, on common axes.

    Args:
        name: the chart's name, unique on its page.
        runs: the runs to draw, numbered from 1.
        key: the name of the metric in a round, such as "accuracy".
        twins: for each run, whether it is the noise-free twin of another run.

    Returns:
        None if no run was tested.
    """
    scale = 100 if key in words.SHARES else 1
    found = [
        (
            f"run {i + 1}" + (" (noise-free twin)" if twins[i] else ""),
            [(r["round"], scale * r[key]) for r in run.summary["rounds"] if r.get(key) is not None],
        )
        for i, run in enumerate(runs)
    ]
    if not any(points for _, points in found):
        return None
    return lines(
        name, found, across="round", up=words.names("axis")[key], columns=2 if any(twins) else 4
    )


def lines(
    name: str,
    series: Sequence[tuple[str, Sequence[tuple[float, ...]]]],
    *,
    across: str,
    up: str,
    levels: Sequence[tuple[str, float]] = (),
    columns: int = 1,
    logarithmic: bool = False,
    guessing: bool = False,
) -> str:
    """Return an SVG of labelled lines, with the legend below.

    Args:
        name: the chart's name, unique on its page.
        series: for each line, a label in our own words, and points by ascending x: (x, y), or
            (x, y, deviation).
        across: the label of the x axis.
        up: the label of the y axis.
        levels: for each horizontal line, a label in our own words, and its height.
        columns: the number of columns of the legend.
        logarithmic: whether the x axis is; it then has a tick at every x.
        guessing: whether to draw the line y = x, labelled guessing.
    """
    title = textwrap.wrap(across, 46)
    entries = len(series) + len(levels) + guessing
    below = 0.18 * (len(title) - 1)
    below += 0.1 + 0.21 * math.ceil(entries / columns) if entries > 1 else 0.0

    def draw(figure: Figure) -> None:
        from matplotlib.ticker import MaxNLocator

        axes = figure.subplots()
        for i, (label, points) in enumerate(series):
            x, y, *spread = zip(*points, strict=True) if points else ((), ())
            marker = _MARKERS[i % len(_MARKERS)] if len(points) <= _MOST_MARKED else None
            axes.errorbar(x, y, yerr=spread[0] if spread else None, color=_SERIES[i % len(_SERIES)],
                          linestyle=_DASHES[i % len(_DASHES)], linewidth=1.8, marker=marker,
                          markersize=4, capsize=3, label=label)  # fmt: skip
        for i, (label, height) in enumerate(levels, start=len(series)):
            dashes = _DASHES[(i + 1) % len(_DASHES)]
            axes.axhline(height, color=_SERIES[i % len(_SERIES)], linewidth=1.3, linestyle=dashes,
                         label=label)  # fmt: skip
        if guessing:
            axes.plot([0, 1], [0, 1], color=_INK, linewidth=0.8, label="guessing")
        if logarithmic:
            ticks = sorted({point[0] for _, points in series for point in points})
            axes.set_xscale("log")
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.minorticks_off()
        elif not guessing:
            axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        axes.set_xlabel("\n".join(title))
        axes.set_ylabel(up)
        axes.grid()
        if entries > 1:
            figure.legend(fontsize=10, ncols=columns, loc="lower center", borderaxespad=0.1)

    return _svg(name, draw, 2.9 + below, below=below)


def calibrations(name: str, run: FinishedRun, *, alone: bool = False) -> list[tuple[str, str]]:
    """Return what people were asked about by prediction, and an SVG of each with 95 % intervals.

    A band that was not seen has no point. A model is calibrated where points are on the line.

    Args:
        name: the beginning of the charts' names, unique on their page.
        run: the run.
        alone: whether each SVG is a document of its own, with its own colours.
    """

    def draw(figure: Figure, what: str, bands: Sequence[Band]) -> None:
        axes = figure.subplots()
        for band in bands:
            if band.observed is not None:
                axes.errorbar((band.low + band.high) / 2, band.observed, color=_SERIES[0],
                              xerr=(band.high - band.low) / 2, yerr=band.half_width,
                              marker=_MARKERS[0], markersize=4, capsize=3)  # fmt: skip
        ends = [bands[0].low, bands[-1].high]
        axes.plot(ends, ends, color=_INK, linewidth=0.8)
        axes.set_xlabel("predicted; bars: the band")
        axes.set_ylabel(f"observed {what.partition(' of ')[0]}")  # without the class's name
        axes.grid()

    found = calibrations_of(run.means, run.schema.class_names).items()
    return [
        (what, _svg(f"{name}-{number}", partial(draw, what=what, bands=bands), 2.9, alone=alone))
        for number, (what, bands) in enumerate(found, 1)
    ]


def picture(values: NDArray[np.float32]) -> str:
    """Return an image, shape (channels, height, width), as a PNG data address.

    The smallest value is white and the largest black, because recovered images have no natural
    scale.
    """
    import numpy as np
    from matplotlib import image

    spread = float(np.ptp(values)) or 1.0
    scaled = (np.moveaxis(values, 0, -1) - values.min()) / spread
    content = io.BytesIO()
    shown = scaled if scaled.shape[-1] == 3 else scaled[..., 0]
    image.imsave(content, shown, cmap="gray_r", vmin=0, vmax=1, format="png")
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def _svg(
    name: str,
    draw: Callable[[Figure], None],
    inches: float,
    *,
    left: float = _NUMBERS,
    below: float = 0.0,
    alone: bool = False,
) -> str:
    """Return a drawing as SVG, with the given margins, which are not adjusted to its labels.

    Measuring the labels would take as long as drawing. ``left`` is the left margin in inches; the
    ``below`` inches beneath the drawing are for a legend. ``alone`` makes it a document of its own,
    with black for a page's colours.
    """
    # Do not use pyplot's global state, because a program that imports fedldp may use it too.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    text = io.StringIO()
    with rc_context({"font.family": "sans-serif", **_STYLE}):
        figure = Figure(figsize=(_INCHES, inches))
        figure.subplots_adjust(left / _INCHES, (0.47 + below) / inches, 0.985, 1 - 0.08 / inches)
        figure.patch.set_visible(False)
        draw(figure)
        for axes in figure.axes:
            axes.patch.set_visible(False)
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", metadata=nothing)
    if alone:
        return re.sub("|".join(_COLOURS), "#000000", text.getvalue())
    return _inlined(name, text.getvalue())


def _inlined(name: str, document: str) -> str:
    """Return an SVG document as an element of a page, with the page's fonts and colours."""
    element = document[document.index("<svg") :]
    element = re.sub(r"<(metadata|style)\b.*?</\1>", "", element, flags=re.DOTALL)
    element = re.sub(r' (width|height)="[\d.]+pt"', "", element, count=2)
    element = re.sub(r' xmlns(:\w+)?="[^"]*"', "", element)
    element = re.sub(r"; font-family: [^\"]*?(?=[;\"])|font-family: [^\"]*?; ", "", element)
    element = re.sub(r" id=\"(?![mp][0-9a-f]{10}\")[^\"]*\"", "", element)
    element = re.sub(r' id="', f' id="{name}-', element)
    element = element.replace('xlink:href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    for stand_in, colour in _COLOURS.items():
        element = element.replace(stand_in, colour)
    return re.sub(r"\s*\n\s*", " ", element).strip()


def _steps(low: int, high: int) -> Any:
    import numpy as np

    step = max(1, math.ceil((high - low) / 7))
    return np.arange(low, high + 1, step, dtype=float)


def _plain(value: float) -> str:
    if value >= 1e5:
        return "10" + str(round(math.log10(value))).translate(_RAISED)
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
