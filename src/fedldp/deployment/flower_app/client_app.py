"""Flower's end at a site: passes the server's bytes to the site's agent, and the answer back.

Flower starts it for every message, as the SuperNode's user, with the code that the ServerApp's
operator sent. So it has access to nothing: data, keys, policy and ledger belong to the agent, a
separate process that decides what to answer. No byte of content is logged or stored.

Node configuration: ``socket`` is the path of the agent's Unix socket; ``timeout`` is how many
seconds the agent may take (3600 if not given; never more than the message's time to live).

An empty answer means that no agent is running. (An agent's own answers are never empty.)
"""

from __future__ import annotations

import socket
import struct
import time

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

RECORD, BODY = "fedldp", "body"
LIMIT = 1 << 30  # length of the longest answer, in bytes
PATIENCE = 5.0  # seconds to wait for an agent that is restarting
TIMEOUT = 3600.0  # seconds to wait for an answer, by default

app = ClientApp()


@app.query()
def pass_on(message: Message, context: Context) -> Message:
    """Return the agent's answer to the single ``bytes`` value in ``message``."""
    body = message.content[RECORD][BODY]
    if not isinstance(body, bytes):
        raise TypeError("the message is not one value of bytes")
    timeout = min(float(context.node_config.get("timeout", TIMEOUT)), message.metadata.ttl)
    answer = ask(str(context.node_config["socket"]), body, timeout)
    return Message(RecordDict({RECORD: ConfigRecord({BODY: answer})}), reply_to=message)


def ask(path: str, body: bytes, timeout: float) -> bytes:
    """Return the answer of the agent at ``path`` to ``body``; empty if there is no agent."""
    deadline = time.monotonic() + timeout
    missing_since = None
    while True:
        began = time.monotonic()
        try:
            return exchange(path, body, deadline)
        except PermissionError:  # the operator must correct the permissions of the socket
            raise
        except TimeoutError:  # the agent is running but too slow: asking again would not help
            return b""
        except OSError:  # the agent is not running, or has exited in the meantime
            now = time.monotonic()
            if missing_since is None or now - began > PATIENCE:
                missing_since = now
            if now - missing_since >= PATIENCE or now >= deadline:
                return b""
            time.sleep(0.2)


def exchange(path: str, body: bytes, deadline: float) -> bytes:
    """Send one frame to the agent, and return the body of the frame that it sends back.

    A frame is eight bytes with the length, then the body.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
        agent.settimeout(max(deadline - time.monotonic(), 0.001))
        agent.connect(path)
        agent.sendall(struct.pack(">Q", len(body)) + body)
        (length,) = struct.unpack(">Q", read(agent, 8, deadline))
        if length > LIMIT:
            raise ValueError(f"the agent's answer has {length} bytes, more than {LIMIT}")
        return read(agent, length, deadline)


def read(agent: socket.socket, size: int, deadline: float) -> bytes:
    """Return the next ``size`` bytes, which must arrive before the deadline."""
    parts = bytearray()
    while len(parts) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        agent.settimeout(left)
        part = agent.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise ConnectionResetError
        parts += part
    return bytes(parts)
