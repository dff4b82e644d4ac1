"""The transport to the sites of an agreement, through a pipe that carries bytes to them.

    request -> journal -> sites with a session -> answers, until all have arrived or the deadline

A site has a session only for an agreement that it accepted. A site that does not or cannot answer
gets the same request again until the deadline, and answers with the same bytes. An answer counts
once, for the site whose session it came in.

Before the first request, and after a round that too few sites answered, no site is asked until the
quorum is present. Otherwise sites would pay for reports that are wasted. Once the quorum has
answered, the round does not wait for a site that was silent in the last rounds. That site is still
asked, and is waited for again as soon as it begins a session or answers, even if the answer is too
late. A site that withdrew its acceptance is neither asked nor waited for until it begins a session.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fedldp.core.errors import EndedForGood, RunError, WireError
from fedldp.core.kinds import SITE_AMISS
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.documents import fits_version
from fedldp.deployment.journal import Journal
from fedldp.deployment.logs import RateLimitedLog
from fedldp.deployment.messages import (
    NO_RECEIPT,
    Answered,
    Ask,
    KeptReceipts,
    Stranger,
    pack,
    read_message,
)
from fedldp.deployment.watch import ServerWatch
from fedldp.protocol.server_loop import Content, Delivery
from fedldp.protocol.wire import (
    Reason,
    Refusal,
    Report,
    RoundRequest,
    pack_arrays,
    pack_request,
    read_reply_to,
)
from fedldp.reporting import words

if TYPE_CHECKING:
    from fedldp.deployment.https.pipe import RunPipe, SiteSession

log = logging.getLogger("fedldp.server")

_PAUSE = 2.0
"""Seconds before a site whose answer cannot be used is asked again."""
_SEE = 1.0
"""Seconds between checks of which sites are present, and of what the operator asks."""
_NAMED = 20
"""The largest number of sites that one log line names."""
_TIMES, _LEAST = 10.0, 60.0
"""How long to wait for sites that have answered before: so many times as long as they took then, at
least so many seconds, and no longer than agreed."""
_GIVEN_UP = 2
"""The server stops waiting for a site that left a phase unanswered in this many rounds in a row."""

RELEASED_TWICE = "it may have released twice"
"""What the log says about a site that gave two different answers to one request."""


_NOTHING_RELEASED = {
    Reason.MALFORMED,
    Reason.UNKNOWN_RUN,
    Reason.OUT_OF_RANGE,
    Reason.OVER_BUDGET,
    Reason.OTHER_WEIGHTS,
}
"""Refusals for these reasons mean that the request was never answered."""


_FOR_GOOD = {
    Reason.OVER_BUDGET,
    Reason.OUT_OF_RANGE,
    Reason.ASKED_OTHERWISE,
    Reason.NOT_KEPT,
    Reason.WRONG_ROUND,
    Reason.OTHER_WEIGHTS,
}
"""Refusals for these reasons are final, because a request is repeated unchanged."""


class QuorumMissed(RunError):
    """Too few sites took part in a round; another try may succeed."""


class BudgetsSpent(EndedForGood):
    """Too few sites can pay for a round, and none refuses for good for another reason."""


class Finishes(RunError):
    """The operator ends the run, so the round under way is not waited for."""


class Stopped(RunError):
    """The operator stops the server, which may continue the run later."""


@dataclass
class _Waiting:
    """The state of one phase while the phase is under way."""

    request: RoundRequest
    message: bytes | None
    """The packed request; None if each site gets its own."""
    open: set[int]
    again: bool
    """Whether sites may have been asked before."""
    answers: dict[int, bytes] = field(default_factory=dict)
    reported: set[int] = field(default_factory=set)
    refused: dict[int, Refusal] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    """Which site each message was sent to, by the message's number."""
    due: dict[int, float] = field(default_factory=dict)
    """When to ask a site again whose answer could not be used; infinity: not again."""
    deadline: float = math.inf
    """How long to wait for answers, in seconds."""
    asked: dict[int, float] = field(default_factory=dict)
    """When each site was first asked."""


class Sites:
    """The sites of an agreement: a ``transport.Transport``.

    Args:
        agreement: the agreement of the run.
        pipe: carries messages to the sites.
        journal: the journal of the server.
        receipts: the last receipt of each site, which this class keeps up to date.
        check: raises WireError for a report that no site would send.
        watch: records what happens.
        interrupt: raises Stopped or Finishes if the operator says so; its argument says whether no
            site is asked yet.
    """

    def __init__(
        self,
        agreement: Agreement,
        pipe: RunPipe,
        journal: Journal,
        receipts: KeptReceipts,
        check: Callable[[RoundRequest, Report, int], None],
        watch: ServerWatch,
        interrupt: Callable[[bool], None] = lambda unasked: None,
    ) -> None:
        self._check, self._watch = check, watch
        self._interrupt = interrupt
        self._agreement, self._pipe, self._journal = agreement, pipe, journal
        self._receipts = receipts
        self._there: set[int] = set()
        """The sites that may be asked."""
        self._sessions: dict[int, int] = {}
        """The number of the last known session of each site."""
        self._see_again = -math.inf
        self._answers: tuple[tuple[int, int], Mapping[int, bytes]] = ((0, 0), {})
        """The round and the phase that was closed last, and its answers."""
        self._rate_limited = RateLimitedLog(log)
        self._late: dict[int, int] = {}
        """Which site each message of a finished phase was sent to, by the message's number."""
        self._released: dict[int, set[int]] = {}
        self._round = 0
        self._gathers = True
        """Whether the next request waits until the quorum is present."""
        self.waited = 0.0
        """Seconds in which no site was asked because the quorum was not present."""
        self._left: set[int] = set()
        """Sites that withdrew their acceptance of the agreement, until they begin a session."""
        self._unanswered: defaultdict[int, Counter[int]] = defaultdict(Counter)
        """How many rounds in a row a site left a phase unanswered, by site and phase."""
        self._took: dict[tuple[int, int], float] = {}
        """The seconds that a site's latest answer took, by site and phase."""

    def released(self, phase: int) -> list[int]:
        """Return the sites that may have answered in a phase of the last round, in ascending order.

        An answer that is late or lost was still released, so these are all sites that the request
        was sent to, except the sites that say that they released nothing.
        """
        return sorted(self._released.get(phase, ()))

    def exchange(self, request: RoundRequest, clients: Sequence[int]) -> Iterator[Delivery]:
        """Ask sites, and yield their answers as they arrive, one for each site.

        Raises:
            RunError: fewer sites than the quorum sent a report before the deadline.
        """
        round, phase = request.broadcast.round, request.phase
        if round != self._round:
            self._round = round
            self._released.clear()
        message = None if request.own else pack_request(request)
        asked_before = self._journal.begun(round, phase)
        of, answers = self._answers
        self._journal.ask(
            *(round, phase, _kept(request) if message is None else message),
            answers if of == (round, phase - 1) else {},
            self._receipts.all(),
        )
        # After a restart, the server does not know which sites it asked before.
        self._released.setdefault(phase, set(clients) if asked_before else set())
        waiting = _Waiting(request, message, set(clients), again=asked_before)
        waiting.deadline = self._deadline(waiting)
        closed = self._journal.closed(round, phase)
        if closed is not None:
            for client, answer in closed.items():
                yield client, self._counted(waiting, client, answer)
        else:
            try:
                yield from self._until_deadline(waiting)
            finally:
                self._pipe.withdraw()  # nobody should pay for an answer that comes too late
                self._late |= waiting.numbers
                for client in clients:
                    silent = client in waiting.open
                    counts = self._unanswered[client]
                    counts[phase] = silent * (counts[phase] + 1)
            if not self._agreement.is_enough(waiting.reported):
                error = self._too_few(waiting, len(clients))
                self._gathers = True
                self._there -= waiting.open  # those that are present are seen again at once
                raise error
            if self._agreement.channel == "sum":
                self._answers = (round, phase), waiting.answers

    def _until_deadline(self, waiting: _Waiting) -> Iterator[Delivery]:
        left, last = waiting.deadline, time.monotonic()
        while waiting.open and left > 0 and not self._waits_in_vain(waiting):
            now = time.monotonic()
            self.waited += self._gathers * (now - last)
            if looks := now >= self._see_again:
                self._look_at_sites(now)
            if not self._gathers:
                left -= now - last
            there = waiting.open & self._there
            self._gathers &= not self._agreement.is_enough(there | waiting.reported)
            if not self._gathers:
                self._watch.works()
                self._ask(waiting, now)
            last = now
            if looks:
                self._watch.goes_on(self._waits_for(waiting))
                self._interrupt(self._gathers)
            for number, body in self._pipe.take(min(0.5, max(left, 0.01))):
                if number in waiting.numbers:
                    client = waiting.numbers[number]
                    if (content := self._read(waiting, client, body)) is not None:
                        yield client, content
                elif number in self._late:
                    self._came_late(self._late.pop(number), body)

    def _deadline(self, waiting: _Waiting) -> float:
        """Return how long to wait, which follows what the same sites took in the rounds before.

        It is as agreed for a site that has not answered, and after a try that too few sites
        answered.
        """
        agreed = self._agreement.deadline_seconds
        phase = waiting.request.phase
        took = [self._took.get((client, phase), math.inf) for client in waiting.open]
        if self._gathers:
            return agreed
        return min(agreed, max(_LEAST, _TIMES * max(took, default=0.0)))

    def _look_at_sites(self, now: float) -> None:
        """Note which sites are present, and their versions."""
        for client, found in enumerate(self._pipe.sites):
            if found.number or found.near:
                self._look_at(client, found)
        self._see_again = now + _SEE

    def _look_at(self, client: int, found: SiteSession) -> None:
        """Note whether a site that is or was connected may be asked."""
        if found.number:
            self._watch.heard(client, time.monotonic() - found.heard)
        if not found.there:
            if found.near:
                self._left.add(client)
            self._watch.is_now(client, "not-accepted" if found.near else "away")
            if self._gathers:
                self._there.discard(client)
            return
        agreed = self._agreement.version
        if not fits_version(agreed, found.version):
            self._there.discard(client)
            detail = f"{found.version}; the agreement requires {agreed}"
            self._watch.is_now(client, "other-version", detail)
            return
        if found.number != self._sessions.get(client):
            if client not in self._sessions and self._receipts.last(client) == NO_RECEIPT:
                # Keep the receipt only at the first session, because a request is repeated
                # unchanged.
                self._receipts.keep(client, found.receipt)
            self._sessions[client] = found.number
            self._heard_of(client)
        if client not in self._left:
            self._there.add(client)
            self._watch.is_ready(client)

    def _waits_for(self, waiting: _Waiting) -> str:
        """Return what a round waits for, in words."""
        round, quorum = waiting.request.broadcast.round, self._agreement.quorum
        if not self._gathers:
            return f"round {round}: waits for {self._named(waiting.open)}"
        there = waiting.open & self._there
        return (
            f"round {round}: waits until {quorum} sites are present and have accepted; "
            f"{len(there)} have, but not {self._named(waiting.open - there)}"
        )

    def _named(self, clients: set[int]) -> str:
        """Return the names of sites, or of the first ones if there are very many."""
        names = [self._agreement.sites[c].name for c in sorted(clients)[:_NAMED]]
        return ", ".join(names) + _and_more(len(clients))

    def _waits_in_vain(self, waiting: _Waiting) -> bool:
        """Return whether the quorum has answered and no other site is worth waiting for."""
        phase = waiting.request.phase
        given_up = all(
            client in self._left or self._unanswered[client][phase] >= _GIVEN_UP
            for client in waiting.open
        )
        return given_up and self._agreement.is_enough(waiting.reported)

    def _heard_of(self, client: int) -> None:
        """Let rounds wait for a site again, because it was heard from."""
        self._unanswered.pop(client, None)
        self._left.discard(client)

    def _ask(self, waiting: _Waiting, now: float) -> None:
        """Send the request to the sites that are due."""
        for client in sorted(waiting.open & self._there):
            if now < waiting.due.get(client, -math.inf):
                continue
            receipt = self._receipts.last(client)
            message = waiting.message or pack_request(waiting.request.to(client))
            body = pack(Ask(self._agreement.digest, receipt, message))
            self._released[waiting.request.phase].add(client)
            waiting.numbers[self._pipe.ask(client, body)] = client
            self._watch.is_now(client, "asked")
            waiting.asked.setdefault(client, now)
            waiting.due[client] = math.inf

    def _read(self, waiting: _Waiting, client: int, body: bytes) -> Content:
        """Return the content of a site's answer; None if there is no answer that can be used."""
        name = self._agreement.sites[client].name
        self._watch.heard(client)
        if client not in waiting.open:
            self._came_late(client, body, waiting.answers[client])
            return None
        waiting.due[client] = time.monotonic() + _PAUSE
        try:
            message = read_message(body)
            if isinstance(message, Answered):
                content = self._counted(waiting, client, message.answer)
                self._receipts.keep(client, message.receipt)
                if not waiting.again:  # else it may have computed the answer earlier
                    took = time.monotonic() - waiting.asked[client]
                    self._took[client, waiting.request.phase] = took
                return content
            if not isinstance(message, Stranger):
                raise WireError("it is no answer")
        except WireError as error:
            self._rate_limited(f"site {name}: its answer was not used: {error}", f"unused {name}")
            return None
        self._left.add(client)
        self._there.discard(client)
        self._watch.is_now(client, "not-accepted")
        self._rate_limited(f"site {name} no longer accepts the agreement; it is not asked")
        return None

    def _came_late(self, client: int, body: bytes, first: bytes | None = None) -> None:
        """Store the receipt of an answer that does not count; log one that differs from the first.

        Args:
            client: the site that gave it.
            body: the answer.
            first: the site's answer that counts. None: there is none.
        """
        try:
            message = read_message(body)
        except WireError:
            return
        if not isinstance(message, Answered):
            return
        self._watch.heard(client)
        self._receipts.keep(client, message.receipt)
        self._heard_of(client)
        if first is not None and message.answer != first:
            name = self._agreement.sites[client].name
            self._rate_limited(
                f"site {name} gave a second, different answer to a request: the first counts, and "
                f"{RELEASED_TWICE}"
            )

    def _counted(self, waiting: _Waiting, client: int, answer: bytes) -> Report | Refusal:
        content = read_reply_to(waiting.request, answer)
        if isinstance(content, Report):
            if content.client not in (None, client):
                raise WireError(f"it claims to come from client {content.client}")
            self._check(waiting.request, content, client)
        if isinstance(content, Refusal):
            waiting.refused[client] = content
            self._watch.is_now(client, "refused", content.reason.value)
            name, reason = self._agreement.sites[client].name, content.reason.value
            why = SITE_AMISS(site=name, state="refused", detail=reason)
            self._rate_limited(f"site {words.line(why)}")
            if content.reason in _NOTHING_RELEASED:
                self._released[waiting.request.phase].discard(client)
        else:
            waiting.reported.add(client)
            self._watch.is_now(client, "answered")
        waiting.answers[client] = answer
        waiting.open.discard(client)
        waiting.due.pop(client, None)
        return content

    def _too_few(self, waiting: _Waiting, asked: int) -> RunError:
        names = {index: site.name for index, site in enumerate(self._agreement.sites)}
        why = [f"{names[c]} refused: {r.reason.value}" for c, r in sorted(waiting.refused.items())]
        for client in sorted(waiting.open):
            what = "did not answer"
            if client in self._left:
                what = "no longer accepts the agreement"
            why.append(f"{names[client]} {what}")
        must = "must" if self._agreement.config.committee is None else "of one committee must"
        within = f" within {waiting.deadline:.3g} s" if waiting.open else ""
        what = (
            f"round {waiting.request.broadcast.round}: {len(waiting.reported)} of {asked} sites "
            f"took part{within}, and "
            f"{self._agreement.quorum} {must} ({'; '.join(why[:_NAMED])}{_and_more(len(why))})"
        )
        for_good = [each.reason for each in waiting.refused.values() if each.reason in _FOR_GOOD]
        if asked - len(for_good) >= self._agreement.quorum:
            return QuorumMissed(what)
        remedy = "these sites will keep refusing: agree on another run"
        if Reason.OVER_BUDGET in for_good:
            remedy = (
                "the budgets of some sites are used up; agree on a run that costs less, with "
                "fewer rounds or a smaller epsilon"
            )
        kind = BudgetsSpent if {*for_good} == {Reason.OVER_BUDGET} else EndedForGood
        return kind(
            f"{what}; all complete rounds are kept, but the same command would fail here again: "
            f"{remedy}"
        )


def _and_more(sites: int) -> str:
    """Return the end of a line that names only the first of many sites."""
    return f", and {sites - _NAMED:,} more" if sites > _NAMED else ""


def _kept(request: RoundRequest) -> bytes:
    """Return a request for the journal: the shared part, and a digest of the sites' own parts."""
    own = hashlib.sha256()
    for client in sorted(request.own):
        parts = request.own[client]
        own.update(pack_arrays({f"{client}/{name}": array for name, array in parts.items()}))
    return pack_request(replace(request, own={})) + own.digest()
