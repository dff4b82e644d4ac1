"""The server's end of the pipe to Flower: asks sites and takes their answers.

Flower's ServerApp (``flower_app/server_app.py``, which describes the frames) connects to a Unix
socket here. If the ServerApp dies, the pending messages fail, and the caller asks again once a
ServerApp is connected. Nothing here interprets the bytes, and no log contains any of them.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import struct
import threading
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Self

from fedldp.core.errors import WireError
from fedldp.deployment.frames import ConnectionLost, read_frame, write_frame
from fedldp.deployment.sockets import listen

LIMIT = 1 << 30
"""The longest body in bytes, in either direction."""

PATIENCE = 60.0
"""Seconds that a frame may take once it has begun; the ServerApp is on the same machine."""

TICK = 0.2
"""Seconds within which a closed pipe must be noticed."""

_ASK = struct.Struct(">cQQI")
_ANSWER = struct.Struct(">cQ")
_FAILURE = struct.Struct(">cQI")
_log = logging.getLogger(__name__)


class FlowerPipe:
    """The pipe, as a context manager: it listens from enter to exit.

    Its methods may be called from any thread. Only the latest ServerApp stays connected, because
    after a second `flwr run` the ServerApp of a killed SuperLink may live for some more seconds.
    """

    absent = "Flower is not connected: start `flwr run`; the round waits"

    def __init__(self, path: Path, limit: int = LIMIT, group: str | None = None) -> None:
        """Prepare a pipe.

        Args:
            path: the path of the pipe's Unix socket.
            limit: the longest body in bytes.
            group: the group of the SuperLink's user, which may connect as well as the owner.
        """
        self.path = path
        self._group = group
        self.limit = limit
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._connection: socket.socket | None = None
        self._nodes: list[int] | None = None
        self._waiting: set[int] = set()
        self._taken: deque[tuple[int, bytes | None]] = deque()
        self._last_tag = 0
        self._closing = self._ended = False

    def __enter__(self) -> Self:
        """Listen.

        Raises:
            ConfigError: the socket cannot be created, or others could reach it.
        """
        self._listener = listen(self.path, self._group)
        self._thread = threading.Thread(target=self._serve, name="flower-pipe", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Hang up and remove the socket."""
        self._closing = True
        self._hang_up()
        self._thread.join()
        self._listener.close()
        self.path.unlink(missing_ok=True)

    @property
    def connected(self) -> bool:
        """Whether a ServerApp is connected."""
        return self._connection is not None

    def wait_connected(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for a ServerApp; return whether there is one."""
        with self._changed:
            return self._changed.wait_for(lambda: self.connected, timeout)

    def nodes(self, timeout: float) -> list[int]:
        """Return the ids of the nodes that Flower counts as online, in ascending order.

        Raises:
            ConnectionLost: no ServerApp is connected, or it did not answer within ``timeout``
                seconds.
        """
        with self._changed:
            self._nodes = None
        self._write(b"N")
        with self._changed:
            self._changed.wait_for(lambda: self._nodes is not None or not self.connected, timeout)
            if self._nodes is None:
                raise ConnectionLost("Flower's ServerApp did not list its nodes")
            return sorted(self._nodes)

    def present(self) -> None:
        """Return None, because Flower does not know which site a node belongs to."""

    def ask(self, node: int, body: bytes, ttl: int) -> int:
        """Send ``body`` to a node's agent, and return the tag of the answer.

        :meth:`take` returns every tag once; without a ServerApp, it returns the tag at once, as
        failed.

        Args:
            node: the id of a node.
            body: the message, at most ``limit`` bytes.
            ttl: seconds, from 1 to 2^32 - 1, after which Flower gives up.

        Raises:
            WireError: the body is too long, or ``ttl`` is out of range.
        """
        if len(body) > self.limit or not 0 < ttl < 1 << 32:
            raise WireError(
                f"a body of {len(body)} bytes and ttl = {ttl} cannot be sent: give at most "
                f"{self.limit} bytes and a ttl from 1 to 2^32 - 1 seconds"
            )
        with self._changed:
            self._last_tag += 1
            tag = self._last_tag
            self._waiting.add(tag)
        try:
            self._write(_ASK.pack(b"A", tag, node, ttl) + body)
        except ConnectionLost:
            self._settle(tag, None)
        return tag

    def take(self, timeout: float) -> list[tuple[int, bytes | None]]:
        """Return what arrived since the last call; if nothing did, wait up to ``timeout`` seconds.

        Returns:
            Pairs of a tag and an answer. The answer is None if none will come: the node, its
            ClientApp or the ServerApp is gone, or the time to live has expired. The answer is empty
            if the pipe at the site found no agent.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._taken, timeout)
            taken = list(self._taken)
            self._taken.clear()
            return taken

    def end(self) -> None:
        """Tell a connected ServerApp that the run is over, so that Flower's run succeeds."""
        self._ended = True
        with contextlib.suppress(ConnectionLost):
            self._write(b"E")

    def _write(self, body: bytes) -> None:
        with self._writing:
            if self._connection is None:
                raise ConnectionLost("no ServerApp of Flower is connected: start flwr run")
            try:
                write_frame(self._connection, body, PATIENCE)
            except ConnectionLost:
                self._hang_up()
                raise

    def _hang_up(self) -> None:
        """Shut the connection down, so that the reader, which alone closes it, finds its end."""
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        """Read frames and accept ServerApps; runs in a separate thread."""
        reader: socket.socket | None = None
        while not self._closing:
            ready = select.select([self._listener, *([reader] if reader else [])], [], [], TICK)[0]
            if reader is not None and reader in ready:
                try:
                    self._receive(read_frame(reader, self.limit + _ANSWER.size, PATIENCE))
                except WireError as error:
                    level = logging.INFO if isinstance(error, ConnectionLost) else logging.WARNING
                    if not self._ended:  # at the end, the ServerApp is told to disconnect
                        _log.log(level, "Flower's ServerApp is disconnected: %s", error)
                    self._drop(reader)
                    reader = None
            elif self._listener in ready:
                reader = self._let_in(reader)
        if reader is not None:
            self._drop(reader)

    def _let_in(self, reader: socket.socket | None) -> socket.socket | None:
        try:
            newcomer, _address = self._listener.accept()
        except OSError:  # it hung up, or too many files are open: try again later
            time.sleep(TICK)
            return reader
        if reader is not None:
            _log.warning("a second ServerApp of Flower replaces the first")
            self._drop(reader)
        # Two objects for one connection, because reader and writer have different timeouts. Both
        # need a timeout, because the two objects share one blocking mode.
        newcomer.settimeout(PATIENCE)
        with self._writing, self._changed:
            self._connection = newcomer.dup()
            self._changed.notify_all()
        return newcomer

    def _drop(self, reader: socket.socket) -> None:
        """Close the connection, which makes all pending messages fail."""
        self._hang_up()  # ends a write that is still under way
        reader.close()
        with self._writing:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
        with self._changed:
            self._taken.extend((tag, None) for tag in sorted(self._waiting))
            self._waiting.clear()
            self._changed.notify_all()

    def _receive(self, frame: bytes) -> None:
        kind = frame[:1]
        if kind == b"N" and len(frame) % 8 == 1:
            with self._changed:
                self._nodes = list(struct.unpack(f">{len(frame) // 8}Q", frame[1:]))
                self._changed.notify_all()
        elif kind == b"R" and len(frame) >= _ANSWER.size:
            self._settle(_ANSWER.unpack_from(frame)[1], frame[_ANSWER.size :])
        elif kind == b"F" and len(frame) == _FAILURE.size:
            _kind, tag, code = _FAILURE.unpack(frame)
            _log.info("Flower gave up on a request: its error %d", code)
            self._settle(tag, None)
        else:
            raise WireError(f"a frame of {len(frame)} bytes, which no pipe of fedldp sends")

    def _settle(self, tag: int, answer: bytes | None) -> None:
        with self._changed:
            if tag in self._waiting:
                self._waiting.remove(tag)
                self._taken.append((tag, answer))
                self._changed.notify_all()
