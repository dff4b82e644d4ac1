"""What a server or a site's agent knows about the current state, for its operator only.

Nothing here makes decisions or asks the other side for anything. A server records what it sees
anyway: who was connected when, who has accepted, who was asked and answered, and how many bytes
passed. An agent records when it reached its server. Times are those of the local clock.
"""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from fedldp.core.facts import Status
from fedldp.deployment.logs import RateLimitedLog

log = logging.getLogger("fedldp.server")

FILE = "status.json"
"""The file's name in a server's folder and in a site's state."""

State = Literal[
    "unseen", "away", "not-accepted", "other-version", "ready", "asked", "answered", "refused"
]
"""A site's state. ``away``: it was connected earlier. ``ready``: it has accepted, and has not been
asked."""

_IN_WORDS: dict[State | None, str] = {
    "unseen": "was never connected",
    "away": "is no longer connected",
    "not-accepted": "is connected, but has not accepted the agreement",
    "other-version": "is connected with another version",
    "ready": "is connected and has accepted the agreement",
    "asked": "was asked",
    "answered": "has answered",
    "refused": "refused",
}
TAKES_PART = frozenset[State | None]({"ready", "asked", "answered", "refused"})
"""The states of a site that is connected and has accepted."""
_SECONDS, _IDLE_SECONDS = 1.0, 10.0
"""Seconds between two updates of the file: if something changed, and if nothing did."""
_BEAT_SECONDS = 5.0
"""Seconds between two updates that a process that waits or computes tries."""
SILENT_SECONDS = 45.0
"""A process that has not updated its file for so long is silent: a frozen one within a minute."""
_SLOW_TIMES, _SLOW_SECONDS = 3.0, 10.0
"""The log names a round that takes so many times as long as the last one, and so many seconds."""
_LARGEST_SHARE = 0.05
"""The largest share of time spent on writing the file, which takes long with many sites."""


@dataclass(frozen=True)
class Presence:
    """What a link knows about a site.

    Attributes:
        there: whether the site is connected for the run, so it has accepted the agreement.
        near: whether it is connected to the server, but maybe not for this run.
        silent: seconds since it was last heard from in the run. None: it never was.
        session: the number of its latest session in the run; 0 before the first.
        version: the version of fedldp that it states; "" if it has not stated one yet.
        receipt: the receipt with which it began the session.
    """

    there: bool
    near: bool
    silent: float | None
    session: int
    version: str
    receipt: bytes


@dataclass
class WatchedSite:
    """What is known about one site; a state or a number of rounds is None if it is unknown."""

    name: str
    state: State | None = "unseen"
    detail: str | None = None
    last_seen: datetime | None = None
    rounds: int | None = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    """How often it refused, by reason, since this server began."""


class _Watch(ABC):
    """Collects what a process knows, and writes it to a file; thread-safe.

    The file is not synced, and a failure to write it is ignored.

    Args:
        folder: the folder of the file.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._lock, self._writes = threading.RLock(), threading.Lock()
        self._written, self._took = -_IDLE_SECONDS, 0.0
        self._changed = True
        self._ended = False

    @abstractmethod
    def collected(self) -> dict[str, Any]:
        """Return what was collected, as JSON-ready values."""

    def document(self) -> dict[str, Any]:
        """Return what was collected, and when, as JSON-ready values."""
        with self._lock:
            return {**self.collected(), "ended": self._ended, "written": _iso(datetime.now(UTC))}

    def write(self, *, now: bool = False) -> None:
        """Update the file if ``now`` is true or an update is due."""
        began = time.monotonic()
        apart = max(_SECONDS if self._changed else _IDLE_SECONDS, self._took / _LARGEST_SHARE)
        if not now and began - self._written < apart:
            return
        self._changed = False
        partial = self._path.with_name(f"{FILE}.partial")
        with self._writes, suppress(OSError):
            partial.write_text(json.dumps(self.document(), indent=1) + "\n", encoding="utf-8")
            os.replace(partial, self._path)
        self._written = time.monotonic()
        self._took = self._written - began

    def ends(self) -> None:
        """Note that the process ends."""
        self._ended = True
        self.write(now=True)


class Watch(_Watch):
    """Collects what a server knows about its sites; thread-safe.

    Args:
        folder: the run's folder; an earlier status file in it is read, then replaced.
        run: the run's name.
        sites: the sites' names, in the order of the roster.
        rounds: the number of rounds in the run.
        done: how many of them are complete; None if this is a new run.

    Attributes:
        certificate: the file of the server's certificate; None without one.
        waits_since: since when the run waits for enough sites, by the monotonic clock; None while a
            round is at work.
    """

    def __init__(
        self, folder: Path, run: str, sites: Sequence[str], rounds: int, done: int | None = None
    ) -> None:
        super().__init__(folder)
        self._run = run
        self._sites = [WatchedSite(name) for name in sites]
        self._of, self._done, self._missed, self._missed_ever = rounds, done or 0, 0, 0
        self.certificate: Path | None = None
        self.waits_since: float | None = time.monotonic()
        self._over: Status | None = None
        self._seconds: float | None = None
        self._began: float | None = None
        self._told_slow = False
        self._next = "begins"
        self._rate_limited = RateLimitedLog(log)
        if done is not None:
            self._remember(read_status(folder) or {})
        self.write(now=True)

    def _remember(self, before: dict[str, Any]) -> None:
        """Take over what an earlier server in this folder knew; the rest is unknown."""
        for site in self._sites:
            site.state, site.rounds = None, None
        for site, known in zip(self._sites, before.get("sites", []), strict=False):
            with suppress(KeyError, TypeError, ValueError):
                if known["name"] == site.name:
                    seen = known["last_seen"]
                    site.last_seen = None if seen is None else datetime.fromisoformat(seen)
                    site.rounds = int(known["rounds"])
                    if known["state"] is not None:
                        site.state = "unseen" if seen is None else "away"

    # Events

    def heard(self, site: int, seconds_ago: float = 0.0) -> None:
        """Note when a site was last heard from."""
        at = datetime.now(UTC) - timedelta(seconds=seconds_ago)
        with self._lock:
            known = self._sites[site].last_seen
            self._sites[site].last_seen = at if known is None else max(at, known)

    def is_now(self, site: int, state: State, detail: str | None = None) -> None:
        """Note a site's state; log a change, except if the site takes part before and after it."""
        with self._lock:
            known = self._sites[site]
            before, known.state = (known.state, known.detail), state
            known.detail = detail
            self._changed |= before != (state, detail)
            if state == "refused" and before != (state, detail):
                known.refusals[str(detail)] += 1
        was = before[0]
        if was != state and (state not in TAKES_PART or was not in TAKES_PART):
            more = f" ({detail})" if detail else ""
            self._rate_limited(f"site {known.name} {_IN_WORDS[state]}{more}", level=logging.INFO)

    def state_of(self, site: int) -> State | None:
        """Return a site's state; None if it is unknown."""
        return self._sites[site].state

    def passed(self, site: int, *, sent: int = 0, received: int = 0) -> None:
        """Count bytes to and from a site."""
        with self._lock:
            self._sites[site].sent_bytes += sent
            self._sites[site].received_bytes += received

    def goes_on(self, what: str) -> None:
        """Note what the server does next or waits for."""
        with self._lock:
            self._changed |= self._next != what
            self._next = what

    def works(self) -> None:
        """Note that a round is at work: enough sites are there, and are asked."""
        with self._lock:
            self.waits_since = None
            if self._began is None:
                self._began = time.monotonic()

    def complete(self, done: int, seconds: float | None = None, sites: Sequence[int] = ()) -> None:
        """Note how many rounds are complete, and who took part in the last."""
        with self._lock:
            self._done, self._missed, self._changed = done, 0, True
            self._seconds, self._began = seconds, None
            for site in sites:
                before = self._sites[site].rounds
                self._sites[site].rounds = None if before is None else before + 1

    def missed(self) -> None:
        """Note that too few sites took part in the current round."""
        with self._lock:
            self._missed += 1
            self._missed_ever += 1
            self.waits_since = time.monotonic()
            self._began, self._changed = None, True

    def ends(self, next: str | None = None, over: Status | None = None) -> None:
        """Note that the server ends; what is next, and why it ends if the run is not complete."""
        if next is not None:
            with self._lock:
                self._next, self._over = next, over
        super().ends()

    # The collected state

    def collected(self) -> dict[str, Any]:
        """Return what was collected, as JSON-ready values."""
        return {
            "run": self._run,
            "rounds": {"done": self._done, "of": self._of},
            "sites": [_site(each) for each in self._sites],
            "next": self._next,
            "missed": self._missed,
            "missed_ever": self._missed_ever,
            "seconds": self._seconds,
            "at_work": self._at_work(),
            "certificate": None if self.certificate is None else str(self.certificate),
            "over": None if self._over is None else self._over.to_json(),
        }

    def _at_work(self) -> float:
        return 0.0 if self._began is None else time.monotonic() - self._began

    def write(self, *, now: bool = False) -> None:
        """Update the file if ``now`` is true or an update is due; log once that a round is slow."""
        with self._lock:
            took = self._at_work()
            slow = took > max(_SLOW_TIMES * (self._seconds or math.inf), _SLOW_SECONDS)
            tell, self._told_slow = slow and not self._told_slow, slow
        if tell:
            log.warning(
                "%s, already for %.0f s; the last round took %.0f s",
                self._next,
                took,
                self._seconds,
            )
        super().write(now=now)


class SiteWatch(_Watch):
    """Collects what a site's agent knows about its link; thread-safe.

    Args:
        folder: the site's state folder.

    Attributes:
        needed: the servers that the site must reach to be connected; None: all.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        known = (read_status(folder) or {}).get("last_seen")
        self._last_seen = known if isinstance(known, str) else None
        self._amiss: dict[str, str] = {"": "has not reached its server yet"}
        self.needed: Collection[str] | None = None
        self._refuses: str | None = None
        self._sent = self._received = 0
        self._refusals = Counter[tuple[str, str]]()
        self.write(now=True)

    def heard(self, server: str, amiss: str | None = None) -> None:
        """Note that a server was heard from, or why it could not be reached."""
        with self._lock:
            before = dict(self._amiss)
            self._amiss.pop("", None)
            self._amiss.pop(server, None)
            if amiss is None:
                self._last_seen = _iso(datetime.now(UTC))
            else:
                self._amiss[server] = amiss
        self.write(now=before != self._amiss)

    def refuses(self, why: str | None) -> None:
        """Note why the agent refuses all requests; None if it does not."""
        with self._lock:
            changed, self._refuses = why != self._refuses, why
        self.write(now=changed)

    def refused(self, run: str, reason: str) -> None:
        """Count a refusal of a request of a run, by its reason."""
        with self._lock:
            self._refusals[run, reason] += 1

    @property
    def refusals(self) -> dict[tuple[str, str], int]:
        """How many requests the agent refused since it began, by run and reason."""
        with self._lock:
            return dict(self._refusals)

    def passed(self, *, sent: int, received: int) -> None:
        """Count bytes of answers and requests."""
        with self._lock:
            self._sent += sent
            self._received += received

    def collected(self) -> dict[str, Any]:
        """Return what was collected, as JSON-ready values."""
        needed = self._amiss if self.needed is None else ("", *self.needed)
        amiss = [why for server, why in self._amiss.items() if server in needed]
        return {
            "last_seen": self._last_seen,
            "connected": not amiss,
            "amiss": "; ".join(amiss) or None,
            "refuses": self._refuses,
            "sent_bytes": self._sent,
            "received_bytes": self._received,
        }


@contextmanager
def beating(watch: Watch | SiteWatch | None) -> Iterator[None]:
    """Update a status file while the context lasts, and note the end of the process in it.

    So the age of the file tells whether a process is frozen. systemd, if it started the process, is
    told the same, and kills a frozen one; without a watch, that is all.
    """
    over = threading.Event()
    _tell_systemd(b"READY=1")

    def beat() -> None:
        before = time.monotonic()
        while not over.wait(_BEAT_SECONDS):
            still, before = time.monotonic() - before, time.monotonic()
            if still > SILENT_SECONDS:
                log.warning("this process stood still for %.0f s: something froze it", still)
            if watch is not None:
                watch.write()
            _tell_systemd(b"WATCHDOG=1")

    thread = threading.Thread(target=beat, name="status", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        if watch is not None:
            watch.ends()


def _tell_systemd(what: bytes) -> None:
    """Send a line to systemd's socket, if systemd started this process; see sd_notify(3)."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if place:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.sendto(what, f"\0{place[1:]}" if place.startswith("@") else place)


def read_status(folder: Path) -> dict[str, Any] | None:
    """Return the status that was written last; None if the file is missing or damaged."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
        datetime.fromisoformat(found["written"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    whole = isinstance(found, dict) and isinstance(found.get("sites", []), list)
    return found if whole else None


def written_before(known: dict[str, Any], lock: Path) -> bool:
    """Return whether a status is of an earlier process than the one that holds a lock."""
    try:
        begun = datetime.fromtimestamp(lock.stat().st_mtime, UTC)
    except OSError:
        return False
    return datetime.fromisoformat(known["written"]) + timedelta(seconds=1) <= begun


def silent_since(known: dict[str, Any] | None) -> str | None:
    """Return when a process wrote its status last, if it should have written it again."""
    if known is None:
        return None
    age = (datetime.now(UTC) - datetime.fromisoformat(known["written"])).total_seconds()
    return str(known["written"]) if age > SILENT_SECONDS else None


def _site(site: WatchedSite) -> dict[str, Any]:
    seen = site.last_seen
    return {**vars(site), "last_seen": None if seen is None else _iso(seen)}


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="seconds")
