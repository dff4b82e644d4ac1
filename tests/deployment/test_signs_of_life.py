"""Signs of life: what a site's agent sends besides answers, and what follows from silence."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from environments import Body, make_environment, new_tls, write_tls
from https_ends import Ends, all_taken, eventually
from starlette.requests import Request

from fedldp.core.kinds import SITE_AMISS
from fedldp.deployment import sites, watch
from fedldp.deployment.https import pipe as pipe_module
from fedldp.deployment.https import site
from fedldp.deployment.https.hello import NO_DIGEST
from fedldp.deployment.https.server import Listener
from fedldp.deployment.watch import ServerWatch, SiteWatch, beating
from fedldp.protocol.server_loop import Round
from fedldp.protocol.wire import Reason
from fedldp.reporting import words

slow = pytest.mark.slow


class Seen(list[tuple[float, list[tuple[bytes, bytes]], bytes]]):
    """When each sign of life came, its headers and its body."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    found, real = Seen(), Listener._alive

    async def alive(self: Listener, request: Request) -> Any:
        found.append((time.monotonic(), request.headers.raw, await request.body()))
        return await real(self, request)

    monkeypatch.setattr(Listener, "_alive", alive)
    return found


@slow
def test_signs_of_life_follow_the_clock_alone(
    ends: Ends, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are the same bytes at the same interval, whether or not an answer is computed."""
    monkeypatch.setattr(site, "BEAT_SECONDS", 0.5)
    computing = threading.Event()

    def answer(asked: bytes) -> bytes:
        computing.set()
        until = time.monotonic() + 3.2
        while time.monotonic() < until:  # as a training that holds the interpreter
            sum(range(1000))
        return asked

    with ends.pipe() as pipe, ends.link(0, answers=answer):
        eventually(lambda: len(seen) == 6)
        tag = pipe.ask(0, b"train")
        computing.wait()
        before, began = len(seen), time.monotonic()
        all_taken(pipe, tag)
        during = len(seen) - before
        took = time.monotonic() - began
        eventually(lambda: len(seen) >= before + during + 3)
    assert abs(during - took / 0.5) <= 1.5
    assert {(tuple(headers), body) for _, headers, body in seen} == {(tuple(seen[0][1]), b"")}
    # Each comes in an interval of its own: none is left out, and none comes for another reason.
    begin = seen[0][0] - 0.1
    assert [int((at - begin) / 0.5) for at, _, _ in seen] == list(range(len(seen)))


@slow
@pytest.mark.parametrize("beat", [0.2, 60.0], ids=["with signs", "without signs"])
def test_a_site_at_work_is_there_as_long_as_its_signs_come(
    ends: Ends, beat: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "BEAT_SECONDS", beat)
    monkeypatch.setattr(pipe_module, "_ALIVE_SECONDS", 1.5)
    working, done = threading.Event(), threading.Event()

    def answer(asked: bytes) -> bytes:
        working.set()
        done.wait(20)
        return asked

    with ends.pipe() as pipe, ends.link(0, answers=answer):
        tag = pipe.ask(0, b"train")
        working.wait(20)
        there = list[bool]()
        for _ in range(30):
            there.append(pipe.sites[0].there)
            time.sleep(0.1)
        assert all(there) == (beat < 1)
        done.set()
        assert all_taken(pipe, tag) == {tag: b"train"}


@slow
@pytest.mark.parametrize("elsewhere", [False, True], ids=["frozen", "withdrawn"])
def test_a_silent_site_is_near_only_if_it_is_heard_from_elsewhere(
    ends: Ends, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a site that was frozen, and goes on in its session, would never be asked again."""
    monkeypatch.setattr(pipe_module, "_ALIVE_SECONDS", 0.5)
    with ends.pipe() as pipe, ends.client() as client:
        shown = ends.token(client)
        until, near = time.monotonic() + 1.5, list[bool]()
        while time.monotonic() < until:
            if elsewhere:
                hello = ends.hello(client, ends.keys[0], agreement=NO_DIGEST.hex())
                assert client.post("/v1/hello", content=hello.to_bytes()).status_code == 404
            near.append(pipe.sites[0].near)
            time.sleep(0.1)
        assert not near[0]
        assert near[-1] == elsewhere
        assert elsewhere or not any(near)
        assert client.post("/v1/alive", headers=shown).status_code == 204
        assert pipe.sites[0].there


@pytest.mark.slow
def test_a_sign_of_life_is_no_answer_and_needs_a_session(ends: Ends) -> None:
    with ends.pipe() as pipe, ends.client() as client:
        shown = ends.token(client)
        pipe.ask(0, b"to 0")
        assert client.post("/v1/alive", headers=shown).status_code == 204
        assert pipe.take(0.05) == []
        assert pipe.sites[0].there
        assert client.post("/v1/alive", headers=shown, content=b"x").status_code == 413
        assert client.post("/v1/alive").status_code == 401
        assert client.post("/v1/alive", headers={"authorization": "Bearer 00"}).status_code == 401
        ends.token(client)  # a new session
        assert client.post("/v1/alive", headers=shown).status_code == 401


# Causes that the server's operator is told


@pytest.mark.slow
def test_a_server_logs_once_that_its_certificate_expires_or_has_expired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for days, told in ((31, []), (29, ["expires"]), (-0.5, ["expired"])):
        folder = tmp_path / str(days)
        write_tls(folder, new_tls(days=days))  # type: ignore[arg-type]
        caplog.clear()
        ends = Ends(folder, [Ed25519PrivateKey.generate() for _ in range(2)])
        with ends.pipe():
            time.sleep(0.3)
        assert re.findall(r"server\.pem (\w+) on 20", caplog.text) == told


@pytest.mark.parametrize("reason", list(Reason))
def test_each_reason_of_a_refusal_has_words(reason: Reason) -> None:
    found = words.line(SITE_AMISS(site="near", state="refused", detail=reason.value))
    assert found.startswith("near refuses: ")
    assert len(found.split()) > 7


# Rounds that take long


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: now[0])
    return now


def test_a_round_that_takes_three_times_the_last_is_logged_once(
    tmp_path: Path, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    known = ServerWatch(tmp_path, "0" * 32, ["near"], 9, None)

    def lines() -> list[str]:
        return [each.getMessage() for each in caplog.records]

    def passes(seconds: float) -> None:
        known.works()
        for _ in range(4):
            clock[0] += seconds / 4
            known.write()

    passes(1000.0)  # before the first round is complete, nothing is known
    known.complete(1, 1000.0)
    passes(2900.0)
    known.complete(2, 2.0)
    passes(9.0)  # three times, but short
    known.complete(3, 20.0)
    assert lines() == []
    known.goes_on("round 4: waits for near")
    passes(100.0)
    (line,) = lines()
    assert line == "round 4: waits for near, already for 75 s; the last round took 20 s"
    known.missed()
    clock[0] += 500
    known.write()
    assert len(lines()) == 1
    passes(100.0)
    assert len(lines()) == 2


# systemd


@pytest.mark.slow
def test_systemd_is_told_that_the_process_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch, "_BEAT_SECONDS", 0.05)
    for place in (str(tmp_path / "notify"), f"@fedldp-{os.getpid()}"):
        monkeypatch.setenv("NOTIFY_SOCKET", place)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            systemd.settimeout(20)
            systemd.bind(place.replace("@", "\0", 1))
            for watched in (SiteWatch(tmp_path), None):
                with beating(watched):
                    told = [systemd.recv(64) for _ in range(3)]
                assert told == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
                systemd.setblocking(False)
                with suppress(BlockingIOError):
                    while systemd.recv(64):
                        pass  # what was sent before the end
                systemd.settimeout(20)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    with beating(SiteWatch(tmp_path)):
        time.sleep(0.2)
    assert caplog.text == ""


# The deadline


@slow
def test_a_deadline_follows_what_sites_took_in_the_rounds_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site that falls silent is waited for as long as its answers took, not as agreed."""
    monkeypatch.setattr(sites, "_LEAST", 1.0)
    env = make_environment(tmp_path, "rounds=3", deadline=600.0, quorum=2, seeded=False)
    silent, seen = [False], list[float]()

    def tamper(node: int, asked: bytes, answer: Body) -> list[Body]:
        return [] if silent[0] and node == 2 else [answer]

    def after(record: Round) -> None:
        seen.append(record.seconds)
        silent[0] = True

    env.server().serve(env.pipe(tamper=tamper), after)
    assert len(seen) == 3
    assert max(seen[1:]) < 60.0


@slow
def test_a_deadline_is_as_agreed_for_a_site_that_has_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites, "_LEAST", 0.1)
    env = make_environment(tmp_path, deadline=2.0, quorum=2, seeded=False)

    def tamper(node: int, asked: bytes, answer: Body) -> list[Body]:
        return [] if node == 2 else [answer]

    seen = list[float]()
    env.server().serve(env.pipe(tamper=tamper), lambda record: seen.append(record.seconds))
    assert min(seen) >= 2.0
