"""An audit as one HTML page: bounds, curves, recovered images, links, and clients that lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from fedldp.accounting.guarantees import HOUSE
from fedldp.algorithms.config import RunConfig
from fedldp.audit import poisoning
from fedldp.audit.attacks import attack
from fedldp.audit.efforts import FULL, QUICK
from fedldp.audit.results import AttackResult, Audit, GameResult, unplayed
from fedldp.core.registry import is_installed
from fedldp.reporting import charts
from fedldp.reporting.html import render

_MOST_PICTURES = 8


def extra_attacks(
    config: RunConfig, *, quick: bool, seed: int, tell: Callable[[str], None]
) -> list[AttackResult]:
    """Make the attacks on a system that give no bound on epsilon, and let clients lie.

    Args:
        config: the configuration of the system.
        quick: whether to use ``QUICK`` instead of ``FULL``.
        seed: the seed of all randomness.
        tell: called with progress lines.

    Raises:
        FedldpError: the configuration or its data is refused.
    """
    effort = QUICK if quick else FULL
    found = attack(config, seed=seed, effort=effort, tell=tell)
    return [*found, *poisoning.poisoning(config, effort=effort, tell=tell).rows]


def page(audit: Audit[GameResult], more: Sequence[AttackResult] = ()) -> str:
    """Return the page; without Matplotlib it has no pictures."""
    lies = [one for one in more if one.kind in ("poisoning", "influence")]
    attacks = [one for one in more if one not in lies]
    return render(
        "audit.html",
        audit=audit,
        unplayed=unplayed(audit.rows),
        own=[by for by in dict.fromkeys(row.stated_by for row in audit.rows) if by != HOUSE],
        parts=[(title, list(rows)) for title, rows in groupby(audit.rows, key=attrgetter("title"))],
        attacks=attacks,
        curves=_curves(attacks),
        galleries=_galleries(attacks) if is_installed("matplotlib") else [],
        **_lies(lies),
    )


def _curves(attacks: Sequence[AttackResult]) -> list[tuple[charts.Chart, str]]:
    """Return the ROC curves of each kind of attack that answers yes or no, and their captions."""
    found: list[tuple[charts.Chart, str]] = []
    decided = [one for one in attacks if one.roc is not None]
    for (kind, seen), some in groupby(decided, key=lambda one: (one.kind, one.against)):
        curves = [(str(one.attack), one.roc.points) for one in some if one.roc is not None]
        chart = charts.lines(
            curves,
            across=f"false-positive rate; {kind}, from {seen}",
            up="true-positive rate",
            diagonal=("guessing", 0.0, 1.0),
        )
        names = ", ".join(name for name, _ in curves)
        found.append((chart, f"ROC curves of {kind}, from {seen}: {names}"))
    return found


def _galleries(attacks: Sequence[AttackResult]) -> list[tuple[str, list[tuple[str, str]]]]:
    return [
        (
            f"{one.attack}: error {one.measured}",
            [
                (charts.picture(each.original), charts.picture(each.recovered))
                for each in one.pictures[:_MOST_PICTURES]
            ],
        )
        for one in attacks
        if one.pictures
    ]


def _lies(lies: Sequence[AttackResult]) -> dict[str, Any]:
    lost = poisoning.mean_lost(lies)
    shares = sorted({share for _, _, share in lost})
    kinds = list(dict.fromkeys((system, kind) for system, kind, _ in lost))
    return {
        "lost": [(s, kind, [lost.get((s, kind, share)) for share in shares]) for s, kind in kinds],
        "shares": shares,
        "lost_rounds": lies[-1].figures["rounds"] if lies else 0,
    }
