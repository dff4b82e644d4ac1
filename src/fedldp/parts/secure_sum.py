"""Secure aggregation: the server learns the sum of the clients' vectors, and nothing else of them.

    phase 0  advertise     client: two public keys                    server: the keys of all, U1
    phase 1  share_keys    client: sealed shares of its two secrets   server: all boxes, U2
    phase 2  masked_input  client: its masked vector                  server: who is left, U3
    phase 3  unmask        client: one share for each client of U2    server: the sum over U3

Each phase is one message of the server to all clients and one message of each client that is left;
clients may drop out at any point as long as ``threshold`` stay. Client u adds to its vector a mask
of its own, PRG(b_u), and for every other client v of U2 a mask that v subtracts: PRG of the secret
that their mask keys agree on. In phase 3 the others reveal shares of b_u if u is in U3, and of the
mask key of u if not, so that the server can remove what did not cancel.

What is proven (Section 6 of the source, honest but curious, with a curious server): a server that
follows the protocol, and pools all that it sees with fewer than ``threshold`` clients, learns the
sum of the vectors of the other clients of U3, and nothing else of them. This is no differential
privacy: the sum is exact, and what it protects is what the vectors were randomised for.

Certified keys. With an ``Identity`` a client signs its public keys of the round, and takes part
only if every key of U1 is signed by the client of the roster that it stands for: then a server can
invent no client, nor read a box or a mask in another's place.

Both kinds of shares of a client. Let at most u clients of a sum collude with the server, let keys
be certified, and n + u < 2 t. Then no server, whatever U3 it tells whom, gets t shares of b_v and t
shares of the mask key of v, for a client v that does not collude. Proof: v sealed each share for
one client of the U1 that it was told, n at most, under keys that depend on all of U1; a client that
was told another U1 cannot open its box, and the keys are certified, so nobody else can. So all
shares of v are held by n clients, c of which collude, c <= u. Each of the other n - c reveals one
share of v at most, of one kind: it answers phase 3 once, also after a restart. Both kinds together
need t - c of them each, 2 t - 2 c <= n - c, so 2 t <= n + c <= n + u. That is not so.

What a server that cheats could do:

- Without certified keys: answer phase 0 with keys of its own, or with clients that it invented.
  Nothing ties a key to a client then, so it learns a single client's vector.
- Leave clients out as drop-outs: the sum is then over as few as ``threshold`` clients, of which all
  but u do not collude. Guarantees that rest on more honest summands rest on a server that does not.
- Tell clients different U3: it gets both secrets of no client, but may learn the sum of a smaller
  group than the clients of any U3. The source's consistency check (its round 3) would prevent it.

What a client that cheats could do: make the sum any other, but not learn more. It can also stop a
sum. Malformed, repeated or uncertified messages, and keys that would stop others, cost its own
place alone. Boxes that others cannot open cost one sum: those who got one complain in place of
sending a vector, and ``Suspects`` leaves the accused, or the accuser, out of later rounds. A client
that lies only in phase 3, or seals wrong shares and then leaves, can stop sums again and again, and
is not found out: without commitments to shares nobody can tell who lied. It must be taken off the
roster by hand. Who sent a message is the transport's to certify.

Source: Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal, Seth, "Practical Secure
Aggregation for Privacy-Preserving Machine Learning", CCS 2017, Figure 4; the signed keys are of its
active variant. Ours: the mask key is made of a shared seed of 16 bytes; a client also sends its own
shares to itself, sealed; and it opens the boxes already in phase 2, so that it masks only with
clients who saw the same keys and parameters.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.randomness import Stream
from fedldp.parts.secure_sum_crypto import (
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
from fedldp.parts.secure_sum_identities import Identity
from fedldp.parts.secure_sum_masks import add_pair_mask, mask_private, point, self_mask
from fedldp.parts.secure_sum_messages import (
    KEYS_BYTES,
    LARGEST_CLIENT,
    SEALED_BYTES,
    SIGNATURE_BYTES,
    Kind,
    SecureSum,
    pack,
    unpack,
)


class SecureSumClient:
    """One client in one sum. Its secrets come from ``stream``; it never sends them in clear.

    Every message is a function of these secrets and of the server's messages so far, so a message
    that was lost can be made again. Each phase is answered once: the same question gets the same
    answer, another one is refused. A client that is made anew, from the same secrets, needs a
    ``first`` that remembers what the one before it was asked.

    Args:
        setup: the parameters.
        round: the round; each sum has its own.
        index: the client's number.
        stream: 96 bytes of it are read, here and now.
        first: is given a name ("keys", "shares", "values" or "survivors") and a digest, and returns
            the first digest of that name; where it is None the object itself remembers.
        identity: the client's own, where keys are certified.

    Raises:
        ConfigError: ``index`` is out of range, or not that of the identity.
    """

    def __init__(
        self,
        setup: SecureSum,
        round: int,
        index: int,
        stream: Stream,
        first: Callable[[str, bytes], bytes] | None = None,
        identity: Identity | None = None,
    ) -> None:
        if not 0 <= index <= LARGEST_CLIENT:
            raise ConfigError(f"index = {index}: give a number from 0 to {LARGEST_CLIENT}")
        if identity is not None and identity.index != index:
            raise ConfigError(f"index = {index}: the identity is client {identity.index}'s")
        self._identity = identity
        self.setup, self.round, self.index = setup, round, index
        self._box_private = bytes(stream.bytes(KEY_BYTES))
        self._mask_seed = bytes(stream.bytes(SECRET_BYTES))
        self._self_seed = bytes(stream.bytes(SECRET_BYTES))
        self._sharing_seed = bytes(stream.bytes(KEY_BYTES))
        self._mask_private = mask_private(self._mask_seed, index)
        self._first = dict[str, bytes]().setdefault if first is None else first

    def advertise(self) -> bytes:
        """Return the client's two public keys, for boxes and for masks, signed if certified."""
        return pack(Kind.CLIENT_KEYS, self.round, {self.index: self._own_record()})

    def share_keys(self, keys: bytes) -> bytes:
        """Return for each client of U1 a sealed share of b_u and of the seed of the mask key.

        Raises:
            PrivacyError: there are too few or too many clients, their keys are not distinct, or
                one of them is not certified; or other keys came before.
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
        return pack(Kind.CLIENT_SHARES, self.round, {self.index: b"".join(boxes)})

    def masked_input(
        self, keys: bytes, shares: bytes, numbers: Callable[[], NDArray[np.integer]]
    ) -> bytes:
        """Return the client's vector plus its masks; or whose boxes it cannot open, if any.

        Args:
            keys: the server's message of phase 0.
            shares: its message of phase 1.
            numbers: gives integers, shape (d,), once the messages are known to be fit to be
                answered; they are taken modulo 2^bits.

        Raises:
            PrivacyError: the numbers are no such integers; or U2 has too few clients, or lacks this
                one; or other numbers or shares came before.
            RunError: a message is malformed or of another round.
        """
        table, context = self._clients(keys)
        peers = self._opened(table, context, shares)
        closed = [peer for peer, pair in peers.items() if pair is None]
        if closed:
            accused = struct.pack(f"<{len(closed)}I", *closed)
            return pack(Kind.CLIENT_COMPLAINT, self.round, {self.index: accused})
        total = self.setup.words(numbers())
        self._once("values", total.tobytes())
        total += self_mask(self.setup, self._self_seed, context, self.index)
        for peer in peers.keys() - {self.index}:
            add_pair_mask(
                total, self.setup, self._mask_private, table[peer], context,
                client=self.index, peer=peer,
            )  # fmt: skip
        return pack(Kind.CLIENT_SUM, self.round, {self.index: self.setup.reduced(total).tobytes()})

    def unmask(self, keys: bytes, shares: bytes, survivors: bytes) -> bytes:
        """Return for each client of U2 one share: of b_v if it is in U3, else of its mask key.

        Raises:
            PrivacyError: U3 has too few clients, or some that are not in U2, or not this one; or
                another U2 or U3 came before.
            RunError: a message is malformed or of another round.
        """
        peers = self._opened(*self._clients(keys), shares)
        if None in peers.values():
            raise self._refusal("some of its boxes do not open")
        alive = unpack(Kind.ALL_SURVIVORS, self.round, survivors, 0).keys()
        self._check_members("U3", alive, peers.keys())
        self._once("survivors", survivors)
        revealed = [
            pair[:SHARE_BYTES] if peer in alive else pair[SHARE_BYTES:]
            for peer, pair in peers.items()
            if pair is not None
        ]
        return pack(Kind.CLIENT_REVEALED, self.round, {self.index: b"".join(revealed)})

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
        records = unpack(Kind.ALL_KEYS, self.round, keys, width)
        self._check_members("U1", records.keys(), records.keys())
        table = {client: record[:KEYS_BYTES] for client, record in records.items()}
        if len(table) > self.setup.num_clients:
            raise self._refusal(f"{len(table)} clients, and num_clients = {self.setup.num_clients}")
        if table[self.index] != self._keys():
            raise self._refusal("the server's list has other keys for this client")
        distinct = {pair[:KEY_BYTES] for pair in table.values()}
        distinct |= {pair[KEY_BYTES:] for pair in table.values()}
        if len(distinct) < 2 * len(table):
            raise self._refusal("two public keys are the same")
        self._check_certified(records)
        self._once("keys", keys)
        return table, self.setup.context(keys)

    def _check_certified(self, records: dict[int, bytes]) -> None:
        if self._identity is None:
            return
        roster = self._identity.roster
        for client, record in records.items():
            keys, signature = record[:KEYS_BYTES], record[KEYS_BYTES:]
            if not roster.certifies(self.setup, self.round, client, keys, signature):
                raise self._refusal(f"the roster does not certify the keys of client {client}")

    def _opened(
        self, table: dict[int, bytes], context: bytes, shares: bytes
    ) -> dict[int, bytes | None]:
        """Return what the clients of U2 sealed for this one; None for what it cannot open."""
        rows = unpack(Kind.ALL_SHARES, self.round, shares, len(table) * SEALED_BYTES)
        self._check_members("U2", rows.keys(), table.keys())
        start = list(table).index(self.index) * SEALED_BYTES
        opened: dict[int, bytes | None] = {}
        for sender, row in rows.items():
            try:
                opened[sender] = unseal(
                    self._box_key(table[sender], context, sender, self.index),
                    row[start : start + SEALED_BYTES],
                )
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
            raise self._refusal(f"{name} lacks this client, or has one that was not there before")

    def _once(self, what: str, content: bytes) -> None:
        """Refuse another content than the first: two answers together would reveal too much."""
        digest = hashlib.sha256(content).digest()
        if self._first(what, digest) != digest:
            raise self._refusal(f"{what}: another answer was given before")

    def _refusal(self, reason: str) -> PrivacyError:
        return PrivacyError(f"round {self.round}, client {self.index}: {reason}: nothing is sent")
