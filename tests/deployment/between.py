"""What may stand between sites and their server over HTTPS: a cable that is cut, and a meddler."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

from fedldp.deployment.https.site import tls_of_site

HOST = "127.0.0.1"


class Cable:
    """Passes bytes between a port and another.

    Cut, it takes what comes, and passes nothing: as where packets vanish, and nobody says so. What
    was connected then stays dead when it is mended, as behind a router that forgot it.
    """

    def __init__(self, port: int, target: int) -> None:
        self._target, self._is_cut = target, False
        self._ends: list[socket.socket] = []
        self._dead: list[threading.Event] = []
        self._listener = socket.create_server((HOST, port))

    def __enter__(self) -> Cable:
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
        with contextlib.suppress(OSError):  # it is closed at the end
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
        with contextlib.suppress(OSError):
            while part := source.recv(1 << 16):
                if not dead.is_set():
                    to.sendall(part)
            if not dead.is_set():
                to.shutdown(socket.SHUT_WR)


class Meddler:
    """Ends TLS with the server's own key, and carries requests: some not at all, and some twice.

    A third of all questions and answers are lost, answers on their way to the server or back, and
    pass when they come again. Answers that pass are delivered twice. All take a time of their own,
    so that those of different sites change places.

    Attributes:
        lost: how often each kind of request was lost.
        doubled: how many were delivered twice.
    """

    def __init__(self, port: int, target: int, tls: Path) -> None:
        self.lost: Counter[str] = Counter()
        self.doubled = 0
        self._seen: set[bytes] = set()
        self._random = random.Random(0)
        meddler = self

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
                try:
                    found = meddler.delivered(self, body)
                except httpx.HTTPError:
                    found = None
                if found is None:
                    self.close_connection = True
                    return
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

    def __enter__(self) -> Meddler:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *given: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def delivered(self, request: object, body: bytes) -> httpx.Response | None:
        """Return what the server says to a request; None where its sender hears nothing."""
        path, to, headers = request.path, request.to, dict(request.headers)  # type: ignore[attr-defined]

        def send() -> httpx.Response:
            return to.request(request.command, path, content=body, headers=headers)  # type: ignore[attr-defined,no-any-return]

        kind = path.split("/")[2]
        if kind not in ("question", "answer"):
            return send()
        if kind == "question":
            found = send()
            place = kind.encode() + found.content
            if found.status_code != httpx.codes.OK:
                return found
        else:
            found, place = None, path.encode() + body
        if place not in self._seen and self._random.random() < 1 / 3:
            self._seen.add(place)
            self.lost[kind] += 1
            if kind == "answer" and self.lost[kind] % 2:
                send()  # it is the reply that is lost
            return None
        time.sleep(self._random.uniform(0.0, 0.2))
        if kind == "answer":
            self.doubled += 1
            send()
        return found if found is not None else send()
