"""A metric against the common epsilon, as a vector picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedldp.core.registry import import_extra
from fedldp.simulation.sweeps.chart import (
    Point,
    check_kind,
    draw_level,
    draw_line,
    finished,
    new_axes,
)


def draw(
    series: Mapping[str, Sequence[Point]],
    levels: Mapping[str, tuple[float, float]],
    *,
    x_label: str,
    y_label: str,
    note: str,
    path: Path | None,
) -> Any:
    """Draw a line for each contestant, with ticks only at the points' epsilons.

    Args:
        series: points by name: epsilon, mean, deviation.
        levels: mean and deviation of contestants without a guarantee.
        x_label: the label of the epsilon axis, which is logarithmic.
        y_label: the label of the metric's axis.
        note: the text under the epsilon axis: the number of seeds, and what the bars show.
        path: where to write the chart, or None.

    Returns:
        Matplotlib's figure.

    Raises:
        ConfigError: Matplotlib is not installed, or the file's name has an unknown extension.
        RunError: the file cannot be written.
    """
    check_kind(path)
    figure, axes = new_axes()
    ticker = import_extra("matplotlib.ticker", extra="report")
    epsilons = sorted({epsilon for points in series.values() for epsilon, _, _ in points})
    for place, (name, points) in enumerate(series.items()):
        draw_line(axes, name, sorted(points), place)
    for place, (name, (mean, deviation)) in enumerate(levels.items(), start=len(series)):
        draw_level(axes, name, mean, deviation, place)
    if epsilons:
        axes.set_xscale("log")
        axes.set_xlim(epsilons[0] / 1.3, epsilons[-1] * 1.3)
        axes.xaxis.set_major_locator(ticker.FixedLocator(epsilons))
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.set_xlabel(f"{x_label}\n{note}")
    axes.set_ylabel(y_label)
    return finished(figure, path, len(series) + len(levels))
