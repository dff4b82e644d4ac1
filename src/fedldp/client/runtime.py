"""One client in one run: from the bytes of a question to the bytes of its answer.

    question -> policy    did this client agree to such a question?
             -> ledger    was it answered already (the same bytes again), can it be paid?
             -> keys, store, step, encoder
             -> ledger    the answer's bytes are charged, kept and synced
             -> answer

The same code runs in a simulation, in its workers, and at a site: only the keys, the store and the
ledger differ. Whatever is refused is refused in a normal answer, which depends on no example.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from fedldp.accounting.accountants import is_idealised
from fedldp.accounting.budget import draws_once
from fedldp.accounting.events import Event
from fedldp.accounting.ledger import (
    AskedOtherwise,
    Ledgers,
    LedgerUnusable,
    NoLongerKept,
    OutOfTurn,
    OverBudget,
    Place,
)
from fedldp.client.keys import Keys
from fedldp.client.policy import Policy
from fedldp.client.store import Trial
from fedldp.data.examples import Examples
from fedldp.errors import PrivacyError, WireError
from fedldp.parts.changes import alone
from fedldp.parts.sides import Batch, Client, ClientSide, Sender, Store
from fedldp.randomness import KEY_BYTES, Stream
from fedldp.wire import (
    Broadcast,
    Question,
    Reason,
    Refusal,
    Sensitive,
    pack_answer,
    read_question,
)

_REASONS: dict[type[PrivacyError], Reason] = {
    OverBudget: Reason.OVER_BUDGET,
    AskedOtherwise: Reason.ASKED_OTHERWISE,
    NoLongerKept: Reason.NOT_KEPT,
    OutOfTurn: Reason.POLICY,
    LedgerUnusable: Reason.LEDGER,
}


_DRAWN = "drawn-once"
"""What a store holds once something was drawn that is never drawn again in the run."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pending:
    """A question that will be answered, once the client has trained.

    Attributes:
        question: as it was read.
        digest: SHA-256 of the question's bytes.
        event: what the answer will release.
        client: what the client step is given.
    """

    question: Question
    digest: bytes
    event: Event
    client: Client

    @property
    def broadcast(self) -> Broadcast:
        """What the server told."""
        return self.question.broadcast


@dataclass(frozen=True, kw_only=True)
class ClientRuntime:
    """A client that answers one run's questions, and protects itself in doing so.

    Guarantee: every answer that is no refusal was charged to the ledger, at the price of the event
    that the encoder states, before it left; for one (run, round, exchange) there is one such answer
    at most; and whether an answer is a refusal depends on no example.

    Attributes:
        index: the client's number.
        examples: its private examples.
        side: the system's half that runs here.
        policy: what it agreed to.
        keys: its randomness.
        store: what it keeps.
        ledger: its own, or one that has its own.
        failed: is shown what goes wrong in training or encoding. Where it returns, training that
            failed is answered as training that gave NaN is: with a public vector. Where it is None,
            a simulation raises the error, and a client of its own logs of what kind it is.

    Raises:
        PrivacyError: the system is for simulation only, and the keys are not; or the keys are of
            another run, the client has not as many examples as its answers are charged for, or a
            label is outside of the classes.
    """

    index: int
    examples: Examples
    side: ClientSide
    policy: Policy
    keys: Keys
    store: Store
    ledger: Ledgers
    failed: Callable[[Exception], None] | None = None
    trained: dict[tuple[int, int], bytes] = field(default_factory=dict, init=False, repr=False)
    """The questions of the latest round that were trained for, by (round, exchange)."""

    def __post_init__(self) -> None:
        most = self.side.most_examples
        if most is not None and len(self.examples) > most:
            raise PrivacyError(
                f"examples: the client has {len(self.examples)}, and what it sends is charged for "
                f"{most}; leave some out"
            )
        if self.keys.simulated:
            return
        if getattr(self.keys, "run", self.policy.run) != self.policy.run:
            raise PrivacyError(f"keys: they are not of the run {self.policy.run}")
        if most is not None and len(self.examples) < most:
            # With fewer its answers tell how many: an equal share is what is public, and charged.
            raise PrivacyError(
                f"examples: the client has {len(self.examples)}, and what it sends is charged for "
                f"{most}, no fewer; add public ones"
            )
        labels, classes = self.examples.labels, self.side.num_classes
        if classes is not None and len(labels) and not 0 <= labels.min() <= labels.max() < classes:
            # Training would fail on these examples alone, and an answer without training show it.
            raise PrivacyError(f"examples: a label is none of 0 to {classes - 1}; leave it out")
        for exchange in range(self.side.exchanges):
            event = self.side.encoder.event(exchange)
            if is_idealised(event):
                raise PrivacyError(
                    f"event {type(event).__name__}: it is private for real numbers only, not for "
                    "the floats that would be sent; take a mechanism that can be deployed"
                )

    def answer(self, message: bytes) -> bytes:
        """Return the answer to a question; both are bytes as ``wire`` packs them."""
        pending = self.prepare(message)
        return pending if isinstance(pending, bytes) else self.finish(pending, self._train(pending))

    def prepare(self, message: bytes) -> Pending | bytes:
        """Return what is to be trained for a question, or the answer where there is none to be.

        ``finish`` completes it. Between the two a simulation may train many clients at once.
        """
        try:
            question, digest, reason = read(self.policy, message)
        except WireError:
            return pack_answer(Refusal(round=0, reason=Reason.MALFORMED), run="", exchange=0)
        round, exchange = question.broadcast.round, question.exchange
        if reason is not None:
            refusal = Refusal(round=round, reason=reason)
            return pack_answer(refusal, run=question.run, exchange=exchange)
        try:
            event = self.side.encoder.event(exchange)
        except Exception as error:  # of a mechanism that states now what it may not
            self._failed(error)
            return self._refusal(round, exchange, Reason.POLICY)
        place = Place(self.policy.run, round, exchange, digest)
        (verdict,) = self.ledger.check(
            place, event, [self.index], self.side.turns, lambda client: self.store.holds(_DRAWN)
        )
        if isinstance(verdict, PrivacyError):
            return self._refusal(round, exchange, _reason_of(verdict))
        if verdict is not None:
            return verdict
        if not self.keys.simulated and not self._is_answerable(question.broadcast, exchange):
            return self._refusal(round, exchange, Reason.POLICY)
        if not self._is_first(round, exchange, digest):
            return self._refusal(round, exchange, Reason.ASKED_OTHERWISE)
        client = Client(
            index=self.index,
            examples=self.examples,
            fresh=partial(self.keys.fresh, round, 0),  # training, which a round has once
            kept=self.keys.kept,
            store=self.store,
            exchange=exchange,
        )
        return Pending(question, digest, event, client)

    def finish(self, pending: Pending, update: Sensitive[Any]) -> bytes:
        """Return the answer to a question that ``prepare`` let pass, from what training gave."""
        client, broadcast = pending.client, pending.broadcast
        sender = Sender(
            index=self.index,
            num_examples=Sensitive(len(self.examples)),
            fresh=partial(self.keys.fresh, broadcast.round, client.exchange - self.side.reporting),
            kept=client.kept,
            store=client.store,
            exchange=client.exchange,
        )

        def make() -> list[bytes]:
            if draws_once(pending.event):
                self.store.arrays(_DRAWN, lambda: {"once": np.ones(1, np.uint8)})
            report = alone(self.side.encoder, update, broadcast, sender)
            return [pack_answer(report, run=self.policy.run, exchange=client.exchange)]

        round = broadcast.round
        place = Place(self.policy.run, round, client.exchange, pending.digest)
        try:
            released = self.ledger.release(
                place, pending.event, [self.index], make, self.side.turns
            )
            (row,) = released
            if isinstance(row, PrivacyError):
                raise row
            return bytes(row)
        except tuple(_REASONS) as error:
            if isinstance(error, LedgerUnusable):
                _log.error("nothing was released: %s", error)  # for whose disk is full
            return self._refusal(round, client.exchange, _reason_of(error))
        except Exception as error:  # of the encoder, whose refusals depend on the question alone
            self._failed(error)
            return self._refusal(round, client.exchange, Reason.POLICY)

    def _is_answerable(self, broadcast: Broadcast, exchange: int) -> bool:
        """Return whether the encoder can answer what is asked: it is tried out without an example.

        Nothing of that is kept or sent. Else it would turn out after training, whose time tells of
        the examples, and a server could have that as often as it likes, at no cost.
        """
        nothing = Stream(bytes(KEY_BYTES), simulated=False)
        trial = Sender(
            index=self.index,
            num_examples=Sensitive(len(self.examples)),
            fresh=lambda purpose: nothing,
            kept=self.keys.kept,
            store=Trial(self.store),
            exchange=exchange,
        )
        try:
            alone(self.side.encoder, Sensitive(None), broadcast, trial)
        except Exception as error:
            self._failed(error)
            return False
        return True

    def _is_first(self, round: int, exchange: int, digest: bytes) -> bool:
        """Return whether nothing else was trained for here.

        Where an answer fails after training all the same, there is no second one in the round.
        """
        if any(latest > round for latest, _ in self.trained):
            return False
        for place in [place for place in self.trained if place[0] < round]:
            del self.trained[place]
        return self.trained.setdefault((round, exchange), digest) == digest

    def _train(self, pending: Pending) -> Sensitive[Any]:
        if pending.client.exchange != self.side.trains_in:
            return Sensitive(None)
        try:
            batch = Batch.of_one(pending.client)
            return self.side.step(pending.broadcast, batch)
        except Exception as error:
            self._failed(error)
            return Sensitive(None)

    def _failed(self, error: Exception) -> None:
        if self.failed is not None:
            self.failed(error)
        elif self.keys.simulated:
            raise error
        else:
            _log.error("training or encoding failed: %s", type(error).__name__)  # and no data

    def _refusal(self, round: int, exchange: int, reason: Reason) -> bytes:
        refusal = Refusal(round=round, reason=reason)
        return pack_answer(refusal, run=self.policy.run, exchange=exchange)


@lru_cache(maxsize=4)
def read(policy: Policy, message: bytes) -> tuple[Question, bytes, Reason | None]:
    """Read a question, which many simulated clients are asked in the same words, once."""
    question = read_question(message)
    return question, hashlib.sha256(message).digest(), policy.refuses(question)


def _reason_of(error: PrivacyError) -> Reason:
    return next((r for kind, r in _REASONS.items() if isinstance(error, kind)), Reason.LEDGER)
