"""The site agent, the only program at a site that sees examples. It decides what leaves the site.

    link -> ASK: is the agreement accepted, does the ledger have every release that mark, witness
                 and receipt prove (see ``site_ledger``)?
                 -> client runtime: policy, ledger, training, encoder, ledger -> answer

It does not matter who asks, or how: a request that no accepted agreement covers is refused, in a
message that does not depend on any example. The log says in plain words what was released and what
it cost; it never contains a weight, a report or an example.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from urllib.parse import urlsplit

from fedldp.accounting.accountants import drawn_once, sent_of_nothing
from fedldp.core.errors import (
    ConfigError,
    FedldpError,
    LedgerUnusable,
    PrivacyError,
    StoreUnusable,
    WireError,
)
from fedldp.core.formatting import number
from fedldp.core.randomness import Stream
from fedldp.data import Examples
from fedldp.deployment.acceptance import Acceptance, Acceptances
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.certificates import authorities_of, fingerprint, is_of_server
from fedldp.deployment.channels import client_role
from fedldp.deployment.data_ledgers import note_others
from fedldp.deployment.identity import check_private, read_keys
from fedldp.deployment.logs import RateLimitedLog
from fedldp.deployment.messages import (
    NO_RECEIPT,
    Answered,
    Ask,
    End,
    Receipts,
    Stranger,
    pack,
    read_message,
)
from fedldp.deployment.policy import ServerTable, SitePolicy, make_state, rounds_answered
from fedldp.deployment.site_ledger import LEAST_HASH, SiteLedger
from fedldp.deployment.source import SiteData, check_unchanged, examples_for, note, open_source
from fedldp.deployment.watch import SiteWatch
from fedldp.ledgers.sqlite import Release, SqliteLedger
from fedldp.protocol.client_runtime import ClientRuntime, Policy
from fedldp.protocol.client_store import LedgerStore
from fedldp.protocol.keys import Keys, SecretKeys, SimulationKeys
from fedldp.protocol.roles import ClientRole
from fedldp.protocol.wire import Reason, Refusal, Report, pack_reply, read_reply, read_request
from fedldp.simulation.inputs import choose_device
from fedldp.training.tensors import one_thread

log = logging.getLogger("fedldp.site")

_LEAST_BYTES = 1 << 20
_BYTES_OF_WEIGHT = 32
_BYTES_OF_SITE = 256


@dataclass(frozen=True)
class ServedRun:
    """An accepted agreement that this site takes part in.

    Attributes:
        accepted: how it was accepted.
        agreement: the agreement.
        policy: the site's policy for the run, with the server that runs it.
        index: the site's index in the roster.
        reporting: the first phase of a round whose answers must be marked before they leave: before
            it, nothing is released that would matter if it were released again.
        runtime: computes the answers.
        answering: held while a request of the run is answered.
    """

    accepted: Acceptance
    agreement: Agreement
    policy: SitePolicy
    index: int
    reporting: int
    runtime: ClientRuntime
    answering: Lock = field(default_factory=Lock)


class Agent:
    """A site's agent: it takes a message as bytes, and returns its answer as bytes; thread-safe.

    Args:
        policy: the site's policy.
        test_keys: whether to serve agreements whose randomness comes from a seed; for the demo
            only.
        watch: what the agent tells about itself; made if it is missing.

    Attributes:
        key: the site's present key.
        ledger: the site's ledger.

    Raises:
        FedldpError: the key, the ledger, the secret or the data cannot be used.
    """

    def __init__(
        self,
        policy: SitePolicy,
        *,
        test_keys: bool = False,
        watch: SiteWatch | None = None,
    ) -> None:
        self.policy = policy
        self._test_keys = test_keys
        own = read_keys(policy.key)
        self.key = own[0]
        make_state(policy)
        check_private("state", policy.state)
        self.watch = SiteWatch(policy.state) if watch is None else watch
        self._kept = SiteLedger(policy)
        self.ledger = self._kept.ledger
        # Not with the ledger's connection: a wait for its lock would reveal when a training ended.
        self._accepted = Acceptances(policy)
        self._receipts = Receipts(*own)
        self._source = open_source(*policy.source)
        self._runs: dict[bytes, ServedRun] = {}
        self._refused: dict[bytes, Acceptance] = {}
        self._left: dict[bytes, bytes] = {}  # the receipt of each agreement's latest answer
        self._beginning, self._leaving = dict[bytes, Lock](), Lock()
        self._rate_limited = RateLimitedLog(log)
        self.largest_message = _LEAST_BYTES
        self.shown: list[Release] | None = None
        """The ledger's entries whose answers have left, for metrics: others would reveal when a
        training ended. None if the ledger could not be read yet."""
        self._latest: list[Release] = []
        """All entries of the ledger, as far as they were read for answers that have left."""
        self._shown_of: dict[str, int] = {}
        """The number of the latest shown entry of each run."""
        try:
            self.shown = self._kept.keep()
            note_others(policy.data, policy.public_keys, self.ledger.database)
        except LedgerUnusable as error:
            # Start anyway: the server is told, so that it does not wait for this site.
            self._rate_limited(f"refused: {error}", "refused for the ledger")
            self.watch.refuses(str(error))
        except ConfigError as error:  # it is said at the next ``join`` and ``accept``
            log.warning("the ledgers of these data are not known: %s", error)
        for each in self._accepted.current():
            self._run(each.digest)

    @property
    def runs(self) -> list[ServedRun]:
        """The runs that the agent serves."""
        return list(self._runs.values())

    def served(self) -> dict[bytes, ServerTable]:
        """Return the server of each agreement that can be served, by its digest."""
        try:
            digests = [each.digest for each in self._accepted.current()]
        except LedgerUnusable:  # their requests are refused, as a normal answer
            digests = list(self._runs)
        runs = [run for run in map(self._run, digests) if run is not None]
        return {run.accepted.digest: run.policy.server[0] for run in runs}

    def receipt(self, digest: bytes) -> bytes:
        """Return the receipt of the last answer that left in the run of a served agreement.

        The ledger is not read here: its content, or a lock on it, would reveal when training ended.
        """
        return self._left.get(digest, NO_RECEIPT)

    def answer(self, body: bytes, digest: bytes | None = None) -> bytes:
        """Return the answer to a server's message.

        Args:
            body: the message.
            digest: the agreement in whose session it came; another agreement's message is refused,
                because its run may be that of another server. None: any.
        """
        try:
            message = read_message(body)
        except WireError:
            message = Stranger()
        if not isinstance(message, Ask | End):
            self._rate_limited("a malformed message was refused")
            return pack(Stranger())
        if digest not in (None, message.digest):
            return pack(Stranger())
        while (run := self._run(message.digest)) is not None:
            with run.answering:
                if self._runs.get(message.digest) is run:  # else it was begun anew meanwhile
                    if isinstance(message, Ask):
                        return self._answer(run, message)
                    self._end(run, message)
                    break
        if isinstance(message, Ask):
            self._rate_limited("a request for an agreement that is not accepted here was refused")
        return pack(Stranger())

    def _answer(self, run: ServedRun, message: Ask) -> bytes:
        # Each answer has its own timer: if requests that arrive together shared one, the wait for
        # the last answer would reveal how long the others took.
        asked = time.monotonic()
        answered, left, entries, refuses = self._answered(run, message)
        answer = pack(answered)
        self._wait_since(asked)
        self.watch.refuses(refuses)
        _, _, content = read_reply(answered.answer)
        if isinstance(content, Refusal):
            self.watch.refused(run.agreement.run, content.reason.value)
        self._left[message.digest] = left
        self._show(run, entries)
        return answer

    def _show(self, run: ServedRun, entries: list[Release] | None) -> None:
        """Show the entries of a run in the metrics, because its answer leaves."""
        with self._leaving:
            latest, name = self._shown_of, run.agreement.run
            if entries is None:
                latest.setdefault(name, 0)
                return
            latest[name] = max((each.number for each in entries if each.run == name), default=0)
            # Another run's answer may have left since these entries were read.
            entries = self._latest = max(entries, self._latest, key=len)
            self.shown = [e for e in entries if e.number <= latest.get(e.run, e.number)]

    def _run(self, digest: bytes) -> ServedRun | None:
        """Return the run of an accepted agreement, or None if the agreement is not served.

        An agreement is opened once, and again after it was accepted on other terms and no answer
        on the earlier ones is under way: what these draw once is then known.
        """
        # A slow beginning holds up no other run.
        with self._beginning.setdefault(digest, Lock()):
            try:
                try:
                    accepted = self._accepted.of(digest)
                except LedgerUnusable:
                    if digest not in self._runs:
                        raise
                    return self._runs[digest]  # which refuses, as a normal answer
                if accepted is None or not accepted.is_open:
                    self._runs.pop(digest, None)
                    self._refused.pop(digest, None)
                    return None
                if self._refused.get(digest) == accepted:
                    return None
                run = self._runs.get(digest)
                if run is not None and run.accepted != accepted:
                    del self._runs[digest]  # so that it begins no other answer
                    if run.answering.locked():  # it gives one, on the terms as they were
                        self._runs[digest] = run
                        return run
                if digest not in self._runs:
                    begun = self._begun(accepted)
                    entries = self.ledger.releases()
                    self._left[digest] = self._receipt(begun, entries)
                    self._show(begun, self.shown)
                    self._runs[digest] = begun
            except (LedgerUnusable, StoreUnusable) as error:  # it may become usable again
                self._runs.pop(digest, None)
                self._rate_limited(f"an accepted agreement is not served for now: {error}")
                return None
            except FedldpError as error:
                assert accepted is not None
                self._refused[digest] = accepted
                log.error("an accepted agreement is not served: %s", error)
                return None
            return self._runs[digest]

    def _begun(self, accepted: Acceptance) -> ServedRun:
        agreement, policy = accepted.allowed(self.policy)
        source = self._source.labelled(policy.label_column)
        accepted.check_data(policy, source.digest)
        config, problem = agreement.config, agreement.problem
        keys: Keys = SecretKeys(self.ledger.secret, agreement.run)
        if agreement.test_seed is not None:
            if not self._test_keys:
                check_randomness(agreement)
            keys = SimulationKeys(agreement.test_seed, policy.in_roster(agreement)[0])
        opened = open_run(policy, agreement, source, keys, self.ledger)
        index, role, store = opened.index, opened.role, opened.store
        if opened.stale:
            store.forget()
        if opened.drawn:
            note(opened.examples, store)
        runtime = ClientRuntime.of_one(
            index=index,
            examples=opened.examples,
            role=role,
            policy=Policy(
                run=agreement.run,
                rounds=config.rounds,
                phases=role.phases,
                trains_in=role.trains_in,
                initial=None if agreement.initial is None else bytes.fromhex(agreement.initial),
                layout=config.layout(problem),
            ),
            keys=_Noting(keys, partial(note, opened.examples, store)),
            store=store,
            ledgers=self.ledger,
            failed=self._failed,
        )
        log.info(
            "takes part in run %s as %s: %s, %d rounds, channel %s",
            agreement.run[:8],
            agreement.sites[index].name,
            config.name(),
            config.rounds,
            agreement.channel,
        )
        self.largest_message = max(self.largest_message, largest_message(agreement))
        return ServedRun(accepted, agreement, policy, index, role.reporting, runtime)

    # Messages

    def _end(self, run: ServedRun, end: End) -> None:
        """Answer nothing more in a run, if its own server says that the run is over."""
        server, named, name = run.policy.server[0], run.agreement.server_ca, run.agreement.run
        found = authorities_of(server.ca)
        known = [each for each in found if not named or fingerprint(each) in named]
        host = urlsplit(server.url).hostname or ""
        if not is_of_server(end.signed, end.signature, end.chain, host, known):
            self._rate_limited(f"the end of run {name[:8]} is not signed by its server")
            return
        self._accepted.finish(end.digest)
        log.info("run %s is over after %d rounds", name[:8], end.rounds)
        answered = rounds_answered([each for each in self.shown or () if each.run == name])
        if len(answered) > end.rounds + 1:  # it may have answered one that was not completed
            log.warning(
                "run %s: this site answered %d rounds, and the server's statement counts fewer, as "
                "if the server was restored from an older copy; tell its operator",
                *(name[:8], len(answered)),
            )

    def _answered(
        self, run: ServedRun, message: Ask
    ) -> tuple[Answered, bytes, list[Release] | None, str | None]:
        """Return an answer, and the receipt, entries and refusal to show once it has left."""
        shown, left = message.receipt, self._left[message.digest]
        try:
            before = self._kept.check()
            self._check_receipt(run, shown, before)
            with one_thread():
                answer = run.runtime.answer(message.request)
            _, phase, content = read_reply(answer)
            # Before that phase, a copy that lacks the answer would only begin the round again.
            marks = phase >= run.reporting and not isinstance(content, Refusal)
            entries = self._kept.keep() if marks else self.ledger.releases()
            own = self._receipt(run, entries)
            self._tell(run, content, len(answer), before, entries)
        except LedgerUnusable as error:
            self._rate_limited(f"refused: {error}", "refused for the ledger")
            # Give back the receipt that the server showed; it will show the same one next time.
            refused = Answered(shown, self._refused_for_ledger(run, message))
            return refused, left, self.shown, str(error)
        answered = Answered(self._later(shown, own, entries), answer)
        return answered, self._later(left, own, entries), entries, None

    def _tell(
        self,
        run: ServedRun,
        content: Report | Refusal,
        size: int,
        before: list[Release],
        entries: list[Release],
    ) -> None:
        name = run.agreement.run
        if isinstance(content, Refusal):
            # A server can ask for any number of rounds, so the log is rate-limited by reason, not
            # by round.
            reason = content.reason.value
            what = f"round {content.round} of run {name[:8]}: refused: {reason}"
            self._rate_limited(what, f"refused {name} {reason}")
            return
        place = f"round {content.round} of run {name[:8]}"
        new = [entry for entry in entries[len(before) :] if entry.run == name]
        if not new:
            log.info("%s: answered again, with the same bytes and at no cost", place)
            return
        entry = new[-1]
        nothing = sent_of_nothing(entry.event)
        if nothing is not None:
            log.info("%s: sent %s, which reveal nothing", place, nothing.replace("-", " "))
            return
        words = [
            f"{account.budget.amount(cost)}, and {number(account.left, up=False)} is left"
            for account, cost in zip(self.ledger.accounts(entries), entry.costs, strict=True)
        ]
        log.info(
            "%s: released one report of %d bytes; it cost %s; release %d, hash %s",
            place,
            size,
            "; ".join(words),
            entry.number,
            entry.hash[:LEAST_HASH],
        )

    def _failed(self, error: Exception) -> None:
        what = f"training or encoding failed: {type(error).__name__}"
        self._rate_limited(f"{what}; a public value or a refusal is sent instead")

    def _wait_since(self, asked: float) -> None:
        """Delay an answer so that its time does not reveal how long computing it took."""
        fixed = self.policy.answer_after_seconds
        left = asked + fixed - time.monotonic()
        if left > 0:
            time.sleep(left)
        elif fixed:
            self._rate_limited(
                f"answer_after_seconds = {fixed:g}: an answer took longer than that, which its "
                "timing revealed; raise the setting"
            )

    # Receipts

    def _check_receipt(self, run: ServedRun, receipt: bytes, entries: list[Release]) -> None:
        """Refuse if the server saw a release that the ledger lacks.

        Raises:
            LedgerUnusable: the server saw such a release, or this site never gave the receipt.
        """
        if receipt == NO_RECEIPT:
            return
        seen = self._receipts.read(receipt)
        if seen is None:
            # Refuse only this server: it must not be able to stop answers to others.
            raise LedgerUnusable(
                f"run {run.agreement.run[:8]}: its server shows a receipt that this site's "
                "key never made; tell the server's operator"
            )
        if not seen.known_in(entries) and seen.restores >= self._kept.restores:
            # A declared restore charges all releases before it, but this release came after the
            # last restore.
            self._kept.refuse_for(seen)

    def _receipt(self, run: ServedRun, entries: list[Release]) -> bytes:
        """Return the receipt of the run's last release, which reveals nothing about other runs."""
        of_run = [entry for entry in entries if entry.run == run.agreement.run]
        return self._receipts.of(of_run[-1], self._kept.restores) if of_run else NO_RECEIPT

    def _later(self, one: bytes, other: bytes, entries: list[Release]) -> bytes:
        """Return the receipt whose release is later in the ledger; ``one`` if both are missing."""

        def number(receipt: bytes) -> int:
            seen = self._receipts.read(receipt)
            return seen.number if seen is not None and seen.known_in(entries) else 0

        return other if number(other) > number(one) else one

    def _refused_for_ledger(self, run: ServedRun, message: Ask) -> bytes:
        try:
            request = read_request(message.request)
        except WireError:
            return pack_reply(Refusal(round=0, reason=Reason.MALFORMED), run="", phase=0)
        refusal = Refusal(round=request.broadcast.round, reason=Reason.LEDGER)
        return pack_reply(refusal, run=run.agreement.run, phase=request.phase)


@dataclass(frozen=True)
class OpenedRun:
    """What a site needs to take part in a run.

    Attributes:
        index: the site's index in the roster.
        role: the role that computes its answers.
        examples: the examples in the form that the agreement requires.
        store: what the site stores for the run.
        drawn: whether something is drawn once for the examples in their order, before any round.
        stale: whether what is stored is of other examples, of which nothing was released.
    """

    index: int
    role: ClientRole
    examples: Examples
    store: LedgerStore
    drawn: bool
    stale: bool


def open_run(
    policy: SitePolicy,
    agreement: Agreement,
    source: SiteData,
    keys: Keys,
    ledger: SqliteLedger,
) -> OpenedRun:
    """Return what a site needs to take part in a run, without writing anything.

    Raises:
        FedldpError: the site cannot take part.
    """
    index, key = policy.in_roster(agreement)
    device = choose_device(policy.device)
    role = client_role(agreement, index, key, device)
    drawn = list[str]()
    noting = _Noting(keys, lambda: drawn.append("rows"))
    examples = examples_for(agreement, source, policy.data, role.most_examples, noting.kept)
    store = LedgerStore(ledger, agreement.run)
    begun = any(e.run == agreement.run for e in ledger.releases())
    once = any(map(drawn_once, agreement.events_of(0)))
    noted = check_unchanged(examples, store, policy.data, begun=begun, charged_once=once)
    stale = not begun and (noted is False or (once and noted is None))
    return OpenedRun(index, role, examples, store, once or bool(drawn), stale)


@dataclass(frozen=True)
class _Noting:
    """Keys that call a function before they draw something only once in the run."""

    keys: Keys
    note: Callable[[], object]

    @property
    def simulated(self) -> bool:
        return self.keys.simulated

    def fresh(self, round: int, phase: int, purpose: str) -> Stream:
        """See ``Keys``."""
        return self.keys.fresh(round, phase, purpose)

    def kept(self, purpose: str) -> Stream:
        """See ``Keys``."""
        self.note()
        return self.keys.kept(purpose)


def check_randomness(agreement: Agreement) -> None:
    """Refuse an agreement whose randomness comes from a seed.

    Raises:
        PrivacyError: the randomness comes from a seed.
    """
    if agreement.test_seed is not None:
        raise PrivacyError(
            "the agreement draws all randomness from a seed, which protects nothing; only "
            "`fedldp deploy demo` may do that"
        )


def largest_message(agreement: Agreement) -> int:
    """Return the size limit of a message in bytes: weights, ranges, masks, keys, sealed shares."""
    sites, weights = len(agreement.sites), agreement.layout.size
    return _LEAST_BYTES + _BYTES_OF_WEIGHT * weights + _BYTES_OF_SITE * sites
