"""Charts as data: the places of their lines, marks and words, which ``chart.svg`` draws.

A chart is 320 units wide: on a phone the whole chart is visible, with readable text. Its colours
and fonts are those of the page. Charts contain only numbers and our own words: runs are identified
by number, so that no text from a run folder gets into a chart.
"""

from __future__ import annotations

import base64
import io
import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fedldp.accounting.guarantees import HOUSE, Guarantee
from fedldp.accounting.statement import Claim, Statement
from fedldp.core.formatting import number
from fedldp.reporting import words
from fedldp.reporting.lines import best_lines
from fedldp.reporting.runs import FinishedRun
from fedldp.reporting.scores import calibrations_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Chart = dict[str, Any]
"""What the macro ``drawing`` of ``chart.svg`` draws."""

Points = Sequence[tuple[float, ...]]
"""Points by ascending x: (x, y), with half the lengths of their bars, if any: (x, y, dy, dx)."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 50.0, 314.0, 6.0, 177.0
"""The ends of the area in which lines are drawn."""

_SERIES, _MARKS = 6, 5
"""How many colours and how many marks there are."""

_MOST_MARKED = 40
"""The largest number of rounds for which every point of a line is marked."""

_ROW = 52.0
"""The height of a row in a chart of guarantees."""


def guarantees(privacy: Statement) -> Chart:
    """Return a chart of claimed and proven (or stated) epsilons, on a logarithmic scale.

    There is a row for each unit and adversary, showing its strongest line. A bar goes from the
    proven lower bound on the true epsilon to the line's epsilon; a cross at the right end means no
    guarantee. The claim is shown in the rows of its unit, or in a separate row, and as a line
    through all rows.
    """
    lines: list[Guarantee | None] = [*best_lines(privacy).values()]
    claim = privacy.claim
    if claim and claim.unit not in {line.unit for line in lines if line}:
        lines.insert(0, None)
    known = [size for line in lines if line for size in (line.epsilon, line.lower) if size]
    known += [claim.epsilon] if claim and claim.epsilon else []
    first = math.floor(math.log10(min([*known, 0.1])) - 0.3)
    last = math.ceil(math.log10(max([*known, 100.0])) + 0.3)
    low, end = 10.0**first, 10.0 ** (1.16 * last - 0.16 * first)  # the end: without a guarantee
    place = _places(low, 10.0 ** (1.22 * last - 0.22 * first), 16.0, _RIGHT, logarithmic=True)
    ticks = [10.0**each for each in range(first, last + 1, math.ceil((last - first) / 7))]
    return {
        "rows": [
            {
                "y": 45.0 + _ROW * row,
                "texts": _row_texts(line, claimed),
                "claimed": claimed is not None,
                "epsilon": None if not line or line.epsilon is None else place(line.epsilon or low),
                "lower": place(line.lower) if line and line.epsilon and line.lower else None,
                "bare": line is not None and line.epsilon is None,
            }
            for row, line in enumerate(lines)
            for claimed in [claim if claim and (not line or claim.unit == line.unit) else None]
        ],
        "bottom": 17.0 + _ROW * len(lines),
        "height": 51.0 + _ROW * len(lines),
        "x_ticks": [*((place(tick), _plain(tick)) for tick in ticks), (place(end), "none")],
        "across": ["epsilon (logarithmic): left is better"],
        "claim": claim and place(claim.epsilon or low),
        "meaningless": place(words.MEANINGLESS),
        "end": place(end),
    }


def _row_texts(line: Guarantee | None, claim: Claim | None) -> tuple[str, str]:
    """Return what stands above a row's marks, because it might not fit beside them."""
    about, told = "", "nothing is stated"
    if line is not None:
        about = f"{line.unit}, {words.names('against')[line.adversary]}"
        # Do not show who stated it: that name comes from the run folder.
        how = "" if line.epsilon is None else "proven " if line.stated_by == HOUSE else "stated "
        told = how + words.amount(line)
    if claim is not None:
        about, told = about or claim.unit, f"claimed {number(claim.epsilon)}; {told}"
    return about, told


def curves(runs: Sequence[FinishedRun], key: str, twins: Sequence[bool]) -> Chart | None:
    """Return a chart of one metric of several runs by round, on common axes.

    Args:
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
    columns = 2 if any(twins) else 4
    return lines(found, across="round", up=words.names("axis")[key], columns=columns)


def lines(
    series: Sequence[tuple[str, Points]],
    *,
    across: str,
    up: str,
    levels: Sequence[tuple[str, float]] = (),
    columns: int = 1,
    logarithmic: bool = False,
    diagonal: tuple[str, float, float] | None = None,
    joined: bool = True,
) -> Chart:
    """Return a chart of labelled lines, with the legend below.

    Args:
        series: for each line, a label in our own words, and its points.
        across: the label of the x axis.
        up: the label of the y axis.
        levels: for each horizontal line, a label in our own words, and its height.
        columns: the number of columns of the legend.
        logarithmic: whether the x axis is; it then has a tick at every x.
        diagonal: the label and the ends of a line y = x, if it is drawn; then x is no integer.
        joined: whether a line goes through the points of a series.
    """
    whole = [(name, [_with_bars(*point) for point in points]) for name, points in series]
    every = [point for _, points in whole for point in points]
    ends = diagonal[1:] if diagonal else ()
    heights = [y + s * dy for _, y, dy, _ in every for s in (-1, 1)]
    low, high = _range([*heights, *(height for _, height in levels), *ends])
    left, right = _range(
        [*(x + s * dx for x, *_, dx in every for s in (-1, 1)), *ends], logarithmic
    )
    x_of = _places(left, right, _LEFT, _RIGHT, logarithmic=logarithmic)
    y_of = _places(low, high, _BOTTOM, _TOP)
    drawn = [
        {
            "label": label,
            "colour": i % _SERIES,
            "mark": i % _MARKS if len(points) <= _MOST_MARKED else None,
            "dash": i % 4 if joined else None,
            "points": [(x_of(x), y_of(y)) for x, y, *_ in points],
            "bars": [(x_of(x), y_of(y - dy), y_of(y + dy)) for x, y, dy, _ in points if dy],
            "beams": [(y_of(y), x_of(x - dx), x_of(x + dx)) for x, y, _, dx in points if dx],
        }
        for i, (label, points) in enumerate(whole)
    ]
    for i, (label, height) in enumerate(levels, start=len(series)):
        across_all = [(_LEFT, y_of(height)), (_RIGHT, y_of(height))]
        drawn.append({"label": label, "colour": i % _SERIES, "dash": (i + 1) % 4,
                      "points": across_all})  # fmt: skip
    if diagonal is not None:
        drawn.append(
            {"label": diagonal[0], "dash": 0, "points": [(x_of(e), y_of(e)) for e in ends]}
        )
    title, named = textwrap.wrap(across, 46), [each for each in drawn if each["label"]]
    legend = named if len(named) > 1 else []
    xs = sorted({x for x, *_ in every}) if logarithmic else _ticks(left, right, diagonal is None)
    start = _BOTTOM + 26 + 13 * len(title)
    return {
        "series": drawn,
        "bottom": _BOTTOM,
        "left": _LEFT,
        "right": _RIGHT,
        "height": start + 15 * math.ceil(len(legend) / columns),
        "x_ticks": [(x_of(tick), f"{tick:g}") for tick in xs],
        "y_ticks": [(y_of(tick), f"{tick:,g}") for tick in _ticks(low, high)],
        "across": title,
        "up": up,
        "legend": [
            (320 / columns * (i % columns), start + 15 * (i // columns), each)
            for i, each in enumerate(legend)
        ],
    }


def calibrations(run: FinishedRun) -> list[tuple[str, Chart]]:
    """Return what people were asked about by prediction, and a chart of each with 95 % intervals.

    A band that was not seen has no point. A model is calibrated where points are on the line.
    """
    return [
        (
            what,
            lines(
                [("", [((band.low + band.high) / 2, band.observed, band.half_width,
                        (band.high - band.low) / 2)
                       for band in bands if band.observed is not None])],
                across="predicted; bars: the band",
                up=f"observed {what.partition(' of ')[0]}",  # without the class's name
                diagonal=("", bands[0].low, bands[-1].high),
                joined=False,
            ),
        )
        for what, bands in calibrations_of(run.means, run.schema.class_names).items()
    ]  # fmt: skip


def picture(values: NDArray[np.float32]) -> str:
    """Return an image, shape (channels, height, width), as a PNG data address.

    The smallest value is white and the largest black, because recovered images have no natural
    scale. Matplotlib draws it, which comes with the extra ``report``.
    """
    import numpy as np
    from matplotlib import image

    spread = float(np.ptp(values)) or 1.0
    scaled = (np.moveaxis(values, 0, -1) - values.min()) / spread
    content = io.BytesIO()
    shown = scaled if scaled.shape[-1] == 3 else scaled[..., 0]
    image.imsave(content, shown, cmap="gray_r", vmin=0, vmax=1, format="png")
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def _with_bars(x: float, y: float, dy: float = 0.0, dx: float = 0.0) -> tuple[float, ...]:
    return x, y, 0.0 if math.isnan(dy) else dy, dx


def _range(values: Iterable[float], logarithmic: bool = False) -> tuple[float, float]:
    """Return the ends of an axis, a little beyond the values."""
    found = [math.log10(value) if logarithmic else value for value in values] or [0.0]
    low, high = min(found), max(found)
    beyond = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    ends = low - beyond, high + beyond
    return (10.0 ** ends[0], 10.0 ** ends[1]) if logarithmic else ends


def _places(
    low: float, high: float, first: float, last: float, *, logarithmic: bool = False
) -> Callable[[float], float]:
    """Return a function from the values between two ends of an axis to places in the drawing."""

    def place(value: float) -> float:
        ends = (value, low, high)
        at, start, end = map(math.log10, ends) if logarithmic else ends
        return round(first + (last - first) * (at - start) / (end - start), 1)

    return place


def _ticks(low: float, high: float, integers: bool = False) -> list[float]:
    """Return at most seven round numbers between two ends."""
    power = 10.0 ** math.floor(math.log10((high - low) / 6))
    step = next(k * power for k in (1, 2, 5, 10) if (high - low) / (k * power) <= 6)
    step = max(1.0, math.ceil(step)) if integers else step
    return [round(n * step, 12) for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _plain(value: float) -> str:
    if value >= 1e4:
        return "10" + str(round(math.log10(value))).translate(_RAISED)
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
