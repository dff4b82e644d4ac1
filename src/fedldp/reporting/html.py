"""Runs as one HTML page: a single file, which has no scripts and loads nothing from elsewhere.

All text from run folders is escaped, because a folder may come from somebody else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from fedldp.accounting.statement import scores_are_private
from fedldp.core.formatting import number, with_class_name
from fedldp.reporting import charts, words
from fedldp.reporting.lines import headline_first, own_words
from fedldp.reporting.runs import FinishedRun, command, differing, twin_of
from fedldp.reporting.text import round_rows

if TYPE_CHECKING:
    from jinja2 import Environment

BEGINS = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="fedldp">"""
"""The beginning of every page, which distinguishes our pages from other files."""

_LONGEST_VALUE = 300


def page(runs: Sequence[FinishedRun]) -> str:
    """Return the page of one run, or of several side by side in the given order."""
    shown = [headline_first(run.privacy, run.asked) for run in runs]
    twins = [twin_of(run, runs) for run in runs]
    is_twin = [any(run is twin for twin in twins) for run in runs]
    leads = any(run.is_imbalanced for run in runs)
    keys = (*(("auc", "balanced_accuracy") if leads else ()), "accuracy", "loss")
    if all("r2" in run.summary["final"] for run in runs):
        keys = ("r2", "mae")
    return render(
        "run.html",
        runs=[
            {
                "run": run,
                "number": i + 1,
                "summary": run.summary,
                "privacy": shown[i],
                "doubts": [words.line(each) for each in run.doubts],
                "noise": None if run.noise is None else words.line(run.noise),
                "guarantee": words.lead(run.summary["config"], shown[i]),
                "command": command(run),
                "twin": next((j + 1 for j, one in enumerate(runs) if one is twins[i]), None),
                "chart": charts.guarantees(shown[i]),
                "calibrations": charts.calibrations(run),
                "confusion": _shaded(run),
            }
            for i, run in enumerate(runs)
        ],
        curves=[(charts.curves(runs, key, is_twin), _course(runs, key)) for key in keys],
        leads=leads,
        differing=differing(runs),
        own=any(own_words(run.privacy) for run in runs),
    )


def render(template: str, **values: Any) -> str:
    """Return a page: a template of this package, filled with values whose text is escaped."""
    text = _environment().get_template(template).render(begins=BEGINS, **values)
    # A lone surrogate, which JSON can hold, cannot be encoded in a file.
    return text.encode("utf-8", "replace").decode()


def phrases(template: str, **values: Any) -> Any:
    """Return a template of this package as an object that has its macros; see ``render``."""
    return _environment().get_template(template).make_module(values)


@cache
def _environment() -> Environment:
    # Imported here, because most commands do not make a page.
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("fedldp.reporting"),
        autoescape=select_autoescape(["html", "svg"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "size_of": words.size_of,
        "percent": words.percent,
        "area": words.area,
        "value": _value,
        "capitalize_first": lambda text: text[:1].upper() + text[1:],
        "short_fact": words.short,
        "with_class_name": with_class_name,
        "date": _date,
    }
    environment.globals |= {
        "words": words,
        "round_rows": round_rows,
        "scores_are_private": scores_are_private,
        "own_words": own_words,
        "zip": zip,
    }
    return environment


def _value(value: Any) -> str:
    """Format a setting for display."""
    text = value if isinstance(value, str) else json.dumps(value)
    text = "not set" if value is None else text
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]} ..."


def _date(text: str | None) -> str:
    """Format a date from environment.json for display."""
    return "unknown" if text is None else text.replace("T", " ").replace("+00:00", " UTC")


def _course(runs: Sequence[FinishedRun], key: str) -> str:
    """Return the first and the last value of every run, for readers who cannot see the chart."""
    parts = []
    for i, run in enumerate(runs):
        values = [r[key] for r in run.summary["rounds"] if r.get(key) is not None]
        if values:
            first, last = (words.value_of(key, values[at]) for at in (0, -1))
            parts.append(f"run {i + 1}: from {first} to {last}")
    return f"{words.names('metric')[key]} by round; {'; '.join(parts)}"


def _shaded(run: FinishedRun) -> list[list[tuple[str, int]]] | None:
    """Return a confusion matrix as pairs: what is told, and its share of the row in per cent."""
    if run.summary["confusion"] is None:
        return None
    rounded, found = run.schema.rounded, []
    for row in run.summary["confusion"]:
        shares = [round(100 * count / max(1, sum(row))) for count in row]
        told = [f"{share} %" for share in shares] if rounded else map(str, row)
        found.append(list(zip(told, shares, strict=True)))
    return found
