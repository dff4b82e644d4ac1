"""A run's pipe to its sites: their sessions, the requests that wait for them, and their answers.

The round loop of the run asks and takes; the listener, in its own thread, hands out and receives. A
request waits until its site answers, its deadline passes or the run ends, so a site that was cut
off or restarted gets it again.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fedldp.deployment.https.hello import BEAT_SECONDS
from fedldp.deployment.messages import NO_RECEIPT
from fedldp.deployment.watch import Presence

POLL_SECONDS = 20.0
"""How long a site's poll for a round request waits, in seconds."""
_ALIVE_SECONDS = 2.5 * BEAT_SECONDS
"""A site counts as absent if it has been silent for more than this many seconds: no request and no
sign of life came from it. So a frozen site is noticed within a minute."""
_PIECE = 1 << 16
"""The size in bytes of the pieces in which round requests are kept. The requests of a round to its
sites differ at the beginning and share their end, which has the weights."""
_GIVE_UP_SECONDS = 0.5
"""Seconds between two checks for expired round requests."""


@dataclass
class PendingRequest:
    """A round request that a site has not answered.

    ``tags`` maps each tag that waits for the answer to its deadline. Requests with equal pieces
    share them.
    """

    number: int
    pieces: list[bytes]
    tags: dict[int, float]


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
        receiving: whether an answer is arriving.
    """

    name: str
    key: str
    token: bytes | None = None
    number: int = 0
    version: str = ""
    receipt: bytes = NO_RECEIPT
    receiving: bool = False
    heard: float = -_ALIVE_SECONDS
    polls: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    pending: deque[PendingRequest] = field(default_factory=deque)

    def begin(self, token: bytes, version: str, receipt: bytes) -> None:
        """Begin a session, which ends the previous one."""
        self.token, self.version, self.receipt = token, version, receipt
        self.number += 1
        self.heard, self.receiving = time.monotonic(), False
        self.wake.set()  # ends a poll of the previous session that still waits

    def is_there(self, now: float) -> bool:
        """Return whether the site has a session and was heard from recently."""
        return self.token is not None and now - self.heard < _ALIVE_SECONDS


class RunPipe:
    """The pipe between a run's round loop and the sites of its roster.

    Args:
        digest: the digest of the run's agreement.
        agreement: the content of the agreement's file, which its sites may fetch.
        sites: the name and the public key (hexadecimal) of each site, by its number.
        largest: the size of the largest permitted answer, in bytes.
        version: the version of this fedldp; the log names sites with another version.

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
        version: str,
    ) -> None:
        self.digest, self.agreement = digest, agreement
        self.largest, self.version = largest, version
        self.sites = [SiteSession(name, key) for name, key in sites]
        self.index = {key: index for index, (_name, key) in enumerate(sites)}
        # Set by the listener, which knows more than this run's sessions:
        self.set_soon: Callable[[asyncio.Event], None] = lambda event: None
        self.near: Callable[[str], bool] = lambda key: False
        self.expired: Callable[[], str | None] = lambda: None
        self.rounds: int | None = None
        self._changed = threading.Condition()
        self._taken: deque[tuple[int, bytes | None]] = deque()
        self._last = 0
        self._given_up = -_GIVE_UP_SECONDS
        self._pieces: dict[bytes, bytes] = {}
        """The pieces of the last round request, which the requests of other sites share."""
        self._over = False

    # For the round loop

    @property
    def absent(self) -> str:
        """The message to log while no site is connected; it names a certificate that expired."""
        told, expired = "no site is connected; the round waits", self.expired()
        return told if expired is None else f"{told}; {expired}"

    @property
    def connected(self) -> bool:
        """Whether any site is connected."""
        now = time.monotonic()
        with self._changed:
            return any(site.is_there(now) for site in self.sites)

    def present(self) -> list[Presence]:
        """Return what is known about each site, by its number."""
        now = time.monotonic()
        with self._changed:
            return [
                Presence(
                    there=site.is_there(now),
                    near=self.near(site.key),
                    silent=now - site.heard if site.token else None,
                    session=site.number,
                    version=site.version,
                    receipt=site.receipt,
                )
                for site in self.sites
            ]

    def ask(self, site: int, body: bytes, ttl: int) -> int:
        """Send a site a round request; return its tag, which :meth:`take` later returns once.

        Args:
            site: the site's number.
            body: the round request.
            ttl: seconds after which the request expires.
        """
        asked = self.sites[site]
        with self._changed:
            self._last += 1
            tag, until = self._last, time.monotonic() + ttl
            starts = [0, *range(len(body) % _PIECE, len(body), _PIECE)]
            cut = [body[at:end] for at, end in itertools.pairwise([*starts, len(body)])]
            pieces = [self._pieces.get(each, each) for each in cut]
            for pending in asked.pending:
                if pending.pieces == pieces:  # the same request: one answer serves both
                    pending.tags[tag] = until
                    return tag
            self._pieces = {each: each for each in pieces}
            asked.pending.append(PendingRequest(tag, pieces, {tag: until}))
        self.set_soon(asked.wake)
        return tag

    def take(self, timeout: float) -> list[tuple[int, bytes | None]]:
        """Return what arrived since the last call; if nothing did, wait up to ``timeout`` seconds.

        Returns:
            Pairs of a tag and an answer; the answer is None if the request expired.
        """
        with self._changed:
            self._give_up(time.monotonic())
            self._changed.wait_for(lambda: self._taken, timeout)
            taken = list(self._taken)
            self._taken.clear()
            return taken

    def _give_up(self, now: float) -> None:
        if now < self._given_up + _GIVE_UP_SECONDS:
            return
        self._given_up = now
        for site in self.sites:
            for pending in list(site.pending):
                for tag in [each for each, until in pending.tags.items() if until < now]:
                    del pending.tags[tag]
                    self._taken.append((tag, None))
                if not pending.tags:
                    site.pending.remove(pending)

    def end(self, rounds: int) -> None:
        """Tell the sites that the run is over, after this many rounds.

        The listener says so to each site that polls or begins a session from now on.
        """
        with self._changed:
            self.rounds = rounds
            for site in self.sites:
                site.pending.clear()
                self.set_soon(site.wake)

    # For the listener, in its thread

    def close(self) -> None:
        """End all polls."""
        self._over = True
        for site in self.sites:
            self.set_soon(site.wake)

    async def next_for(self, site: SiteSession) -> PendingRequest | None:
        """Return the request that a site's poll is answered with; None if there is none in time."""
        site.polls += 1
        poll, token, until = site.polls, site.token, time.monotonic() + POLL_SECONDS
        site.wake.set()  # ends an earlier poll of the site, whose reply nobody awaits any more
        while not self._over and poll == site.polls and token == site.token:
            site.wake.clear()
            with self._changed:
                pending = site.pending[0] if site.pending else None
            if pending is not None or self.rounds is not None:
                return pending
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    await site.wake.wait()
            except TimeoutError:
                break
        return None

    def awaits(self, site: SiteSession, number: int) -> bool:
        """Return whether a site has not answered the request with a number."""
        with self._changed:
            return any(pending.number == number for pending in site.pending)

    def answered(self, site: SiteSession, number: int, body: bytes) -> None:
        """Take a site's answer to the request with a number."""
        site.heard = time.monotonic()
        with self._changed:
            for pending in [each for each in site.pending if each.number == number]:
                site.pending.remove(pending)
                self._taken.extend((tag, body) for tag in pending.tags)
            self._changed.notify_all()
