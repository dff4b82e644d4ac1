"""Offers a server unknown keys at a fixed rate, whatever happened to earlier ones."""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections import Counter

from environments import HOST

_MOST_OPEN = 600


def offer(port: int, hello: bytes, rate: float, seconds: float) -> Counter[str]:
    """Return how often each status came back, and the other outcomes of connections.

    Args:
        port: the server's port.
        hello: a stranger's request, sent in each connection.
        rate: new connections per second; at most 600 are open.
        seconds: how long to go on.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # the cheapest kind
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    open_ones, found = selectors.DefaultSelector(), Counter[str]()
    began, begun = time.monotonic(), 0
    while (now := time.monotonic()) < began + seconds:
        due = min(int((now - began) * rate) - begun, _MOST_OPEN - len(open_ones.get_map()), 20)
        for _ in range(due):
            plain = socket.socket()
            plain.setblocking(False)
            plain.connect_ex((HOST, port))
            begun += 1
            try:
                secured = context.wrap_socket(plain, do_handshake_on_connect=False)
            except BlockingIOError:  # the system's queue is full, so this one is not connected
                plain.close()
                continue
            open_ones.register(secured, selectors.EVENT_WRITE)
        for key, _ in open_ones.select(0.002):
            what = _goes_on(open_ones, key, hello)
            if what is not None:
                found[what] += 1
                open_ones.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]
    for key in list(open_ones.get_map().values()):
        key.fileobj.close()  # type: ignore[union-attr]
    found["begun"] = begun
    return found


def _goes_on(
    open_ones: selectors.BaseSelector, key: selectors.SelectorKey, hello: bytes
) -> str | None:
    """Advance a connection; return its outcome once it is known."""
    secured, greeted = key.fileobj, key.data
    assert isinstance(secured, ssl.SSLSocket)
    try:
        if not greeted:
            secured.do_handshake()
            secured.send(hello)
        open_ones.modify(secured, selectors.EVENT_READ, True)
        said = secured.recv(1 << 12)
    except ssl.SSLWantReadError:
        open_ones.modify(secured, selectors.EVENT_READ, open_ones.get_key(secured).data)
    except ssl.SSLWantWriteError:
        pass
    except OSError as error:
        return type(error).__name__
    else:
        return said.split()[1].decode() if said else "closed"
    return None
