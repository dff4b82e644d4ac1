"""Frames over a stream socket: eight big-endian bytes with the length, then the body.

This is the whole protocol between Flower's pipes and fedldp's own processes on one machine. The
length is checked before the body is read, and memory grows with the bytes that arrive, not with the
announced length.
"""

from __future__ import annotations

import socket
import struct
import time

from fedldp.core.errors import WireError

LENGTH = struct.Struct(">Q")
"""The head of a frame: the body's length in bytes."""

AT_ONCE = 1 << 20


class ConnectionLost(WireError):
    """The other side hung up or was silent for too long: no complete frame arrived."""


def read_frame(sock: socket.socket, limit: int, timeout: float | None = None) -> bytes:
    """Return the body of the next frame.

    Args:
        sock: a connected stream socket; it keeps its own timeout.
        limit: the longest body to read, in bytes.
        timeout: the limit in seconds for the whole frame, even if single bytes keep arriving; None
            waits forever.

    Raises:
        ConnectionLost: the other side hung up before or within the frame, or took too long.
        WireError: the frame is longer than ``limit``; its body was not read, so the connection is
            no longer usable.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    kept = sock.gettimeout()
    try:
        (length,) = LENGTH.unpack(_read(sock, LENGTH.size, deadline))
        if length > limit:
            raise WireError(
                f"a frame of {length} bytes, more than the {limit} allowed here: nothing was read"
            )
        return _read(sock, length, deadline)
    finally:
        sock.settimeout(kept)


def write_frame(sock: socket.socket, body: bytes, timeout: float | None = None) -> None:
    """Send ``body`` as one frame.

    Args:
        sock: a connected stream socket; it keeps its own timeout.
        body: the body to send.
        timeout: the limit in seconds for the whole frame; None waits forever.

    Raises:
        ConnectionLost: the other side hung up or did not accept the frame in time; a part of it may
            have been sent, so the connection is no longer usable.
    """
    kept = sock.gettimeout()
    try:
        sock.settimeout(timeout)
        sock.sendall(LENGTH.pack(len(body)) + body)
    except TimeoutError as error:
        raise ConnectionLost(
            f"the other side did not accept a frame within {timeout:g} s"
        ) from error
    except OSError as error:
        raise ConnectionLost(f"the other side hung up ({error.strerror})") from error
    finally:
        sock.settimeout(kept)


def _read(sock: socket.socket, size: int, deadline: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise ConnectionLost(f"silent for too long: only {len(parts)} of {size} bytes arrived")
        try:
            sock.settimeout(left)
            part = sock.recv(min(size - len(parts), AT_ONCE))
        except TimeoutError:
            continue
        except OSError as error:
            raise ConnectionLost(f"the other side hung up ({error.strerror})") from error
        if not part:
            raise ConnectionLost(
                f"the other side hung up: only {len(parts)} of {size} bytes arrived"
            )
        parts += part
    return bytes(parts)
