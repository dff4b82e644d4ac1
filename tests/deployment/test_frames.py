"""Frames: bodies pass unchanged, nothing too long is read, and every wait has an end."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from fedldp.core.errors import WireError
from fedldp.deployment.frames import LENGTH, ConnectionLost, read_frame, write_frame


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


@pytest.mark.parametrize("body", [b"", b"x", bytes(range(256)), b"long" * 1_000_000])
def test_a_body_goes_through_unchanged(
    pair: tuple[socket.socket, socket.socket], body: bytes
) -> None:
    here, there = pair
    sender = threading.Thread(target=write_frame, args=(here, body))
    sender.start()
    assert read_frame(there, len(body)) == body
    sender.join()


def test_bodies_keep_their_bounds_and_order(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    for body in (b"one", b"", b"three"):
        write_frame(here, body)
    assert [read_frame(there, 5) for _ in range(3)] == [b"one", b"", b"three"]


@pytest.mark.parametrize("length", [11, 2**40, 2**64 - 1])
def test_a_length_over_the_limit_is_refused_before_the_body_is_read(
    pair: tuple[socket.socket, socket.socket], length: int
) -> None:
    here, there = pair
    here.sendall(LENGTH.pack(length) + b"body")
    with pytest.raises(WireError, match=f"a frame of {length} bytes, more than the 10 allowed"):
        read_frame(there, 10)
    assert there.recv(10) == b"body"


@pytest.mark.parametrize("sent", [b"", b"\0\0\0", LENGTH.pack(4) + b"abc"])
def test_a_peer_that_hangs_up_is_distinguished(
    pair: tuple[socket.socket, socket.socket], sent: bytes
) -> None:
    here, there = pair
    here.sendall(sent)
    here.close()
    with pytest.raises(ConnectionLost, match="hung up"):
        read_frame(there, 10)


def test_the_timeout_is_for_the_whole_frame_however_slowly_it_drips(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    here, there = pair
    stop = threading.Event()

    def drip() -> None:
        here.sendall(LENGTH.pack(1000))
        while not stop.wait(0.02):
            here.sendall(b"x")

    dripper = threading.Thread(target=drip)
    dripper.start()
    start = time.monotonic()
    with pytest.raises(ConnectionLost, match="silent for too long"):
        read_frame(there, 1000, timeout=0.2)
    assert time.monotonic() - start < 5
    stop.set()
    dripper.join()


def test_a_socket_keeps_its_own_timeout(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    there.settimeout(7)
    write_frame(here, b"x")
    assert read_frame(there, 1, timeout=1) == b"x"
    assert there.gettimeout() == 7


def test_a_write_without_a_reader_says_so(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    there.close()
    with pytest.raises(ConnectionLost, match="hung up"):
        write_frame(here, b"x" * 100)


def test_a_write_that_is_not_read_ends(pair: tuple[socket.socket, socket.socket]) -> None:
    here, _there = pair
    with pytest.raises(ConnectionLost, match=r"did not accept a frame within 0\.1 s"):
        write_frame(here, b"x" * 10_000_000, timeout=0.1)
