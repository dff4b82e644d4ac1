"""What a server or a site's agent knows about the current state, for its operator only.

Nothing here makes decisions or asks the other side for anything. A server records what it sees
anyway: who was connected when, who has accepted, and who was asked and
answered. An agent records when it reached its server. Times are those of the local clock.
"""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from fedldp.core.facts import Status
from fedldp.deployment.logs import RateLimitedLog
from fedldp.ledgers.database import now

log = logging.getLogger("fedldp.server")

FILE = "status.json"
"""The file's name in a server's folder and in a site's state."""

State = Literal[
    "unseen", "away", "not-accepted", "other-version", "ready", "asked", "answered", "refused"
]
"""A site's state. ``away``: it was connected earlier. ``ready``: it has accepted, and has not been
asked."""

_IN_WORDS: dict[State, str] = {
    "away": "is no longer connected",
    "not-accepted": "is connected, but has not accepted the agreement",
    "other-version": "is connected with another version",
    "refused": "refused",
}
TAKES_PART = frozenset[State | None]({"ready", "asked", "answered", "refused"})
"""The states of a site that is connected and has accepted."""
_BEAT_SECONDS = 2.0
"""Seconds between two updates of the file, whether the process waits or computes."""
SILENT_SECONDS = 45.0
"""A process that has not updated its file for so long is silent: a frozen one within a minute."""
_SLOW_TIMES, _SLOW_SECONDS = 3.0, 10.0
"""The log names a round that takes so many times as long as the last one, and so many seconds."""


class Watch:
    """What a process knows, as JSON-ready values, and the file that says it; thread-safe.

    The file is not synced, and a failure to write it is ignored.

    Args:
        folder: the folder of the file.
        known: what is known at first.
    """

    def __init__(self, folder: Path, known: dict[str, Any]) -> None:
        self._path, self._known = folder / FILE, known
        self._lock, self._writes = threading.RLock(), threading.Lock()
        self.write()

    def document(self) -> dict[str, Any]:
        """Return what is known, and when, as JSON-ready values."""
        with self._lock:
            return {"ended": False, **self._known, "written": now()}

    def write(self) -> None:
        """Update the file."""
        partial = self._path.with_name(f"{FILE}.partial")
        with self._writes, suppress(OSError):
            partial.write_text(json.dumps(self.document(), indent=1) + "\n", encoding="utf-8")
            os.replace(partial, self._path)

    def ends(self) -> None:
        """Note that the process ends."""
        self._note(ended=True)
        self.write()

    def _note(self, **known: Any) -> None:
        """Replace some of what is known."""
        with self._lock:
            self._known |= known


class ServerWatch(Watch):
    """What a server knows about its run and its sites; thread-safe.

    Args:
        folder: the run's folder; an earlier status file in it is replaced.
        run: the run's name.
        sites: the sites' names, in the order of the roster.
        rounds: the number of rounds in the run.
        done: how many of them are complete; None if this is a new run.

    Attributes:
        waits_since: since when the run waits for enough sites, by the monotonic clock; infinity
            while a round is at work.
    """

    def __init__(
        self,
        folder: Path,
        run: str,
        sites: Sequence[str],
        rounds: int,
        done: int | None = None,
    ) -> None:
        self.waits_since = time.monotonic()
        self._began: float | None = None
        self._told_slow = False
        self._rate_limited = RateLimitedLog(log)
        self._sites: list[dict[str, Any]] = [
            {
                "name": name,
                "state": "unseen" if done is None else None,
                "detail": None,
                "last_seen": None,
                "refusals": {},  # how often it refused, by reason, since this server began
            }
            for name in sites
        ]
        super().__init__(
            folder,
            {
                "run": run,
                "rounds": {"done": done or 0, "of": rounds},
                "sites": self._sites,
                "next": "begins",
                "missed": 0,
                "missed_ever": 0,
                "seconds": None,
                "certificate": None,
                "over": None,
            },
        )

    def document(self) -> dict[str, Any]:
        """Return what is known, with copies of what changes, and the seconds of a round at work."""
        with self._lock:
            sites = [{**each} for each in self._sites]
            return {**super().document(), "sites": sites, "at_work": self._at_work()}

    def certified_by(self, certificate: Path) -> None:
        """Note the file of the server's certificate."""
        self._note(certificate=str(certificate))

    def heard(self, site: int, seconds_ago: float = 0.0) -> None:
        """Note when a site was last heard from."""
        at = (datetime.now(UTC) - timedelta(seconds=seconds_ago)).isoformat(timespec="seconds")
        with self._lock:
            self._sites[site]["last_seen"] = max(at, self._sites[site]["last_seen"] or at)

    def is_now(self, site: int, state: State, detail: str | None = None) -> None:
        """Note a site's state; log a change, except if the site takes part before and after it."""
        with self._lock:
            known = self._sites[site]
            was, changed = known["state"], (known["state"], known["detail"]) != (state, detail)
            known |= {"state": state, "detail": detail}
            if state == "refused" and changed:
                count = known["refusals"].get(str(detail), 0)
                known["refusals"] = {**known["refusals"], str(detail): count + 1}
        if was != state and (state not in TAKES_PART or was not in TAKES_PART):
            more = f" ({detail})" if detail else ""
            what = _IN_WORDS.get(state, "is connected and has accepted the agreement")
            self._rate_limited(f"site {known['name']} {what}{more}", level=logging.INFO)

    def is_ready(self, site: int) -> None:
        """Note that a site takes part, if it is not known yet."""
        if self._sites[site]["state"] not in TAKES_PART:
            self.is_now(site, "ready")

    def goes_on(self, what: str) -> None:
        """Note what the server does next or waits for."""
        self._note(next=what)

    def works(self) -> None:
        """Note that a round is at work: enough sites are there, and are asked."""
        with self._lock:
            self.waits_since = math.inf
            if self._began is None:
                self._began = time.monotonic()

    def complete(self, done: int, seconds: float | None = None) -> None:
        """Note how many rounds are complete, and how long the last one took."""
        with self._lock:
            rounds = {**self._known["rounds"], "done": done}
            self._note(rounds=rounds, missed=0, seconds=seconds)
            self._began = None
        self.write()

    def missed(self) -> None:
        """Note that too few sites took part in the current round."""
        with self._lock:
            missed, ever = self._known["missed"] + 1, self._known["missed_ever"] + 1
            self._note(missed=missed, missed_ever=ever)
            self.waits_since, self._began = time.monotonic(), None
        self.write()

    def is_over(self, next: str, over: Status | None = None) -> None:
        """Note that the server ends; what is next, and why it ends if the run is not complete."""
        self._note(next=next, over=None if over is None else over.to_json())
        self.ends()

    def _at_work(self) -> float:
        return 0.0 if self._began is None else time.monotonic() - self._began

    def write(self) -> None:
        """Update the file; log once that a round is slow."""
        with self._lock:
            took, last = self._at_work(), self._known["seconds"]
            slow = took > max(_SLOW_TIMES * (last or math.inf), _SLOW_SECONDS)
            tell, self._told_slow = slow and not self._told_slow, slow
        if tell:
            about = self._known["next"], took, last
            log.warning("%s, already for %.0f s; the last round took %.0f s", *about)
        super().write()


class SiteWatch(Watch):
    """What a site's agent knows about its link; thread-safe.

    Args:
        folder: the site's state folder.
    """

    def __init__(self, folder: Path) -> None:
        seen = (read_status(folder) or {}).get("last_seen")
        self._amiss: dict[str, str] = {"": "has not reached its server yet"}
        self._refusals = Counter[tuple[str, str]]()
        last_seen = seen if isinstance(seen, str) else None
        super().__init__(folder, {"last_seen": last_seen, "refuses": None})

    def document(self) -> dict[str, Any]:
        """Return what is known, and whether all servers can be reached."""
        with self._lock:
            why = "; ".join(self._amiss.values()) or None
            return {**super().document(), "connected": why is None, "amiss": why}

    def heard(self, server: str, amiss: str | None = None) -> None:
        """Note that a server was heard from, or why it could not be reached."""
        with self._lock:
            before = dict(self._amiss)
            self._amiss.pop("", None)
            self._amiss.pop(server, None)
            if amiss is None:
                self._known["last_seen"] = now()
            else:
                self._amiss[server] = amiss
        if before != self._amiss:
            self.write()

    def refuses(self, why: str | None) -> None:
        """Note why the agent refuses all requests; None if it does not."""
        changed = why != self._known["refuses"]
        self._note(refuses=why)
        if changed:
            self.write()

    def refused(self, run: str, reason: str) -> None:
        """Count a refusal of a request of a run, by its reason."""
        with self._lock:
            self._refusals[run, reason] += 1

    @property
    def refusals(self) -> dict[tuple[str, str], int]:
        """How many requests the agent refused since it began, by run and reason."""
        with self._lock:
            return dict(self._refusals)


@contextmanager
def beating(watch: Watch | None) -> Iterator[None]:
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
