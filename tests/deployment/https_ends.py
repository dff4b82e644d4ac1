"""Both ends of the HTTPS link in one process, with TLS on the loopback interface."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedldp.deployment.certificates import ServerTls, fingerprint, tls_of_server
from fedldp.deployment.https.hello import Hello
from fedldp.deployment.https.pipe import RunPipe
from fedldp.deployment.https.server import Listener, listen
from fedldp.deployment.https.site import HttpsLink, tls_of_site
from fedldp.deployment.messages import NO_RECEIPT
from fedldp.deployment.policy import ServerTable

LARGEST = 1 << 20
DIGEST = b"agreement".ljust(32)


def eventually(holds: Callable[[], object], patience: float = 20.0) -> None:
    until = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.005)


@dataclass
class FakeAgent:
    """What a link knows of its site."""

    key: Ed25519PrivateKey
    answers: Callable[[bytes], bytes] = lambda asked: asked[::-1]
    largest_message: int = LARGEST

    @property
    def ledger(self) -> Any:
        return SimpleNamespace(database=SimpleNamespace(checkpoint=lambda: None))

    @property
    def watch(self) -> Any:
        return SimpleNamespace(heard=lambda url, amiss=None: None)

    def answer(self, body: bytes, digest: bytes) -> bytes:
        return self.answers(body)

    def receipt(self, digest: bytes) -> bytes:
        return NO_RECEIPT


@dataclass
class Ends:
    """A roster of two sites, ``near`` and ``far``, and their server's files."""

    folder: Path
    keys: list[Ed25519PrivateKey]
    port: int = 0
    listener: Listener | None = None

    @property
    def listening(self) -> Listener:
        assert self.listener is not None
        return self.listener

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def certificate(self) -> bytes:
        return tls_of_server(self.folder / "server.pem", self.folder / "server.key")[1]

    @contextmanager
    def pipe(self) -> Iterator[RunPipe]:
        """Start the server; a second call uses the same port."""
        tls = ServerTls(self.folder / "server.pem", self.folder / "server.key")
        publics = [key.public_key().public_bytes_raw().hex() for key in self.keys]
        sites = list(zip(("near", "far"), publics, strict=True))
        self.listener = Listener(listen(f"127.0.0.1:{self.port}"), tls)
        run = RunPipe(DIGEST, b"agreed", sites, LARGEST)
        with self.listener.opened(), self.listener.serving(run) as pipe:
            self.port = self.listener.address[1]
            yield pipe

    @contextmanager
    def link(self, site: int = 0, **given: Any) -> Iterator[HttpsLink]:
        """Run a site's end, which answers with the request's bytes reversed, unless it is given."""
        server = ServerTable(
            url=given.pop("url", self.url), ca=given.pop("ca", self.folder / "ca.pem")
        )
        agent: Any = FakeAgent(self.keys[site], **given)
        link = HttpsLink(agent, DIGEST, server)
        link.start()
        try:
            yield link
        finally:
            link.end()

    def client(self) -> httpx.Client:
        """Return a client that sends only what a test tells it to."""
        verify = tls_of_site(self.folder / "ca.pem")
        return httpx.Client(base_url=self.url, verify=verify, trust_env=False)

    def hello(self, client: httpx.Client, key: Ed25519PrivateKey, **given: Any) -> Hello:
        terms = {
            "nonce": client.get("/v1/nonce").text,
            "certificate": fingerprint(self.certificate),
            "agreement": DIGEST.hex(),
            "receipt": NO_RECEIPT.hex(),
        }
        return Hello.signed(key, version="0.1.0", **{**terms, **given})

    def token(self, client: httpx.Client, site: int = 0) -> dict[str, str]:
        """Return the headers of a new session."""
        hello = self.hello(client, self.keys[site]).to_bytes()
        found = client.post("/v1/hello", content=hello)
        assert found.status_code == 200
        return {"authorization": f"Bearer {found.content.hex()}"}

    def secured(self) -> socket.socket:
        """Return a TLS connection on which nothing has been sent."""
        plain = socket.create_connection(("127.0.0.1", self.port))
        return tls_of_site(self.folder / "ca.pem").wrap_socket(plain, server_hostname="127.0.0.1")


def taken(pipe: RunPipe, tag: int) -> bytes | None:
    """Return the answer with a tag, which must be the only answer that arrives."""
    (found,) = all_taken(pipe, tag).items()
    assert found[0] == tag
    return found[1]


def all_taken(pipe: RunPipe, *tags: int) -> dict[int, bytes | None]:
    """Return the answers that arrive until all of some tags have arrived."""
    found: dict[int, bytes | None] = {}
    until = time.monotonic() + 20.0
    while not found.keys() >= set(tags):
        assert time.monotonic() < until, f"no answer: {found}"
        found.update(pipe.take(0.1))
    return found


def is_hung_up(connection: socket.socket) -> bool:
    """Return whether the other side closes a connection within ten seconds."""
    connection.settimeout(10)
    try:
        while connection.recv(1 << 16):
            pass
        return True
    except TimeoutError:
        return False
    except OSError:
        return True
