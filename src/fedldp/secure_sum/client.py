"""The client of a secure sum: four messages, each made once; and the sum as a system's channel.

The server receives the total of a round's reports, but no report.

    ClientRole   ---- summed_client ---->  four phases in one round (``secure_sum``):
      trains in MASKED_INPUT only            ADVERTISE     two public keys, signed if certified
      encoder      its report, as words      SHARE_KEYS    sealed shares of the secrets behind masks
                   and masked                MASKED_INPUT  the words + masks, modulo 2^bits
                                             UNMASK        shares that take the masks off the total
    ServerRole   ---- summed_server ---->  a dialogue, which gives the server step one total

``Summing`` says how a system's reports are summed; the client and server roles of the system do not
change. A client releases what its encoder states, in the phase MASKED_INPUT, whatever a server
does. ``secure_sum`` says what a server sees of a client besides the total.

A round with too few clients, or with wrong shares, has no sum: the weights stay as they are, and
the next round begins. The round is never repeated: a second sum in it, over other clients, would
use the same secrets, and clients refuse it.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import Event, InClear, NoRelease, to_record
from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.randomness import KEY_BYTES, Stream
from fedldp.mechanisms.summing import Summing, Words
from fedldp.protocol.roles import Arrays, ClientRole, Encoder, Sender, Senders, Update
from fedldp.protocol.updates import alone, each_alone
from fedldp.protocol.wire import Broadcast, Report, Reports, Sensitive, broadcast_digest
from fedldp.secure_sum.crypto import (
    SECRET_BYTES,
    SHARE_BYTES,
    agree,
    derive,
    public_key,
    seal,
    split,
    unseal,
)
from fedldp.secure_sum.identities import Identity
from fedldp.secure_sum.messages import (
    KEYS_BYTES,
    LARGEST_CLIENT,
    SEALED_BYTES,
    SIGNATURE_BYTES,
    SecureSum,
    SumKind,
    add_pair_mask,
    mask_private,
    pack,
    point,
    self_mask,
    unpack,
)


class SecureSumClient:
    """One client in one sum. Its secrets come from ``stream``; it never sends them in the clear.

    Every message is a function of these secrets and of the server's messages so far, so a lost
    message can be made again. Each phase is answered once: the same request gets the same answer,
    and a different request is refused. A client that is recreated from the same secrets needs a
    ``first`` that remembers what its predecessor was asked.

    Args:
        setup: the parameters.
        round: the round; a client takes part in only one sum in each round.
        index: the client's number.
        stream: the stream for the secrets; 96 bytes of it are read immediately.
        first: takes a name ("told", "keys", "shares", "values" or "survivors") and bytes (a message
            or a digest), and returns the bytes that were first passed under that name. If it is
            None, the object itself remembers them.
        identity: the client's own identity, if keys are certified.
        told: everything else that the server sends to all clients of the sum, or a digest of it.
            Clients that received different content cannot open each other's boxes.

    Raises:
        ConfigError: ``index`` is out of range, or differs from the identity's.
    """

    def __init__(
        self,
        setup: SecureSum,
        round: int,
        index: int,
        stream: Stream,
        first: Callable[[str, bytes], bytes] | None = None,
        identity: Identity | None = None,
        told: bytes = b"",
    ) -> None:
        if not 0 <= index <= LARGEST_CLIENT:
            raise ConfigError(f"index = {index}: give a number from 0 to {LARGEST_CLIENT}")
        if identity is not None and identity.index != index:
            raise ConfigError(f"index = {index}: the identity belongs to client {identity.index}")
        self._identity = identity
        self.setup, self.round, self.index = setup, round, index
        self._box_private = bytes(stream.bytes(KEY_BYTES))
        self._mask_seed = bytes(stream.bytes(SECRET_BYTES))
        self._self_seed = bytes(stream.bytes(SECRET_BYTES))
        self._sharing_seed = bytes(stream.bytes(KEY_BYTES))
        self._mask_private = mask_private(self._mask_seed, index)
        self._first = dict[str, bytes]().setdefault if first is None else first
        self._told = told

    def advertise(self) -> bytes:
        """Return the client's two public keys, for boxes and for masks, signed if certified.

        Raises:
            PrivacyError: ``told`` differs from what this client was told first.
        """
        self._once("told", self._told)
        return pack(SumKind.CLIENT_KEYS, self.round, {self.index: self._own_record()})

    def share_keys(self, keys: bytes) -> bytes:
        """Return, for each client of U1, a sealed share of b_u and of the seed of the mask key.

        Raises:
            PrivacyError: there are too few or too many clients, their keys are not distinct, or one
                of the keys is not certified; or different keys were received before.
            RunError: the message is malformed or of another round.
        """
        table, context = self._clients(keys)
        points = [point(client) for client in table]
        stream = Stream(derive(self._sharing_seed, "sharing", context), simulated=False)
        pairs = zip(
            split(self._self_seed, self.setup.threshold, points, stream),
            split(self._mask_seed, self.setup.threshold, points, stream),
            strict=True,
        )
        boxes = [
            seal(self._box_key(public, context, self.index, client), own + mask)
            for (client, public), (own, mask) in zip(table.items(), pairs, strict=True)
        ]
        return pack(SumKind.CLIENT_SHARES, self.round, {self.index: b"".join(boxes)})

    def masked_input(
        self, keys: bytes, shares: bytes, numbers: Callable[[], NDArray[np.integer]]
    ) -> bytes:
        """Return the client's vector plus its masks; or a complaint about boxes it cannot open.

        Args:
            keys: the server's message of phase 0.
            shares: the server's message of phase 1 to this client.
            numbers: returns integers, shape (d,), which are reduced modulo 2^bits. It is called
                only once the messages are known to be answerable.

        Raises:
            PrivacyError: the numbers are not integers of shape (d,); or U2 has too few clients, or
                lacks this one; or there were different numbers or shares before.
            RunError: a message is malformed or of another round.
        """
        table, context = self._clients(keys)
        peers = self._opened(table, context, shares)
        closed = [peer for peer, pair in peers.items() if pair is None]
        if closed:
            accused = struct.pack(f"<{len(closed)}I", *closed)
            return pack(SumKind.CLIENT_COMPLAINT, self.round, {self.index: accused})
        total = self.setup.words(numbers())
        self._once("values", hashlib.sha256(total.tobytes()).digest())
        total += self_mask(self.setup, self._self_seed, context, self.index)
        for peer in peers.keys() - {self.index}:
            add_pair_mask(
                total, self.setup, self._mask_private, table[peer], context,
                client=self.index, peer=peer,
            )  # fmt: skip
        return pack(
            SumKind.CLIENT_SUM, self.round, {self.index: self.setup.reduced(total).tobytes()}
        )

    def unmask(self, keys: bytes, shares: bytes, survivors: bytes) -> bytes:
        """Return one share for each client of U2: of b_v if v is in U3, else of its mask key.

        Raises:
            PrivacyError: U3 has too few clients, or clients that are not in U2, or lacks this one;
                or there was a different U2 or U3 before.
            RunError: a message is malformed or of another round.
        """
        peers = self._opened(*self._clients(keys), shares)
        if None in peers.values():
            raise self._refusal("some of its boxes do not open")
        alive = unpack(SumKind.ALL_SURVIVORS, self.round, survivors, 0).keys()
        self._check_members("U3", alive, peers.keys())
        self._once("survivors", survivors)
        revealed = [
            pair[:SHARE_BYTES] if peer in alive else pair[SHARE_BYTES:]
            for peer, pair in peers.items()
            if pair is not None
        ]
        return pack(SumKind.CLIENT_REVEALED, self.round, {self.index: b"".join(revealed)})

    def _keys(self) -> bytes:
        return public_key(self._box_private) + public_key(self._mask_private)

    def _own_record(self) -> bytes:
        keys = self._keys()
        if self._identity is None:
            return keys
        return keys + self._identity.signature(self.setup, self.round, keys)

    def _clients(self, keys: bytes) -> tuple[dict[int, bytes], bytes]:
        """Return the public keys of U1 by client, ascending, and the context of this sum."""
        width = KEYS_BYTES if self._identity is None else KEYS_BYTES + SIGNATURE_BYTES
        records = unpack(SumKind.ALL_KEYS, self.round, keys, width)
        self._check_members("U1", records.keys(), records.keys())
        table = {client: record[:KEYS_BYTES] for client, record in records.items()}
        if len(table) > self.setup.num_clients:
            raise self._refusal(
                f"there are {len(table)} clients, more than num_clients = {self.setup.num_clients}"
            )
        if table[self.index] != self._keys():
            raise self._refusal("the server's list has other keys for this client")
        distinct = {pair[:KEY_BYTES] for pair in table.values()}
        distinct |= {pair[KEY_BYTES:] for pair in table.values()}
        if len(distinct) < 2 * len(table):
            raise self._refusal("two public keys are the same")
        roster = None if self._identity is None else self._identity.roster
        for client, record in records.items():
            if roster is not None and not roster.certifies(self.setup, self.round, client, record):
                raise self._refusal(f"the roster does not certify the keys of client {client}")
        self._once("told", self._told)
        self._once("keys", keys)
        return table, self.setup.context(self._told, keys)

    def _opened(
        self, table: dict[int, bytes], context: bytes, shares: bytes
    ) -> dict[int, bytes | None]:
        """Return what the clients of U2 sealed for this one; None for boxes it cannot open."""
        boxes = unpack(SumKind.OWN_SHARES, self.round, shares, SEALED_BYTES)
        self._check_members("U2", boxes.keys(), table.keys())
        opened: dict[int, bytes | None] = {}
        for sender, box in boxes.items():
            try:
                key = self._box_key(table[sender], context, sender, self.index)
                opened[sender] = unseal(key, box)
            except PrivacyError:
                opened[sender] = None
        self._once("shares", shares)
        return opened

    def _box_key(self, peer: bytes, context: bytes, sender: int, recipient: int) -> bytes:
        secret = agree(self._box_private, peer[:KEY_BYTES])
        return derive(secret, "shares", context, sender, recipient)

    def _check_members(self, name: str, members: Iterable[int], allowed: Iterable[int]) -> None:
        found = set(members)
        if len(found) < self.setup.threshold:
            raise self._refusal(
                f"{name} has {len(found)} clients, fewer than threshold = {self.setup.threshold}"
            )
        if self.index not in found or not found <= set(allowed):
            raise self._refusal(
                f"{name} lacks this client, or has a client that was not there before"
            )

    def _once(self, what: str, content: bytes) -> None:
        """Refuse any content but the first: two answers together would reveal too much."""
        if self._first(what, content) != content:
            raise self._refusal(f"{what}: another answer was given before")

    def _refusal(self, reason: str) -> PrivacyError:
        return PrivacyError(f"round {self.round}, client {self.index}: {reason}: nothing is sent")


TOLD, KEYS, SHARES, SURVIVORS = "sum_told", "sum_keys", "sum_shares", "sum_survivors"
"""The names, in a broadcast, of the digest of what the system sends and of the server's messages.

The digest is sent in ADVERTISE, and each message in the next phase. Nothing is sent twice.
"""


_DIGEST_BYTES = 32
"""The length of a SHA-256 digest."""


class Phase(IntEnum):
    """The four phases of a round."""

    ADVERTISE = 0
    SHARE_KEYS = 1
    MASKED_INPUT = 2
    UNMASK = 3


def summed_client(
    role: ClientRole, summing: Summing, setup: SecureSum, identity: Identity | None = None
) -> ClientRole:
    """Return the role of a client whose reports are added up in the secure sum.

    Args:
        role: the client's role in the system, which has one phase.
        summing: how its reports are summed.
        setup: the parameters that the client agreed to.
        identity: the client's own identity, if keys are certified.

    Raises:
        ConfigError: the system itself has several phases.
    """
    if role.phases != 1:
        raise ConfigError(
            f"phases = {role.phases}: only a system with one phase a round can be summed"
        )
    return replace(
        role,
        encoder=SummedEncoder(role.encoder, summing, setup, identity),
        phases=len(Phase),
        reporting=Phase.MASKED_INPUT,
        trains_in=Phase.MASKED_INPUT,
    )


@dataclass(frozen=True)
class SummedEncoder:
    """The client's encoder in a secure sum; it gives the client's answer in each phase.

    The runtime, not the broadcast, says which phase it is. The runtime also charges for the phase,
    and answers each phase once in a round. A new ``SecureSumClient`` is made for each phase, so the
    client's store holds the round's secrets, what the client was told, and the words that it masks.
    No second vector is ever sent under the same masks, not even after a restart of the client. The
    server does not repeat what it sent in a phase: later phases use the store's copy, and a client
    that has lost the copy sends nothing more.

    What the system itself sends, above all the weights, is sent only in MASKED_INPUT. A digest of
    it is sent in an earlier phase, and all keys depend on the digest: clients that are told
    different weights cannot open each other's boxes.

    The secrets are drawn afresh in each round, not derived from what the client keeps forever: a
    store that was restored from a copy of an earlier round draws different ones.

    Attributes:
        inner: the system's encoder.
        summing: how its reports are summed.
        setup: the parameters of a round's sum.
        identity: the client's own identity, if keys are certified.
    """

    inner: Encoder
    summing: Summing
    setup: SecureSum
    identity: Identity | None = None

    def event(self, phase: int = 0, round: int = 1) -> Event:
        """Return what the answer in a phase releases; only one phase depends on examples."""
        match Phase(phase):
            case Phase.ADVERTISE:
                return NoRelease(what="public-keys")
            case Phase.SHARE_KEYS:
                return NoRelease(what="sealed-shares-of-masks")
            case Phase.MASKED_INPUT:
                return self.inner.event(0, round)
            case Phase.UNMASK:
                return NoRelease(what="shares-of-masks")

    def __call__(
        self, update: Sensitive[Update], broadcast: Broadcast, senders: Senders
    ) -> Reports:
        """Return the answer of each client to the server's messages so far.

        Raises:
            PrivacyError: the server asked something different before, or its message must not be
                answered.
            RunError: its message is malformed.
        """
        return each_alone(self._answer, update, broadcast, senders)

    def _answer(self, update: Sensitive[Update], broadcast: Broadcast, sender: Sender) -> Report:
        memory = _Memory(broadcast.round, sender)

        def told(name: str) -> bytes:
            return broadcast.public[name].tobytes() if name in broadcast.public else b""

        def client(told: bytes) -> SecureSumClient:
            return SecureSumClient(
                self.setup,
                broadcast.round,
                sender.index,
                _secret(broadcast.round, sender),
                memory.first,
                self.identity,
                told,
            )

        match Phase(sender.phase):
            case Phase.ADVERTISE:
                digest = told(TOLD)
                if len(digest) != _DIGEST_BYTES:
                    raise PrivacyError(
                        f"round {broadcast.round}: no digest of the weights: the server needs the "
                        "same version of fedldp"
                    )
                message = client(digest).advertise()
            case Phase.SHARE_KEYS:
                message = client(memory.kept("told")).share_keys(told(KEYS))
            case Phase.MASKED_INPUT:
                message = client(broadcast_digest(_without_sum(broadcast))).masked_input(
                    memory.kept("keys"),
                    told(SHARES),
                    lambda: self._kept_words(update, broadcast, sender),
                )
            case Phase.UNMASK:
                message = client(memory.kept("told")).unmask(
                    memory.kept("keys"), memory.kept("shares"), told(SURVIVORS)
                )
        return Report(
            round=broadcast.round,
            size=self.setup.size,
            payload=message,
            chunk=self.setup.size,
            client=sender.index,
        )

    def _kept_words(self, update: Sensitive[Update], broadcast: Broadcast, sender: Sender) -> Words:
        """Return the vector that the client masks in this round: the first one that it made.

        Call it only for a request that will be answered: it deletes what is kept of earlier
        rounds.

        Raises:
            PrivacyError: the vector was made when the encoder stated a different event from the one
                that is charged now. A vector is kept before it is charged, and the client may have
                chosen another epsilon in between.
        """
        event = self.inner.event(0, broadcast.round)
        # A report that is released in the clear has no epsilon that a client could choose.
        said = b"" if isinstance(event, InClear) else json.dumps(to_record(event)).encode()

        def make() -> Arrays:
            told, inside = _without_sum(broadcast), replace(sender, phase=0)
            report = alone(self.inner, update, told, inside)
            words = self.setup.words(self.summing.words(report))
            return {"words": words, "event": np.frombuffer(said, np.uint8)}

        kept = sender.store.arrays("sum-input", make, round=broadcast.round)
        if kept["event"].tobytes() != said:
            raise PrivacyError(
                f"round {broadcast.round}: the masked vector was made for another epsilon: nothing "
                "is sent; go on with the next round"
            )
        return kept["words"]


def _secret(round: int, sender: Sender) -> Stream:
    """Return the stream of a round's secrets, whose key is drawn in the round's first phase."""

    def make() -> Mapping[str, NDArray[np.uint8]]:
        if sender.phase != Phase.ADVERTISE:
            raise PrivacyError(f"round {round}: its secrets are lost: nothing is sent")
        return {"key": sender.fresh("secure sum").bytes(KEY_BYTES)}

    kept = sender.store.arrays("sum-secret", make, round=round)
    return Stream(kept["key"].tobytes(), simulated=sender.fresh("secure sum").simulated)


@dataclass(frozen=True)
class _Memory:
    """What the server first sent to a client in a round, kept in the client's store."""

    round: int
    sender: Sender

    def first(self, name: str, content: bytes) -> bytes:
        """Return the first content stored under a name; if there is none, store ``content``."""
        kept = self.sender.store.arrays(
            f"sum-{name}",
            lambda: {"content": np.frombuffer(content, np.uint8)},
            round=self.round,
        )
        return kept["content"].tobytes()

    def kept(self, name: str) -> bytes:
        """Return the content kept under a name.

        Raises:
            PrivacyError: there is none, because the client did not answer an earlier phase or has
                lost what it stored.
        """
        kept = self.sender.store.known(f"sum-{name}", self.round)
        if kept is None:
            raise PrivacyError(
                f"round {self.round}: what the client stored ({name}) is lost, so nothing is sent"
            )
        return kept["content"].tobytes()


def _without_sum(broadcast: Broadcast) -> Broadcast:
    """Return the broadcast with only what the system itself sends."""
    names = broadcast.public.keys() - {TOLD, KEYS, SHARES, SURVIVORS}
    return replace(broadcast, public={name: broadcast.public[name] for name in names})
