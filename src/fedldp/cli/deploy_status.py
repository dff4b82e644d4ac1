"""The command line: fedldp deploy status, retire, restored, finish and queue."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from fedldp.cli._common import confirmed, print_json
from fedldp.cli.options import Json, Yes
from fedldp.core.errors import ConfigError
from fedldp.core.formatting import number
from fedldp.core.locks import alone, is_held

Metrics = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT",
        help="serve a page, and metrics for Prometheus, at this address; without HOST, only this "
        "machine can reach them",
    ),
]


def status(place: Path, *, as_json: Json = False) -> None:
    """Show the state of a run at its server or at a site, even while it is not running.

    Help:
        place: a server's folder, or a site's policy
    """
    from fedldp.deployment.policy import read_policy
    from fedldp.deployment.status import status_of_server, status_of_site

    server = place.is_dir() or not place.exists()
    found = status_of_server(place) if server else status_of_site(read_policy(place))
    if as_json:
        print_json(found)
        return
    for line in lines_of(found, server=server):
        typer.echo(line)


def lines_of(found: dict[str, Any], *, server: bool) -> Iterator[str]:
    """Yield what is printed of a state."""
    yield from _server_lines(found) if server else _site_lines(found)
    yield f"next       {found['next']}"
    for warning in found["warnings"]:
        yield f"warning    {warning['text']}"


def _server_lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"run        {found['run']}: {_told(found['state'])}"
    yield f"rounds     {_rounds(found)}"
    for site in found["sites"]:
        seen = f"last seen {_told(site['last_seen'])}"
        if site["state"] == "unseen":
            seen = "never seen"
        detail = f" ({site['detail']})" if site["detail"] else ""
        rounds = f"{_told(site['rounds'])} rounds"
        yield f"site       {site['name']}: {_told(site['state'])}{detail}, {rounds}, {seen}"


def _told(value: object) -> str:
    return "unknown" if value is None else str(value)


def _rounds(found: dict[str, Any]) -> str:
    return f"{_told(found['rounds']['done'])} of {_told(found['rounds']['of'])}"


_OF_A_RUN = {"answered": "all rounds answered", "under-way": "under way"}


def _site_lines(found: dict[str, Any]) -> Iterator[str]:
    (site,) = found["sites"]
    server = f" to {', '.join(found['servers'])}" if found["servers"] else ""
    seen = site["last_seen"] or "none known"
    name, state = _told(site["name"]), _told(site["state"])
    yield f"site       {name}: {state}; last connection{server}: {seen}"
    for run in found["runs"]:
        state = _OF_A_RUN.get(run["state"], _told(run["state"]))
        rounds = f"{_rounds(run)} rounds answered"
        yield f"run        {run['run'][:8]}: {run['system']}, {rounds}, {state}"
    if site["budget_left"] is None:
        yield f"budget     {_told(None)}"
    for budget in site["budget_left"] or ():
        yield f"budget     {_budget(budget)}"
    yield f"last       {_told(found['last_release'])}"


def _budget(budget: dict[str, Any]) -> str:
    from fedldp.ledgers.budget import Budget
    from fedldp.ledgers.sqlite import times

    limit, spent, left = (
        math.inf if budget[name] is None else budget[name] for name in ("limit", "spent", "left")
    )
    own = Budget(budget["kind"], limit, budget["unit"])
    since = more = ""
    if budget["renewals"]:
        since = f" since the beginning (renewed {times(budget['renewals'])})"
    if budget["promised"]:
        more = f", {number(budget['promised'])} of it promised to accepted runs"
    return f"{own}: {number(spent)} spent{since}, {number(left, up=False)} left{more}"


def retire(digest: str, *, policy: Path = Path("site.toml")) -> None:
    """Stop loading an agreement whose run is over; to undo this, accept the agreement again.

    Help:
        digest: the digest of an accepted agreement or its run, or the first digits
        policy: this site's policy
    """
    from fedldp.deployment.acceptance import Acceptances
    from fedldp.deployment.policy import read_policy

    accepted = Acceptances(read_policy(policy))
    found = {each.digest.hex(): each.run for each in accepted.all()}
    given = digest.lower()
    meant = [each for each, run in found.items() if each.startswith(given) or run.startswith(given)]
    if len(meant) != 1 or len(digest) < 8:
        known = [f"{each[:16]} (run {run[:8]})" for each, run in found.items()]
        raise ConfigError(
            f"digest {digest}: give at least 8 digits of the digest, or of the run, of an "
            f"agreement that has been accepted here: {', '.join(known) or 'there is none'}"
        )
    accepted.retire(bytes.fromhex(meant[0]))
    typer.echo(f"retired: {meant[0]}")


def finish(folder: Path, *, now: bool = False) -> None:
    """End a run where it is, and tell its sites.

    The server completes the round under way. Rounds that come after training and are paid for (the
    intercept, and the private evaluation) are still made, unless --now is given. The model and the
    statement are then those of the completed rounds.

    Help:
        folder: the folder of a server's run
        now: wait for nothing, and leave out what would be asked after training
    """
    from fedldp.deployment.runs import ask_to_finish
    from fedldp.deployment.status import Process

    ask_to_finish(folder, now=now)
    runs = Process.of_server(folder).runs or is_held(folder.absolute().with_name("lock"))
    when = "" if runs else " as soon as its server is started again"
    typer.echo(f"the run in {folder} ends{when}; its sites are told")


def queue(home: Path, agreement: Path, *, test: str | None = None) -> None:
    """Queue a run at a server of several runs, or continue a stopped one.

    Help:
        home: the folder of a server of several runs
        agreement: the agreement of the run
        test: examples to test the model on: .npz, .csv, or a data set's name
    """
    from fedldp.deployment.runs import Queue

    run = Queue(home).add(agreement, test)
    typer.echo(f"queued     run {run}; fedldp deploy server {home} serves it")


def stop(home: Path, run: str) -> None:
    """Stop a run of a server of several runs; queue it again to continue it.

    Help:
        home: the folder of a server of several runs
        run: the run, or its first digits
    """
    from fedldp.deployment.runs import Queue

    Queue(home).stop(run)
    typer.echo("stopped    the run; nothing is lost: queue it again to continue it")


def list_(home: Path) -> None:
    """List the runs of a server of several runs, in the order in which they were queued.

    Help:
        home: the folder of a server of several runs
    """
    from fedldp.deployment.runs import Queue

    for each in Queue(home).all():
        rounds = each.rounds()
        done = "" if rounds is None else f"  {rounds[0]} of {rounds[1]} rounds"
        why = "" if each.why is None else f"  {each.why}"
        typer.echo(f"{each.run}  {each.state:<8}{done}{why}")


def restored(
    policy: Path,
    *,
    since: list[Path] | None = None,
    none_since: bool = False,
    restores: Annotated[int, typer.Option(min=1)] = 1,
    anew: bool = False,
    moved: str | None = None,
    yes: Yes = False,
) -> None:
    """Declare that the ledger was restored from an older copy; charge all that may be lost.

    With --moved: declare that the ledger was moved here and is complete.

    Help:
        policy: this site's policy
        since: an agreement that was accepted since the copy was made; repeatable
        none_since: no agreement has been accepted since the copy
        restores: how often the site was restored from this copy, including this restore
        anew: there is no copy: begin a new ledger; give --since for every agreement that was ever
            accepted
        moved (HASH): the site was moved and lost nothing; HASH is the hash of its last release, as
            noted before the move, or none if nothing was released
    """
    from fedldp.deployment.agreement import Agreement
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
    later = [Agreement.read(path, terms.data_dir, own=terms.own_code) for path in since or ()]
    confirmed(yes, "For every accepted agreement, charge every round that the ledger lacks?")
    with alone(terms.state / "lock", "agent"):
        for lost in charge_lost(terms, later, restores=restores, anew=anew):
            typer.echo(f"run {lost.run}: {lost.rounds} rounds charged as lost")
        ledger = SiteLedger(terms).ledger
    for budget, *_, left in ledger.accounts(ledger.releases()):
        if left < 0:
            typer.echo(
                f"all releases together may exceed the limit by {budget.amount(-left)}: nothing "
                "more is released with this ledger unless the owner of the data renews its "
                f"budget: fedldp ledger renew {shlex.quote(str(terms.ledger))}. Tell the person "
                "who is responsible for the data"
            )
        else:
            typer.echo(f"{budget.amount(left, up=False)} is left")
