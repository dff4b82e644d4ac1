"""Flower's end at the server: carries frames between ``fedldp deploy server`` and the sites.

It decides and stores nothing: the process behind the Unix socket (run configuration: ``socket``)
decides which nodes to ask, how often and for how long. A frame is eight big-endian bytes with the
length, one byte with the kind, and the content:

    from the server: A  ask: a tag (8 bytes), a node's id (8), a time to live (4), the body
                     N  which nodes are connected?    E  end: this run is over
    to the server:   N  the nodes' ids (8 bytes each)
                     R  an answer: its tag, the body  F  a failure: its tag, Flower's code (4 bytes)

No node holds up another: a message is pushed at once, and one thread at a time pulls the answers.
Flower's pull can hang on the answer of a node that died while sending, so a pull that takes too
long is abandoned and a new one is begun; the messages in the old pull count as failed.
"""

from __future__ import annotations

import queue
import select
import socket
import struct
import threading
import time

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

RECORD, BODY = "fedldp", "body"
LIMIT = 1 << 30  # length of the longest frame, in bytes
POLL = 0.25  # seconds between two pulls
TICK = 0.05  # seconds between two checks of the socket
PULL_AT_ONCE = 32  # the most messages in one pull, which returns no answer before it is complete
PULL_PATIENCE = 60.0  # seconds after which the next pull begins even if one is still running
UNKNOWN, UNAVAILABLE = 0, 3  # Flower's error codes

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Carry frames until the server ends the run."""
    path = str(context.run_config["socket"])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        try:
            server.connect(path)
        except OSError as error:
            raise ConnectionError(
                f"no server listens at the socket {path!r} ({error.strerror}): start fedldp "
                "deploy server"
            ) from None
        Pipe(grid, server).run()


class Pipe:
    """Carries frames; ``waiting`` maps Flower's id of each pending message to the server's tag."""

    def __init__(self, grid: Grid, server: socket.socket) -> None:
        self.grid, self.server = grid, server
        self.waiting: dict[str, bytes] = {}
        self.pulled: queue.SimpleQueue[list[Message] | Exception] = queue.SimpleQueue()
        self.puller: threading.Thread | None = None
        self.pull_began = 0.0

    def run(self) -> None:
        """Carry frames until a frame E arrives."""
        while True:
            if select.select([self.server], [], [], TICK)[0]:
                (length,) = struct.unpack(">Q", self.read(8))
                if not 0 < length <= LIMIT:
                    raise ConnectionError(f"a frame of {length} bytes, not of 1 to {LIMIT}")
                frame = self.read(length)
                kind = frame[:1]
                if kind == b"E":
                    return
                if kind == b"A":
                    tag, node, ttl = struct.unpack(">8sQI", frame[1:21])
                    self.push(tag, node, ttl, frame[21:])
                elif kind == b"N":
                    nodes = list(self.grid.get_node_ids())
                    self.write(b"N", struct.pack(f">{len(nodes)}Q", *nodes))
                else:
                    raise ConnectionError(f"a frame of the unknown kind {kind!r}")
            while not self.pulled.empty():
                self.deliver(self.pulled.get())
            self.pull()

    def push(self, tag: bytes, node: int, ttl: int, body: bytes) -> None:
        """Push a message to one node; if Flower refuses the message, report the failure at once."""
        content = RecordDict({RECORD: ConfigRecord({BODY: body})})
        message = Message(content, node, MessageType.QUERY, ttl=float(ttl))
        name = (list(self.grid.push_messages([message])) or [""])[0]
        if name:
            self.waiting[name] = tag
        else:
            self.write(b"F", tag + struct.pack(">I", UNAVAILABLE))

    def pull(self) -> None:
        """Begin a pull if messages are pending and no pull is running."""
        since = time.monotonic() - self.pull_began
        busy = self.puller is not None and self.puller.is_alive() and since < PULL_PATIENCE
        if not self.waiting or busy or since < POLL:
            return
        names = list(self.waiting)[:PULL_AT_ONCE]
        for name in names:  # move each to the end of the queue, so that others are pulled next
            self.waiting[name] = self.waiting.pop(name)
        self.pull_began = time.monotonic()
        self.puller = threading.Thread(target=self.pull_now, args=(names,), daemon=True)
        self.puller.start()

    def pull_now(self, names: list[str]) -> None:
        """Pull the answers to these messages; runs in a separate thread."""
        try:
            self.pulled.put(list(self.grid.pull_messages(names)))
        except Exception as error:
            self.pulled.put(error)

    def deliver(self, pulled: list[Message] | Exception) -> None:
        """Pass pulled answers to the server; an answer that is no longer expected is dropped."""
        if isinstance(pulled, Exception):
            raise pulled
        for message in pulled:
            # Match by the message that is answered, not by the sender: the sender of an error that
            # the SuperLink reports is the SuperLink itself.
            tag = self.waiting.pop(message.metadata.reply_to_message_id, None)
            if tag is None:
                continue
            body = None if message.has_error() else message.content.get(RECORD, {}).get(BODY)
            if isinstance(body, bytes) and len(body) < LIMIT - 9:
                self.write(b"R", tag + body)
            else:
                code = message.error.code if message.has_error() else UNKNOWN
                self.write(b"F", tag + struct.pack(">I", code))

    def write(self, kind: bytes, content: bytes) -> None:
        """Send one frame to the server."""
        try:
            self.server.sendall(struct.pack(">Q", 1 + len(content)) + kind + content)
        except OSError:
            raise gone() from None

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes from the server."""
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self.server.recv(min(size - len(parts), 1 << 20))
            except OSError:
                raise gone() from None
            if not part:
                raise gone()
            parts += part
        return bytes(parts)


def gone() -> ConnectionError:
    """Return the error for a server that hung up before the end of the run."""
    return ConnectionError("the server hung up: start fedldp deploy server again, then flwr run")
