"""The server's end of the pipe, with a ServerApp simulated by the test, and the pipes' own code."""

from __future__ import annotations

import grp
import logging
import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedldp.core.errors import WireError
from fedldp.deployment.frames import LENGTH, read_frame, write_frame
from fedldp.deployment.pipe import FlowerPipe


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[FlowerPipe]:
    with FlowerPipe(tmp_path / "run" / "pipe.sock", limit=4_000_000) as pipe:
        yield pipe


def connect(pipe: FlowerPipe) -> socket.socket:
    app = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    app.connect(str(pipe.path))
    assert pipe.wait_connected(5)
    return app


def asked(app: socket.socket) -> tuple[int, int, int, bytes]:
    frame = read_frame(app, 5_000_000, timeout=5)
    kind, tag, node, ttl = struct.unpack_from(">cQQI", frame)
    assert kind == b"A"
    return tag, node, ttl, frame[21:]


def take(pipe: FlowerPipe, count: int) -> dict[int, bytes | None]:
    found: list[tuple[int, bytes | None]] = []
    until = time.monotonic() + 10
    while len(found) < count and time.monotonic() < until:
        found += pipe.take(0.5)
    assert len(found) == count
    return dict(found)


def test_a_request_and_its_answer_keep_their_tag(pipe: FlowerPipe) -> None:
    with connect(pipe) as app:
        first = pipe.ask(2**64 - 1, b"to the last", 30)
        second = pipe.ask(7, b"", 2**32 - 1)
        assert asked(app) == (first, 2**64 - 1, 30, b"to the last")
        assert asked(app) == (second, 7, 2**32 - 1, b"")
        write_frame(app, b"R" + struct.pack(">Q", second) + b"seven")
        write_frame(app, b"F" + struct.pack(">QI", first, 5))
        assert take(pipe, 2) == {first: None, second: b"seven"}
        assert pipe.take(0.01) == []


def test_an_answer_counts_once_and_a_stranger_not_at_all(pipe: FlowerPipe) -> None:
    with connect(pipe) as app:
        tag = pipe.ask(1, b"x", 30)
        for number, body in ((tag, b"first"), (tag, b"second"), (tag + 9, b"strange")):
            write_frame(app, b"R" + struct.pack(">Q", number) + body)
        other = pipe.ask(1, b"y", 30)
        write_frame(app, b"R" + struct.pack(">Q", other) + b"")
        assert take(pipe, 2) == {tag: b"first", other: b""}


def test_a_hundred_long_requests_and_answers_at_once(pipe: FlowerPipe) -> None:
    body = os.urandom(2_000_000)

    def echo(app: socket.socket) -> None:
        for _ in range(100):
            tag, _node, _ttl, content = asked(app)
            write_frame(app, b"R" + struct.pack(">Q", tag) + content, timeout=30)

    with connect(pipe) as app:
        other_end = threading.Thread(target=echo, args=(app,))
        other_end.start()
        tags = {pipe.ask(number, body, 30) for number in range(100)}
        found = take(pipe, 100)
        other_end.join()
    assert set(found) == tags
    assert all(answer == body for answer in found.values())


def test_nodes_are_listed(pipe: FlowerPipe) -> None:
    with connect(pipe) as app:
        found: list[list[int]] = []
        asking = threading.Thread(target=lambda: found.append(pipe.nodes(5)))
        asking.start()
        assert read_frame(app, 100, timeout=5) == b"N"
        write_frame(app, b"N" + struct.pack(">2Q", 2**64 - 1, 3))
        asking.join()
        assert found == [[3, 2**64 - 1]]
        with pytest.raises(WireError, match="did not list its nodes"):
            pipe.nodes(0.05)


def test_without_a_server_app_everything_fails_at_once(pipe: FlowerPipe) -> None:
    assert not pipe.connected
    assert not pipe.wait_connected(0.01)
    tag = pipe.ask(1, b"x", 30)
    assert pipe.take(1) == [(tag, None)]
    with pytest.raises(WireError, match="no ServerApp of Flower is connected: start flwr run"):
        pipe.nodes(1)
    pipe.end()


def test_a_dead_server_app_fails_its_requests_and_another_may_connect(
    pipe: FlowerPipe,
) -> None:
    with connect(pipe) as app:
        tags = [pipe.ask(node, b"x", 30) for node in (1, 2, 3)]
        write_frame(app, b"R" + struct.pack(">Q", tags[1]) + b"two")
        app.sendall(LENGTH.pack(100) + b"R half an answer")
    assert take(pipe, 3) == {tags[0]: None, tags[1]: b"two", tags[2]: None}
    assert not pipe.connected
    with connect(pipe) as app:
        tag = pipe.ask(1, b"again", 30)
        assert asked(app)[0] == tag
        assert tag not in tags
        # An answer to a request of the dead ServerApp is dropped.
        write_frame(app, b"R" + struct.pack(">Q", tags[0]) + b"late")
        write_frame(app, b"R" + struct.pack(">Q", tag) + b"new")
        assert take(pipe, 1) == {tag: b"new"}
        pipe.end()
        assert read_frame(app, 10, timeout=5) == b"E"


def test_a_second_server_app_takes_the_place_of_the_first(pipe: FlowerPipe) -> None:
    """The ServerApp of a killed SuperLink can outlive it, and the next one must not wait for it."""
    with connect(pipe) as app:
        lost = pipe.ask(1, b"x", 30)
        assert asked(app)[0] == lost
        with connect(pipe) as second:
            assert take(pipe, 1) == {lost: None}
            app.settimeout(5)
            assert app.recv(1) == b""
            assert pipe.wait_connected(5)  # wait again, because for a moment there was none
            tag = pipe.ask(1, b"x", 30)
            assert asked(second)[0] == tag


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "garbage",
    [
        LENGTH.pack(0),
        LENGTH.pack(1) + b"?",
        LENGTH.pack(4) + b"Rabc",
        LENGTH.pack(9) + b"F12345678",
        LENGTH.pack(3) + b"N12",
        LENGTH.pack(5_000_000) + b"R",
        b"GET / HTTP/1.1\r\nHost: secret-content\r\n\r\n",
    ],
)
def test_garbage_drops_the_connection_in_one_line_without_content(
    pipe: FlowerPipe, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with connect(pipe) as app:
        tag = pipe.ask(1, b"x", 30)
        app.sendall(garbage)
        assert take(pipe, 1) == {tag: None}
    (record,) = caplog.records
    assert "disconnected" in record.message
    assert "secret" not in record.message
    with connect(pipe) as app:
        tag = pipe.ask(1, b"y", 30)
        assert asked(app)[0] == tag


@pytest.mark.parametrize(("size", "ttl"), [(4_000_001, 30), (1, 0), (1, 2**32), (1, -1)])
def test_impossible_requests_are_refused(pipe: FlowerPipe, size: int, ttl: int) -> None:
    with pytest.raises(WireError, match=r"a body of .* and ttl = .* cannot be sent"):
        pipe.ask(1, bytes(size), ttl)


def test_leaving_hangs_up_and_removes_the_socket(tmp_path: Path) -> None:
    with FlowerPipe(tmp_path / "run" / "pipe.sock") as pipe:
        path = pipe.path
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        app = connect(pipe)
        app.sendall(LENGTH.pack(100))  # a frame that never ends does not delay closing
        tag = pipe.ask(1, b"x", 30)
    assert pipe.take(0) == [(tag, None)]
    with app:
        app.settimeout(5)
        assert asked(app)[0] == tag
        assert app.recv(1) == b""
    assert not path.exists()


def test_a_group_may_open_the_socket(tmp_path: Path) -> None:
    group = grp.getgrgid(os.getgid()).gr_name
    path = tmp_path / "run" / "pipe.sock"
    with FlowerPipe(path, group=group):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert path.stat().st_gid == os.getgid()


def test_an_app_that_ends_on_command_is_not_reported(
    pipe: FlowerPipe, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    app = connect(pipe)
    pipe.end()
    app.close()
    until = time.monotonic() + 5
    while pipe.connected and time.monotonic() < until:
        time.sleep(0.01)
    assert not pipe.connected
    assert "disconnected" not in caplog.text
