"""An audit as one HTML page: bounds, curves, recovered images, links, and clients that lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from fedldp.accounting.guarantees import HOUSE
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.settings import is_own
from fedldp.audit import linkage, poisoning
from fedldp.audit.attacks import attack
from fedldp.audit.efforts import FULL, QUICK
from fedldp.audit.results import AttackResult, Audit, GameResult, unplayed
from fedldp.reporting import charts
from fedldp.reporting.html import render

_MOST_PICTURES = 8


@dataclass(frozen=True, kw_only=True)
class ExtraAttacks:
    """More results on one system, from attacks that give no bound on epsilon.

    Attributes:
        attacks: membership inference, inversion, property inference.
        links: attempts to link a shuffler's messages; None without a shuffler.
        lies: the accuracy that a share of lying clients costs.
    """

    attacks: Sequence[AttackResult]
    links: Audit[AttackResult] | None
    lies: Audit[AttackResult]


def extra_attacks(
    config: RunConfig, *, quick: bool, seed: int, tell: Callable[[str], None]
) -> ExtraAttacks:
    """Make the attacks on a system that give no bound on epsilon.

    Args:
        config: the configuration of the system.
        quick: whether to use ``QUICK`` instead of ``FULL``.
        seed: the seed of all randomness.
        tell: called with progress lines.

    Raises:
        FedldpError: the configuration or its data is refused.
    """
    effort = QUICK if quick else FULL
    links = None
    if config.composition.channel.delays is not None and not is_own(
        getattr(config, "epsilon", None)
    ):
        links = linkage.linkage(config, effort=effort, seed=seed, tell=tell)
    return ExtraAttacks(
        attacks=attack(config, seed=seed, effort=effort, tell=tell),
        links=links,
        lies=poisoning.poisoning(config, effort=effort, tell=tell),
    )


def page(audit: Audit[GameResult], more: ExtraAttacks | None = None) -> str:
    """Return the page; without Matplotlib it has no curves or pictures."""
    drawn = charts.available()
    attacks = [] if more is None else list(more.attacks)
    links = None if more is None else more.links
    return render(
        "audit.html",
        audit=audit,
        unplayed=unplayed(audit.rows),
        own=[by for by in dict.fromkeys(row.stated_by for row in audit.rows) if by != HOUSE],
        parts=[(title, list(rows)) for title, rows in groupby(audit.rows, key=attrgetter("title"))],
        attacks=attacks,
        curves=_curves(attacks) if drawn else [],
        galleries=_galleries(attacks) if drawn else [],
        links=None if links is None else list(linkage.lines(links.rows)),
        link_confidence=None if links is None else links.confidence,
        **_lies(None if more is None else more.lies),
    )


def _curves(attacks: Sequence[AttackResult]) -> list[tuple[str, str]]:
    """Return the ROC curves of each kind of attack that answers yes or no, and their captions."""
    found: list[tuple[str, str]] = []
    decided = [one for one in attacks if one.roc is not None]
    for (kind, seen), some in groupby(decided, key=lambda one: (one.kind, one.against)):
        curves = [(str(one.attack), one.roc.points) for one in some if one.roc is not None]
        svg = charts.lines(
            f"roc-{len(found)}",
            curves,
            across=f"false-positive rate; {kind}, from {seen}",
            up="true-positive rate",
            guessing=True,
        )
        names = ", ".join(name for name, _ in curves)
        found.append((svg, f"ROC curves of {kind}, from {seen}: {names}"))
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


def _lies(lies: Audit[AttackResult] | None) -> dict[str, Any]:
    if lies is None:
        return {"lost": [], "shares": [], "lost_rounds": 0}
    lost = poisoning.mean_lost(lies.rows)
    shares = sorted({share for _, _, share in lost})
    kinds = list(dict.fromkeys((system, kind) for system, kind, _ in lost))
    return {
        "lost": [(s, kind, [lost.get((s, kind, share)) for share in shares]) for s, kind in kinds],
        "shares": shares,
        "lost_rounds": lies.rows[-1].figures["rounds"],
    }
