"""Serves numbers for Prometheus, and a page for the operator, by default to this machine only.

The page is HTML that changes nothing. A site's page shows an answer once it has left. Of times, it
shows dates only: the time of an entry in the ledger would reveal when a training ended.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import uvicorn
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fedldp.accounting.accountants import sent_of_nothing
from fedldp.accounting.events import to_record
from fedldp.accounting.proven import Proven
from fedldp.accounting.statement import spent_by_unit
from fedldp.core.kinds import REFUSES, UNREACHABLE
from fedldp.deployment.acceptance import Acceptances
from fedldp.deployment.certificates import lifetime
from fedldp.deployment.https.server import QUIET, Connections, PacedSocket, listen
from fedldp.deployment.policy import rounds_answered
from fedldp.deployment.status import cannot_pay, next_costs, of_authority, of_watched
from fedldp.deployment.watch import TAKES_PART
from fedldp.ledgers.database import now
from fedldp.reporting import words
from fedldp.reporting.html import render
from fedldp.reporting.text import round_rows

if TYPE_CHECKING:
    from fedldp.core.facts import Fact
    from fedldp.deployment.server import Server
    from fedldp.deployment.site import Agent

log = logging.getLogger("fedldp.metrics")

_SECONDS_OF_A_DAY = 86_400.0

_OF_SERVER = {
    "rounds_complete": "Completed rounds.",
    "rounds": "Rounds of the run.",
    "round_seconds": "Duration of the last completed round, in seconds.",
    "round_at_work_seconds": "How long the current round has been at work; 0 while it waits.",
    "missed_quorums_total": "Attempts at rounds in which too few sites took part.",
    "certificate_days": "Days until the server's certificate expires.",
    "figure": "The latest figures of the model, each with the kinds of its doubts.",
    "figure_low": "The low end of the figure's 95 % interval, if it has one.",
    "figure_high": "The high end of the figure's 95 % interval, if it has one.",
    "epsilon": "What the rounds so far may cost, under the conditions, named by their kinds.",
    "site_takes_part": "1: the site is connected and has accepted the agreement.",
    "site_last_seen_seconds": "When the site was last heard from, in seconds since 1970.",
    "site_refusals_total": "Requests that the site refused, by reason.",
}
_OF_AGENT = {
    "connected": "1: all servers can be reached.",
    "refuses": "1: the agent refuses all requests.",
    "server_last_seen_seconds": "When a server was last heard from, in seconds since 1970.",
    "authority_days": "Days until the authority that vouches for the server expires.",
    "releases": "Releases in the site's ledger.",
    "budget_limit": "Limit of the site's budget.",
    "budget_spent": "Spent part of the site's budget.",
    "budget_left": "Remaining part of the site's budget.",
    "refusals_total": "Requests that the agent refused, by run and reason.",
}


def text_of(metrics: Iterable[Metric]) -> str:
    """Return metrics in Prometheus' text format."""
    registry: Any = SimpleNamespace(collect=lambda: metrics)
    return generate_latest(registry).decode()


@contextmanager
def serving(
    address: str | None, metrics: Callable[[], Iterable[Metric]], page: Callable[[], str]
) -> Iterator[int | None]:
    """Answer ``GET /metrics`` and ``GET /`` while the context lasts; yield the port.

    Args:
        address: PORT, on the loopback interface, or HOST:PORT. None: do nothing.
        metrics: returns the current metrics.
        page: returns the current page, as HTML.

    Raises:
        ConfigError: the address is malformed, or nothing can listen there.
    """
    if address is None:
        yield None
        return
    place = address if address.rpartition(":")[0] else f"127.0.0.1:{address.removeprefix(':')}"
    listening = listen(place, "metrics", "PORT, such as 9464, or HOST:PORT")
    host, port = listening.getsockname()[:2]
    if not _is_local(host):
        log.warning("metrics: everyone who can reach %s can read the metrics and the page", address)

    def shown(read: Callable[[], str], kind: str) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            # A web site may let its name stand for this machine, and read what a browser here can.
            if _is_local(host) and not _is_local(request.url.hostname or ""):
                return Response("ask for localhost\n", 403)
            return Response(read(), media_type=kind, headers={"x-frame-options": "DENY"})

        return answer

    routes = [
        Route("/", shown(page, "text/html")),
        Route("/metrics", shown(lambda: text_of(metrics()), CONTENT_TYPE_PLAIN_0_0_4)),
    ]
    clients = Connections(lambda: None)  # silent ones must not use up the process's open files
    http: Any = clients.protocol
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), **QUIET, http=http))
    run = {"sockets": [PacedSocket(listening, clients)]}
    thread = threading.Thread(target=server.run, kwargs=run, name="metrics", daemon=True)
    thread.start()
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join()


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Families:
    """Metrics by their names, with their help; the names of counters end with ``_total``."""

    def __init__(self, meant: Mapping[str, str]) -> None:
        self._all = {
            name: Metric(
                f"fedldp_{name.removesuffix('_total')}",
                text,
                "counter" if name.endswith("_total") else "gauge",
            )
            for name, text in meant.items()
        }

    def add(self, labels: Mapping[str, str], **values: float | None) -> None:
        """Add values that have the same labels; a value of None is unknown, and left out."""
        for name, value in values.items():
            if value is not None:
                self._all[name].add_sample(f"fedldp_{name}", {**labels}, float(value))

    def all(self) -> list[Metric]:
        """Return all metrics, also those without a value."""
        return [*self._all.values()]


def of_server(servers: Iterable[Server]) -> list[Metric]:
    """Return what the servers of some runs know; what is unknown is left out."""
    found = _Families(_OF_SERVER)
    for server in servers:
        known = server.watch.document()
        run = {"run": known["run"][:8]}
        found.add(
            run,
            rounds_complete=known["rounds"]["done"],
            rounds=known["rounds"]["of"],
            round_seconds=known["seconds"],
            round_at_work_seconds=known["at_work"],
            missed_quorums_total=known["missed_ever"],
            certificate_days=_days_left(known["certificate"]),
        )
        for each in known["sites"]:
            site, state = {**run, "site": each["name"]}, each["state"]
            found.add(
                site,
                site_takes_part=None if state is None else state in TAKES_PART,
                site_last_seen_seconds=_seconds(each["last_seen"]),
            )
            for reason, count in each["refusals"].items():
                found.add({**site, "reason": reason}, site_refusals_total=count)
        for figure in server.figures:
            about = {"metric": figure.metric, "rows": figure.rows, "doubts": _kinds(figure.doubts)}
            low, high = figure.interval or (None, None)
            found.add({**run, **about}, figure=figure.value, figure_low=low, figure_high=high)
        if (stated := server.released) is None:
            continue
        for line in spent_by_unit(stated.guarantees, ()):
            proven = Proven.of(stated, line["unit"], line["adversary"])
            about = {"unit": proven.unit, "adversary": proven.adversary}
            about |= {"delta": f"{proven.delta:g}", "conditions": _kinds(proven.conditions)}
            found.add({**run, **about, "stated_by": proven.stated_by}, epsilon=proven.size)
    return found.all()


def of_agent(agent: Agent) -> list[Metric]:
    """Return what a site's agent knows of its link and of what has left; see ``Agent.shown``.

    What is unknown is left out: while the ledger cannot be used, that is all that it tells. The
    duration of training is left out too, because it depends on the number of examples.
    """
    found, known = _Families(_OF_AGENT), agent.watch.document()
    entries = agent.shown if agent.policy.ledger.exists() else None
    found.add(
        {},
        connected=known["connected"],
        refuses=known["refuses"] is not None or entries is None,
        server_last_seen_seconds=_seconds(known["last_seen"]),
        releases=None if entries is None else len(entries),
    )
    for server in agent.policy.server:
        left = _days_left(str(server.ca), authorities=True)
        found.add({"server": server.url}, authority_days=left)
    for budget, spent, _, left in [] if entries is None else agent.ledger.accounts(entries):
        of = {"kind": budget.kind, "unit": budget.unit}
        found.add(of, budget_limit=budget.limit, budget_spent=spent, budget_left=left)
    for (name, reason), count in agent.watch.refusals.items():
        found.add({"run": name[:8], "reason": reason}, refusals_total=count)
    return found.all()


def _kinds(facts: Iterable[Fact]) -> str:
    return " ".join(dict.fromkeys(each.kind for each in facts))


def _days_left(certificate: str | None, *, authorities: bool = False) -> float | None:
    if certificate is None:
        return None
    try:
        _, ends = lifetime(Path(certificate), authorities=authorities)
    except (OSError, ValueError):
        return None
    return (ends - datetime.now(UTC)).total_seconds() / _SECONDS_OF_A_DAY


def _seconds(at: str | None) -> float | None:
    return None if at is None else datetime.fromisoformat(at).timestamp()


# The operator's pages


_MOST_RELEASES = 200
"""How many releases a site's page shows."""


def page_of_servers(servers: Iterable[Server]) -> str:
    """Return the page of a server's runs: rounds, figures, sites, waits and what was released."""
    return render("servers.html", now=now(), runs=[_run(each) for each in servers])


def _run(server: Server) -> dict[str, Any]:
    known, agreement = server.watch.document(), server.agreement
    rounds = [{**asdict(each), **each.metrics} for each in server.rounds]
    return {
        "known": known,
        "agreement": agreement,
        "warnings": [words.line(each) for each in of_watched(known, known["sites"])],
        "figures": server.figures,
        "classes": agreement.config.columns.classes or (),
        "rounds": round_rows(reversed(rounds), figures=True) if rounds else None,
        "privacy": server.released,
    }


def page_of_site(agent: Agent) -> str:
    """Return the page of a site: its budget, what was released to whom, and what comes next."""
    known, policy, ledger = agent.watch.document(), agent.policy, agent.ledger
    entries = agent.shown if policy.ledger.exists() else None
    refuses, amiss, warnings = known["refuses"], known["amiss"], list(of_authority(policy))
    warnings += [] if refuses is None else [REFUSES(why=refuses)]
    warnings += [] if amiss is None else [UNREACHABLE(why=amiss, since=known["last_seen"])]
    shown: dict[str, Any] = {"accounts": None, "runs": [], "servers": {}}
    if entries is not None:
        for run in agent.runs:
            warnings += cannot_pay(ledger, run.accepted, run.agreement, run.index, entries)
            done = rounds_answered([each for each in entries if each.run == run.agreement.run])
            rest = [float(run.accepted.rest(at, entries)) for at in range(len(ledger.budgets))]
            costs = next_costs(ledger, run.agreement, run.index, entries)
            shown["runs"].append((run, len(done), rest, costs))
        shown["accounts"] = ledger.accounts(entries)
        shown["servers"] = {each.run: each.server for each in Acceptances(policy).all()}

    def amounts(costs: Sequence[float]) -> str:
        return "; ".join(b.amount(cost) for b, cost in zip(ledger.budgets, costs, strict=True))

    return render(
        "site.html",
        now=now(),
        known=known,
        server=", ".join(each.url for each in policy.server),
        warnings=[words.line(each) for each in warnings],
        entries=entries or [],
        most=_MOST_RELEASES,
        amounts=amounts,
        nothing=sent_of_nothing,
        record=to_record,
        **shown,
    )
