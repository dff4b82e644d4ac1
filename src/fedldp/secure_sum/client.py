"""The client of a secure sum: four messages, each made once."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.randomness import Stream
from fedldp.secure_sum.crypto import (
    KEY_BYTES,
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
