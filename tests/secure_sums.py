"""One secure sum through the phases of its protocol, with drop-outs and all that its server
sees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from fedldp.core.randomness import Stream
from fedldp.mechanisms.summing import Words, signed
from fedldp.secure_sum import messages as masks
from fedldp.secure_sum.client import SecureSumClient
from fedldp.secure_sum.identities import Identity, Roster
from fedldp.secure_sum.messages import SEALED_BYTES, SecureSum, SumKind, pack, unpack
from fedldp.secure_sum.server import Messages, SecureSumServer

Codes = NDArray[np.int64]
STAYS = 4


def make_setup(
    num_clients: int, threshold: int, size: int = 3, bits: int = 24, untrusted: int = 0
) -> SecureSum:
    """Return the parameters of a sum."""
    return SecureSum(
        num_clients=num_clients, threshold=threshold, size=size, bits=bits, untrusted=untrusted
    )


def make_client(
    setup: SecureSum, index: int, round: int = 1, identity: Identity | None = None
) -> SecureSumClient:
    """Return a client, whose secrets are the same in every round."""
    stream = Stream.simulation(seed=7, round=1, client=index, purpose="secure sum")
    return SecureSumClient(setup, round, index, stream, identity=identity)


def private_of(client: int) -> bytes:
    """Return a client's private identity key."""
    stream = Stream.simulation(seed=8, round=0, client=client, purpose="identity")
    return bytes(stream.bytes(32))


def make_roster(clients: Iterable[int], run: str = "a run") -> Roster:
    """Return a roster of clients with the keys of ``private_of``."""
    keys = {
        u: Ed25519PrivateKey.from_private_bytes(private_of(u)).public_key().public_bytes_raw()
        for u in clients
    }
    return Roster(run=run, keys=keys)


def sent(messages: Iterable[bytes]) -> list[tuple[int, bytes]]:
    """Return messages with their senders, as certified by an honest transport."""
    return [(int.from_bytes(message[9:13], "little"), message) for message in messages]


def column(rows: Mapping[int, bytes], place: int, round: int = 1) -> bytes:
    """Return the server's message with the box of each sender for the client at ``place`` of U1."""
    part = slice(place * SEALED_BYTES, (place + 1) * SEALED_BYTES)
    return pack(SumKind.OWN_SHARES, round, {sender: row[part] for sender, row in rows.items()})


def collect_masked(server: SecureSumServer, messages: Messages) -> bytes:
    """Give a server the masked vectors; return U3, the clients that sent one."""
    for sender, message in messages:
        server.take_masked(sender, message)
    return server.close_masked()


@dataclass
class Run:
    """One run. Client u answers the phases before ``leaves[u]``; STAYS means all four.

    Attributes:
        setup: the sum's parameters.
        codes: the clients' inputs.
        leaves: for each client that drops out, the first phase that it does not answer.
        seen: every message that the server received, in order.
        rows: the boxes that each client sealed for all of U1.
        late: the messages of phase 2 that reached the server after it closed the phase.
        roster: certifies the keys.
    """

    setup: SecureSum
    codes: Mapping[int, Codes]
    leaves: Mapping[int, int] = field(default_factory=dict)
    round: int = 1
    seen: list[bytes] = field(default_factory=list)
    late: list[bytes] = field(default_factory=list)
    roster: Roster | None = None

    def __post_init__(self) -> None:
        self.server = SecureSumServer(self.setup, self.round, self.roster)
        self.clients = {
            index: make_client(self.setup, index, self.round, identity=self.identity(index))
            for index in self.codes
        }

    def identity(self, index: int) -> Identity | None:
        if self.roster is None:
            return None
        return Identity(roster=self.roster, index=index, private=private_of(index))

    def answering(self, phase: int) -> list[int]:
        return [index for index in self.codes if self.leaves.get(index, STAYS) > phase]

    def receive(self, messages: list[bytes]) -> list[tuple[int, bytes]]:
        self.seen += messages
        return sent(messages)

    def masked(self, index: int) -> bytes:
        shares = self.shares[index]
        return self.clients[index].masked_input(self.keys, shares, lambda: self.codes[index])

    def to_shares(self) -> None:
        """Run phases 0 and 1."""
        clients = self.clients
        self.keys = self.server.collect_keys(
            self.receive([clients[u].advertise() for u in self.answering(0)])
        )
        shared = self.receive([clients[u].share_keys(self.keys) for u in self.answering(1)])
        self.shares = self.server.collect_shares(shared)
        width = SEALED_BYTES * len(self.answering(0))
        self.rows = {u: unpack(SumKind.CLIENT_SHARES, self.round, m, width)[u] for u, m in shared}

    def to_survivors(self) -> None:
        """Run phases 0 to 2."""
        self.to_shares()
        self.survivors = collect_masked(
            self.server, self.receive([self.masked(u) for u in self.answering(2)])
        )

    def total(self) -> Codes:
        """Run all phases and return the sum of the codes."""
        self.to_survivors()
        slow = [u for u in self.answering(1) if u not in self.answering(2)]
        self.late = [self.masked(u) for u in slow]
        revealed = [
            self.clients[u].unmask(self.keys, self.shares[u], self.survivors)
            for u in self.answering(3)
        ]
        return signed(self.server.unmask(self.receive(revealed)), self.setup.bits)


class ShiftedMasks:
    """Shifts masks, by name, and records which masks the server computes.

    Masks are the output of a pseudorandom generator, which cannot be told from uniform words. So
    any fixed shift of a mask that the server cannot compute is as likely as no shift.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shifts: dict[tuple[str, tuple[int, ...]], Codes] = {}
        self.computed_by_server: set[tuple[str, tuple[int, ...]]] = set()
        self._names: dict[bytes, tuple[str, tuple[int, ...]]] = {}
        self._in_server = False
        derive, expand, unmask = (
            masks.derive,
            masks.expand,
            SecureSumServer.unmask,
        )

        def named(secret: bytes, purpose: str, context: bytes, *clients: int) -> bytes:
            key = derive(secret, purpose, context, *clients)
            self._names[key] = (purpose, clients)
            return key

        def shifted(key: bytes, size: int, dtype: np.dtype[np.unsignedinteger]) -> Words:
            name = self._names[key]
            if self._in_server:
                self.computed_by_server.add(name)
            return expand(key, size, dtype) + self.shifts.get(name, np.int64(0)).astype(dtype)

        def marked(server: SecureSumServer, messages: Messages) -> Words:
            self._in_server = True
            try:
                return unmask(server, messages)
            finally:
                self._in_server = False

        monkeypatch.setattr(masks, "derive", named)
        monkeypatch.setattr(masks, "expand", shifted)
        monkeypatch.setattr(SecureSumServer, "unmask", marked)
