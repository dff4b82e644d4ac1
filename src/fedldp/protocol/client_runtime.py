"""Clients in one run: a request comes in as bytes, and their answers go out as bytes.

    request  -> policy         did they agree to such a request?
             -> ledgers        was it answered before (then the same bytes), can it be paid for?
             -> local update   on private examples; the result is sealed, NaN where it fails
             -> encoder        bound and mechanism: a report for each row
             -> ledgers        the answers are charged for; their bytes are kept and synced
             -> answers

A simulation, its workers, the audit and a site all run this code; they differ only in the members,
their keys and stores, and the ledgers. A site has one member. Where there are many clients, they
are divided into groups of consecutive clients, and each group takes every step together. A client
that refuses leaves its group before the group trains, and clients whose reports release different
things are encoded and charged separately. A refusal is sent like any other answer, and it does not
depend on any example.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Protocol, Self

import numpy as np

from fedldp.accounting.accountants import drawn_once, real_arithmetic_only
from fedldp.accounting.events import Event
from fedldp.core.bounding import within_largest_weight
from fedldp.core.errors import (
    AskedOtherwise,
    FedldpError,
    LedgerUnusable,
    NoLongerKept,
    OutOfTurn,
    OverBudget,
    PrivacyError,
    RunError,
    StoreUnusable,
    WireError,
)
from fedldp.core.randomness import KEY_BYTES, Source, Stream, check_purpose
from fedldp.data.examples import Examples
from fedldp.ledgers.protocol import Ledgers, Place, Rows
from fedldp.protocol.client_store import MemoryStore
from fedldp.protocol.keys import Keys
from fedldp.protocol.roles import (
    Batch,
    Client,
    ClientRole,
    Encoder,
    LocalUpdate,
    Senders,
    Store,
    Update,
)
from fedldp.protocol.updates import check_shape, rows_of
from fedldp.protocol.wire import (
    Broadcast,
    Layout,
    Reason,
    Refusal,
    RoundRequest,
    Sensitive,
    Vector,
    pack_reply,
    pack_reports,
    read_request,
)

_REASONS: dict[type[PrivacyError], Reason] = {
    OverBudget: Reason.OVER_BUDGET,
    AskedOtherwise: Reason.ASKED_OTHERWISE,
    NoLongerKept: Reason.NOT_KEPT,
    OutOfTurn: Reason.POLICY,
    LedgerUnusable: Reason.LEDGER,
}


_DRAWN = "drawn-once"
"""The name under which a store records that a once-only choice was drawn in the run."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EncoderGroup:
    """Clients of a group that share an encoder and a limit on rounds.

    Attributes:
        encoder: the encoder that they share.
        max_rounds: how many rounds of the run each may answer; None for all of them.
        places: their positions in the group, ascending.
    """

    encoder: Encoder
    max_rounds: int | None
    places: Sequence[int]


class Members(Protocol):
    """The clients of a runtime, with their roles, randomness and stores.

    Attributes:
        indices: the clients' numbers.
        simulated: whether their keys come from a seed; such keys protect nothing.
        local_update: what they compute from their examples.
        trains_in: the phase of a round in which they train.
    """

    @property
    def indices(self) -> Sequence[int]: ...

    @property
    def simulated(self) -> bool: ...

    @property
    def local_update(self) -> LocalUpdate: ...

    @property
    def trains_in(self) -> int: ...

    def check(self, policy: Policy) -> None:
        """Refuse terms that would leave the clients unprotected, before any request arrives.

        Raises:
            PrivacyError: the terms would leave a client unprotected.
        """
        ...

    def encoder_groups(self, indices: Sequence[int]) -> Sequence[EncoderGroup]:
        """Return some of the clients, grouped by what their answers release."""
        ...

    def batch(self, indices: Sequence[int], round: int) -> Batch:
        """Return some clients as their local update sees them; the update runs once in a round."""
        ...

    def senders(self, indices: Sequence[int], round: int, phase: int) -> Senders:
        """Return some of the clients as their encoder sees them in one phase of a round."""
        ...

    def store(self, index: int) -> Store:
        """Return the store of a client, which holds what it keeps from round to round."""
        ...


@dataclass(frozen=True, kw_only=True)
class OneClient:
    """A single client, as at a site: the ``Members`` of its runtime.

    Attributes:
        index: the client's number.
        examples: the client's private examples.
        role: the client's role in the system.
        keys: the client's randomness.
        kept: the client's store.
    """

    index: int
    examples: Examples = field(repr=False)
    role: ClientRole
    keys: Keys
    kept: Store

    @property
    def indices(self) -> Sequence[int]:
        """A list that contains only the client's number."""
        return [self.index]

    @property
    def simulated(self) -> bool:
        """Whether the client's keys come from a seed."""
        return self.keys.simulated

    @property
    def local_update(self) -> LocalUpdate:
        """What the client computes from its examples."""
        return self.role.local_update

    @property
    def trains_in(self) -> int:
        """The phase of a round in which the client trains."""
        return self.role.trains_in

    def check(self, policy: Policy) -> None:
        """Refuse a system, keys or examples that would leave the client unprotected.

        Raises:
            PrivacyError: the system is for simulation only, but the keys are real; or the keys
                belong to another run, the client has more or fewer examples than its answers are
                charged for, or a label is not one of the classes.
        """
        check_count(len(self.examples), self.role.most_examples)
        if not self.simulated:
            self._check_real(policy)

    def _check_real(self, policy: Policy) -> None:
        if getattr(self.keys, "run", policy.run) != policy.run:
            raise PrivacyError(
                f"keys: they belong to another run; give the keys for run {policy.run}"
            )
        most, classes = self.role.most_examples, self.role.num_classes
        if most is not None and len(self.examples) < most:
            # Answers from fewer examples would reveal how many the client has. The charge assumes
            # that every client has an equal share of the examples; the size of this share is
            # public.
            raise PrivacyError(
                f"examples: the client has {len(self.examples)} examples, but its answers are "
                f"charged for {most}, no fewer; add public examples"
            )
        labels = self.examples.labels
        if classes is not None and len(labels) and not 0 <= labels.min() <= labels.max() < classes:
            # Training would fail because of this label, and an answer without training would reveal
            # that.
            raise PrivacyError(
                f"examples: a label is not one of 0 to {classes - 1}; remove that example"
            )
        for round, phase in itertools.product(self.role.first_rounds, range(self.role.phases)):
            event = self.role.encoder.event(phase, round)
            if real_arithmetic_only(event):
                raise PrivacyError(
                    f"event {type(event).__name__}: it is private for real numbers only, not for "
                    "the floats that would be sent; use a mechanism that can be deployed"
                )

    def encoder_groups(self, indices: Sequence[int]) -> Sequence[EncoderGroup]:
        """Return a single group that contains only this client."""
        return [EncoderGroup(self.role.encoder, self.role.max_participations, [0])]

    def batch(self, indices: Sequence[int], round: int) -> Batch:
        """Return the client as its local update sees it, with the streams of phase 0."""
        client = Client(
            index=self.index,
            examples=self.examples,
            fresh=partial(self.keys.fresh, round, 0),
            kept=self.keys.kept,
            store=self.kept,
        )
        return Batch.of_one(client)

    def senders(self, indices: Sequence[int], round: int, phase: int) -> Senders:
        """Return the client as its encoder sees it; the reporting phase uses phase 0's streams."""
        streams = phase - self.role.reporting
        return Senders(
            indices=[self.index],
            num_examples=Sensitive(np.array([len(self.examples)], np.int64)),
            fresh=lambda purpose: [self.keys.fresh(round, streams, purpose)],
            kept=lambda purpose: [self.keys.kept(purpose)],
            store=lambda place: self.kept,
            phase=phase,
        )

    def store(self, index: int) -> Store:
        """Return the client's store."""
        return self.kept


@dataclass(frozen=True, kw_only=True)
class ClientRuntime:
    """Clients that answer one run's requests and protect their data.

    Guarantee: before an answer other than a refusal leaves, the client's ledger is charged the
    price of the event that the encoder states. For one (run, round, phase) a client gives at
    most one such answer. Whether an answer is a refusal depends on no example. If a file of the
    client's store cannot be used, nothing is released and nothing is charged.

    Attributes:
        members: the clients.
        policy: what they agreed to.
        ledgers: the clients' ledgers.
        group: how many consecutive clients go through all steps together; 1 at a site.
        failed: called with any error from training or encoding. If it returns, a client whose
            training failed answers as if training had given NaN: with a public vector. If it is
            None, a simulation raises the error, and a real client logs only the error's type.

    Raises:
        PrivacyError: a member would be left unprotected; see ``Members.check``.
    """

    members: Members
    policy: Policy
    ledgers: Ledgers
    group: int = 1
    failed: Callable[[Exception], None] | None = None
    trained: dict[tuple[int, int], bytes] = field(default_factory=dict, init=False, repr=False)
    """For a single client: digests of the requests that it trained for in the latest round."""

    def __post_init__(self) -> None:
        self.members.check(self.policy)

    @classmethod
    def of_one(
        cls,
        *,
        index: int,
        examples: Examples,
        role: ClientRole,
        policy: Policy,
        keys: Keys,
        store: Store,
        ledgers: Ledgers,
        failed: Callable[[Exception], None] | None = None,
    ) -> Self:
        """Return the runtime of a single client, as at a site; see ``OneClient``."""
        one = OneClient(index=index, examples=examples, role=role, keys=keys, kept=store)
        return cls(members=one, policy=policy, ledgers=ledgers, failed=failed)

    def answer(self, message: bytes) -> bytes:
        """Return the single client's answer to a request; both are bytes, packed by ``wire``."""
        (index,) = self.members.indices
        ((_, (answer,)),) = self.answers(message, [index])
        return bytes(answer)

    def answers(
        self, message: bytes, indices: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Rows]]:
        """Yield the clients' answers to a request in their order, one group at a time.

        Args:
            message: the request, packed.
            indices: the clients that are asked; no client appears twice in a group.

        Raises:
            FedldpError: in a simulation, training or encoding failed or gave NaN; the error names
                the round and the client.
        """
        for start in range(0, len(indices), self.group):
            some = indices[start : start + self.group]
            if len(set(some)) < len(some):
                raise RunError(f"clients {sorted(some)}: one of them appears twice in one group")
            yield some, self._answers(message, some)

    def _answers(self, message: bytes, indices: Sequence[int]) -> Rows:
        try:
            request, digest, reason = read(self.policy, message)
        except WireError:
            refusal = Refusal(round=0, reason=Reason.MALFORMED)
            return [pack_reply(refusal, run="", phase=0)] * len(indices)
        if reason is not None:
            return [_refusal(request, reason)] * len(indices)
        asked = _Asked(self, request, digest, indices)
        if not self.members.simulated or self.failed is not None or len(indices) > 1:
            return asked.answers()
        with naming(request.broadcast.round, int(indices[0])):
            return asked.answers()

    def fails(self, error: Exception) -> None:
        """Report an error from training or encoding, or raise it; see ``failed``."""
        if self.failed is not None:
            self.failed(error)
        elif self.members.simulated:
            raise error
        else:
            _log.error("training or encoding failed: %s", type(error).__name__)  # logs no data


@dataclass(frozen=True)
class _Asked:
    """A request to a group of clients.

    Attributes:
        runtime: the runtime of these clients.
        request: the request, which the clients' policy allows.
        digest: SHA-256 of the request's bytes.
        indices: the clients that are asked.
    """

    runtime: ClientRuntime
    request: RoundRequest
    digest: bytes
    indices: Sequence[int]

    @property
    def broadcast(self) -> Broadcast:
        return self.request.broadcast

    @property
    def place(self) -> Place:
        run, phase = self.runtime.policy.run, self.request.phase
        return Place(run, self.broadcast.round, phase, self.digest)

    def answers(self) -> Rows:
        """Return the answers, in the order of the clients."""
        try:
            return self._answers()
        except StoreUnusable as error:
            if self.runtime.members.simulated and self.runtime.failed is None:
                raise
            _log.error("nothing was released: %s", error)
            return [_refusal(self.request, Reason.LEDGER)] * len(self.indices)

    def _answers(self) -> Rows:
        encoder_groups = self.runtime.members.encoder_groups(self.indices)
        found: dict[int, bytes] = {}
        open_: list[tuple[EncoderGroup, Event]] = []
        for group in encoder_groups:
            try:
                event = group.encoder.event(self.request.phase, self.broadcast.round)
            except (
                Exception
            ) as error:  # from a mechanism that states an event that it must not state
                self.runtime.fails(error)
                refusal = _refusal(self.request, Reason.POLICY)
                found.update(dict.fromkeys(group.places, refusal))
                continue
            places = self._may_train(group, event, found)
            if places:
                open_.append((replace(group, places=places), event))
        if not open_:
            return [found[place] for place in range(len(self.indices))]
        waiting = open_[0][0].places
        if len(open_) > 1:
            waiting = sorted(place for group, _ in open_ for place in group.places)
        update = self._trained(self._at(waiting))
        for group, event in open_:
            rows = self._released(group, event, _part(update, waiting, group.places))
            if len(group.places) == len(self.indices):
                return rows
            found.update(zip(group.places, map(bytes, rows), strict=True))
        return [found[place] for place in range(len(self.indices))]

    def _may_train(
        self, group: EncoderGroup, event: Event, found: dict[int, bytes]
    ) -> Sequence[int]:
        """Return the positions of clients that may train; add the others' answers to ``found``."""
        runtime, members = self.runtime, self.runtime.members
        verdicts = runtime.ledgers.check(
            self.place,
            event,
            self._at(group.places),
            group.max_rounds,
            lambda client: members.store(client).known(_DRAWN) is not None,
        )
        single = len(members.indices) == 1
        if members.simulated and not single and all(each is None for each in verdicts):
            return group.places
        places = []
        for place, verdict in zip(group.places, verdicts, strict=True):
            if isinstance(verdict, StoreUnusable):
                raise verdict
            if isinstance(verdict, PrivacyError):
                found[place] = _refusal(self.request, _reason_of(verdict))
            elif verdict is not None:
                found[place] = verdict
            elif not members.simulated and not self._is_answerable(group, self.indices[place]):
                found[place] = _refusal(self.request, Reason.POLICY)
            elif single and not self._is_first():
                found[place] = _refusal(self.request, Reason.ASKED_OTHERWISE)
            else:
                places.append(place)
        return places

    def _is_answerable(self, group: EncoderGroup, index: int) -> bool:
        """Return whether the encoder can answer the request, according to a trial without examples.

        The trial's output is neither kept nor sent. Without the trial, a failure would show only
        after training, whose duration depends on the examples, and a server could repeat this
        without any charge to the client's budget.
        """
        members, broadcast = self.runtime.members, self.broadcast

        def nothing(purpose: str) -> Sequence[Stream]:
            check_purpose(Source.FRESH, purpose)
            return [Stream(bytes(KEY_BYTES), simulated=False)]

        trial = replace(
            members.senders([index], broadcast.round, self.request.phase),
            fresh=nothing,
            store=lambda place: MemoryStore(members.store(index)),
        )
        try:
            group.encoder(_no_update(broadcast, 1), broadcast, trial)
        except StoreUnusable:
            raise
        except Exception as error:
            self.runtime.fails(error)
            return False
        return True

    def _is_first(self) -> bool:
        """Return whether the client has not trained for another request in this round.

        If an answer still fails after training, the round allows no second attempt.
        """
        _, round, phase, digest = self.place
        trained = self.runtime.trained
        if any(latest > round for latest, _ in trained):
            return False
        for place in [place for place in trained if place[0] < round]:
            del trained[place]
        return trained.setdefault((round, phase), digest) == digest

    def _trained(self, indices: Sequence[int]) -> Sensitive[Update]:
        """Return what clients compute from their examples, or a stand-in if they do not train."""
        runtime, members, broadcast = self.runtime, self.runtime.members, self.broadcast
        if self.request.phase != members.trains_in:
            return _no_update(broadcast, len(indices))
        try:
            batch = members.batch(indices, broadcast.round)
            update = members.local_update(broadcast, batch, runtime.group)
            return check_shape(update, len(indices), broadcast.weights.size)
        except StoreUnusable:
            raise
        except Exception as error:
            runtime.fails(error)
            return _no_update(broadcast, len(indices))

    def _released(self, group: EncoderGroup, event: Event, update: Sensitive[Update]) -> Rows:
        """Return the reports of a group's clients, after charging for them; or their refusals."""
        runtime, request, indices = self.runtime, self.request, self._at(group.places)
        phase = request.phase

        def make() -> Rows:
            senders = runtime.members.senders(indices, self.broadcast.round, phase)
            if drawn_once(event):
                for place in range(len(indices)):
                    senders.store(place).arrays(_DRAWN, lambda: {"once": np.ones(1, np.uint8)})
            reports = group.encoder(update, self.broadcast, senders)
            return pack_reports(reports, run=runtime.policy.run, phase=phase)

        try:
            rows = runtime.ledgers.release(self.place, event, indices, make, group.max_rounds)
        except tuple(_REASONS) as error:
            if isinstance(error, LedgerUnusable):
                _log.error("nothing was released: %s", error)  # such as a full disk
            return [_refusal(request, _reason_of(error))] * len(indices)
        except StoreUnusable:
            raise
        except Exception as error:  # from the encoder, which may reject the request
            runtime.fails(error)
            return [_refusal(request, Reason.POLICY)] * len(indices)
        if isinstance(rows, np.ndarray):
            return rows
        return [
            _refusal(request, _reason_of(row)) if isinstance(row, PrivacyError) else row
            for row in rows
        ]

    def _at(self, places: Sequence[int]) -> Sequence[int]:
        if len(places) == len(self.indices):
            return self.indices
        return [self.indices[place] for place in places]


def check_count(num_examples: int, most: int | None) -> None:
    """Refuse more examples than a client's answers are charged for.

    Raises:
        PrivacyError: there are more than ``most``.
    """
    if most is not None and num_examples > most:
        raise PrivacyError(
            f"examples: the client has {num_examples} examples, but its answers are charged for "
            f"{most}; leave some out"
        )


@lru_cache(maxsize=1)
def read(policy: Policy, message: bytes) -> tuple[RoundRequest, bytes, Reason | None]:
    """Read a request once, even if several groups of clients receive the same bytes.

    Only the latest request is kept, because a large model makes a request large.
    """
    request = read_request(message)
    return request, hashlib.sha256(message).digest(), policy.refuses(request)


@contextmanager
def naming(round: int, client: int) -> Iterator[None]:
    """Add to an error's text the round of the simulation and the client in which it occurred."""
    try:
        yield
    except FedldpError as error:
        if error.place == (round, client):
            raise
        named = type(error)(f"round {round}, client {client}: {error}")
        named.place = (round, client)
        raise named from error


def _no_update(broadcast: Broadcast, count: int) -> Sensitive[Update]:
    """Return the stand-in for updates that failed; encoders send public values for it."""
    return Sensitive(Update(rows=np.full((count, broadcast.weights.size), np.nan, np.float32)))


def _part(
    update: Sensitive[Update], waiting: Sequence[int], places: Sequence[int]
) -> Sensitive[Update]:
    """Return the rows at ``places`` of an update with one row for each place in ``waiting``."""
    if len(places) == len(waiting):
        return update
    return rows_of(update, np.searchsorted(waiting, places))


def _refusal(request: RoundRequest, reason: Reason) -> bytes:
    refusal = Refusal(round=request.broadcast.round, reason=reason)
    return pack_reply(refusal, run=request.run, phase=request.phase)


def _reason_of(error: PrivacyError) -> Reason:
    return next((r for kind, r in _REASONS.items() if isinstance(error, kind)), Reason.LEDGER)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """One run's terms; a request outside them is refused.

    Attributes:
        run: the run's name.
        rounds: how many rounds the run has.
        phases: the number of requests in one round.
        layout: the model's layout.
        trains_in: the phase in which the client trains, whose request carries the weights; requests
            of other phases may carry no weights.
        initial: digest of the weights that the run begins with. If it is None, the client accepts
            any weights that the server sends.
    """

    run: str
    rounds: int
    phases: int
    layout: Layout
    trains_in: int = 0
    initial: bytes | None = None

    def refuses(self, request: RoundRequest) -> Reason | None:
        """Return why a request is refused, or None if it is not; this depends on nothing private.

        The weights and every public number sent with them must lie within
        ``core.bounding.LARGEST_WEIGHT``. Otherwise a server could choose finite weights so large
        that training overflows for some examples only.
        """
        broadcast = request.broadcast
        if request.run != self.run:
            return Reason.UNKNOWN_RUN
        if not 1 <= broadcast.round <= self.rounds or not 0 <= request.phase < self.phases:
            return Reason.WRONG_ROUND
        ranges = broadcast.ranges
        weighty = request.phase == self.trains_in or broadcast.weights.size > 0
        if broadcast.weights.shape != (self.layout.size if weighty else 0,):
            return Reason.OUT_OF_RANGE
        if ranges is not None and ranges.sizes != self.layout.sizes:
            return Reason.OUT_OF_RANGE
        if not all(map(within_largest_weight, (broadcast.weights, *broadcast.public.values()))):
            return Reason.OUT_OF_RANGE
        begins = broadcast.round == 1 and broadcast.weights.size > 0
        if begins and self.initial not in (None, digest_of_weights(broadcast.weights)):
            return Reason.OTHER_WEIGHTS
        return None


def digest_of_weights(weights: Vector) -> bytes:
    """Return the 32-byte SHA-256 of float32 weights, little-endian, in the order of a layout."""
    return hashlib.sha256(weights.astype("<f4", copy=False).tobytes()).digest()
