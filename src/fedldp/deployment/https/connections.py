"""Limits the connections to the server, from strangers (for a short time) and from each site.

A connection counts as a stranger's until it has carried a hello or a session's token. When the
limit is reached, the server does not refuse the newcomer but drops the oldest stranger, so that
idle connections cannot keep a site out, however many there are. If many connections arrive
together, only a few are served at a time, and the others wait in the operating system's queue: a
TLS handshake is expensive, and too many would leave no time for rounds.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

RunSite = tuple[bytes, int]
"""The digest of a run's agreement, and the number of a site in its roster."""
MOST_STRANGERS = 256
MOST_OF_A_SITE = 4
SECONDS_AS_STRANGER = 20.0
MOST_AT_ONCE = 8
SECONDS_AS_NEW = 0.1
"""Seconds after which a silent stranger no longer delays the next connection."""
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
        self._strangers: OrderedDict[socket.socket, Connection | None] = OrderedDict()
        self._new: dict[socket.socket, float] = {}
        """The strangers that are being served, and when the server began to serve each."""
        self._numbered: dict[int, socket.socket] = {}
        """The strangers, by file descriptor."""
        self._of_sites: dict[RunSite, deque[Connection]] = {}

    def listener(self, listening: socket.socket) -> socket.socket:
        """Return the same listening socket, which then counts each connection that it accepts."""
        counted = _Listener(listening.family, listening.type, fileno=listening.detach())
        counted.connections = self
        return counted

    def is_busy(self) -> bool:
        """Return whether too many strangers are being served to accept another."""
        if len(self._new) >= MOST_AT_ONCE:
            old = time.monotonic() - SECONDS_AS_NEW
            self._new = {s: at for s, at in self._new.items() if at > old and s.fileno() >= 0}
        return len(self._new) >= MOST_AT_ONCE

    def accepted(self, connection: socket.socket) -> None:
        """Count a new connection, before its TLS handshake."""
        self._strangers[connection] = None
        self._new[connection] = time.monotonic()
        self._numbered[connection.fileno()] = connection
        most = MOST_STRANGERS + self.expected
        # Finding the closed connections among many takes long, so do it only once the limit is
        # exceeded by a quarter.
        if len(self._strangers) <= most + most // 4:
            return
        for each in [one for one in self._strangers if one.fileno() < 0]:
            del self._strangers[each]
        while len(self._strangers) > most:
            self._crowded()
            oldest, protocol = self._strangers.popitem(last=False)
            if protocol is not None:
                protocol.abort()
            else:
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)

    def secured(self, connection: Connection, number: int) -> None:
        """Note that the connection with this file descriptor has completed its TLS handshake."""
        found = self._numbered.pop(number, None)
        if found is not None and found in self._strangers:
            self._strangers[found] = connection
            connection.stranger = found

    def known(self, connection: Connection, site: RunSite) -> None:
        """Note that a connection belongs to a site."""
        self.lost(connection)
        own = self._of_sites.setdefault(site, deque())
        own.append(connection)
        if len(own) > MOST_OF_A_SITE:
            own.popleft().abort()

    def lost(self, connection: Connection) -> None:
        """Forget a connection."""
        if connection.stranger is not None:
            self._strangers.pop(connection.stranger, None)
            self._new.pop(connection.stranger, None)
            connection.stranger = None
        own = None if connection.site is None else self._of_sites.get(connection.site)
        if own is not None and connection in own:
            own.remove(connection)
            if not own:
                del self._of_sites[connection.site]  # type: ignore[arg-type]

    def protocol(self, **given: Any) -> Connection:
        """Return the HTTP protocol for a new connection, for uvicorn."""
        return Connection(self, **given)


class _Listener(socket.socket):
    """A listening socket that reports accepted connections, and accepts only a few at a time."""

    connections: Connections

    def accept(self) -> tuple[socket.socket, Any]:
        if self.connections.is_busy():
            time.sleep(_PAUSE)  # avoids spinning: the system keeps reporting a waiting connection
            raise BlockingIOError
        connection, address = super().accept()
        self.connections.accepted(connection)
        return connection, address


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
        self.stranger: socket.socket | None = None
        """The connection's socket, until the connection's site is known."""
        self.site: RunSite | None = None
        """The run and the site that the connection belongs to, once known."""
        self._stranger_until: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._all.secured(self, transport.get_extra_info("socket").fileno())
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
