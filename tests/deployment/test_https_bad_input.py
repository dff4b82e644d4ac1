"""Bad input over HTTPS during rounds is refused in one line; no round stops and no log fills up."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from environments import HOST
from https_ends import is_hung_up
from real_processes import Party, eventually
from stages import Stage, lines, playing
from wrong_keys import offer

from fedldp.deployment.certificates import tls_of_server
from fedldp.deployment.https.hello import NONCE_BYTES, SignedHello
from fedldp.deployment.https.site import HttpsLink, tls_of_site
from fedldp.deployment.identity import read_private
from fedldp.deployment.messages import Hello, pack, read_by_server
from fedldp.deployment.policy import write_accepted
from fedldp.deployment.site import Agent

pytestmark = pytest.mark.slow

ROUNDS = 2000
"""The number of rounds: more than the tests need."""
MOST_LINES = 12
"""The most lines of log in a minute, besides those about rounds."""
Send = Callable[[], object]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Yield a run with two connected sites and a third whose agent was not started."""
    folder = tmp_path_factory.mktemp("bad")
    with playing(folder, "named", f"rounds={ROUNDS}", quorum=2, deadline=2.0) as stage:
        for party in (*stage.agents[:2], stage.server):
            party.start()
        eventually(lambda: len(stage.rounds()) > 3)
        yield stage
        stage.server.interrupt()
        stage.close()


def rounds_go_on(stage: Stage, count: int = 3) -> None:
    assert stage.server.alive
    done = len(stage.rounds())
    eventually(lambda: len(stage.rounds()) >= done + count, "rounds")


def added(stage: Stage, before: int) -> list[str]:
    """Return the new lines of a server's log."""
    return lines(stage.server)[before:]


def secured(stage: Stage) -> ssl.SSLSocket:
    plain = socket.create_connection((HOST, stage.port), timeout=20)
    return tls_of_site(stage.folder / "tls" / "ca.pem").wrap_socket(plain, server_hostname=HOST)


def said(connection: socket.socket, request: bytes) -> int:
    """Return the status that answers a request; 0 if the server hangs up."""
    try:
        connection.sendall(request)
        return int(connection.recv(1 << 16).split()[1])
    except (OSError, IndexError):
        return 0


def memory(party: Party) -> int:
    """Return a process's resident memory in bytes."""
    assert party.process is not None
    fields = (Path("/proc") / str(party.process.pid) / "statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def request(head: str, *headers: str) -> bytes:
    return "\r\n".join([head, "host: here", *headers, "", ""]).encode()


def wrong_hello(stage: Stage) -> bytes:
    """Return a hello with an unknown key and a nonce of the server's."""
    with secured(stage) as raw:
        raw.sendall(request("GET /v1/nonce HTTP/1.1", "connection: close"))
        found = bytearray()
        while part := raw.recv(1 << 16):
            found += part
    own = tls_of_server(stage.folder / "tls" / "server.pem", stage.folder / "tls" / "server.key")[1]
    nonce = bytes(found[-NONCE_BYTES:])
    hello = SignedHello.signed(Ed25519PrivateKey.generate(), nonce, own, "0.1.0").pack()
    return request("POST /v1/hello HTTP/1.1", f"content-length: {len(hello)}") + hello


@contextlib.contextmanager
def linked(stage: Stage, site: int, answer: Callable[[bytes], bytes]) -> Iterator[None]:
    """Start a fake site over HTTPS that has a site's key."""
    key = read_private(stage.env.policies[site].key)
    ca, stop = stage.folder / "tls" / "ca.pem", threading.Event()
    link = HttpsLink(f"https://{HOST}:{stage.port}", ca, key, answer, lambda: 1 << 24)
    thread = threading.Thread(target=link.serve, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_site_of_another_agreement_or_name_is_named_and_not_counted(stage: Stage) -> None:
    """This needs the first greeting of site-2, because the server does not greet a known site
    again."""
    env, before = stage.env, len(lines(stage.server))
    copy = stage.folder / "copied"
    shutil.copytree(env.policies[2].key.parent, copy)
    policy = env.policies[2]
    policy.accepted_as(env.agreement.digest).unlink()
    write_accepted(policy, replace(env.agreement, run="e" * 32))
    agent = Agent(policy, test_keys=True)
    with linked(stage, 2, agent.answer):
        eventually(
            lambda: "site-2 is connected, but has not accepted the agreement" in stage.server.text()
        )
        rounds_go_on(stage)
    write_accepted(policy, env.agreement)

    def as_another(asked: bytes) -> bytes:
        answer = agent.answer(asked)
        found = read_by_server(answer)
        return pack(replace(found, index=0)) if isinstance(found, Hello) else answer

    with linked(stage, 2, as_another):
        what = "claims to be site-0, but its signature is wrong"
        eventually(lambda: what in stage.server.text())
        rounds_go_on(stage)
    for garbage in (b"", b"fedldp", bytes(1 << 20)):
        with linked(stage, 2, lambda asked, garbage=garbage: garbage):  # type: ignore[misc]
            rounds_go_on(stage)
    assert env.releases(2) == [(round, 0) for round, _ in env.releases(2)]
    assert all(clients >= 2 for clients in stage.rounds())
    assert len(added(stage, before)) <= MOST_LINES


def test_ten_gigabytes_are_refused_without_reading_them(stage: Stage) -> None:
    """From strangers: with a declared length, in chunks, and in headers."""
    before, used = len(lines(stage.server)), memory(stage.server)
    for place in ("hello", "question", "answer/1"):
        for length in ("content-length: 10000000000", "transfer-encoding: chunked"):
            with secured(stage) as raw:
                assert said(raw, request(f"POST /v1/{place} HTTP/1.1", length)) in (401, 413)
                with contextlib.suppress(OSError):
                    for _ in range(64):
                        raw.sendall(b"f" * (1 << 20))
                assert is_hung_up(raw)
    with secured(stage) as raw:
        assert said(raw, b"GET /v1/nonce HTTP/1.1\r\nx: " + b"a" * (1 << 20)) in (0, 400)
        assert is_hung_up(raw)
    rounds_go_on(stage)
    assert memory(stage.server) < used + (50 << 20)
    assert len(added(stage, before)) <= MOST_LINES


def test_rounds_continue_despite_300_idle_connections_and_slow_bodies(stage: Stage) -> None:
    before = len(lines(stage.server))
    with contextlib.ExitStack() as held:
        for turn in range(300):
            if turn % 3:
                held.enter_context(socket.create_connection((HOST, stage.port)))
            else:
                slow = held.enter_context(secured(stage))
                with contextlib.suppress(OSError):
                    slow.sendall(request("POST /v1/hello HTTP/1.1", "content-length: 150") + b"a")
        rounds_go_on(stage)
        # A site that connects now is still let in.
        stage.agents[2].start()
        eventually(lambda: stage.rounds()[-1] == 3)
        stage.agents[2].end()
    assert len(added(stage, before)) <= MOST_LINES


def test_rounds_continue_despite_a_thousand_wrong_keys_a_second(stage: Stage) -> None:
    """The test offers a thousand a second; how many handshakes begin depends on the machine."""
    before, hello, used = len(lines(stage.server)), wrong_hello(stage), memory(stage.server)
    done, seconds = len(stage.rounds()), 10.0
    found = Counter[str]()
    with ProcessPoolExecutor(2, multiprocessing.get_context("forkserver")) as pool:
        for _ in range(12):  # a busy machine takes longer for its rounds
            floods = [pool.submit(offer, stage.port, hello, 500.0, seconds) for _ in range(2)]
            found += sum((each.result() for each in floods), Counter[str]())
            if len(stage.rounds()) >= done + 3:
                break
    assert found["403"] > 20, found
    assert found.keys() == {"403", "begun"}
    assert len(stage.rounds()) >= done + 3
    assert memory(stage.server) < used + (50 << 20)
    assert len(added(stage, before)) <= MOST_LINES
    assert sum("not in the roster" in line for line in lines(stage.server)) <= 2


def test_a_second_agent_with_a_copied_key_releases_nothing(stage: Stage) -> None:
    before = len(lines(stage.server))
    place = stage.env.policies[1].key.parent
    copy = stage.folder / "twin" / place.name
    shutil.copytree(place, copy)
    twin = Party(stage.folder / "twin.log", "deploy", "site", copy / "site.toml", "--test-keys")
    twin.start()
    try:
        eventually(
            lambda: "it is a copy" in twin.text() or "older copy" in twin.text(), twin.text()
        )
        rounds_go_on(stage, 5)
        assert "released one report" not in twin.text()
    finally:
        twin.stop()
    stage.assert_sound()
    assert len(added(stage, before)) <= MOST_LINES
    assert len(lines(twin)) <= MOST_LINES


def test_an_agreement_of_another_version_is_refused_in_a_line(stage: Stage) -> None:
    content = (stage.folder / "run.agreement").read_bytes()
    place = stage.env.policies[0].key.parent
    for number, damaged in enumerate((content.replace(b": 1,", b": 2,", 1), content[:-9])):
        path = stage.folder / f"damaged-{number}.agreement"
        path.write_bytes(damaged)
        for arguments in (
            ("deploy", "accept", path, "--policy", place / "site.toml", "--yes"),
            ("deploy", "server", stage.folder / "none", path, "--listen", f"{HOST}:1",
             "--certificate", stage.folder / "tls" / "server.pem",
             "--key", stage.folder / "tls" / "server.key"),
        ):  # fmt: skip
            party = Party(stage.folder / f"damaged-{number}-{arguments[1]}.log", *arguments)
            party.start()
            assert party.wait() == 2
            assert len(party.text().splitlines()) == 1
            assert not (stage.folder / "none").exists()
