"""The site agent: the one program at a site that sees examples, and decides what leaves it.

    socket -> CHALLENGE: who am I in this agreement?
           -> ASK:   is the agreement accepted, does the ledger hold what the server saw of it?
                     -> client runtime: policy, ledger, training, encoder, ledger -> answer

What asks, and how, is no matter: whatever is not in an accepted agreement is refused in a message
that depends on no example. The log says in plain words what was released and what it cost; no
weight, report or example is ever in it.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

from fedldp.accounting.accountants import sent_of_nothing
from fedldp.core.errors import FedldpError, LedgerUnusable, PrivacyError, WireError
from fedldp.core.formatting import number
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.channels import client_side
from fedldp.deployment.examples import begin_with, check_unchanged, examples_for
from fedldp.deployment.identity import read_private
from fedldp.deployment.messages import (
    NO_RECEIPT,
    Answered,
    Ask,
    Challenge,
    Hello,
    Stranger,
    pack,
    read_by_site,
    to_sign,
)
from fedldp.deployment.policy import (
    SitePolicy,
    accepted_agreement,
    make_accepted,
    own_place,
    private_to_owner,
)
from fedldp.deployment.rate_limited_log import RateLimitedLog
from fedldp.deployment.restored import Restored, open_ledger
from fedldp.deployment.source import open_source
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.client_keys import Keys, SecretKeys, SimulationKeys, read_secret
from fedldp.protocol.client_runtime import ClientRuntime
from fedldp.protocol.client_store import FolderStore
from fedldp.protocol.policy import Policy
from fedldp.protocol.wire import Reason, Refusal, pack_reply, read_reply, read_request
from fedldp.simulation.inputs import choose_device
from fedldp.training.tensors import one_thread

log = logging.getLogger("fedldp.site")

_LEAST_BYTES = 1 << 20
_BYTES_OF_WEIGHT = 32
_BYTES_OF_SITE = 256


@dataclass(frozen=True)
class _Run:
    """An accepted agreement that this site takes part in."""

    agreement: Agreement
    index: int
    runtime: ClientRuntime


class Agent:
    """A site's agent: bytes in, bytes out; safe for several threads.

    Args:
        policy: the site's.
        test_keys: agreements whose randomness comes from a seed may be served: for the demo alone.

    Raises:
        FedldpError: the key, the ledger, the secret or the data cannot be used.
    """

    def __init__(self, policy: SitePolicy, *, test_keys: bool = False) -> None:
        self.policy = policy
        self._test_keys = test_keys
        self._key = read_private(policy.key)
        self._public = self._key.public_key().public_bytes_raw().hex()
        make_accepted(policy)
        if not private_to_owner(policy.state):
            raise PrivacyError(f"state {policy.state}: it is open to others; run chmod 700 on it")
        self._ledger = open_ledger(policy)
        self._secret = _secret(policy, self._ledger)
        self._source = open_source(policy.data, policy.label_column, policy.person_column)
        self._runs: dict[bytes, _Run] = {}
        self._refused: set[bytes] = set()
        self._left: dict[bytes, bytes] = {}  # receipts of the latest answers, by agreement
        self._beginning, self._answering = threading.Lock(), threading.Lock()
        self._rate_limited = RateLimitedLog(log)
        self.largest_message = _LEAST_BYTES
        for path in sorted(policy.accepted.glob("*.agreement")):
            with suppress(ValueError):
                self._run(bytes.fromhex(path.stem))

    def answer(self, body: bytes) -> bytes:
        """Return what is said to a server's message."""
        try:
            message = read_by_site(body)
        except WireError:
            self._rate_limited("a malformed message was refused")
            return pack(Stranger())
        run = self._run(message.digest)
        if run is None:
            self._rate_limited("a question of an agreement that is not accepted here was refused")
            return pack(Stranger())
        if isinstance(message, Challenge):
            return pack(self._hello(run, message))
        with self._answering:
            # Its own time, and held until it leaves: of questions that come together, how long the
            # last one waits would tell how long all the others took.
            asked = time.monotonic()
            answered = self._answered(run, message)
            answer = pack(answered)
            self._wait_since(asked)
            self._leaves(run, answered.receipt)
        return answer

    def _run(self, digest: bytes) -> _Run | None:
        """Return the run of an accepted agreement, which is looked up once."""
        with self._beginning:
            if not self.policy.accepted_as(digest).exists():  # or not any more
                self._runs.pop(digest, None)
                self._refused.discard(digest)
                return None
            if digest in self._refused:
                return None
            if digest not in self._runs:
                try:
                    agreement = accepted_agreement(self.policy, digest)
                    if agreement is None:
                        return None
                    self._runs[digest] = begun = self._begun(agreement)
                    self._left[digest] = self._receipt(begun)
                except LedgerUnusable as error:  # perhaps not for long
                    self._runs.pop(digest, None)
                    self._rate_limited(f"the ledger cannot be used: {error}")
                    return None
                except FedldpError as error:
                    self._refused.add(digest)
                    log.error("an accepted agreement is not served: %s", error)
                    return None
                self.largest_message = max(self.largest_message, _largest(agreement))
            return self._runs[digest]

    def _begun(self, agreement: Agreement) -> _Run:
        index = own_place(agreement, self._public)
        config, problem = agreement.config, agreement.problem
        side = client_side(agreement, index, self._key, choose_device(self.policy.device))
        keys: Keys = SecretKeys(self._secret, agreement.run)
        if agreement.test_seed is not None:
            if not self._test_keys:
                raise PrivacyError(
                    "the agreement draws all randomness from a seed, which protects nothing; it "
                    "is for `fedldp deploy demo` alone"
                )
            keys = SimulationKeys(agreement.test_seed, index)
        examples = examples_for(
            agreement, self._source, self.policy.data, side.most_examples, keys.kept
        )
        store = FolderStore(self.policy.state / "kept", agreement.run)
        if agreement.draws_once:
            begun = any(entry.run == agreement.run for entry in self._ledger.releases())
            if not check_unchanged(examples, store, self.policy.data, begun=begun):
                begin_with(examples, store)
        runtime = ClientRuntime.of_one(
            index=index,
            examples=examples,
            side=side,
            policy=Policy(
                run=agreement.run,
                rounds=config.rounds,
                phases=side.phases,
                trains_in=side.trains_in,
                layout=config.layout(problem),
            ),
            keys=keys,
            store=store,
            ledgers=self._ledger,
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
        return _Run(agreement, index, runtime)

    # Messages

    def _hello(self, run: _Run, message: Challenge) -> Hello:
        signed = to_sign(message.digest, message.challenge, run.index)
        # Without a look at the ledger: what it holds now, and that it is being written, tells when
        # training ended.
        return Hello(run.index, self._key.sign(signed), self._left[message.digest])

    def _answered(self, run: _Run, message: Ask) -> Answered:
        try:
            if message.receipt not in self._receipts(run):
                refused = self._older_ledger(run, message)
                if refused is not None:
                    return refused
            return self._released(run, message)
        except LedgerUnusable as error:
            self._rate_limited(f"the ledger cannot be used: {error}")
            return Answered(message.receipt, self._refused_for_ledger(run, message))

    def _released(self, run: _Run, message: Ask) -> Answered:
        before = len(self._ledger.releases())
        with one_thread():
            answer = run.runtime.answer(message.question)
        self._tell(run, answer, before)
        return Answered(self._receipt(run), answer)

    def _tell(self, run: _Run, answer: bytes, before: int) -> None:
        name, _exchange, content = read_reply(answer)
        if isinstance(content, Refusal):
            # A server can ask for as many rounds as it likes: of one reason there is one line.
            reason = content.reason.value
            what = f"round {content.round} of run {name[:8]}: refused: {reason}"
            self._rate_limited(what, f"refused {run.agreement.run} {reason}")
            return
        entries = self._ledger.releases()
        place = f"round {content.round} of run {name[:8]}"
        if len(entries) == before:
            log.info("%s: answered again, with the same bytes and at no cost", place)
            return
        entry = entries[-1]
        nothing = sent_of_nothing(entry.event)
        if nothing is not None:
            log.info("%s: sent %s, which tell nothing", place, nothing)
            return
        left = self._ledger.all_remaining(entries)
        words = [
            f"{budget.amount(cost)}, and {number(rest, up=False)} is left"
            for budget, cost, rest in zip(self._ledger.budgets, entry.costs, left, strict=True)
        ]
        log.info(
            "%s: released one report of %d bytes; it cost %s",
            place,
            len(answer),
            "; ".join(words),
        )

    def _failed(self, error: Exception) -> None:
        what = f"training or encoding failed: {type(error).__name__}"
        self._rate_limited(f"{what}; something public is sent, or a refusal")

    def _wait_since(self, asked: float) -> None:
        """Let an answer leave at a time that does not tell how long it took."""
        fixed = self.policy.answer_after_seconds
        left = asked + fixed - time.monotonic()
        if left > 0:
            time.sleep(left)
        elif fixed:
            self._rate_limited(
                f"answer_after_seconds = {fixed:g}: an answer took longer, and its time told that; "
                "raise it"
            )

    # Receipts

    def _receipts(self, run: _Run) -> list[bytes]:
        """Return the receipts of all that the ledger has held of a run, from none to the latest."""
        name = run.agreement.run
        return [NO_RECEIPT] + [
            hmac.digest(self._secret, f"receipt {name} {entry.hash}".encode(), hashlib.sha256)
            for entry in self._ledger.releases()
            if entry.run == name
        ]

    def _receipt(self, run: _Run) -> bytes:
        return self._receipts(run)[-1]

    def _leaves(self, run: _Run, receipt: bytes) -> None:
        """Note the receipt of an answer that leaves now, if none of a later one has left."""
        digest = run.agreement.digest
        with suppress(LedgerUnusable):
            known, left = self._receipts(run), self._left[digest]
            if receipt in known and (left not in known or known.index(left) < known.index(receipt)):
                self._left[digest] = receipt

    def _older_ledger(self, run: _Run, message: Ask) -> Answered | None:
        """Return the refusal of a site whose ledger lacks what the server saw; None to go on.

        It hands the server's own receipt back, so that the server goes on to show it: the receipt
        of the older ledger would make the next round look well.
        """
        name = run.agreement.run
        if Restored(self.policy).tolerates(run.agreement, message.receipt):
            return None
        self._rate_limited(
            f"run {name[:8]}: refused: the server saw an answer that this ledger does not know. If "
            "it was restored from an older copy, stop the agent, and run: fedldp deploy restored",
            f"older ledger {name}",
        )
        return Answered(message.receipt, self._refused_for_ledger(run, message))

    def _refused_for_ledger(self, run: _Run, message: Ask) -> bytes:
        try:
            question = read_request(message.question)
        except WireError:
            return pack_reply(Refusal(round=0, reason=Reason.MALFORMED), run="", phase=0)
        refusal = Refusal(round=question.broadcast.round, reason=Reason.LEDGER)
        return pack_reply(refusal, run=run.agreement.run, phase=question.phase)


def _secret(policy: SitePolicy, ledger: SqliteLedger) -> bytes:
    """Return the site's secret, which is made where nothing was released yet.

    Raises:
        PrivacyError: it is gone. What was drawn from it once, and paid once, would be drawn anew.
    """
    path = policy.state / "secret"
    if not path.exists() and ledger.releases():
        raise PrivacyError(
            f"state {policy.state}: the secret is gone, and ledger {policy.ledger} has releases "
            "that were drawn from it; restore the folder from a copy"
        )
    return read_secret(path)


def _largest(agreement: Agreement) -> int:
    """Return the bytes of a message's largest part: weights, ranges and masks, keys and boxes."""
    sites, weights = len(agreement.sites), agreement.layout.size
    return _LEAST_BYTES + _BYTES_OF_WEIGHT * weights + _BYTES_OF_SITE * sites
