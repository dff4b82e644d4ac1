"""The server's end: authenticates sites, sends them round requests, and receives their answers.

It runs in its own thread, beside the round loop, which uses it as a pipe to nodes: a node is a
site's number in the roster. A round request waits until its site answers, its deadline passes or
the server ends, so a site that was cut off or restarted gets it again.
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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from fedldp.core.errors import ConfigError, RunError, WireError
from fedldp.deployment.agreement import fits_version
from fedldp.deployment.certificates import ServerTls
from fedldp.deployment.https.connections import Connections
from fedldp.deployment.https.hello import LONGEST, TAG, TOKEN_BYTES, Nonces, SignedHello
from fedldp.deployment.logs import RateLimitedLog
from fedldp.deployment.watch import Presence
from fedldp.reporting import words

log = logging.getLogger("fedldp.server")

POLL_SECONDS = 20.0
"""How long a site's poll for a round request waits, in seconds."""
_ALIVE_SECONDS = 60.0
"""A site counts as absent if it has been silent for more than this many seconds and is not working
on a round request."""
_PART_SECONDS = 60.0
"""How long the next part of a site's answer may take, in seconds."""
_HEAD = 256
"""How many bytes at the beginning of a round request may differ between sites. In a secure sum,
further bytes differ: the boxes that other sites sealed for this site. The weights come last."""
_TLS_BUFFER = 1 << 14
"""The size of a connection's buffer in bytes: one TLS record."""
_HELLO_SECONDS = 10.0
_GIVE_UP_SECONDS = 0.5
"""Seconds between two checks for expired round requests."""
_IDLE_SECONDS = 75
_LOOK_AT_TLS_SECONDS = 2.0
"""Seconds between two checks for a renewed certificate."""
_LONGEST_HEAD = 16_384
_PIECE = 1 << 18


@dataclass
class _PendingRequest:
    """A round request that a site has not answered.

    ``tags`` maps each tag that waits for the answer to its deadline. A long request has two parts;
    requests with equal ends share the second part.
    """

    number: int
    parts: tuple[bytes, bytes]
    tags: dict[int, float]


@dataclass
class _Site:
    """What is known about one site of the roster."""

    pending: deque[_PendingRequest] = field(default_factory=deque)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    token: bytes | None = None
    polls: int = 0
    heard: float = -_ALIVE_SECONDS
    at_work: bool = False
    receiving: bool = False
    version: str = ""

    def is_there(self, now: float) -> bool:
        """Return whether the site has a session and was heard from recently or is at work."""
        return self.token is not None and (self.at_work or now - self.heard < _ALIVE_SECONDS)


class HttpsPipe:
    """A server for the sites of a roster, as a context manager: it listens from enter to exit.

    Its methods may be called from any thread.

    Attributes:
        address: where it listens: host and port.
    """

    def __init__(
        self,
        listening: socket.socket,
        tls: ServerTls,
        sites: Sequence[tuple[str, str]],
        largest: int,
        version: str,
        agreement: bytes,
        changed: Callable[[str], bool] = lambda key: False,
    ) -> None:
        """Prepare the server.

        Args:
            listening: a TCP socket that listens; closed at the end.
            tls: the server's certificate, which sites sign, and its key; both are read again after
                they are renewed.
            sites: the name and the public key (hexadecimal) of each site, by its number.
            largest: the size of the largest permitted answer, in bytes.
            version: the version of this fedldp; the log names sites with another version.
            agreement: the run's agreement, which sites of the roster may fetch.
            changed: returns whether a site has replaced the given key; such a key is refused.
        """
        self.address = listening.getsockname()[:2]
        self._tls, self._largest, self._version = tls, largest, version
        self._agreement, self._changed_key = agreement, changed
        self._names = [name for name, _key in sites]
        self._index = {key: index for index, (_name, key) in enumerate(sites)}
        self._sites = [_Site() for _ in sites]
        self._tokens: dict[bytes, int] = {}
        self._nonces = Nonces()
        self._rate_limited = RateLimitedLog(log)
        self._changed = threading.Condition()
        self._taken: deque[tuple[int, bytes | None]] = deque()
        self._last = 0
        self._given_up = -_GIVE_UP_SECONDS
        self._rest = b""
        """The end of the last round request, which the requests of other sites share."""
        self._over = False
        connections = Connections(len(sites), self._crowded)
        self._listener = connections.listener(listening)
        config = uvicorn.Config(
            self._app(),
            loop="asyncio",
            http=connections.protocol,  # type: ignore[arg-type]  # uvicorn just calls this value
            ws="none",
            lifespan="off",
            # Any stranger could fill uvicorn's log, so this module logs what matters, with a rate
            # limit.
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=2,
            ssl_context_factory=lambda _config, _default: tls.context,
            h11_max_incomplete_event_size=_LONGEST_HEAD,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="https", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        """Start to serve."""
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)
        if not self._server.started:
            raise RunError("the server's HTTPS did not start; see the log")
        log.info("listens at https://%s:%d", *self.address)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections, and stop serving."""
        self._over = True
        self._wake(*self._sites)
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()

    # For the round loop: the interface of a pipe

    @property
    def absent(self) -> str:
        """The message to log while no site is connected; it names a certificate that expired."""
        told, expired = "no site is connected; the round waits", self._tls.expired()
        return told if expired is None else f"{told}; {words.line(expired)}"

    @property
    def connected(self) -> bool:
        """Whether any site is connected."""
        now = time.monotonic()
        with self._changed:
            return any(site.is_there(now) for site in self._sites)

    def nodes(self, timeout: float) -> list[int]:
        """Return the numbers of the connected sites."""
        return [index for index, site in enumerate(self.present()) if site.there]

    def present(self) -> list[Presence]:
        """Return what is known about each site, by its number."""
        now = time.monotonic()
        with self._changed:
            return [
                Presence(
                    there=site.is_there(now),
                    silent=now - site.heard if site.token else None,
                    version=site.version,
                )
                for site in self._sites
            ]

    def ask(self, node: int, body: bytes, ttl: int) -> int:
        """Send a site a round request; return its tag, which :meth:`take` later returns once.

        Args:
            node: the site's number.
            body: the round request.
            ttl: seconds after which the request expires.
        """
        site = self._sites[node]
        with self._changed:
            self._last += 1
            tag, until = self._last, time.monotonic() + ttl
            for pending in site.pending:
                if b"".join(pending.parts) == body:  # the same request: one answer serves both
                    pending.tags[tag] = until
                    return tag
            site.pending.append(_PendingRequest(tag, self._in_parts(body), {tag: until}))
        self._wake(site)
        return tag

    def _in_parts(self, body: bytes) -> tuple[bytes, bytes]:
        """Split a round request in two; requests with equal ends share the second part."""
        if len(body) <= 4 * _HEAD:
            return body, b""
        if not (self._rest and body.endswith(self._rest)):
            alike = _alike(self._rest, body)
            # If less than half is shared, compare the next requests with this request's end: either
            # the round is new, or the shared end is not worth a search.
            self._rest = body[-alike:] if 2 * alike >= len(body) else body[_HEAD:]
        return body[: -len(self._rest)], self._rest

    def take(self, timeout: float) -> list[tuple[int, bytes | None]]:
        """Return what arrived since the last call; if nothing did, wait up to ``timeout`` seconds.

        Returns:
            Pairs of a tag and an answer; the answer is None if the request expired.
        """
        with self._changed:
            self._give_up(time.monotonic())
            self._changed.wait_for(lambda: self._taken, timeout)
            taken = list(self._taken)
            self._taken.clear()
            return taken

    def end(self) -> None:
        """End the run; sites need no message about it."""

    def _give_up(self, now: float) -> None:
        if now < self._given_up + _GIVE_UP_SECONDS:
            return
        self._given_up = now
        for site in self._sites:
            for pending in list(site.pending):
                for tag in [each for each, until in pending.tags.items() if until < now]:
                    del pending.tags[tag]
                    self._taken.append((tag, None))
                if not pending.tags:
                    site.pending.remove(pending)

    def _wake(self, *sites: _Site) -> None:
        """Make the waiting polls of sites check again; may be called from any thread."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                for site in sites:
                    loop.call_soon_threadsafe(site.wake.set)

    # For the sites: the HTTP server, in a separate thread

    def _run(self) -> None:
        # asyncio allocates a buffer of this size for each connection, even an idle one; the default
        # is 256 KiB.
        SSLProtocol.max_size = _TLS_BUFFER

        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self._loop.set_exception_handler(lambda _loop, told: self._failed(told["message"]))
            looks = asyncio.create_task(self._look_at_tls())
            await self._server.serve(sockets=[self._listener])
            looks.cancel()

        asyncio.run(serve())

    async def _look_at_tls(self) -> None:
        """Use a renewed certificate for new connections; existing connections are not affected."""
        while True:
            await asyncio.sleep(_LOOK_AT_TLS_SECONDS)
            try:
                if self._tls.look():
                    log.info("a renewed certificate is in use from now on")
            except ConfigError as error:
                self._rate_limited(f"a renewed certificate is not used: {error}")

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/nonce", self._nonce, methods=["GET"]),
                Route("/v1/hello", self._hello, methods=["POST"]),
                Route("/v1/agreement", self._hand_agreement, methods=["POST"]),
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
        return _refused(500)

    async def _nonce(self, request: Request) -> Response:
        return _bytes(self._nonces.fresh())

    async def _hello(self, request: Request) -> Response:
        found = await self._said_who(request)
        return found if isinstance(found, Response) else _bytes(self._session(*found))

    async def _hand_agreement(self, request: Request) -> Response:
        """Send the agreement to a site of the roster; the session of its agent continues."""
        found = await self._said_who(request)
        return found if isinstance(found, Response) else _bytes(self._agreement)

    async def _said_who(self, request: Request) -> tuple[int, str] | Response:
        """Return a site's number and version from the hello in a request, or a refusal."""
        length = _length(request)
        if length is None or length > LONGEST:
            return _refused(413)
        try:
            async with asyncio.timeout(_HELLO_SECONDS):
                hello = SignedHello.read(await request.body())
        except (WireError, TimeoutError, ClientDisconnect):
            return _refused(400)
        index = self._index.get(hello.public)
        if index is None:
            self._rate_limited("a connection with a key that is not in the roster was refused")
            return _refused(403)
        if self._changed_key(hello.public):
            name = self._names[index]
            self._rate_limited(
                f"site {name}: a connection with its earlier key, which it changed, was refused"
            )
            return _refused(403)
        if not self._nonces.is_good(hello.nonce):
            return _refused(401)
        if not hello.is_for(self._tls.certificate):
            self._rate_limited(
                f"a connection claims to be site {self._names[index]}, but its signature is wrong"
            )
            return _refused(403)
        self._nonces.use(hello.nonce)
        request.state.connection.is_of(index)
        return index, hello.version

    def _session(self, index: int, version: str) -> bytes:
        """Begin a site's session, which ends its previous session; return the token."""
        token, site, name = os.urandom(TOKEN_BYTES), self._sites[index], self._names[index]
        with self._changed:
            if site.token is not None:
                del self._tokens[site.token]
            site.token = hashlib.sha256(token).digest()
            self._tokens[site.token] = index
            site.heard, site.at_work, site.receiving = time.monotonic(), False, False
            site.version = version
        site.wake.set()  # ends a poll of the previous session that still waits
        self._rate_limited(f"site {name} is connected", level=logging.INFO)
        if not fits_version(self._version, version):
            self._rate_limited(
                f"site {name} has fedldp {version}, but this is {self._version}: install the same "
                "version"
            )
        return token

    def _site(self, request: Request) -> int | None:
        """Return the site whose token a request shows."""
        kind, _, text = request.headers.get("authorization", "").partition(" ")
        with suppress(ValueError):
            token = hashlib.sha256(bytes.fromhex(text)).digest()
            index = self._tokens.get(token) if kind == "Bearer" else None
            if index is not None:
                self._sites[index].heard = time.monotonic()
                request.state.connection.is_of(index)
                return index
        return None

    async def _next_request(self, request: Request) -> Response:
        index = self._site(request)
        if index is None:
            return _refused(401)
        if _length(request) != 0:
            return _refused(413)
        site = self._sites[index]
        site.polls += 1
        site.at_work = False  # a site that is working on a request does not poll
        poll, token, until = site.polls, site.token, time.monotonic() + POLL_SECONDS
        site.wake.set()  # ends an earlier poll of the site, whose reply nobody awaits any more
        while not self._over and poll == site.polls and token == site.token:
            site.wake.clear()
            with self._changed:
                pending = site.pending[0] if site.pending else None
            if pending is not None:
                site.at_work = True
                return _InPieces(pending.parts, {TAG: str(pending.number)})
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    await site.wake.wait()
            except TimeoutError:
                break
        site.heard = time.monotonic()
        return Response(status_code=204)

    async def _answer(self, request: Request) -> Response:
        index = self._site(request)
        if index is None:
            return _refused(401)
        site, number, length = self._sites[index], request.path_params["number"], _length(request)
        if length is None or length > self._largest or "content-encoding" in request.headers:
            self._rate_limited(f"site {self._names[index]}: an answer was too long and was refused")
            return _refused(413)
        if site.receiving:
            return _refused(409)
        with self._changed:
            asked = any(pending.number == number for pending in site.pending)
        if not asked:
            return _refused(404)
        site.receiving, token = True, site.token
        try:
            body = await _body(request, length)
        except (TimeoutError, ClientDisconnect):
            return _refused(408)
        finally:
            if site.token == token:
                site.receiving = False
        if body is None or site.token != token:
            return _refused(400)
        site.heard, site.at_work = time.monotonic(), False
        with self._changed:
            for pending in [each for each in site.pending if each.number == number]:
                site.pending.remove(pending)
                self._taken.extend((tag, body) for tag in pending.tags)
            self._changed.notify_all()
        return Response(status_code=204)


def listen(address: str) -> socket.socket:
    """Return a TCP socket that listens at HOST:PORT.

    Raises:
        ConfigError: the address is malformed, or nothing can listen there.
    """
    host, _, port = address.rpartition(":")
    try:
        if not host or not 0 <= int(port) < 1 << 16:
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"listen = {address}: write it as HOST:PORT, such as 0.0.0.0:8443"
        ) from None
    host = host.strip("[]")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, int(port)), family=family, backlog=512)
    except OSError as error:
        raise ConfigError(
            f"listen = {address}: {error.strerror}; stop the program that uses the port, or "
            "choose another port"
        ) from error


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


def _alike(one: bytes, other: bytes) -> int:
    """Return how many bytes two messages share at the end."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        size = (least + most + 1) // 2
        if one[-size:] == other[-size:]:
            least = size
        else:
            most = size - 1
    return least


def _length(request: Request) -> int | None:
    """Return the length that a request announces; None if it announces none."""
    text = request.headers.get("content-length", "" if _streams(request) else "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _streams(request: Request) -> bool:
    return "transfer-encoding" in request.headers


def _bytes(body: bytes) -> Response:
    return Response(body, media_type="application/octet-stream")


class _InPieces(Response):
    """A long body that is copied only as fast as the client reads it."""

    media_type = "application/octet-stream"

    def __init__(self, parts: Sequence[bytes], headers: dict[str, str]) -> None:
        length = {"content-length": str(sum(map(len, parts)))}
        super().__init__(headers={**headers, **length})
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **head})
        for part in self._parts:
            for start in range(0, len(part), _PIECE):
                piece = part[start : start + _PIECE]
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _refused(status: int) -> Response:
    """Return a refusal that closes the connection, so that nothing else is read from it."""
    return Response(status_code=status, headers={"connection": "close"})
