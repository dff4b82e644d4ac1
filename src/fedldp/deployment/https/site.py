"""The site's end of a session: polls for a run's requests, and returns the agent's answers.

Only the site opens connections, through the proxy that the environment names, if it names one.
After a failure it tries again, with growing pauses, and never gives up, so it reconnects even to a
server that was off for a weekend.
"""

from __future__ import annotations

import logging
import random  # noqa: TID251  # the delay before reconnecting
import re
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedldp.core.errors import ConfigError, WireError
from fedldp.deployment.certificates import fingerprint
from fedldp.deployment.https.hello import (
    BEAT_SECONDS,
    NO_DIGEST,
    NONCE,
    NONCE_LENGTH,
    TAG,
    TOKEN_BYTES,
    Hello,
)
from fedldp.deployment.logs import RateLimitedLog
from fedldp.deployment.messages import DIGEST_BYTES, NO_RECEIPT, End, read_message

if TYPE_CHECKING:
    from fedldp.deployment.policy import ServerTable
    from fedldp.deployment.site import Agent

log = logging.getLogger("fedldp.site")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 15.0
"""The approximate pause in seconds before the first attempt to reconnect, and the longest pause
before later attempts."""
_SECONDS = httpx.Timeout(60.0, connect=30.0)
_KEPT = httpx.Limits(keepalive_expiry=None)
"""Idle connections are kept for as long as an answer takes. Otherwise, all sites of a fleet whose
training takes some seconds would reconnect at the same moment."""
_MOST_AGREEMENTS = 1 << 12
"""The largest number of agreements that a server may name."""
_LARGEST_END = 1 << 16
"""The largest message that a run is over, in bytes."""
_OTHER = "it is not a fedldp server, or it has another version"
_REFUSED = {
    401: "it does not know this session: the server was restarted, or another agent has this "
    "site's key",
    403: "it does not know this site's key, knows that the key was changed, or has a certificate "
    "other than the one it shows",
    413: "what this site sent is too long",
}


class NotServed(WireError):
    """The server does not run the agreement, or not with this site."""


class RunOver(WireError):
    """The server says that the run is over.

    Attributes:
        end: the message that says so, which the site has yet to check.
    """

    def __init__(self, end: bytes) -> None:
        super().__init__("the run is over")
        self.end = end


class HttpsLink:
    """A site's link to a server for one run.

    Args:
        agent: answers the round requests, and is told each time the server is heard from or cannot
            be reached.
        digest: the digest of the run's agreement, which the site has accepted; ``NO_DIGEST`` for a
            link that only shows the server that the site is there.
        server: the server's address, and the authorities that may sign its certificate.

    Attributes:
        in_session: whether the server serves the run with this site now.

    Raises:
        ConfigError: the authorities cannot be read.
    """

    def __init__(self, agent: Agent, digest: bytes, server: ServerTable) -> None:
        self._agent, self._digest = agent, digest
        self._url, self._ca = server.url, server.ca
        tls_of_site(server.ca)  # checks it now; each connection reads it again, as it may change
        self._told = partial(agent.watch.heard, server.url)
        self._rate_limited = RateLimitedLog(log)
        self._stop = threading.Event()
        self._state = ""
        self.in_session = False

    def start(self) -> None:
        """Begin to serve, in another thread."""
        threading.Thread(target=self._go, name="https", daemon=True).start()

    def end(self) -> None:
        """Stop serving; an answer that is still pending at this time is not sent."""
        self._stop.set()

    def _go(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stop.is_set():
            try:
                with _client(self._url, self._ca) as client:
                    said = self._digest, self._agent.receipt(self._digest)
                    token = _said_who(client, self._agent.key, "/v1/hello", TOKEN_BYTES, *said)
                    self.in_session = True
                    self._tell(f"is connected to {self._url}", logging.INFO)
                    with self._beating(token):
                        while not self._stop.is_set():
                            self._told()
                            self._one(client, token)
                            pause = _FIRST_PAUSE
            except RunOver as over:
                self._told()
                with suppress(WireError):
                    if isinstance(read_message(over.end), End):  # anything else is not answered
                        self._answered(over.end)
            except NotServed:
                self._told()
                what = "is connected to"
                if self._digest != NO_DIGEST:
                    what = f"waits for agreement {self._digest.hex()[:16]} to be run by"
                self._tell(f"{what} {self._url}", logging.INFO)
            except (httpx.HTTPError, OSError, WireError, ConfigError) as error:
                self._tell(f"no connection to {self._url}: {_in_words(error)}; trying again")
            except Exception as error:  # the agent goes on; the log never contains content
                self._tell(f"no connection to {self._url}: {type(error).__name__}; trying again")
            self.in_session = False
            self._stop.wait(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)

    @contextmanager
    def _beating(self, token: bytes) -> Iterator[None]:
        """Send signs of life while the context lasts, in another thread and connection."""
        over = threading.Event()

        def beat() -> None:
            due = time.monotonic()
            with _client(self._url, self._ca, BEAT_SECONDS) as client:
                while True:
                    now = time.monotonic()
                    while due <= now:
                        due += BEAT_SECONDS
                    if over.wait(due - now) or self._stop.is_set():
                        return
                    with suppress(httpx.HTTPError, OSError):  # the polls tell what is wrong
                        client.post("/v1/alive", headers=_shown(token)).raise_for_status()
                        self._told()

        threading.Thread(target=beat, name="sign of life", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _one(self, client: httpx.Client, token: bytes) -> None:
        """Wait for a round request, and answer it."""
        shown = _shown(token)
        with client.stream("POST", "/v1/question", headers=shown) as response:
            if response.status_code == httpx.codes.NO_CONTENT:
                response.read()  # an unread response would close its connection
                self._agent.ledger.database.checkpoint()
                return
            request = _read(response, self._agent.largest_message)
            number = response.headers.get(TAG, "")
        if not (number.isascii() and number.isdigit()):
            raise WireError("a round request without a number")
        answer = self._answered(request)
        # A proxy may have closed the connection while the answer was computed. An answer that still
        # does not arrive is asked for again, and has the same bytes.
        try:
            self._send(client, f"/v1/answer/{number}", shown, answer)
        except httpx.TransportError:
            self._send(client, f"/v1/answer/{number}", shown, answer)

    def _answered(self, message: bytes) -> bytes:
        """Return the site's answer to a message; nothing if there is none."""
        try:
            return self._agent.answer(message, self._digest)
        except Exception as error:  # the log never contains content
            self._rate_limited(f"a message could not be answered: {type(error).__name__}")
            return b""

    def _send(self, client: httpx.Client, place: str, shown: dict[str, str], answer: bytes) -> None:
        with client.stream("POST", place, headers=shown, content=answer) as response:
            if response.status_code == httpx.codes.NO_CONTENT:
                response.read()  # an unread response would close its connection
            elif response.status_code != httpx.codes.NOT_FOUND:  # the round request has expired
                raise WireError(_refusal(response))

    def _tell(self, state: str, level: int = logging.WARNING) -> None:
        """Log the state of the connection, if it changed."""
        if level == logging.WARNING:
            self._told(state)
        if state != self._state:
            self._state = state
            self._rate_limited(state, level=level)


def fetch_digests(url: str, ca: Path, key: Ed25519PrivateKey) -> list[bytes]:
    """Return the digests of the agreements that a server runs and that name the site's key.

    See ``fetch_agreement``.
    """
    found = fetch_agreement(url, ca, key, _MOST_AGREEMENTS * DIGEST_BYTES, NO_DIGEST)
    return [found[at : at + DIGEST_BYTES] for at in range(0, len(found), DIGEST_BYTES)]


def fetch_agreement(url: str, ca: Path, key: Ed25519PrivateKey, limit: int, digest: bytes) -> bytes:
    """Return the file of the agreement with a digest; only sites of its roster may fetch it.

    Args:
        url: the server's URL, https://HOST:PORT.
        ca: a PEM file with the authorities that may sign the server's certificate.
        key: the site's identity.
        limit: the largest permitted size of the file, in bytes.
        digest: the agreement's digest, which the caller compares with that of the file;
            ``NO_DIGEST`` for the digests of all that name the site.

    Raises:
        ConfigError: there is no connection, or the server does not know the site or does not run
            the agreement.
    """
    try:
        with _client(url, ca) as client:
            return _said_who(client, key, "/v1/agreement", limit, digest, NO_RECEIPT)
    except (httpx.HTTPError, OSError, WireError) as error:
        raise ConfigError(
            f"server {url}: {_in_words(error)}; the agreement is available once the server's "
            "operator has admitted this site and started `fedldp deploy server`"
        ) from error


def check_reachable(url: str, ca: Path) -> str:
    """Connect to a server as the agent does; return in words that this is possible.

    Raises:
        ConfigError: the authorities cannot be read, or the server cannot be reached or does not run
            fedldp.
    """
    try:
        with _client(url, ca) as client:
            _nonce(client)
    except (httpx.HTTPError, OSError, WireError) as error:
        raise ConfigError(f"server.url = {url}: {_in_words(error)}") from error
    return f"{url}: answers, with a certificate of {ca.name}"


def _client(url: str, ca: Path, timeout: httpx.Timeout | float = _SECONDS) -> httpx.Client:
    own, tls = {"accept-encoding": "identity", "user-agent": "fedldp"}, tls_of_site(ca)
    return httpx.Client(base_url=url, verify=tls, timeout=timeout, limits=_KEPT, headers=own)


def _shown(token: bytes) -> dict[str, str]:
    return {"authorization": f"Bearer {token.hex()}"}


def _said_who(
    client: httpx.Client,
    key: Ed25519PrivateKey,
    place: str,
    limit: int,
    digest: bytes,
    receipt: bytes,
) -> bytes:
    """Send a hello to one of the server's paths; return the server's answer.

    Raises:
        NotServed: the server does not run the agreement with this digest.
    """
    nonce, certificate = _nonce(client)
    hello = Hello.signed(
        key,
        nonce=nonce,
        certificate=fingerprint(certificate),
        agreement=digest.hex(),
        receipt=receipt.hex(),
        version=version("fedldp"),
    )
    with client.stream("POST", place, content=hello.to_bytes()) as response:
        if response.status_code == httpx.codes.NOT_FOUND:
            raise NotServed("it does not run this agreement with this site")
        return _read(response, limit)


def _nonce(client: httpx.Client) -> tuple[str, bytes]:
    """Return the server's nonce, and the certificate (DER) that it shows."""
    with client.stream("GET", "/v1/nonce") as response:
        nonce = _read(response, NONCE_LENGTH).decode("ascii", "replace")
        secured = response.extensions["network_stream"].get_extra_info("ssl_object")
        certificate: bytes = secured.getpeercert(True)
    if re.fullmatch(NONCE, nonce) is None:
        raise WireError(_OTHER)
    return nonce, certificate


def tls_of_site(ca: Path) -> ssl.SSLContext:
    """Return the TLS settings of a site, which trusts only the authorities in a PEM file.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
    except ssl.SSLError as error:
        raise ConfigError(f"ca {ca}: this is not a certificate in PEM") from error
    except OSError as error:
        raise ConfigError(f"ca {ca}: {error.strerror}; check the path") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _read(response: httpx.Response, limit: int) -> bytes:
    """Return a response's body without decoding it; its length is checked before it is read.

    Raises:
        RunOver: the server says that the run is over.
        WireError: the server refuses the request, or the body is of unknown length, too long, or
            cut short.
    """
    if response.status_code == httpx.codes.GONE:
        raise RunOver(_body(response, _LARGEST_END))
    if response.status_code != httpx.codes.OK:
        raise WireError(_refusal(response))
    return _body(response, limit)


def _body(response: httpx.Response, limit: int) -> bytes:
    text = response.headers.get("content-length", "")
    if not (text.isascii() and text.isdigit()) or "content-encoding" in response.headers:
        raise WireError("a message without a stated length, or with an encoding")
    if len(text) > 19 or int(text) > limit:
        raise WireError(f"a message of {text:.20} bytes, more than the {limit} allowed here")
    body = b"".join(response.iter_raw())
    if len(body) != int(text):
        raise WireError("a message was cut short")
    return body


def _refusal(response: httpx.Response) -> str:
    status = response.status_code
    return f"refused: {_REFUSED.get(status, f'HTTP status {status}')}"


def _in_words(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{text:.300}"
