"""The operator's pages: what a server or a site's agent knows, as HTML that changes nothing.

A site's page shows an answer once it has left. Of times, it shows dates only: the time of an entry
in the ledger would reveal when a training ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fedldp.accounting.accountants import sent_of_nothing
from fedldp.accounting.events import to_record
from fedldp.core.formatting import number, with_class_name
from fedldp.core.kinds import REFUSES, UNREACHABLE
from fedldp.deployment.acceptance import Acceptances
from fedldp.deployment.policy import rounds_answered
from fedldp.deployment.status import cannot_pay, next_costs, of_authority, of_watched
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.sqlite import Release
from fedldp.reporting import words
from fedldp.reporting.html import render
from fedldp.reporting.scores import Figure
from fedldp.reporting.text import round_rows

if TYPE_CHECKING:
    from fedldp.deployment.server import Server
    from fedldp.deployment.site import Agent, ServedRun

_MOST_RELEASES = 200
"""How many releases a site's page shows."""


def page_of_servers(servers: Iterable[Server]) -> str:
    """Return the page of a server's runs: rounds, figures, sites, waits and what was released."""
    return render("servers.html", now=_now(), runs=[_run(each) for each in servers])


def _run(server: Server) -> dict[str, Any]:
    known, agreement = server.watch.document(), server.agreement
    rounds = [{**asdict(each), **each.metrics} for each in server.rounds]
    classes = agreement.config.columns.classes or ()
    return {
        "known": known,
        "system": agreement.config.name(),
        "channel": agreement.channel,
        "digest": agreement.digest.hex(),
        "quorum": agreement.quorum,
        "warnings": [words.line(each) for each in of_watched(known, known["sites"])],
        "sites": [
            [
                each["name"],
                "unknown" if each["state"] is None else _state(each),
                each["last_seen"] or "unknown",
                str(each["rounds"]),
                ", ".join(f"{count} {reason}" for reason, count in each["refusals"].items()),
                f"{each['sent_bytes']:,}",
                f"{each['received_bytes']:,}",
            ]
            for each in known["sites"]
        ],
        "figures": [_figure(each, classes) for each in server.figures],
        "rounds": round_rows(reversed(rounds), figures=True) if rounds else None,
        "privacy": server.released,
        "chart": None,
    }


def _state(site: dict[str, Any]) -> str:
    return f"{site['state']} ({site['detail']})" if site["detail"] else str(site["state"])


def _figure(figure: Figure, classes: Sequence[str]) -> list[str]:
    def shown(value: float | None) -> str:
        return "" if value is None else words.value_of(figure.metric, value)

    interval = figure.interval
    return [
        with_class_name(figure.metric.replace("_", " "), classes),
        shown(figure.value) or "not seen",
        "" if interval is None else f"{shown(interval[0])} to {shown(interval[1])}",
        shown(figure.baseline),
        "people at the sites, privately" if figure.rows == "covered" else "the server's test set",
        "; ".join(words.line(each) for each in figure.doubts),
    ]


def page_of_site(agent: Agent) -> str:
    """Return the page of a site: its budget, what was released to whom, and what comes next."""
    known, policy = agent.watch.document(), agent.policy
    entries = agent.shown if policy.ledger.exists() else None
    refuses, amiss, warnings = known["refuses"], known["amiss"], list(of_authority(policy))
    warnings += [] if refuses is None else [REFUSES(why=refuses)]
    warnings += [] if amiss is None else [UNREACHABLE(why=amiss, since=known["last_seen"])]
    shown: dict[str, Any] = {"budgets": None, "runs": [], "released": [], "more": 0}
    if entries is not None:
        budgets = agent.ledger.budgets
        shown["budgets"] = [
            [str(budget), number(spent), number(left, up=False)]
            for budget, spent, _, left in agent.ledger.accounts(entries)
        ]
        for run in agent.runs:
            warnings += cannot_pay(
                agent.ledger, run.accepted, run.policy.as_here(run.agreement), run.index, entries
            )
            shown["runs"].append(_served(agent, run, entries))
        servers = {each.run: each.server for each in Acceptances(policy).all()}
        latest = entries[: -_MOST_RELEASES - 1 : -1]
        shown["more"] = len(entries) - len(latest)
        shown["released"] = [_released(each, budgets, servers) for each in latest]
    return render(
        "site.html",
        now=_now(),
        known=known,
        server=", ".join(each.url for each in policy.server),
        warnings=[words.line(each) for each in warnings],
        **shown,
    )


def _served(agent: Agent, run: ServedRun, entries: list[Release]) -> list[str]:
    """Return the row of a run in which the site takes part."""
    agreement, ledger = run.agreement, agent.ledger
    done = rounds_answered([entry for entry in entries if entry.run == agreement.run])
    costs = next_costs(ledger, run.policy.as_here(agreement), run.index, entries)
    rest = [float(run.accepted.rest(at, entries)) for at in range(len(ledger.budgets))]
    return [
        agreement.run[:8],
        run.accepted.server,
        agreement.config.name(),
        agreement.sites[run.index].name,
        f"{len(done)} of {agreement.rounds_of(run.index)}",
        _amounts(ledger.budgets, rest),
        _amounts(ledger.budgets, costs) if costs else "all are answered",
    ]


def _released(entry: Release, budgets: Sequence[Budget], servers: Mapping[str, str]) -> list[str]:
    """Return the row of a ledger's entry."""
    head = [str(entry.number), entry.date[:10]]
    if entry.renews:
        return [*head, "", "", "", "the budget was renewed by its owner", ""]
    nothing = sent_of_nothing(entry.event)
    what = str(to_record(entry.event)["event"])
    if nothing is not None:
        what = f"{nothing.replace('-', ' ')}, which reveal nothing"
    place = [entry.run[:8], servers.get(entry.run, "unknown"), str(entry.round)]
    return [*head, *place, what, _amounts(budgets, entry.costs)]


def _amounts(budgets: Sequence[Budget], costs: Sequence[float]) -> str:
    return "; ".join(b.amount(cost) for b, cost in zip(budgets, costs, strict=True))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
