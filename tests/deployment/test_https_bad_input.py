"""Bad input over HTTPS during rounds is refused in one line; no round stops and no log fills up."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from environments import HOST
from real_processes import Party, eventually
from stages import Stage, lines, playing
from wrong_keys import offer

from fedldp.deployment.certificates import fingerprint, tls_of_server
from fedldp.deployment.https.hello import NO_DIGEST, NONCE_LENGTH, Hello
from fedldp.deployment.https.site import tls_of_site
from fedldp.deployment.messages import NO_RECEIPT

pytestmark = pytest.mark.slow

ROUNDS = 2000
"""The number of rounds: more than the tests need."""
MOST_LINES = 12
"""The most lines of log in a minute, besides those about rounds."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Yield a run with two connected sites and a third whose agent was not started."""
    folder = tmp_path_factory.mktemp("bad")
    with playing(folder, "named", f"rounds={ROUNDS}", quorum=2, deadline=2.0) as stage:
        for party in (*stage.agents[:2], stage.server):
            party.start()
        eventually(lambda: len(stage.rounds()) > 3)
        yield stage
        stage.server.interrupt(0)
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
    hello = Hello.signed(
        Ed25519PrivateKey.generate(),
        nonce=found[-NONCE_LENGTH:].decode(),
        certificate=fingerprint(own),
        agreement=NO_DIGEST.hex(),
        receipt=NO_RECEIPT.hex(),
        version="0.1.0",
    ).to_bytes()
    return request("POST /v1/hello HTTP/1.1", f"content-length: {len(hello)}") + hello


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
