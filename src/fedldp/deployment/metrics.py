"""Serves metrics for Prometheus in its text format, on the loopback interface by default.

This module writes the format itself, which avoids a dependency: there are only a few metrics, and
they are read on request.
"""

from __future__ import annotations

import logging
import math
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from fedldp.core.errors import ConfigError
from fedldp.deployment.certificates import expires
from fedldp.deployment.watch import TAKES_PART

log = logging.getLogger("fedldp.metrics")

_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS_TO_ASK = 2.0


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        name: the name without the prefix ``fedldp_``; the names of counters end with ``_total``.
        help: a description in one line.
        values: the labels and the value of each sample.
    """

    name: str
    help: str
    values: tuple[tuple[dict[str, str], float], ...]


def text_of(metrics: Iterable[Metric]) -> str:
    """Return metrics in Prometheus' text format."""
    lines = []
    for metric in metrics:
        kind = "counter" if metric.name.endswith("_total") else "gauge"
        name = f"fedldp_{metric.name}"
        lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {kind}"]
        for labels, value in metric.values:
            inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.append(
                f"{name}{{{inside}}} {_value(value)}" if inside else f"{name} {_value(value)}"
            )
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _value(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


@contextmanager
def serving(address: str | None, metrics: Callable[[], Iterable[Metric]]) -> Iterator[int | None]:
    """Answer ``GET /metrics`` while the context lasts; yield the port.

    Args:
        address: PORT, on the loopback interface, or HOST:PORT. None: do nothing.
        metrics: returns the current metrics.

    Raises:
        ConfigError: the address is malformed, or nothing can listen there.
    """
    if address is None:
        yield None
        return
    host, port = _parts(address)
    try:
        server = _server(host, port, metrics)
    except OSError as error:
        raise ConfigError(
            f"metrics = {address}: {error.strerror or error}; stop the program that uses the "
            "port, or choose another port"
        ) from error
    if not _is_local(host):
        log.warning("metrics: everyone who can reach %s can read the metrics", address)
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


def _server(host: str, port: int, metrics: Callable[[], Iterable[Metric]]) -> HTTPServer:
    class Handler(BaseHTTPRequestHandler):
        timeout = _SECONDS_TO_ASK  # clients are served one at a time, so drop a silent one

        def do_GET(self) -> None:
            found = self.path == "/metrics"
            body = text_of(metrics()).encode() if found else b"see /metrics\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", _TYPE if found else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def version_string(self) -> str:
            return "fedldp"

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: any client could fill the log."""

    class Server(HTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Log no error: any client could fill the log."""

    return Server((host, port), Handler)


def of_server(known: dict[str, Any]) -> list[Metric]:
    """Return the content of ``Watch.document`` as metrics; what is unknown is left out."""
    sites = known["sites"]

    def each(value: Callable[[dict[str, Any]], float | None]) -> tuple[Any, ...]:
        values = [({"site": site["name"]}, value(site)) for site in sites]
        return tuple((labels, found) for labels, found in values if found is not None)

    return [
        Metric("rounds_complete", "Completed rounds of the run.", _one(known["rounds"]["done"])),
        Metric("rounds", "Rounds of the run.", _one(known["rounds"]["of"])),
        Metric(
            "round_seconds",
            "Duration of the last completed round, in seconds.",
            _one(known["seconds"]),
        ),
        Metric(
            "missed_quorums_total",
            "Attempts at rounds in which too few sites took part.",
            _one(known["missed_ever"]),
        ),
        Metric(
            "site_takes_part",
            "1: the site is connected and has accepted the agreement.",
            each(lambda site: _takes_part(site["state"])),
        ),
        Metric(
            "certificate_expires_seconds",
            "When the server's certificate expires, in seconds since 1970.",
            _one(_expires(known["certificate"])),
        ),
        Metric(
            "site_last_seen_seconds",
            "When the site was last heard from, in seconds since 1970.",
            each(lambda site: _seconds(site["last_seen"])),
        ),
        Metric("site_rounds", "Rounds that the site answered.", each(lambda site: site["rounds"])),
        Metric(
            "site_sent_bytes_total", "Bytes of requests.", each(lambda site: site["sent_bytes"])
        ),
        Metric(
            "site_received_bytes_total",
            "Bytes of answers.",
            each(lambda site: site["received_bytes"]),
        ),
    ]


def of_site(
    known: dict[str, Any], budgets: Sequence[dict[str, Any]] | None, releases: int | None
) -> list[Metric]:
    """Return the content of ``SiteWatch.document`` and of the ledger as metrics.

    What is unknown is left out. The duration of training is left out too, because it depends on the
    number of examples.

    Args:
        known: the content of ``SiteWatch.document``.
        budgets: what ``status.budgets_of`` returns; None if the ledger cannot be read, so that the
            agent refuses all requests.
        releases: the number of releases in the ledger; None if it cannot be read.
    """
    refuses = known["refuses"] is not None or budgets is None

    def each(name: str) -> tuple[Any, ...]:
        return tuple(
            (
                {"kind": budget["kind"], "unit": budget["unit"]},
                math.inf if budget[name] is None else budget[name],
            )
            for budget in budgets or ()
        )

    return [
        Metric("connected", "1: the server can be reached.", _one(known["connected"])),
        Metric("refuses", "1: the agent refuses all requests.", _one(refuses)),
        Metric(
            "server_last_seen_seconds",
            "When the server was last heard from, in seconds since 1970.",
            _one(_seconds(known["last_seen"])),
        ),
        Metric("releases", "Releases in the site's ledger.", _one(releases)),
        Metric("budget_limit", "Limit of the site's budget.", each("limit")),
        Metric("budget_spent", "Spent part of the site's budget.", each("spent")),
        Metric("budget_left", "Remaining part of the site's budget.", each("left")),
        Metric("sent_bytes_total", "Bytes of answers.", _one(known["sent_bytes"])),
        Metric("received_bytes_total", "Bytes of requests.", _one(known["received_bytes"])),
    ]


def _one(value: float | None) -> tuple[Any, ...]:
    return () if value is None else (({}, float(value)),)


def _takes_part(state: str | None) -> float | None:
    return None if state is None else float(state in TAKES_PART)


def _expires(certificate: str | None) -> float | None:
    try:
        return None if certificate is None else expires(Path(certificate)).timestamp()
    except (OSError, ValueError):
        return None


def _seconds(at: str | None) -> float | None:
    return None if at is None else datetime.fromisoformat(at).timestamp()
