"""The command line: fedldp audit."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Annotated

import typer

from fedldp.accounting.guarantees import HOUSE
from fedldp.audit.efforts import BRIEF, FULL, QUICK, Effort
from fedldp.audit.foreign import planned_foreign_games
from fedldp.audit.game import Planned
from fedldp.audit.mechanisms import planned_games
from fedldp.audit.playing import check_arguments, cover, play
from fedldp.audit.results import AttackResult, Audit, GameResult, unplayed
from fedldp.cli._common import at_most_cores
from fedldp.cli.options import Answer, recipe_names
from fedldp.core.errors import ConfigError
from fedldp.core.kinds import NOT_PROVEN_HERE
from fedldp.core.locks import alone
from fedldp.mechanisms import find_mechanism, mechanisms
from fedldp.reporting import words
from fedldp.reporting.html import BEGINS
from fedldp.reporting.record import check_replaceable, replace_file
from fedldp.reporting.text import Terminal
from fedldp.simulation.plan import cores, problem_of

_QUICK_SECONDS = 120.0
"""After so many CPU seconds, the quick mode starts no more games of a subject."""


@dataclass(frozen=True, kw_only=True)
class _Client:
    """An external client and its claim.

    Help:
        client (MODULE:FUNCTION): an external client: a function that takes a list of arrays; state
            its claim with --epsilon, --delta and --unit [not with RECIPE, --mechanism]
        epsilon: the client's claimed epsilon [only with --client]
        delta: the client's claimed delta [only with --client]
        unit: the unit of the claim: client-round (all arrays) or weight (one number) [only with
            --client]
    """

    client: str | None = None
    epsilon: float | None = None
    delta: float = 0.0
    unit: str | None = None

    def planned(self, effort: Effort) -> list[Planned] | None:
        """Return the client's games; None without a client."""
        if self.client is None:
            return None
        if self.epsilon is None or self.unit is None:
            raise ConfigError(
                f"client = {self.client}: its claim is missing; give --epsilon, and --unit "
                "client-round or weight"
            )
        return list(
            planned_foreign_games(
                self.client,
                unit=self.unit,
                epsilon=self.epsilon,
                delta=self.delta,
                effort=effort,
            )
        )


def audit(
    recipe: Annotated[str | None, typer.Argument(autocompletion=recipe_names)] = None,
    *,
    mechanism: str | None = None,
    of: _Client,
    quick: bool = False,
    brief: bool = False,
    trials: int | None = None,
    confidence: float = 0.999,
    seed: int = 0,
    workers: Annotated[int | None, typer.Option(min=1)] = None,
    page: Path | None = None,
) -> Answer:
    """Attack mechanisms and systems; show lower bounds on epsilon next to claims and proofs.

    Help:
        recipe ([RECIPE|SYSTEM]): a recipe, a .toml file, a system, or your own MODULE:CLASS
            [default: everything]
        mechanism (NAME|MODULE:CLASS): audit one mechanism instead of a system [not with RECIPE]
        quick: try few settings with few trials: at most two CPU minutes a subject
        brief: of the quick games, play only the few that find most: seconds a subject
        trials: number of trials per input [default: as many as are worthwhile]
        confidence: the probability that all bounds hold simultaneously
        seed: the seed for all random numbers; the same seed gives the same result
        workers: number of processes [default: the number of cores]
        page (FILE): the HTML page to write; for a single system, it also shows attacks that give no
            bound
    """
    from fedldp.audit.page import extra_attacks
    from fedldp.audit.page import page as page_of
    from fedldp.audit.plans import configs_of

    check_arguments(confidence, trials)
    quick |= brief
    tell = partial(typer.echo, err=True)
    with ExitStack() as stack:
        if page is not None:
            check_replaceable(page, BEGINS.encode(), option="page")
            stack.enter_context(alone(page.with_name(f"{page.name}.lock"), "audit"))
        effort = BRIEF if brief else QUICK if quick else FULL
        games = of.planned(effort)
        if games is None:
            games = _planned(recipe, mechanism, effort)
        more: list[AttackResult] = []
        if page is not None and recipe is not None:  # first, so that missing data are told at once
            config = configs_of(recipe)[0]
            more = extra_attacks(config, quick=quick, seed=seed, tell=tell)
        found = play(
            recipe or mechanism or of.client or "all mechanisms and systems",
            cover(games, confidence) if brief else games,
            confidence=confidence,
            trials=trials,
            seed=seed,
            workers=at_most_cores(workers) or cores(),
            futile=not quick,
            seconds=_QUICK_SECONDS if quick else math.inf,
            tell=tell,
        )
        if page is not None:
            replace_file(page, page_of(found, more).encode())
            tell(f"page       {page}")
    amiss = found.verdict in ("bug", "fails its contract")
    return Answer(found.as_json(), partial(_show, found), int(amiss))


def _planned(recipe: str | None, mechanism: str | None, effort: Effort) -> list[Planned]:
    from fedldp.audit import plans

    found: list[Planned] = []
    if recipe is None:
        classes = list(mechanisms().values()) if mechanism is None else [find_mechanism(mechanism)]
        for cls in classes:
            found += planned_games(cls, effort)
    if mechanism is None:
        configs = plans.representatives() if recipe is None else plans.configs_of(recipe)
        for config in configs:
            found += plans.planned_games(config, problem_of(config, None), effort)
    return found


def _show(found: Audit[GameResult], console: Terminal) -> None:
    for title, rows in groupby(found.rows, key=attrgetter("title")):
        _show_rows(console, title, list(rows))
    own = dict.fromkeys(row.stated_by for row in found.rows if row.stated_by != HOUSE)
    if own:
        console.put(words.line(NOT_PROVEN_HERE(of=tuple(own))))
    how = "stated" if own else "proven"
    console.put(
        f"{found.subject}: {found.verdict}.{unplayed(found.rows)} With probability at least "
        f"{found.confidence:g}, every epsilon is at least the bound in its row (seed "
        f"{found.seed}). The closer a bound is to the {how} epsilon, the stronger the attack; a "
        "low bound is no sign of privacy. The line after each table lists, for each row, the "
        "smallest epsilon at which the row's rarest event would show a bug, whatever the row "
        "found; a dash means none, or not known.",
    )
    for each in own:
        console.put(
            f"An audit does not test whether estimates are right: fedldp check {each} does.",
        )


def _show_rows(console: Terminal, title: str, rows: list[GameResult]) -> None:
    of_system = rows[0].of_system
    how = "proven" if all(row.stated_by == HOUSE for row in rows) else "stated"
    named = not of_system and any(row.setting for row in rows)

    def cells(row: GameResult) -> dict[str, str]:
        # Mechanisms' parts that are looked at have statements, but no other claims.
        claimed = "-" if row.claimed is None else f"{row.claimed:g}"
        return {
            **({"looked at": row.setting} if named else {}),
            "unit": row.unit,
            **({"against": row.adversary} if of_system else {}),
            "d": str(row.size),
            "delta": f"{row.delta:g}",
            **({} if named else {"claimed": claimed}),
            how: "none" if row.proven is None else f"{row.proven:.4f}",
            "at least": "-" if row.is_unplayed else f"{row.lower:.4f}",
            "bound": "not played" if row.is_unplayed else row.note.split()[0],
            "verdict": row.verdict or "-",
        }

    console.print_table(list(cells(rows[0])), [[*cells(row).values()] for row in rows], title)
    if any(row.verdict != "bug" for row in rows):
        console.put(f"would show a bug from: {', '.join(map(_finds, rows))}")
    for row in rows:
        if row.verdict != "ok" and not row.is_unplayed:
            console.print(_told(row), style="red", markup=False, soft_wrap=True)


def _finds(row: GameResult) -> str:
    """Return the smallest epsilon at which the row would show a bug, or "shown" if it shows one."""
    if row.verdict == "bug":
        return "shown"
    return "-" if row.finds is None else f"{row.finds:.4f}"


def _told(row: GameResult) -> str:
    """Describe the evidence that a claimed or proven epsilon does not hold."""
    taken = row.claim_unit
    read = ""
    if row.verdict == "claim-broken" and taken not in (None, row.unit):
        read = f" (claimed per {taken}; read here as per {row.unit})"
    seen = f"; {row.trials:,} trials" if row.trials else ""
    what = f"{row.setting}, " if row.setting and not row.of_system else ""
    return f"{what}{row.unit}, d = {row.size}{read}: {row.attack}{seen}"
