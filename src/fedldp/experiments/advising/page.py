"""Advice as one HTML page, for the person responsible for data protection."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedldp.accounting.proven import Proven
from fedldp.experiments.advising.advice import (
    KEPT,
    NEXT,
    Advice,
    shown,
)
from fedldp.experiments.advising.plan import FREE, NO_NOISE, TRUSTS
from fedldp.reporting import charts, words
from fedldp.reporting.html import render
from fedldp.reporting.lines import asked_first
from fedldp.reporting.record import environment
from fedldp.reporting.scores import Figure

Series = tuple[str, list[tuple[float, float, float]]]

MOST_SITES = 10
"""The largest number of sites whose lines fit on the first page."""


def page_of(advice: Advice) -> str:
    """Return the page."""
    trust, epsilon = advice.subject
    one, about = advice.released(trust, epsilon), (advice.unit, TRUSTS[trust][1])
    sites, trusting = advice.by_site(trust, epsilon), words.names("trusting")
    series = _series(advice)
    return render(
        "advice.html",
        advice=advice,
        verdicts=[advice.verdict(each) for each in TRUSTS],
        next_file=NEXT,
        subject=f"{trusting[trust].lower()}, epsilon {epsilon:g}",
        proven=one and Proven.of(one.statement, *about),
        sites={
            on: lines for on in ("own", "all") if (lines := [one for one in sites if one.on == on])
        },
        most_sites=MOST_SITES,
        shown=_cell,
        kept=KEPT,
        score=advice.judged,
        no_noise=NO_NOISE,
        privacy=one and {"privacy": asked_first(one.statement, about), "chart": None},
        curves=_curves(advice, series) if series else None,
        curves_text="; ".join(
            f"{advice.judged.name}, {name}: "
            + ", ".join(f"{mean:.3f} at {at:g}" for at, mean, _ in points)
            for name, points in series
        ),
        environment=environment(),
    )


def _cell(figure: Figure, interval: bool = False) -> str:
    between = figure.interval if interval else None
    lacks = ", no interval" if interval and between is None and figure.value is not None else ""
    return (shown(figure.metric, figure.value, between) or "not known") + lacks


def _curves(advice: Advice, series: Sequence[Series]) -> charts.Chart:
    own = advice.alone_mean()
    levels = {
        "without protection": advice.mean(advice.free(FREE)),
        "sites alone, without protection": None if own is None else own.value,
        advice.judged.guessing: advice.judged.guess,
    }
    return charts.lines(
        series,
        levels=[(name, height) for name, height in levels.items() if height is not None],
        across="epsilon: further left is better protected",
        up=advice.judged.name,
        logarithmic=True,
    )


def _series(advice: Advice) -> list[Series]:
    """Return for each kind of trust its points: epsilon, score, and half its interval or nan."""
    found = []
    for trust, name in words.names("trusting").items():
        known = [(each, advice.estimate(advice.at(trust, each))) for each in advice.epsilons]
        points = [
            (each, of.value, of.interval[1] - of.value if of.interval else math.nan)
            for each, of in known
            if of is not None
        ]
        if points:
            found.append((name.lower(), points))
    return found
