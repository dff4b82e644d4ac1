"""Serves numbers for Prometheus, and a page for the operator, by default to this machine only."""

from __future__ import annotations

import logging
import math
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fedldp.accounting.proven import Proven
from fedldp.accounting.statement import spent_by_unit
from fedldp.core.errors import ConfigError
from fedldp.deployment.certificates import lifetime
from fedldp.deployment.status import budgets_of
from fedldp.deployment.watch import TAKES_PART

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from fedldp.core.facts import Fact
    from fedldp.deployment.server import Server
    from fedldp.deployment.site import Agent

log = logging.getLogger("fedldp.metrics")

_SECONDS_TO_ASK = 2.0
_SECONDS_OF_A_DAY = 86_400.0

_HELP = {
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
    "site_rounds": "Rounds that the site answered.",
    "site_sent_bytes_total": "Bytes of requests.",
    "site_received_bytes_total": "Bytes of answers.",
    "site_refusals_total": "Requests that the site refused, by reason.",
    "connected": "1: all servers can be reached.",
    "refuses": "1: the agent refuses all requests.",
    "server_last_seen_seconds": "When a server was last heard from, in seconds since 1970.",
    "authority_days": "Days until the authority that vouches for the server expires.",
    "releases": "Releases in the site's ledger.",
    "budget_limit": "Limit of the site's budget.",
    "budget_spent": "Spent part of the site's budget.",
    "budget_left": "Remaining part of the site's budget.",
    "refusals_total": "Requests that the agent refused, by run and reason.",
    "sent_bytes_total": "Bytes of answers.",
    "received_bytes_total": "Bytes of requests.",
}

Samples = Iterable[tuple[dict[str, str], float | None]]
"""Labels and a value, which is None if it is unknown: then it is left out."""


def text_of(metrics: Iterable[Metric]) -> str:
    """Return metrics in Prometheus' text format."""
    return generate_latest(_registry(lambda: metrics)).decode()


def _registry(read: Callable[[], Iterable[Metric]]) -> CollectorRegistry:
    class Reading(Collector):
        def collect(self) -> Iterable[Metric]:
            return read()

    registry = CollectorRegistry()
    registry.register(Reading())
    return registry


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
    host, port = _parts(address)
    try:
        server = _server(host, port, metrics, page)
    except OSError as error:
        raise ConfigError(
            f"metrics = {address}: {error.strerror or error}; stop the program that uses the "
            "port, or choose another port"
        ) from error
    if not _is_local(host):
        log.warning("metrics: everyone who can reach %s can read the metrics and the page", address)
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ConfigError(
            f"metrics = {address}: write it as PORT, such as 9464, or HOST:PORT, such as "
            "127.0.0.1:9464"
        )
    return host.strip("[]") or "127.0.0.1", int(port)


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _server(
    host: str, port: int, metrics: Callable[[], Iterable[Metric]], page: Callable[[], str]
) -> WSGIServer:
    numbers: WSGIApplication = make_wsgi_app(_registry(metrics))

    def app(asked: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        # A web site may let its name stand for this machine, and read what a browser here can.
        named = urlsplit(f"//{asked.get('HTTP_HOST', '')}").hostname or ""
        if _is_local(host) and not _is_local(named):
            start("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"ask for localhost\n"]
        if asked["PATH_INFO"] == "/metrics":
            return numbers(asked, start)
        if asked["PATH_INFO"] != "/":
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"see / and /metrics\n"]
        body = page().encode()
        start("200 OK", [("Content-Type", "text/html; charset=utf-8"), ("X-Frame-Options", "DENY")])
        return [body]

    class Handler(WSGIRequestHandler):
        timeout = _SECONDS_TO_ASK  # clients are served one at a time, so drop a silent one

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: any client could fill the log."""

    class Server(WSGIServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Log no error: any client could fill the log."""

    return make_server(host, port, app, Server, Handler)


def of_server(servers: Iterable[Server]) -> list[Metric]:
    """Return what the servers of some runs know; what is unknown is left out."""
    known = [(server, server.watch.document()) for server in servers]

    def run(value: Callable[[dict[str, Any]], float | None]) -> Samples:
        return [({"run": each["run"][:8]}, value(each)) for _, each in known]

    def site(value: Callable[[dict[str, Any]], float | None]) -> Samples:
        return [
            ({"run": each["run"][:8], "site": site["name"]}, value(site))
            for _, each in known
            for site in each["sites"]
        ]

    def figure(value: Callable[[Any], float | None]) -> Samples:
        for server, each in known:
            for found in server.figures:
                about = {"metric": found.metric, "rows": found.rows}
                doubts = {"doubts": _kinds(found.doubts)}
                yield {"run": each["run"][:8], **about, **doubts}, value(found)

    def refusals() -> Samples:
        for _, each in known:
            for found in each["sites"]:
                for reason, count in found["refusals"].items():
                    of = {"run": each["run"][:8], "site": found["name"], "reason": reason}
                    yield of, count

    def epsilon() -> Samples:
        for server, each in known:
            if (stated := server.released) is None:
                continue
            for line in spent_by_unit(stated.guarantees, ()):
                found = Proven.of(stated, line["unit"], line["adversary"])
                of = {"unit": found.unit, "adversary": found.adversary, "delta": f"{found.delta:g}"}
                told = {"conditions": _kinds(found.conditions), "stated_by": found.stated_by}
                yield {"run": each["run"][:8], **of, **told}, found.size

    return _families(
        {
            "rounds_complete": run(lambda of: of["rounds"]["done"]),
            "rounds": run(lambda of: of["rounds"]["of"]),
            "round_seconds": run(lambda of: of["seconds"]),
            "round_at_work_seconds": run(lambda of: of["at_work"]),
            "missed_quorums_total": run(lambda of: of["missed_ever"]),
            "certificate_days": run(lambda of: _days_left(of["certificate"])),
            "figure": figure(lambda of: of.value),
            "figure_low": figure(lambda of: of.interval and of.interval[0]),
            "figure_high": figure(lambda of: of.interval and of.interval[1]),
            "epsilon": epsilon(),
            "site_takes_part": site(lambda of: _takes_part(of["state"])),
            "site_last_seen_seconds": site(lambda of: _seconds(of["last_seen"])),
            "site_rounds": site(lambda of: of["rounds"]),
            "site_sent_bytes_total": site(lambda of: of["sent_bytes"]),
            "site_received_bytes_total": site(lambda of: of["received_bytes"]),
            "site_refusals_total": refusals(),
        }
    )


def of_agent(agent: Agent) -> list[Metric]:
    """Return what a site's agent knows of its link and of what has left; see ``Agent.shown``.

    What is unknown is left out: while the ledger cannot be used, that is all that it tells. The
    duration of training is left out too, because it depends on the number of examples.
    """
    known, entries = agent.watch.document(), agent.shown
    if not agent.policy.ledger.exists():
        entries = None
    budgets = [] if entries is None else budgets_of(agent.ledger, entries)
    refuses = known["refuses"] is not None or entries is None

    def one(value: float | None) -> Samples:
        return [({}, value)]

    def each(name: str) -> Samples:
        for budget in budgets:
            value = math.inf if budget[name] is None else budget[name]
            yield {"kind": budget["kind"], "unit": budget["unit"]}, value

    return _families(
        {
            "connected": one(known["connected"]),
            "refuses": one(refuses),
            "server_last_seen_seconds": one(_seconds(known["last_seen"])),
            "authority_days": [
                ({"server": each.url}, _days_left(str(each.ca), authorities=True))
                for each in agent.policy.server
            ],
            "releases": one(None if entries is None else len(entries)),
            "budget_limit": each("limit"),
            "budget_spent": each("spent"),
            "budget_left": each("left"),
            "refusals_total": [
                ({"run": run[:8], "reason": reason}, count)
                for (run, reason), count in agent.watch.refusals.items()
            ],
            "sent_bytes_total": one(known["sent_bytes"]),
            "received_bytes_total": one(known["received_bytes"]),
        }
    )


def _families(found: Mapping[str, Samples]) -> list[Metric]:
    """Return metrics by their names; the names of counters end with ``_total``."""
    families = list[Metric]()
    for name, samples in found.items():
        known = [(labels, value) for labels, value in samples if value is not None]
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = kind(f"fedldp_{name}", _HELP[name], labels=list(known[0][0]) if known else [])
        for labels, value in known:
            family.add_metric(list(labels.values()), float(value))
        families.append(family)
    return families


def _takes_part(state: str | None) -> float | None:
    return None if state is None else float(state in TAKES_PART)


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
