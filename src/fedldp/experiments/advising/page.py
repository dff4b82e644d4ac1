"""Advice as one HTML page, for the person responsible for data protection."""

from __future__ import annotations

import math

from fedldp.accounting.proven import Proven
from fedldp.experiments.advising.advice import (
    GUESS,
    KEPT,
    METRICS,
    NEXT,
    TRUST_WORDS,
    Advice,
    shown,
)
from fedldp.experiments.advising.plan import FREE, NO_NOISE, TRUSTS
from fedldp.reporting import charts
from fedldp.reporting.html import render
from fedldp.reporting.lines import asked_first
from fedldp.reporting.record import environment
from fedldp.reporting.scores import Figure

FROM = {
    "none": "any server, the other sites, and anyone who gets the model. Nobody is trusted: noise "
    "is added before anything leaves a site.",
    "sum": "a server that sees only the sum of what all sites send, the other sites, and anyone "
    "who gets the model. A secure sum must hide the individual messages, and all sites must add "
    "their share of the noise.",
    "central": "anyone who sees what the server publishes, or gets the model. There is no "
    "protection against the server, which sees what each site sends and adds the noise.",
}

WHO = {
    "person": "One person: all rows of that person at one site.",
    "record": "One row of the table. This protects one person only if nobody has two rows: no "
    "column was named for each row's person.",
    "client-run": "One client as a whole: all its rows, and everything that it sends in a run.",
}

NOT_HIDDEN = {
    "person": "The site as a whole is not hidden: what is true of most of its people may be "
    "revealed.",
    "record": "The site as a whole is not hidden: what is true of most of its rows may be "
    "revealed.",
    "client-run": "If a person has rows at several clients, each of these clients is hidden only "
    "separately.",
}


MOST_SITES = 10
"""The largest number of sites whose lines fit on the first page."""


def page_of(advice: Advice) -> str:
    """Return the page; without Matplotlib it lacks the chart."""
    data, (trust, epsilon) = advice.data, advice.subject
    statement, about = advice.statement(trust, epsilon), (advice.unit, TRUSTS[trust][1])
    sites = advice.by_site(trust, epsilon)
    return render(
        "advice.html",
        advice=advice,
        table=data.name,
        own_data=data.own_data,
        who=WHO[advice.unit],
        not_hidden=NOT_HIDDEN[advice.unit],
        verdicts=[
            {
                "trust": TRUST_WORDS[trust],
                "against": FROM[trust],
                "it": it,
                "word": advice.told("word", it),
                "text": advice.told("reason", it),
                "figure": _cell(advice.figure(advice.at(it.run, it.epsilon)), interval=True),
            }
            for trust in TRUSTS
            for it in [advice.verdict(trust)]
        ],
        next_file=NEXT,
        subject=f"{TRUST_WORDS[trust].lower()}, epsilon {epsilon:g}",
        against=FROM[trust],
        proven=statement and Proven.of(statement, *about),
        sites={
            on: lines for on in ("own", "all") if (lines := [one for one in sites if one.on == on])
        },
        most_sites=MOST_SITES,
        by=advice.by_group(trust, epsilon),
        shown=_cell,
        groups=advice.groups(),
        kept=KEPT,
        guess=GUESS,
        no_noise=NO_NOISE,
        privacy=statement and {"privacy": asked_first(statement, about), "chart": None},
        curves=_curves(advice) if charts.available() else None,
        curves_text=_in_words(advice),
        settings=advice.request.settings,
        environment=environment(),
    )


def _cell(figure: Figure, interval: bool = False) -> str:
    between = figure.interval if interval else None
    return shown(figure.metric, figure.value, between) or "not known"


def _curves(advice: Advice) -> str | None:
    series = []
    for trust in TRUSTS:
        points = [
            (
                epsilon,
                found.value,
                math.nan if (it := found.interval) is None else it[1] - found.value,
            )
            for epsilon in advice.epsilons
            if (found := advice.estimate(advice.at(trust, epsilon))) is not None
        ]
        if points:
            series.append((TRUST_WORDS[trust].lower(), points))
    if not series:
        return None
    own = advice.alone_mean()
    levels = [
        (name, height)
        for name, height in (
            ("without protection", advice.free(FREE).mean()),
            ("sites alone, without protection", None if own is None else own.value),
            ("guessing", GUESS),
        )
        if height is not None
    ]
    return charts.lines(
        "auc",
        series,
        levels=levels,
        across="epsilon: further left is better protected",
        up="AUC",
        logarithmic=True,
    )


def _in_words(advice: Advice) -> str:
    parts = []
    for trust in TRUSTS:
        points = [
            f"{shown('auc', mean)} at {epsilon:g}"
            for epsilon in advice.epsilons
            if (mean := advice.at(trust, epsilon).mean()) is not None
        ]
        parts += [f"{TRUST_WORDS[trust].lower()}: {', '.join(points)}"] if points else []
    return f"{METRICS['auc']} by epsilon; " + "; ".join(parts)
