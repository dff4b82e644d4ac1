"""The server in a secure sum; the package's docstring says what the server may learn."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from fedldp.core.errors import RunError
from fedldp.mechanisms.summing import Words
from fedldp.secure_sum.crypto import (
    KEY_BYTES,
    SHARE_BYTES,
    combine,
    has_low_order,
    public_key,
    weights_at_zero,
)
from fedldp.secure_sum.identities import Roster
from fedldp.secure_sum.messages import (
    KEYS_BYTES,
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

Messages = Iterable[tuple[int | None, bytes]]
"""Messages, each with its sender, which the transport certifies."""


class NoSum(RunError):
    """The round has no sum, and nothing from it may be used again.

    Too few clients are left, or the shares of some are wrong. The server knows at most masked
    vectors, and shares of only one of each client's two secrets. The next round's keys, masks and
    shares are new.
    """


class SecureSumServer:
    """The server in one sum: call one method for each phase, in the order of the phases.

    Each call takes the clients' messages of the phase, as a stream, and returns the server's
    message to all clients, or one for each client. All of these are public. Memory is O(d + n^2).

    A message is left out if it is malformed, repeated, of another round, in another client's name,
    or from a client that was not in the phase before. ``dropped`` counts these messages by what was
    wrong with them.

    Args:
        setup: the parameters.
        round: the round.
        roster: the clients whose keys are accepted, if keys are certified.
        told: everything else that all clients are told; see ``SecureSumClient``.

    Every call raises NoSum if fewer than ``threshold`` clients answered correctly.
    """

    def __init__(
        self, setup: SecureSum, round: int, roster: Roster | None = None, told: bytes = b""
    ) -> None:
        self.setup, self.round, self.roster, self._told = setup, round, roster, told
        self.dropped: Counter[str] = Counter()
        self.complaints: dict[int, tuple[int, ...]] = {}
        """For each client that complained, the clients whose boxes it could not open."""
        self._keys: dict[int, bytes] = {}
        self._context = b""
        self._sharers: dict[int, None] = {}
        self._masked: set[int] = set()
        self._survivors: list[int] = []
        self._total: Words = np.zeros(0, setup.dtype)

    @property
    def survivors(self) -> tuple[int, ...]:
        """The clients whose vectors are in the sum, U3; known after ``collect_masked``."""
        return tuple(self._survivors)

    @property
    def there(self) -> frozenset[int]:
        """The clients that remain after the last completed phase; empty before the first one."""
        return frozenset(self._survivors or self._sharers or self._keys)

    def collect_keys(self, messages: Messages) -> bytes:
        """Return the public keys of U1, the clients that want to take part.

        Raises:
            RunError: there are more clients than the sum can have.
        """
        width = KEYS_BYTES if self.roster is None else KEYS_BYTES + SIGNATURE_BYTES
        found: dict[int, bytes] = {}
        taken: set[bytes] = set()
        for client, record in self._read(SumKind.CLIENT_KEYS, messages, width, None):
            both = {record[:KEY_BYTES], record[KEY_BYTES:KEYS_BYTES]}
            # Such keys would make every other client refuse the round.
            if len(both) < 2 or both & taken or any(map(has_low_order, both)):
                self.dropped["unfit keys"] += 1
            elif self.roster is not None and not self.roster.certifies(
                self.setup, self.round, client, record
            ):
                self.dropped["uncertified"] += 1
            else:
                found[client] = record
                taken |= both
        if len(found) > self.setup.num_clients:
            raise RunError(
                f"round {self.round}: {len(found)} clients want to take part, more than "
                f"num_clients = {self.setup.num_clients}: choose fewer"
            )
        self._check_enough(SumKind.CLIENT_KEYS, len(found))
        message = pack(SumKind.ALL_KEYS, self.round, found)
        self._keys = {client: record[:KEYS_BYTES] for client, record in found.items()}
        self._context = self.setup.context(self._told, message)
        return message

    def collect_shares(self, messages: Messages) -> dict[int, bytes]:
        """Return, for each client of U2 (those that shared), the shares sealed for it."""
        width = len(self._keys) * SEALED_BYTES
        found = dict(self._read(SumKind.CLIENT_SHARES, messages, width, self._keys))
        self._check_enough(SumKind.CLIENT_SHARES, len(found))
        self._sharers = dict.fromkeys(sorted(found))  # ordered, and quick to look up
        self._open_masked()
        columns = {}
        for place, client in enumerate(sorted(self._keys)):
            if client in found:
                part = slice(place * SEALED_BYTES, (place + 1) * SEALED_BYTES)
                boxes = {sender: row[part] for sender, row in found.items()}
                columns[client] = pack(SumKind.OWN_SHARES, self.round, boxes)
        return columns

    def collect_masked(self, messages: Messages) -> bytes:
        """Add the masked vectors; return U3, the clients that sent one. Read no vector after it."""
        self._open_masked()
        for sender, message in messages:
            self.take_masked(sender, message)
        return self.close_masked()

    def _open_masked(self) -> None:
        self._masked, self._total = set(), np.zeros(self.setup.size, self.setup.dtype)

    def take_masked(self, sender: int | None, message: bytes) -> None:
        """Add one masked vector; see ``collect_masked``. Invalid messages raise no error."""
        width = self.setup.size * self.setup.dtype.itemsize
        others = self._without_complaints([(sender, message)])
        read = self._read(SumKind.CLIENT_SUM, others, width, self._sharers, self._masked)
        for _client, words in read:
            self._total += np.frombuffer(words, self.setup.dtype)

    def close_masked(self) -> bytes:
        """Return U3, the clients that sent a masked vector; see ``collect_masked``."""
        self._check_enough(SumKind.CLIENT_SUM, len(self._masked))
        self._survivors = sorted(self._masked)
        return pack(SumKind.ALL_SURVIVORS, self.round, dict.fromkeys(self._survivors, b""))

    def unmask(self, messages: Messages) -> Words:
        """Return the sum of the vectors of the clients in U3, modulo 2^bits, shape (d,).

        Raises:
            NoSum: too few clients answered, or shares do not give the mask key that a client
                advertised.
        """
        width = len(self._sharers) * SHARE_BYTES
        found = dict(self._read(SumKind.CLIENT_REVEALED, messages, width, self._masked))
        self._check_enough(SumKind.CLIENT_REVEALED, len(found))
        helpers = sorted(found)[: self.setup.threshold]
        weights = weights_at_zero([point(helper) for helper in helpers])
        total, alive = self._total.copy(), set(self._survivors)
        for place, client in enumerate(self._sharers):
            part = slice(place * SHARE_BYTES, (place + 1) * SHARE_BYTES)
            secret = combine(weights, [found[helper][part] for helper in helpers])
            if secret is None:
                raise self._wrong_shares(client)
            if client in alive:
                total -= self_mask(self.setup, secret, self._context, client)
            else:
                self._remove_pair_masks(total, client, secret)
        return self.setup.reduced(total)

    def _remove_pair_masks(self, total: Words, dropped: int, seed: bytes) -> None:
        """Remove from ``total`` the masks that the survivors share with a dropped client."""
        private = mask_private(seed, dropped)
        if public_key(private) != self._keys[dropped][KEY_BYTES:]:
            raise self._wrong_shares(dropped)
        for client in self._survivors:
            add_pair_mask(
                total, self.setup, private, self._keys[client], self._context,
                client=dropped, peer=client,
            )  # fmt: skip

    def _wrong_shares(self, client: int) -> NoSum:
        return NoSum(
            f"round {self.round}: the shares of client {client} are wrong: there is no sum; go on "
            "with another round"
        )

    def _without_complaints(self, messages: Messages) -> Iterator[tuple[int | None, bytes]]:
        """Yield all messages except complaints, which are recorded in ``complaints``."""
        for sender, message in messages:
            if sender not in self._sharers or message[:1] != bytes([SumKind.CLIENT_COMPLAINT]):
                yield sender, message
                continue
            width = len(message) - len(pack(SumKind.CLIENT_COMPLAINT, self.round, {sender: b""}))
            record = self._record(SumKind.CLIENT_COMPLAINT, sender, message, max(width, 0))
            if record is None or width % 4:
                self.dropped["malformed"] += 1
            else:
                accused = struct.unpack(f"<{width // 4}I", record)
                self.complaints[sender] = tuple(c for c in accused if c in self._sharers)

    def _read(
        self,
        kind: SumKind,
        messages: Messages,
        width: int,
        allowed: Collection[int] | None,
        seen: set[int] | None = None,
    ) -> Iterator[tuple[int, bytes]]:
        """Yield each message's client and record.

        Args:
            kind: the kind of the messages.
            messages: the messages, with their senders.
            width: the number of bytes in a record.
            allowed: the clients that may answer; None: anyone.
            seen: the clients that have answered; the yielded clients are added to it.
        """
        seen = set() if seen is None else seen
        for sender, message in messages:
            if sender is None:
                self.dropped["unnamed"] += 1
            elif allowed is not None and sender not in allowed:
                self.dropped["not asked"] += 1
            elif sender in seen:
                self.dropped["repeated"] += 1
            elif (record := self._record(kind, sender, message, width)) is None:
                self.dropped["malformed"] += 1
            else:
                seen.add(sender)
                yield sender, record

    def _record(self, kind: SumKind, sender: int, message: bytes, width: int) -> bytes | None:
        """Return a client's record about itself; None if its message is not valid."""
        try:
            records = unpack(kind, self.round, message, width)
        except RunError:
            return None
        return records[sender] if records.keys() == {sender} else None

    def _check_enough(self, kind: SumKind, count: int) -> None:
        if count < self.setup.threshold:
            raise NoSum(
                f"round {self.round}: {count} clients sent {kind.name}, fewer than threshold = "
                f"{self.setup.threshold}: there is no sum; go on with another round"
            )


class Suspects:
    """Clients that a server leaves out after complaints about boxes that do not open.

    Honest clients can open each other's boxes. So if one client complains about another, at least
    one of this pair lies, and nobody else can tell which. With at most ``liars`` liars, a client
    that is in more than ``liars`` pairs is a liar. Then both clients of each remaining pair are
    left out, one pair after another. So at most as many honest clients are lost as there are liars.

    Args:
        liars: the assumed maximum number of clients that lie; at least 1.
    """

    def __init__(self, liars: int) -> None:
        self._liars = max(1, liars)
        self._out: set[int] = set()

    def note(self, complaints: Mapping[int, Iterable[int]]) -> None:
        """Add one round's complaints: the clients that are accused, by the client that accuses."""
        pairs = {
            (min(one, other), max(one, other))
            for one, accused in complaints.items()
            for other in accused
            if one != other
        }
        counts = Counter(client for pair in pairs for client in pair)
        self._out |= {client for client, count in counts.items() if count > self._liars}
        for pair in sorted(pairs):
            if not self._out & set(pair):
                self._out |= set(pair)

    def spared(self, clients: Sequence[int]) -> list[int]:
        """Return the ``clients`` that may still be asked."""
        return [client for client in clients if client not in self._out]
