"""A run's pipe to its sites: their sessions, the requests that wait for them, and their answers.

The round loop of the run asks and takes; the listener, in its own thread, hands out and receives. A
request waits until its site answers or the round loop withdraws it, so a site that was cut off or
restarted gets it again.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fedldp.deployment.https.hello import BEAT_SECONDS
from fedldp.deployment.messages import NO_RECEIPT

POLL_SECONDS = 20.0
"""How long a site's poll for a round request waits, in seconds."""
_ALIVE_SECONDS = 2.5 * BEAT_SECONDS
"""A site counts as absent if it has been silent for more than this many seconds: no request and no
sign of life came from it. So a frozen site is noticed within a minute."""
NEAR_SECONDS = 60.0
"""How long a site that was heard from counts as near, in seconds."""
_PIECE = 1 << 16
"""The size in bytes of the pieces in which round requests are kept. The requests of a round to its
sites differ at the beginning and share their end, which has the weights."""


PendingRequest = tuple[int, list[bytes]]
"""The number and the pieces of a round request that a site has not answered."""


@dataclass
class SiteSession:
    """What is known about one site of the roster, and its latest session in the run.

    Attributes:
        name: the site's name.
        key: its public key, 64 hexadecimal digits.
        token: the hash of the token of its session; None before the first.
        number: how many sessions it had.
        version: the version of fedldp in the latest hello.
        receipt: the receipt in the latest hello.
        heard: when the site was last heard from in a session of the run.
        met: when the site was last heard from in any run, or refused a session.
        pending: the request that the site has yet to answer.
        unanswered: the numbers of this request and of earlier ones, whose answers may come late.
    """

    name: str
    key: str
    token: bytes | None = None
    number: int = 0
    version: str = ""
    receipt: bytes = NO_RECEIPT
    heard: float = -_ALIVE_SECONDS
    met: float = -NEAR_SECONDS
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    pending: PendingRequest | None = None
    unanswered: set[int] = field(default_factory=set)

    def begin(self, token: bytes, version: str, receipt: bytes) -> None:
        """Begin a session, which ends the previous one."""
        self.token, self.version, self.receipt = token, version, receipt
        self.number += 1
        self.heard = time.monotonic()
        self.wake.set()  # ends a poll of the previous session that still waits

    @property
    def there(self) -> bool:
        """Whether the site is connected for the run, so it has accepted the agreement."""
        return self.token is not None and time.monotonic() - self.heard < _ALIVE_SECONDS

    @property
    def near(self) -> bool:
        """Whether the site is connected to the server, though it is silent in the run.

        One that is silent everywhere may be frozen, and may go on in the session that it has.
        """
        apart = self.token is None or self.met - self.heard > _ALIVE_SECONDS
        return apart and time.monotonic() - self.met < NEAR_SECONDS


class RunPipe:
    """The pipe between a run's round loop and the sites of its roster.

    Args:
        digest: the digest of the run's agreement.
        agreement: the content of the agreement's file, which its sites may fetch.
        sites: the name and the public key (hexadecimal) of each site, by its number.
        largest: the size of the largest permitted answer, in bytes.

    Attributes:
        sites: what is known about each site, by its number.
        rounds: after how many rounds the run is over; None while it goes on.
    """

    def __init__(
        self,
        digest: bytes,
        agreement: bytes,
        sites: Sequence[tuple[str, str]],
        largest: int,
    ) -> None:
        self.digest, self.agreement = digest, agreement
        self.largest = largest
        self.sites = [SiteSession(name, key) for name, key in sites]
        self.index = {key: index for index, (_name, key) in enumerate(sites)}
        self.set_soon: Callable[[asyncio.Event], None] = lambda event: None  # the listener's
        self.rounds: int | None = None
        self._changed = threading.Condition()
        self._taken: list[tuple[int, bytes]] = []
        self._last = 0
        self._pieces: dict[bytes, bytes] = {}
        """The pieces of the last round request, which the requests of other sites share."""
        self._over = False

    # For the round loop

    def ask(self, site: int, body: bytes) -> int:
        """Send a site a round request, in place of one that still waits; return its number.

        Args:
            site: the site's number in the roster.
            body: the round request.
        """
        asked = self.sites[site]
        starts = [0, *range(len(body) % _PIECE, len(body), _PIECE)]
        cut = [body[at:end] for at, end in itertools.pairwise([*starts, len(body)])]
        with self._changed:
            self._last += 1
            pieces = [self._pieces.get(each, each) for each in cut]
            self._pieces = {each: each for each in pieces}
            asked.pending = self._last, pieces
            asked.unanswered.add(self._last)
            self.set_soon(asked.wake)
            return self._last

    def take(self, timeout: float) -> list[tuple[int, bytes]]:
        """Return what arrived since the last call; if nothing did, wait up to ``timeout`` seconds.

        Returns:
            Pairs of a request's number and its answer.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._taken, timeout)
            taken, self._taken = self._taken, []
            return taken

    def withdraw(self) -> None:
        """Hand out no request any more that still waits; an answer to one may come late."""
        with self._changed:
            for site in self.sites:
                site.pending = None

    def end(self, rounds: int) -> None:
        """Tell the sites that the run is over, after this many rounds.

        The listener says so to each site that polls or begins a session from now on.
        """
        self.withdraw()
        self.rounds = rounds
        for site in self.sites:
            self.set_soon(site.wake)

    # For the listener, in its thread

    def close(self) -> None:
        """End all polls."""
        self._over = True
        for site in self.sites:
            self.set_soon(site.wake)

    async def next_for(self, site: SiteSession) -> PendingRequest | None:
        """Return the request that a site's poll is answered with; None if there is none in time."""
        token, until = site.token, time.monotonic() + POLL_SECONDS
        while not self._over and token == site.token:
            site.wake.clear()
            if site.pending is not None or self.rounds is not None:
                return site.pending
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    await site.wake.wait()
            except TimeoutError:
                break
        return None

    def answered(self, site: SiteSession, number: int, body: bytes) -> None:
        """Take a site's answer to the request with a number."""
        site.heard = time.monotonic()
        with self._changed:
            site.unanswered.discard(number)
            if site.pending is not None and site.pending[0] == number:
                site.pending = None
            self._taken.append((number, body))
            self._changed.notify_all()
