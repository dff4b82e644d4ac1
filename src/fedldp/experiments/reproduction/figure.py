"""Draws a target: our curve and the paper's points, as SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedldp.core.errors import RunError
from fedldp.core.registry import import_extra
from fedldp.experiments.reproduction.comparison import Row

_ROUND = "round"
_CURVES = 7
"""The largest number of curves in one panel of a page's chart, because more are hard to tell
apart."""
_FEW = 5
"""A curve with at most this many rounds has a point at each round, so that the line does not
suggest more rounds than there are."""


Panels = Sequence[tuple[str, Sequence[Row]]]
"""What each panel of a chart shows: accuracy against the quantity that a label names."""


def write_svg(path: Path, title: str, rows: Sequence[Row]) -> None:
    """Draw a target's rows in an SVG file.

    If columns are values of one quantity, a panel shows accuracy against this quantity; otherwise
    it shows accuracy after each round, if that is known.

    Raises:
        ConfigError: Matplotlib is not installed.
        RunError: the file cannot be written.
    """
    panels: dict[str, list[Row]] = {}
    for row in rows:
        if row.column != "points":
            panels.setdefault(_ROUND if _place(row) is None else _thing(row), []).append(row)
    _write(path, list(panels.items()), title=title)


def write_rounds(path: Path, rows: Sequence[Row]) -> None:
    """Draw the chart of a page: accuracy after each round, with a few curves per panel.

    Raises:
        ConfigError: Matplotlib is not installed.
        RunError: the file cannot be written.
    """
    drawn = [row for row in rows if has_rounds(row)]
    panels = [(_ROUND, drawn[start : start + _CURVES]) for start in range(0, len(drawn), _CURVES)]
    _write(path, panels)


def has_rounds(row: Row) -> bool:
    """Return whether a row has results after more rounds than the last one."""
    return row.ours is not None and len(row.ours.after) > 1


def _write(path: Path, panels: Panels, title: str = "") -> None:
    figures, style = (
        import_extra(name, extra="report") for name in ("matplotlib.figure", "matplotlib")
    )
    # Store text as text rather than outlines, and give elements the same ids in every call.
    small = {"svg.fonttype": "none", "svg.hashsalt": "fedldp", "font.sans-serif": ["DejaVu Sans"]}
    text = io.StringIO()
    with style.rc_context({"font.family": "sans-serif", **small}):
        figure = figures.Figure(figsize=(9, 3.2 * len(panels)), layout="constrained")
        figure.suptitle(title)
        every = figure.subplots(len(panels), squeeze=False)[:, 0]
        for axes, (label, rows) in zip(every, panels, strict=True):
            _draw(axes, label, rows)
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    try:
        path.write_text(
            re.sub(r"[ \t]+$", "", text.getvalue(), flags=re.MULTILINE), encoding="utf-8"
        )
    except OSError as error:
        raise RunError(f"svg = {path}: {error.strerror}; choose another path") from error


def _draw(axes: Any, label: str, rows: Sequence[Row]) -> None:
    """Draw a panel: accuracy against the quantity that a label names."""
    axes.set_xlabel(label)
    axes.set_ylabel("accuracy, %")
    axes.grid(alpha=0.3)
    if label == _ROUND:
        for row in rows:
            _curve(axes, row)
    else:
        for name in dict.fromkeys(row.row for row in rows):
            _points(axes, name, [row for row in rows if row.row == name])
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    else:
        axes.text(0.5, 0.5, "not measured yet", transform=axes.transAxes, ha="center")


def _curve(axes: Any, row: Row) -> None:
    if row.ours is None or not row.ours.after:
        return
    rounds = sorted(row.ours.after)
    style = ".-" if len(rounds) <= _FEW else "-"
    axes.plot(rounds, [100 * row.ours.after[n][0] for n in rounds], style, label=_name(row))


def _points(axes: Any, name: str, rows: list[Row]) -> None:
    measured = sorted(
        (place, row.ours.mean, row.ours.deviation or 0.0)
        for row in rows
        if row.ours is not None and (place := _place(row)) is not None
    )
    colour = None
    if measured:
        where, means, deviations = (list(each) for each in zip(*measured, strict=True))
        drawn = axes.errorbar(
            where, [100 * m for m in means], [100 * d for d in deviations], fmt="o-", label=name
        )
        colour = drawn[0].get_color()
    paper = [(_place(row), 100 * row.expected.accuracy) for row in rows if row.expected is not None]
    if paper:
        axes.plot(*zip(*paper, strict=True), "x--", color=colour, label=f"{name}, paper")


def _name(row: Row) -> str:
    return row.row if row.column == "accuracy" else f"{row.row}, {row.column}"


def _place(row: Row) -> float | None:
    numbers = re.findall(r"\d+(?:\.\d+)?", row.column)
    return float(numbers[0]) if len(numbers) == 1 and " of " not in row.column else None


def _thing(row: Row) -> str:
    return re.sub(r"\d+(?:\.\d+)?", "", row.column).strip()
