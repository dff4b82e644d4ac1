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
privacy: the sum is exact, and itself unprotected.

What a server that cheats could do:

- Answer phase 0 with keys of its own, or with clients that it invented. Nothing ties a key to a
  client, so it then learns a single client's vector. Only keys certified by somebody else prevent
  that: the source's active variant has a public-key infrastructure; this package has none.
- Leave clients out as drop-outs: the sum is then over as few as ``threshold`` clients.
- Tell some clients that u is in U3 and others that it is not, to collect shares of both secrets.
  A client answers once, with one kind of share for each peer. As 2 threshold > num_clients, the
  server would need 2 threshold - num_clients clients, colluding or invented, that answer both
  ways. The signatures of the source's consistency check (its round 3), which close this gap too,
  are not included: without certified keys they prove nothing.

What a client that cheats could do: make the sum wrong, or stop it, but not learn more. Clients are
told apart by the number in their messages: the transport must make sure that it is theirs.

Source: Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal, Seth, "Practical Secure
Aggregation for Privacy-Preserving Machine Learning", CCS 2017, Figure 4 without the steps of the
active variant. Ours: the mask key is made of a shared seed of 16 bytes; a client also sends its own
shares to itself, sealed; and it opens the boxes already in phase 2, so that it masks only with
clients who saw the same keys and parameters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from fedldp.errors import ConfigError, PrivacyError, RunError
from fedldp.parts.secure_sum_crypto import (
    KEY_BYTES,
    SECRET_BYTES,
    Words,
    agree,
    combine,
    derive,
    expand,
    public_key,
    seal,
    split,
    unseal,
)
from fedldp.parts.secure_sum_messages import (
    KEYS_BYTES,
    LARGEST_CLIENT,
    SEALED_BYTES,
    Kind,
    SecureSum,
    pack,
    unpack,
)
from fedldp.randomness import Stream


class TooFewClients(RunError):
    """Too few clients are left for a sum: the round has none, and nothing of it may be used again.

    The server knows masked vectors at most, and of every client shares of one secret only, fewer
    than ``threshold``. The next round's keys, masks and shares are new.
    """


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

    Raises:
        ConfigError: ``index`` is out of range.
    """

    def __init__(
        self,
        setup: SecureSum,
        round: int,
        index: int,
        stream: Stream,
        first: Callable[[str, bytes], bytes] | None = None,
    ) -> None:
        if not 0 <= index <= LARGEST_CLIENT:
            raise ConfigError(f"index = {index}: give a number from 0 to {LARGEST_CLIENT}")
        self.setup, self.round, self.index = setup, round, index
        self._box_private = bytes(stream.bytes(KEY_BYTES))
        self._mask_seed = bytes(stream.bytes(SECRET_BYTES))
        self._self_seed = bytes(stream.bytes(SECRET_BYTES))
        self._sharing_seed = bytes(stream.bytes(KEY_BYTES))
        self._mask_private = _mask_private(self._mask_seed, index)
        self._first = dict[str, bytes]().setdefault if first is None else first

    def advertise(self) -> bytes:
        """Return the client's two public keys: for boxes, and for masks."""
        return pack(Kind.CLIENT_KEYS, self.round, {self.index: self._keys()})

    def share_keys(self, keys: bytes) -> bytes:
        """Return for each client of U1 a sealed share of b_u and of the seed of the mask key.

        Raises:
            PrivacyError: there are too few or too many clients, or their keys are not distinct.
            RunError: the message is malformed or of another round.
        """
        table, context = self._clients(keys)
        points = [_point(client) for client in table]
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
        self, keys: bytes, shares: bytes, values: Callable[[], NDArray[np.floating]]
    ) -> bytes:
        """Return the code of the client's values plus its masks.

        Args:
            keys: the server's message of phase 0.
            shares: its message of phase 1.
            values: gives floats, shape (d,), once the messages are known to be fit to be answered.

        Raises:
            PrivacyError: the values are not finite; or a client of U2 saw other keys than this one,
                its shares were altered, or there are too few of them; or other values or shares
                came before.
            RunError: a message is malformed or of another round.
        """
        table, context = self._clients(keys)
        peers = self._opened(table, context, shares)
        total = self.setup.encode(values())
        self._once("values", total.tobytes())
        total += self._expand(derive(self._self_seed, "self mask", context, self.index))
        for peer in peers.keys() - {self.index}:
            key = _pair_key(self._mask_private, table[peer], context, self.index, peer)
            _add_pair_mask(total, self._expand(key), self.index, peer)
        return pack(Kind.CLIENT_SUM, self.round, {self.index: total.tobytes()})

    def unmask(self, keys: bytes, shares: bytes, survivors: bytes) -> bytes:
        """Return for each client of U2 one share: of b_v if it is in U3, else of its mask key.

        Raises:
            PrivacyError: U3 has too few clients, or some that are not in U2, or not this one; or
                another U2 or U3 came before.
            RunError: a message is malformed or of another round.
        """
        peers = self._opened(*self._clients(keys), shares)
        alive = unpack(Kind.ALL_SURVIVORS, self.round, survivors, 0).keys()
        self._check_members("U3", alive, peers.keys())
        self._once("survivors", survivors)
        revealed = [
            pair[:SECRET_BYTES] if peer in alive else pair[SECRET_BYTES:]
            for peer, pair in peers.items()
        ]
        return pack(Kind.CLIENT_REVEALED, self.round, {self.index: b"".join(revealed)})

    def _keys(self) -> bytes:
        return public_key(self._box_private) + public_key(self._mask_private)

    def _clients(self, keys: bytes) -> tuple[dict[int, bytes], bytes]:
        """Return the public keys of U1 by client, ascending, and the context of this sum."""
        table = unpack(Kind.ALL_KEYS, self.round, keys, KEYS_BYTES)
        self._check_members("U1", table.keys(), table.keys())
        if len(table) > self.setup.num_clients:
            raise self._refusal(f"{len(table)} clients, and num_clients = {self.setup.num_clients}")
        if table[self.index] != self._keys():
            raise self._refusal("the server's list has other keys for this client")
        distinct = {pair[:KEY_BYTES] for pair in table.values()}
        distinct |= {pair[KEY_BYTES:] for pair in table.values()}
        if len(distinct) < 2 * len(table):
            raise self._refusal("two public keys are the same")
        self._once("keys", keys)
        return table, self.setup.context(keys)

    def _opened(self, table: dict[int, bytes], context: bytes, shares: bytes) -> dict[int, bytes]:
        """Return what the clients of U2 sealed for this one: its shares of their two secrets."""
        rows = unpack(Kind.ALL_SHARES, self.round, shares, len(table) * SEALED_BYTES)
        self._check_members("U2", rows.keys(), table.keys())
        start = list(table).index(self.index) * SEALED_BYTES
        opened = {
            sender: unseal(
                self._box_key(table[sender], context, sender, self.index),
                row[start : start + SEALED_BYTES],
            )
            for sender, row in rows.items()
        }
        self._once("shares", shares)
        return opened

    def _box_key(self, peer: bytes, context: bytes, sender: int, recipient: int) -> bytes:
        secret = agree(self._box_private, peer[:KEY_BYTES])
        return derive(secret, "shares", context, sender, recipient)

    def _expand(self, key: bytes) -> Words:
        return expand(key, self.setup.size, self.setup.dtype)

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


class SecureSumServer:
    """The server in one sum: one call for each phase, in their order.

    Each takes the clients' messages of the phase, as a stream, and returns the server's message to
    all clients. All of it is public. Memory is O(d + n^2) whatever the number of clients.

    Args:
        setup: the parameters.
        round: the round.

    Every call raises TooFewClients if fewer than ``threshold`` answered, and RunError if a message
    is malformed, of another round, of a client that was not in the phase before, or of one that
    answered twice.
    """

    def __init__(self, setup: SecureSum, round: int) -> None:
        self.setup, self.round = setup, round
        self._keys: dict[int, bytes] = {}
        self._context = b""
        self._sharers: list[int] = []
        self._survivors: list[int] = []
        self._total: Words = np.zeros(0, setup.dtype)

    @property
    def survivors(self) -> tuple[int, ...]:
        """The clients whose vectors are in the sum, U3; known after ``collect_masked``."""
        return tuple(self._survivors)

    def collect_keys(self, messages: Iterable[bytes]) -> bytes:
        """Return the public keys of all clients that want to take part, U1."""
        found = dict(self._collect(Kind.CLIENT_KEYS, messages, KEYS_BYTES, None))
        if len(found) > self.setup.num_clients:
            raise RunError(
                f"round {self.round}: {len(found)} clients want to take part, and num_clients = "
                f"{self.setup.num_clients}: choose fewer"
            )
        message = pack(Kind.ALL_KEYS, self.round, found)
        self._keys, self._context = found, self.setup.context(message)
        return message

    def collect_shares(self, messages: Iterable[bytes]) -> bytes:
        """Return all sealed shares; each client opens those for itself."""
        width = len(self._keys) * SEALED_BYTES
        found = dict(self._collect(Kind.CLIENT_SHARES, messages, width, self._keys))
        self._sharers = sorted(found)
        return pack(Kind.ALL_SHARES, self.round, found)

    def collect_masked(self, messages: Iterable[bytes]) -> bytes:
        """Add the masked vectors; return who sent one, U3. Later ones are not to be read."""
        width = self.setup.size * self.setup.dtype.itemsize
        total: Words = np.zeros(self.setup.size, self.setup.dtype)
        found = set()
        for client, words in self._collect(Kind.CLIENT_SUM, messages, width, self._sharers):
            total += np.frombuffer(words, self.setup.dtype)
            found.add(client)
        self._total, self._survivors = total, sorted(found)
        return pack(Kind.ALL_SURVIVORS, self.round, dict.fromkeys(found, b""))

    def unmask(self, messages: Iterable[bytes]) -> NDArray[np.int64]:
        """Return the sum of the codes of the clients in U3, exact, int64, shape (d,).

        ``SecureSum.decode`` turns it into the sum of values.

        Raises:
            RunError: also where the shares do not give the mask key that a client advertised.
        """
        width = len(self._sharers) * SECRET_BYTES
        found = dict(self._collect(Kind.CLIENT_REVEALED, messages, width, self._survivors))
        helpers = sorted(found)[: self.setup.threshold]
        total = self._total.copy()
        for place, client in enumerate(self._sharers):
            part = slice(place * SECRET_BYTES, (place + 1) * SECRET_BYTES)
            secret = combine([(_point(helper), found[helper][part]) for helper in helpers])
            if client in self._survivors:
                total -= self._expand(derive(secret, "self mask", self._context, client))
            else:
                self._remove_pair_masks(total, client, secret)
        return self.setup.signed(total)

    def _remove_pair_masks(self, total: Words, dropped: int, seed: bytes) -> None:
        """Take from ``total`` what the survivors added or subtracted for a client that is gone."""
        private = _mask_private(seed, dropped)
        if public_key(private) != self._keys[dropped][KEY_BYTES:]:
            raise RunError(
                f"round {self.round}: the shares of client {dropped} are wrong: no sum; repeat the "
                "round without it"
            )
        for client in self._survivors:
            key = _pair_key(private, self._keys[client], self._context, dropped, client)
            _add_pair_mask(total, self._expand(key), dropped, client)

    def _expand(self, key: bytes) -> Words:
        return expand(key, self.setup.size, self.setup.dtype)

    def _collect(
        self, kind: Kind, messages: Iterable[bytes], width: int, allowed: Iterable[int] | None
    ) -> Iterator[tuple[int, bytes]]:
        """Yield each message's client and record; ``allowed`` is None where anyone may answer."""
        expected = None if allowed is None else set(allowed)
        seen = set[int]()
        for message in messages:
            records = unpack(kind, self.round, message, width)
            if len(records) != 1:
                raise RunError(f"round {self.round}: a client sent {len(records)} records, not one")
            (client,) = records
            if client in seen or (expected is not None and client not in expected):
                raise RunError(
                    f"round {self.round}: client {client} answered twice, or was not asked"
                )
            seen.add(client)
            yield client, records[client]
        if len(seen) < self.setup.threshold:
            raise TooFewClients(
                f"round {self.round}: {len(seen)} clients sent {kind.name}, fewer than threshold = "
                f"{self.setup.threshold}: there is no sum; go on with another round"
            )


def _point(client: int) -> int:
    """Return where the client's share lies; 0 is the secret's own place."""
    return client + 1


def _mask_private(seed: bytes, client: int) -> bytes:
    return derive(seed, "mask key", b"", client)


def _pair_key(private: bytes, peer: bytes, context: bytes, first: int, second: int) -> bytes:
    """Return the key of the mask that two clients share, from one's mask key and the other's."""
    secret = agree(private, peer[KEY_BYTES:])
    return derive(secret, "pair mask", context, min(first, second), max(first, second))


def _add_pair_mask(total: Words, mask: Words, client: int, peer: int) -> None:
    """Add the mask to the vector of the client with the larger number, else subtract it."""
    if client > peer:
        total += mask
    else:
        total -= mask
