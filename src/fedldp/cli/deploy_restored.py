"""The command line: fedldp deploy restored."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fedldp.core.errors import ConfigError


def restored(
    policy: Annotated[Path, typer.Argument(help="this site's policy")],
    since: Annotated[
        list[Path] | None,
        typer.Option(help="an agreement that was accepted since the copy was made; repeatable"),
    ] = None,
    none_since: Annotated[
        bool, typer.Option("--none-since", help="no agreement has been accepted since the copy")
    ] = False,
    restores: Annotated[
        int,
        typer.Option(
            min=1, help="how often the site was restored from this copy, including this restore"
        ),
    ] = 1,
    anew: Annotated[
        bool,
        typer.Option(
            "--anew",
            help="there is no copy: begin a new ledger; give --since for every agreement that was "
            "ever accepted",
        ),
    ] = False,
    moved: Annotated[
        str | None,
        typer.Option(
            metavar="HASH",
            help="the site was moved and lost nothing; HASH is the hash of its last release, as "
            "noted before the move, or none if nothing was released",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="charge without asking for confirmation")
    ] = False,
) -> None:
    """Declare that the ledger was restored from an older copy; charge all that may be lost.

    With --moved: declare that the ledger was moved here and is complete.
    """
    from fedldp.core.locks import alone
    from fedldp.deployment.agreement import read_agreement
    from fedldp.deployment.policy import read_policy
    from fedldp.deployment.restored import charge_lost, moved_to
    from fedldp.deployment.site_ledger import SiteLedger

    if moved is not None:
        if since or none_since or anew or restores != 1:
            raise ConfigError(
                "--moved: nothing is lost, so nothing is charged; leave out all other options"
            )
        terms = read_policy(policy)
        with alone(terms.state / "lock", "agent"):
            moved_to(terms, moved)
        typer.echo(f"the ledger is marked here; its last release is {moved}")
        return
    if bool(since) == none_since:
        raise ConfigError(
            "--since, --none-since: the copy lacks agreements that were accepted after it was "
            "made; give --since for each of them, or --none-since if there were none"
        )
    terms = read_policy(policy)
    later = [read_agreement(path, terms.data_dir, own=terms.own_code) for path in since or ()]
    if not yes and not typer.confirm(
        "For every accepted agreement, charge every round that the ledger lacks?"
    ):
        raise typer.Exit(1)
    with alone(terms.state / "lock", "agent"):
        for lost in charge_lost(terms, later, restores=restores, anew=anew):
            typer.echo(f"run {lost.run}: {lost.rounds} rounds charged as lost")
        ledger = SiteLedger(terms).ledger
        all_left = ledger.all_remaining(ledger.releases())
    for budget, left in zip(ledger.budgets, all_left, strict=True):
        if left < 0:
            typer.echo(
                f"all releases together may exceed the limit by {budget.amount(-left)}: nothing "
                "more is released with this ledger unless the owner of the data renews its "
                f"budget: fedldp ledger renew {shlex.quote(str(terms.ledger))}. Tell the person "
                "who is responsible for the data"
            )
        else:
            typer.echo(f"{budget.amount(left, up=False)} is left")
