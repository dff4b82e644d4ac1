"""What a server knows of its rounds and sites, for its operator: a file, log lines, metrics.

Nothing here decides anything, and nothing is asked of a site for it. It holds what the server sees
anyway: who was there when, who has accepted, who was asked and answered, and how many bytes passed.
Dates are by the server's clock.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from fedldp.deployment.rate_limited_log import RateLimitedLog

log = logging.getLogger("fedldp.server")

FILE = "status.json"
"""In a server's folder."""

State = Literal[
    "unseen", "away", "not-accepted", "other-version", "ready", "asked", "answered", "refused"
]
"""Of a site: ``away`` was there before; ``ready`` has accepted, and was not asked yet."""

_IN_WORDS: dict[State, str] = {
    "unseen": "was never there",
    "away": "is not there any more",
    "not-accepted": "is there, and has not accepted the agreement",
    "other-version": "is there with another version",
    "ready": "is there, and has accepted the agreement",
    "asked": "was asked",
    "answered": "has answered",
    "refused": "refused",
}
TAKES_PART = frozenset[State]({"ready", "asked", "answered", "refused"})
"""States of a site that has accepted and is there."""
_SECONDS, _IDLE_SECONDS = 1.0, 10.0
"""How far apart two versions of the file are, where something changed and where nothing did."""


@dataclass(frozen=True)
class Presence:
    """What a link knows of a site.

    Attributes:
        there: whether it is connected.
        silent: seconds since it was heard of; None: it never was.
        version: of its fedldp, as it says; "" where it said nothing yet.
    """

    there: bool
    silent: float | None
    version: str


@dataclass
class WatchedSite:
    """What is known of one site."""

    name: str
    state: State = "unseen"
    detail: str | None = None
    last_seen: datetime | None = None
    rounds: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


class Watch:
    """Keeps what a server knows; safe for several threads.

    Args:
        folder: of the run, where the file goes, and an earlier one is read.
        sites: their names, in the order of the roster.
        rounds: of the run.
    """

    def __init__(self, folder: Path, sites: Sequence[str], rounds: int) -> None:
        self._path = folder / FILE
        self._lock = threading.Lock()
        self._sites = [WatchedSite(name) for name in sites]
        self._of, self._done, self._missed, self._missed_ever = rounds, 0, 0, 0
        self._seconds: float | None = None
        self._next = "begins"
        self._written, self._changed = -_IDLE_SECONDS, True
        self._rate_limited = RateLimitedLog(log)
        self._remember()

    def _remember(self) -> None:
        """Take over what a server on this folder knew before it ended."""
        before = read_status(self._path.parent)
        for site, known in zip(self._sites, before.get("sites", []), strict=False):
            with suppress(KeyError, TypeError, ValueError):
                if known["name"] == site.name:
                    site.rounds = int(known["rounds"])
                    if known["last_seen"] is not None:
                        site.last_seen = datetime.fromisoformat(known["last_seen"])
                        site.state = "away"

    # What is told

    def heard(self, site: int, seconds_ago: float = 0.0) -> None:
        """Note when a site was heard of last."""
        at = datetime.now(UTC) - timedelta(seconds=seconds_ago)
        with self._lock:
            known = self._sites[site].last_seen
            self._sites[site].last_seen = at if known is None else max(at, known)

    def is_now(self, site: int, state: State, detail: str | None = None) -> None:
        """Note what a site does; what its operator can mend makes a line when it changes."""
        with self._lock:
            known = self._sites[site]
            before, known.state = (known.state, known.detail), state
            known.detail = detail
            self._changed |= before != (state, detail)
        was = before[0]
        if was != state and (state not in TAKES_PART or was not in TAKES_PART):
            more = f" ({detail})" if detail else ""
            self._rate_limited(f"site {known.name} {_IN_WORDS[state]}{more}", level=logging.INFO)

    def state_of(self, site: int) -> State:
        """Return what a site does."""
        return self._sites[site].state

    def passed(self, site: int, *, sent: int = 0, received: int = 0) -> None:
        """Count bytes to and from a site."""
        with self._lock:
            self._sites[site].sent_bytes += sent
            self._sites[site].received_bytes += received

    def goes_on(self, what: str) -> None:
        """Note what the server does next, or waits for."""
        with self._lock:
            self._changed |= self._next != what
            self._next = what

    def complete(self, round: int, seconds: float | None = None, sites: Sequence[int] = ()) -> None:
        """Note a complete round, and who took part in it."""
        with self._lock:
            self._done, self._missed, self._changed = round, 0, True
            self._seconds = seconds
            for site in sites:
                self._sites[site].rounds += 1

    def missed(self) -> None:
        """Note that too few sites took part in the round under way."""
        with self._lock:
            self._missed += 1
            self._missed_ever += 1
            self._changed = True

    # What is known

    def document(self) -> dict[str, Any]:
        """Return all of it as JSON-ready values."""
        with self._lock:
            return {
                "rounds": {"done": self._done, "of": self._of},
                "sites": [_site(each) for each in self._sites],
                "next": self._next,
                "missed": self._missed,
                "missed_ever": self._missed_ever,
                "seconds": self._seconds,
                "written": _iso(datetime.now(UTC)),
            }

    def write(self, *, now: bool = False) -> None:
        """Bring the file up to date: now, or if it is time to.

        It is not synced, and where it cannot be written the run goes on without it.
        """
        since = time.monotonic() - self._written
        if not (now or since >= (_SECONDS if self._changed else _IDLE_SECONDS)):
            return
        self._written, self._changed = time.monotonic(), False
        partial = self._path.with_name(f"{FILE}.partial")
        with suppress(OSError):
            partial.write_text(json.dumps(self.document(), indent=1) + "\n", encoding="utf-8")
            os.replace(partial, self._path)


def read_status(folder: Path) -> dict[str, Any]:
    """Return what a server wrote last; nothing where there is no such file, or it is damaged."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _site(site: WatchedSite) -> dict[str, Any]:
    seen = site.last_seen
    return {**vars(site), "last_seen": None if seen is None else _iso(seen)}


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="seconds")
