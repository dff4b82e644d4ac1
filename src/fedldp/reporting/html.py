"""A run as one HTML page, without scripts or anything from elsewhere."""

from __future__ import annotations

from typing import Any

from fedldp.reporting.text import explain, number

_WIDTH, _HEIGHT = 600, 220


def page(summary: dict[str, Any], tested_on: str, metrics: dict[str, float]) -> str:
    """Return the page of a run: its summary, and more, of ``simulation.engine.Result``."""
    # Imported here: most commands make no page.
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("fedldp.reporting"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
    )
    template = environment.get_template("run.html")
    accuracies = [r["accuracy"] for r in summary["rounds"] if r["accuracy"] is not None]
    return template.render(
        **summary,
        number=number,
        explain=explain,
        tested_on=tested_on,
        metrics=metrics,
        curve=_polyline(accuracies),
        width=_WIDTH,
        height=_HEIGHT,
    )


def _polyline(accuracies: list[float]) -> str:
    """Return the points of the accuracy curve: 0 at the bottom, 1 at the top of the drawing."""
    step = _WIDTH / max(1, len(accuracies) - 1)
    return " ".join(f"{i * step:.1f},{(1 - a) * _HEIGHT:.1f}" for i, a in enumerate(accuracies))
