"""Proxies between a site and its server: one cuts connections, the other sends garbage."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

import httpx
from environments import HOST

from fedldp.deployment.https.site import tls_of_site


class CuttableLink:
    """Passes bytes from one port to another.

    When cut, it accepts bytes and passes nothing on, like a network that drops packets silently.
    Old connections stay dead after it is mended, as behind a router that forgot them.
    """

    def __init__(self, port: int, target: int) -> None:
        self._target, self._is_cut = target, False
        self._ends: list[socket.socket] = []
        self._dead: list[threading.Event] = []
        self._listener = socket.create_server((HOST, port))

    def __enter__(self) -> CuttableLink:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *given: object) -> None:
        for each in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def cut(self) -> None:
        self._is_cut = True
        for dead in self._dead:
            dead.set()

    def mend(self) -> None:
        self._is_cut = False

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # the proxy was closed at the end
            while True:
                site, _address = self._listener.accept()
                self._ends.append(site)
                if self._is_cut:
                    continue
                try:
                    server = socket.create_connection((HOST, self._target))
                except OSError:
                    site.close()
                    continue
                self._ends.append(server)
                self._dead.append(dead := threading.Event())
                for pair in ((site, server), (server, site)):
                    threading.Thread(target=self._pass, args=(*pair, dead), daemon=True).start()

    def _pass(self, source: socket.socket, to: socket.socket, dead: threading.Event) -> None:
        try:
            while part := source.recv(1 << 16):
                if not dead.is_set():
                    to.sendall(part)
            if not dead.is_set():
                to.shutdown(socket.SHUT_WR)
        except OSError:  # one end was reset, and the other must learn of it or would wait forever
            for each in () if dead.is_set() else (source, to):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


def _response(head: str, *headers: str, body: bytes = b"") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {head}", *headers, "", ""]).encode() + body


_NUMBERED = "fedldp-question: 999999"
GARBAGE = [
    b"",
    random.Random(0).randbytes(4000),
    _response("200 OK", _NUMBERED, "content-length: 10000000000", body=bytes(1 << 16)),
    _response("200 OK", _NUMBERED, "transfer-encoding: chunked", body=b"ffffffff\r\nx"),
    _response("200 OK", _NUMBERED, "content-length: 9", "content-encoding: gzip", body=b"x" * 9),
    _response("200 OK", _NUMBERED, "content-length: -1"),
    _response("200 OK", _NUMBERED, "content-length: 100", body=b"cut"),
    _response("200 OK", "fedldp-question: nine", "content-length: 1", body=b"x"),
    _response("200 OK", _NUMBERED, "content-length: 9", body=b"nonsense."),
    _response("200 OK", _NUMBERED, "content-length: 76", body=b"fedldp-site\x01" + bytes(64)),
    _response("302 Found", "location: https://127.0.0.1:1/", "content-length: 0"),
    _response("500 " + "x" * 60_000, "content-length: 0"),
    _response("401 Unauthorized", "content-length: 0"),
    _response("200 OK", "x: " + "a" * (1 << 17)),
]
"""What a site may receive instead of a request; no request has the number 999999."""


class GarbageProxy:
    """Terminates TLS with the server's own key, and sends a site garbage in place of every other
    request, each kind in turn; it passes all else on.

    Attributes:
        given: how often it sent garbage.
    """

    def __init__(self, port: int, target: int, tls: Path) -> None:
        self.given, self._asked = 0, 0
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def setup(self) -> None:
                super().setup()
                url, verify = f"https://{HOST}:{target}", tls_of_site(tls / "ca.pem")
                self.to = httpx.Client(base_url=url, verify=verify, trust_env=False, timeout=60)

            def finish(self) -> None:
                super().finish()
                self.to.close()

            def do_GET(self) -> None:
                self._passes()

            def do_POST(self) -> None:
                self._passes()

            def _passes(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                garbage = proxy._garbage() if self.path == "/v1/question" else None
                if garbage is not None:
                    self.wfile.write(garbage)
                    self.close_connection = True
                    return
                headers = dict(self.headers)
                found = self.to.request(self.command, self.path, content=body, headers=headers)
                self.send_response(found.status_code)
                for name in ("fedldp-question", "connection"):
                    if name in found.headers:
                        self.send_header(name, found.headers[name])
                if found.status_code != httpx.codes.NO_CONTENT:
                    self.send_header("content-length", str(len(found.content)))
                self.end_headers()
                self.wfile.write(found.content)

            def log_message(self, *given: object) -> None:
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls / "server.pem", tls / "server.key")
        self._server = ThreadingHTTPServer((HOST, port), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *given: None  # type: ignore[method-assign]
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *given: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _garbage(self) -> bytes | None:
        self._asked += 1
        if self._asked % 2 == 0:
            return None
        self.given += 1
        return GARBAGE[self.given % len(GARBAGE)]
