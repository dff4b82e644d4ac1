"""The server's end: authenticates sites, and serves the sessions of several runs on one port.

It runs in its own thread, beside the round loops, each of which has a pipe to the sites of its run
(see ``pipe``). A session is of a run and a site, so a slow run holds up no other.

The server limits the connections, from strangers (for a short time) and from each site. A
connection counts as a stranger's until it has carried a hello or a session's token. When the limit
is reached, the server does not refuse the newcomer but drops the oldest stranger, so that idle
connections cannot keep a site out, however many there are. If many connections arrive together,
they are accepted one by one, and the others wait in the operating system's queue: a TLS handshake
is expensive, and too many would leave no time for rounds.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import socket
import threading
import time
from asyncio.sslproto import SSLProtocol
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from fedldp.core.errors import ConfigError, RunError, os_errors
from fedldp.deployment.certificates import ServerTls, fingerprint
from fedldp.deployment.https.hello import LONGEST, NO_DIGEST, TAG, TOKEN_BYTES, Hello, Nonces
from fedldp.deployment.https.pipe import NEAR_SECONDS, RunPipe, SiteSession
from fedldp.deployment.key_changes import KnownKeys
from fedldp.deployment.logs import RateLimitedLog
from fedldp.deployment.messages import End, pack
from fedldp.reporting import words

log = logging.getLogger("fedldp.server")

_PART_SECONDS = 60.0
"""How long the next part of a site's answer may take, in seconds."""
_TLS_BUFFER = 1 << 14
"""The size of a connection's buffer in bytes: one TLS record."""
_HELLO_SECONDS = 10.0
_IDLE_SECONDS = 75
_SECONDS_OF_A_DAY = 86_400.0
_TELL_SECONDS = 30.0
"""How long to wait for the sites of a run that is over to hear it, in seconds: agents that cannot
connect try again more often than that."""
_LONGEST_HEAD = 16_384
QUIET: dict[str, Any] = {
    "loop": "asyncio",
    "ws": "none",
    "lifespan": "off",
    "log_config": None,
    "log_level": "critical",
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
    "timeout_graceful_shutdown": 2,
}
"""Any stranger could fill uvicorn's log, so our servers log what matters, with a rate limit."""
_TELL_PAUSE = 0.05
"""Seconds between two checks of who was told that a run is over."""


@dataclass
class _Known:
    """A run whose sites the server knows.

    Attributes:
        names: the name of each site of its roster, by its key.
        rounds: after how many rounds it is over, which its sites are told; None if it is not.
        pipe: its pipe while it is served.
        asked: when a site last asked for it while it was not served, by its key.
        told: the keys of the sites that were told that it is over.
    """

    names: Mapping[str, str]
    rounds: int | None = None
    pipe: RunPipe | None = None
    asked: dict[str, float] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)


class Listener:
    """A server for the sites of several runs.

    Its methods may be called from any thread.

    Args:
        listening: a TCP socket that listens; closed at the end.
        tls: the server's certificate, which sites sign, and its key.
        known_keys: the changed keys; a site is known by its first key.

    Attributes:
        address: where it listens: host and port.
        certificate: the file of its certificate.
    """

    def __init__(
        self, listening: socket.socket, tls: ServerTls, known_keys: KnownKeys | None = None
    ) -> None:
        self.address = listening.getsockname()[:2]
        self.known_keys = known_keys or KnownKeys()
        self._tls = tls
        self.certificate = tls.file
        self._known: dict[bytes, _Known] = {}
        """The runs by the digest of their agreement, in a dictionary that is replaced, not changed:
        the serving thread may be reading it."""
        self._changing = threading.Lock()
        self._tokens: dict[bytes, tuple[RunPipe, int]] = {}
        self._nonces = Nonces()
        self._rate_limited = RateLimitedLog(log)
        self._connections = Connections(self._crowded)
        self._listener = PacedSocket(listening, self._connections)
        config = uvicorn.Config(
            self._app(),
            **QUIET,
            http=self._connections.protocol,  # type: ignore[arg-type]  # uvicorn just calls this
            timeout_keep_alive=_IDLE_SECONDS,
            ssl_context_factory=lambda _config, _default: tls.context,
            h11_max_incomplete_event_size=_LONGEST_HEAD,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="https", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Listen while the context lasts; then close all connections."""
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)
        if not self._server.started:
            raise RunError("the server's HTTPS did not start; see the log")
        log.info("listens at https://%s:%d", *self.address)
        try:
            yield
        finally:
            for run in self._served():
                run.close()
            self._server.should_exit = True
            self._thread.join()
            self._listener.close()

    @contextmanager
    def serving(self, run: RunPipe) -> Iterator[RunPipe]:
        """Serve a run's sessions while the context lasts; then tell its sites if it is over."""
        run.set_soon = self._set_soon
        known = self.remember(run.digest, {site.key: site.name for site in run.sites}, None, run)
        try:
            yield run
        finally:
            known.rounds = run.rounds
            if run.rounds is not None:  # the sites need not keep a budget for the run
                self.tell(run)
            run.close()
            self.remember(run.digest, known.names, run.rounds)
            for site in run.sites:
                if site.token is not None:
                    self._tokens.pop(site.token, None)

    def remember(
        self,
        digest: bytes,
        names: Mapping[str, str],
        rounds: int | None,
        run: RunPipe | None = None,
    ) -> _Known:
        """Know the sites of a run.

        Args:
            digest: the digest of its agreement.
            names: the name of each site of its roster, by its key.
            rounds: after how many rounds it is over, which its sites are told; None if it is not.
            run: its pipe; None if the run is not served now.
        """
        with self._changing:
            found = _Known(names, rounds, run)
            self._known = {**self._known, digest: found}
            self._connections.expected = sum(len(each.sites) for each in self._served())
            return found

    def _served(self) -> list[RunPipe]:
        return [each.pipe for each in self._known.values() if each.pipe is not None]

    def tell(self, run: RunPipe) -> None:
        """Wait until the sites of a run have heard that it is over, or some seconds have passed.

        They are those that had a session. If none had, because the server was started again for
        those that were away, they are all.
        """
        heard = {site.key for site in run.sites if site.number} or {*run.index}
        until = time.monotonic() + _TELL_SECONDS
        while heard - self._known[run.digest].told and time.monotonic() < until:
            time.sleep(_TELL_PAUSE)

    def is_asked_for(self, digest: bytes, quorum: int) -> bool:
        """Return whether so many sites ask for a run that is not served now."""
        since, known = time.monotonic() - NEAR_SECONDS, self._known.get(digest)
        return known is not None and sum(at > since for at in [*known.asked.values()]) >= quorum

    def _set_soon(self, event: asyncio.Event) -> None:
        """Set an event of the serving thread's loop; may be called from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(event.set)

    def _met(self, key: str) -> None:
        """Let all runs know that the site with a key is connected to the server."""
        for run in self._served():
            if key in run.index:
                run.sites[run.index[key]].met = time.monotonic()

    # For the sites: the HTTP server, in a separate thread

    def _run(self) -> None:
        # asyncio allocates a buffer of this size for each connection, even an idle one; the default
        # is 256 KiB.
        SSLProtocol.max_size = _TLS_BUFFER

        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self._loop.set_exception_handler(lambda _loop, told: self._failed(told["message"]))
            warns = asyncio.create_task(self._warn_daily())
            await self._server.serve(sockets=[self._listener])
            warns.cancel()

        asyncio.run(serve())

    async def _warn_daily(self) -> None:
        """Log each day that the certificate will expire soon."""
        while True:
            if (ends := self._tls.validity()) is not None:
                log.warning("%s", words.line(ends))
            await asyncio.sleep(_SECONDS_OF_A_DAY)

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/nonce", self._nonce, methods=["GET"]),
                Route("/v1/hello", self._hello, methods=["POST"]),
                Route("/v1/agreement", self._hand_agreement, methods=["POST"]),
                Route("/v1/alive", self._alive, methods=["POST"]),
                Route("/v1/question", self._next_request, methods=["POST"]),
                Route("/v1/answer/{number:int}", self._answer, methods=["POST"]),
            ],
            exception_handlers={Exception: self._not_served},
        )

    def _crowded(self) -> None:
        self._rate_limited("many connections do not authenticate: the oldest are closed")

    def _failed(self, what: str) -> None:
        self._rate_limited(f"a connection failed: {what:.200}")

    async def _not_served(self, request: Request, error: Exception) -> Response:
        self._failed(type(error).__name__)
        return Response(status_code=500, headers={"connection": "close"})

    async def _nonce(self, request: Request) -> Response:
        return _bytes(self._nonces.fresh().encode())

    async def _hello(self, request: Request) -> Response:
        """Begin a session of a site in the run that its hello names, or say that it is over."""
        found, key = await self._said_who(request)
        digest = bytes.fromhex(found.agreement)
        known = self._known.get(digest)
        if known is not None and key in known.names:
            run = known.pipe
            rounds = known.rounds if run is None else run.rounds
            if rounds is not None:
                return self._end(digest, rounds, key)
            if run is not None:
                request.state.connection.is_of((run.digest, run.index[key]))
                return _bytes(self._session(run, run.index[key], found))
            known.asked[key] = time.monotonic()
        self._met(key)
        raise _refused(404)

    def _end(self, digest: bytes, rounds: int, key: str) -> Response:
        """Return the message that a run is over, for the site with a key."""
        self._known[digest].told.add(key)
        end = End(digest, rounds)
        signature, chain = self._tls.sign(end.signed)
        body = pack(replace(end, signature=signature, chain=chain))
        return Response(body, status_code=410, media_type="application/octet-stream")

    def _name_of(self, key: str) -> str | None:
        """Return the name of the site with a key; None if it is in no roster."""
        return next((each.names[key] for each in self._known.values() if key in each.names), None)

    async def _hand_agreement(self, request: Request) -> Response:
        """Send a site the agreement that it names, or the digests of all that name its key."""
        found, key = await self._said_who(request)
        digest = bytes.fromhex(found.agreement)
        named = [run for run in self._served() if key in run.index]
        if digest == NO_DIGEST:
            return _bytes(b"".join(run.digest for run in named))
        for run in named:
            if run.digest == digest:
                return _bytes(run.agreement)
        raise _refused(404)

    async def _said_who(self, request: Request) -> tuple[Hello, str]:
        """Return a request's hello and its site's first key; refuse one that no site signed."""
        length = _length(request)
        if length is None or length > LONGEST:
            raise _refused(413)
        try:
            async with asyncio.timeout(_HELLO_SECONDS):
                hello = Hello.parse(await request.body())
        except (ConfigError, TimeoutError, ClientDisconnect):
            raise _refused(400) from None
        key = self.known_keys.first(hello.key)
        name = self._name_of(key)
        if self.known_keys.is_replaced(hello.key):
            self._rate_limited("a connection with a key that its site has changed was refused")
            raise _refused(403)
        if name is None:
            self._rate_limited("a connection with a key that is not in the roster was refused")
            raise _refused(403)
        if not self._nonces.is_good(hello.nonce):
            raise _refused(401)
        if hello.certificate != fingerprint(self._tls.certificate) or not hello.is_signed:
            self._rate_limited(f"a connection claims to be site {name}, but its signature is wrong")
            raise _refused(403)
        self._nonces.use(hello.nonce)
        return hello, key

    def _session(self, run: RunPipe, index: int, hello: Hello) -> bytes:
        """Begin a site's session, which ends its previous session; return the token."""
        token, site = os.urandom(TOKEN_BYTES), run.sites[index]  # noqa: TID251  # a session's token
        if site.token is not None:
            self._tokens.pop(site.token, None)
        hashed = hashlib.sha256(token).digest()
        self._tokens[hashed] = run, index
        site.begin(hashed, hello.version, bytes.fromhex(hello.receipt))
        self._rate_limited(f"site {site.name} is connected", level=logging.INFO)
        return token

    def _session_of(self, request: Request) -> tuple[RunPipe, SiteSession]:
        """Return the session whose token a request shows; refuse a request without one."""
        kind, _, text = request.headers.get("authorization", "").partition(" ")
        with suppress(ValueError):
            token = hashlib.sha256(bytes.fromhex(text)).digest()
            found = self._tokens.get(token) if kind == "Bearer" else None
            if found is not None:
                run, index = found
                run.sites[index].heard = time.monotonic()
                self._met(run.sites[index].key)
                request.state.connection.is_of((run.digest, index))
                return run, run.sites[index]
        raise _refused(401)

    async def _alive(self, request: Request) -> Response:
        """Take a site's sign of life, which extends no deadline."""
        self._session_of(request)
        if _length(request) != 0:
            raise _refused(413)
        return Response(status_code=204)

    async def _next_request(self, request: Request) -> Response:
        run, site = self._session_of(request)
        if _length(request) != 0:
            raise _refused(413)
        pending = await run.next_for(site)
        if pending is None and run.rounds is not None:
            return self._end(run.digest, run.rounds, site.key)
        if pending is None:
            return Response(status_code=204)
        number, pieces = pending
        return _in_pieces(pieces, number)

    async def _answer(self, request: Request) -> Response:
        run, site = self._session_of(request)
        number, length = request.path_params["number"], _length(request)
        if length is None or length > run.largest or "content-encoding" in request.headers:
            self._rate_limited(f"site {site.name}: an answer was too long and was refused")
            raise _refused(413)
        if number not in site.unanswered:
            raise _refused(404)
        token = site.token
        try:
            body = await _body(request, length)
        except (TimeoutError, ClientDisconnect):
            raise _refused(408) from None
        if body is None or site.token != token:
            raise _refused(400)
        run.answered(site, number, body)
        return Response(status_code=204)


def listen(
    address: str, setting: str = "listen", form: str = "HOST:PORT, such as 0.0.0.0:8443"
) -> socket.socket:
    """Return a TCP socket that listens at HOST:PORT.

    Raises:
        ConfigError: the address is malformed, or nothing can listen there; the message names the
            setting, and the form in which it is written.
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ConfigError(f"{setting} = {address}: write it as {form}")
    host = host.strip("[]")
    remedy = "stop the program that uses the port, or choose another port"
    with os_errors(f"{setting} = {address}", remedy):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, int(port)), family=family, backlog=512)


async def _body(request: Request, length: int) -> bytes | None:
    """Return a request's body; None if its length differs from the announced one."""
    parts, stream = bytearray(), aiter(request.stream())
    while True:
        async with asyncio.timeout(_PART_SECONDS):
            part = await anext(stream, None)
        if part is None:
            return bytes(parts) if len(parts) == length else None
        parts += part
        if len(parts) > length:
            return None


def _length(request: Request) -> int | None:
    """Return the length that a request announces; None if it announces none."""
    streams = "transfer-encoding" in request.headers
    text = request.headers.get("content-length", "" if streams else "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _bytes(body: bytes) -> Response:
    return Response(body, media_type="application/octet-stream")


def _in_pieces(pieces: Sequence[bytes], number: int) -> Response:
    """Return a round request, which is copied only as fast as the client reads it."""

    async def each() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    headers = {TAG: str(number), "content-length": str(sum(map(len, pieces)))}
    return StreamingResponse(each(), headers=headers, media_type="application/octet-stream")


def _refused(status: int) -> HTTPException:
    """Return a refusal that closes the connection, so that nothing else is read from it."""
    return HTTPException(status, "", {"connection": "close"})


# Connections


RunSite = tuple[bytes, int]
"""The digest of a run's agreement, and the number of a site in its roster."""
MOST_STRANGERS = 256
MOST_OF_A_SITE = 4
SECONDS_AS_STRANGER = 20.0
SECONDS_APART, SECONDS_AFTER_SILENT = 0.01, 0.0025
"""Seconds until the next connection is accepted; the second, after one that has sent nothing."""
_PAUSE = 0.001
"""Seconds before checking again whether a connection can be accepted."""


class Connections:
    """The connections of a server; used only in its event loop's thread.

    Args:
        crowded: is called when a stranger is dropped.

    Attributes:
        expected: the number of sites of all runs. After a restart all sites connect at once, so the
            limit on strangers is raised by this number.
    """

    def __init__(self, crowded: Callable[[], None]) -> None:
        self._crowded, self.expected = crowded, 0
        self._new: dict[int, socket.socket] = {}
        """Those whose TLS handshake is not over, by file descriptor (closed ones until reuse)."""
        self._strangers: dict[Connection, None] = {}
        """The connections that have not shown whose they are, in the order of their handshakes."""
        self._of_sites: dict[RunSite, deque[Connection]] = {}

    def accepted(self, new: socket.socket) -> None:
        """Count a new connection, before its TLS handshake."""
        self._new.pop(new.fileno(), None)
        self._new[new.fileno()] = new
        if len(self._new) > MOST_STRANGERS + self.expected:
            self._crowded()
            with suppress(OSError):  # it is closed
                self._new.pop(next(iter(self._new))).shutdown(socket.SHUT_RDWR)

    def made(self, connection: Connection) -> None:
        """Count a new connection, after its TLS handshake."""
        self._new.pop(connection.transport.get_extra_info("socket").fileno(), None)
        self._strangers[connection] = None
        if len(self._strangers) > MOST_STRANGERS + self.expected:
            self._crowded()
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.abort()

    def known(self, connection: Connection, site: RunSite) -> None:
        """Note that a connection belongs to a site."""
        self.lost(connection)
        own = self._of_sites.setdefault(site, deque())
        own.append(connection)
        if len(own) > MOST_OF_A_SITE:
            own.popleft().abort()

    def lost(self, connection: Connection) -> None:
        """Forget a connection."""
        self._strangers.pop(connection, None)
        own = None if connection.site is None else self._of_sites.get(connection.site)
        if own is not None and connection in own:
            own.remove(connection)
            if not own:
                del self._of_sites[connection.site]  # type: ignore[arg-type]

    def protocol(self, **given: Any) -> Connection:
        """Return the HTTP protocol for a new connection, for uvicorn."""
        return Connection(self, **given)


class PacedSocket(socket.socket):
    """A listening socket that takes the place of another, and accepts connections one by one.

    Strangers' TLS handshakes thus leave time for rounds, and each has some seconds until there are
    so many newer ones that it is dropped.
    """

    def __init__(self, listening: socket.socket, connections: Connections) -> None:
        super().__init__(listening.family, listening.type, fileno=listening.detach())
        self._next, self._connections = 0.0, connections

    def accept(self) -> tuple[socket.socket, Any]:
        now = time.monotonic()
        if now < self._next:
            time.sleep(_PAUSE)  # avoids spinning: the system keeps reporting a waiting connection
            raise BlockingIOError
        new, address = super().accept()
        self._connections.accepted(new)
        self._next = now + SECONDS_AFTER_SILENT
        with suppress(OSError):
            new.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            self._next = now + SECONDS_APART
        return new, address


class Connection(H11Protocol):
    """One connection; requests find it in their scope's state, as ``connection``."""

    def __init__(
        self,
        connections: Connections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, "connection": self}, _loop)
        self._all = connections
        self.site: RunSite | None = None
        """The run and the site that the connection belongs to, once known."""
        self._stranger_until: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._all.made(self)
        self._stranger_until = self.loop.call_later(SECONDS_AS_STRANGER, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget_timer()
        self._all.lost(self)

    def is_of(self, site: RunSite) -> None:
        """Note the site that said hello or showed its token on this connection."""
        if self.site != site:
            self._forget_timer()
            self._all.known(self, site)
            self.site = site

    def abort(self) -> None:
        """Close the connection at once, even in the middle of a request."""
        if self.transport is not None:
            self.transport.abort()

    def _forget_timer(self) -> None:
        if self._stranger_until is not None:
            self._stranger_until.cancel()
            self._stranger_until = None
