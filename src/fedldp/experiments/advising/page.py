"""Advice as one HTML page, for the person responsible for data protection."""

from __future__ import annotations

import math
from typing import Any

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
    "person": "One person: all rows of that person at one site. The table below bounds how often "
    "an adversary can tell this person's rows from somebody else's: at a small epsilon, hardly "
    "more often than by guessing.",
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


def page_of(advice: Advice) -> str:
    """Return the page; without Matplotlib it lacks the chart."""
    data, delta = advice.data, advice.request.delta_for(advice.unit)
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
                "word": word,
                "text": text,
                "good": bool(advice.viable(trust)),
            }
            for trust in TRUSTS
            for word, text in [advice.verdict(trust)]
        ],
        next_file=NEXT,
        best_trust=TRUST_WORDS[advice.best[0]] if advice.best else None,
        groups=advice.groups(),
        odds=[(epsilon, _right(epsilon, delta)) for epsilon in advice.epsilons],
        delta=delta,
        kept=KEPT,
        guess=GUESS,
        no_noise=NO_NOISE,
        statements=_statements(advice),
        curves=_curves(advice) if charts.available() else None,
        curves_text=_in_words(advice),
        settings=advice.request.settings,
        environment=environment(),
    )


def _right(epsilon: float, delta: float) -> float:
    """Return the largest possible share of right guesses between two equally likely cases.

    The share is in percent, and is rounded up.

    Source: P. Kairouz, S. Oh, P. Viswanath, "The Composition Theorem for Differential Privacy",
    ICML 2015: if both kinds of error are equal, they are at least (1 - delta)/(1 + e^epsilon).
    """
    return math.ceil(1e4 * (1 - (1 - delta) / (1 + math.exp(epsilon)))) / 100


def _statements(advice: Advice) -> list[tuple[str, dict[str, Any]]]:
    """Return a statement for each kind of trust, at the advised epsilon, or else at the largest."""
    found = []
    for trust in TRUSTS:
        good = advice.viable(trust)
        epsilon = good[0] if good else advice.epsilons[-1]
        statement = advice.statement(trust, epsilon)
        if statement is not None:
            statement = asked_first(statement, (advice.unit, TRUSTS[trust][1]))
            summary = {"privacy": statement, "chart": None}
            found.append((f"{TRUST_WORDS[trust]}, epsilon {epsilon:g}", summary))
    return found


def _curves(advice: Advice) -> str | None:
    series = []
    for trust in TRUSTS:
        points = [
            (epsilon, mean, figure.deviation() or 0.0)
            for epsilon in advice.epsilons
            if (mean := (figure := advice.at(trust, epsilon)).mean()) is not None
        ]
        if points:
            series.append((TRUST_WORDS[trust].lower(), points))
    if not series:
        return None
    levels = [
        (name, height)
        for name, height in (
            ("without protection", advice.free(FREE).mean()),
            ("each site alone, without protection", advice.alone_mean()),
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
