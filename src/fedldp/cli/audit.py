"""The command line: fedldp audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fedldp.cli._common import Json, print_json
from fedldp.errors import ConfigError

if TYPE_CHECKING:
    from fedldp.audit.mechanisms import Audit

_COLOURS = {"bug": "bold red", "claim-broken": "red", "ok": "green"}


def audit(
    recipe: Annotated[
        str | None, typer.Argument(help="none is taken: mechanisms are audited, not recipes")
    ] = None,
    mechanism: Annotated[
        str | None, typer.Option(metavar="NAME|MODULE:CLASS", help="one mechanism; else all")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="few settings and few trials")] = False,
    trials: Annotated[
        int | None, typer.Option(help="of each input, to count by; else as many as are worth while")
    ] = None,
    confidence: Annotated[float, typer.Option(help="that all bounds hold together")] = 0.999,
    seed: Annotated[int, typer.Option(help="of all randomness: the same again is the same")] = 0,
    as_json: Json = False,
) -> None:
    """Attack mechanisms: lower bounds on epsilon beside what is claimed and what is proven."""
    from fedldp.audit.mechanisms import FULL_PLAN, QUICK_PLAN
    from fedldp.audit.mechanisms import audit as play
    from fedldp.mechanisms import find_mechanism, mechanisms

    if recipe is not None:
        raise ConfigError(
            f"recipe = {recipe}: mechanisms are audited; give --mechanism, or nothing"
        )
    classes = list(mechanisms().values()) if mechanism is None else [find_mechanism(mechanism)]
    found = play(
        mechanism or "mechanisms",
        classes,
        plan=QUICK_PLAN if quick else FULL_PLAN,
        confidence=confidence,
        trials=trials,
        seed=seed,
        tell=lambda line: typer.echo(line, err=True),
    )
    if as_json:
        print_json(found.as_json())
    else:
        _show(found)
    if found.verdict == "bug":
        raise typer.Exit(1)


def _show(found: Audit) -> None:
    from itertools import groupby

    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for mechanism, rows in groupby(found.rows, key=lambda row: row.mechanism):
        table = Table(
            "unit", "d", "delta", "claimed", "proven", "at least", "bound", "verdict",
            title=mechanism, title_justify="left", box=box.SIMPLE,
        )  # fmt: skip
        attacks = []
        for row in rows:
            table.add_row(
                row.unit,
                str(row.size),
                f"{row.delta:g}",
                "-" if row.claimed is None else f"{row.claimed:g}",
                "none" if row.proven is None else f"{row.proven:.4f}",
                f"{row.lower:.4f}",
                row.note.split()[0],
                f"[{_COLOURS[row.verdict]}]{row.verdict}[/]",
            )
            if row.verdict != "ok":
                attacks.append(f"{row.unit}, d = {row.size}: {row.attack}; {row.trials:,} trials")
        console.print(table)
        for attack in attacks:
            console.print(attack, style="red", markup=False)
    console.print(
        f"{found.subject}: {found.verdict}. With probability {found.confidence:g} at least, every "
        f"epsilon is at least what stands in its row (seed {found.seed}). How near a bound is to "
        "the proven figure says how strong the attack was; a low bound is no sign of privacy.",
        soft_wrap=True,
    )
