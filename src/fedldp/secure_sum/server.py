"""The server in a secure sum; and its role where the sum is a channel.

The package's docstring says what the server may learn, and ``client`` has the phases of a round. As
a role, the server has a dialogue, and a server step on its total.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, RunError
from fedldp.core.randomness import KEY_BYTES
from fedldp.mechanisms.summing import Summing, Words
from fedldp.protocol.roles import Arrays, Ask, Draw, Metrics, ServerRole, ServerStep, State
from fedldp.protocol.updates import whole
from fedldp.protocol.wire import Broadcast, Counted, Incoming, Report, broadcast_digest
from fedldp.secure_sum.client import KEYS, SHARES, SURVIVORS, TOLD, Phase
from fedldp.secure_sum.crypto import (
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
    Committees,
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
        """The clients whose vectors are in the sum, U3; known after ``close_masked``."""
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
        self._masked, self._total = set(), np.zeros(self.setup.size, self.setup.dtype)
        columns = {}
        for place, client in enumerate(sorted(self._keys)):
            if client in found:
                part = slice(place * SEALED_BYTES, (place + 1) * SEALED_BYTES)
                boxes = {sender: row[part] for sender, row in found.items()}
                columns[client] = pack(SumKind.OWN_SHARES, self.round, boxes)
        return columns

    def take_masked(self, sender: int | None, message: bytes) -> None:
        """Add one masked vector. Invalid messages raise no error."""
        width = self.setup.size * self.setup.dtype.itemsize
        others = self._without_complaints([(sender, message)])
        read = self._read(SumKind.CLIENT_SUM, others, width, self._sharers, self._masked)
        for _client, words in read:
            self._total += np.frombuffer(words, self.setup.dtype)

    def close_masked(self) -> bytes:
        """Return U3, the clients that sent a masked vector. Read no vector after it."""
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


Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class SumOfRound:
    """The outcome of a round's sum, or of the sums of its committees.

    Attributes:
        round: the round.
        clients: the clients whose reports are in a sum, in ascending order: the U3 of all
            committees together. A sum that failed before its masks could be removed contributes no
            clients.
        fewest: the smallest number of clients in such a sum; 0 if there is no sum. A statement
            about the round rests on this number.
        complete: whether there was a total for the server step.
        dropped: the number of messages left out, by what was wrong with them.
    """

    round: int
    clients: tuple[int, ...]
    fewest: int
    complete: bool
    dropped: Mapping[str, int] = field(default_factory=dict)


def summed_server(
    server: ServerRole,
    summing: Summing,
    setup: SecureSum,
    *,
    committees: Committees | None = None,
    roster: Roster | None = None,
    dropout: float = 0.0,
    heard: Callable[[SumOfRound], None] = lambda outcome: None,
) -> ServerRole:
    """Return the role of a server that receives totals.

    Args:
        server: the server's role in the system, which has one phase.
        summing: how the reports of one sum add up.
        setup: the parameters of one sum.
        committees: which client is in which sum; None if there is one sum of all. A committee whose
            sum fails is left out of the round, and the others count.
        roster: the clients whose keys are accepted, if keys are certified.
        dropout: in a simulation, the probability that a client leaves in the middle of a round.
        heard: called twice with the outcome of a round's sums. The first call comes before any mask
            is removed, when it is certain whose reports are in the sums; the second comes after the
            round's dialogue. The first call counts, whatever happens to the server in between.

    Raises:
        ConfigError: the system itself has a dialogue.
    """
    if server.dialogue is not None:
        raise ConfigError("dialogue: only a system with one phase a round can be summed")
    dialogue = SumDialogue(
        summing=summing,
        setup=setup,
        committees=Committees(setup.num_clients) if committees is None else committees,
        roster=roster,
        dropout=dropout,
        heard=heard,
        suspects=Suspects(setup.untrusted),
    )
    return replace(
        server,
        aggregate=OfTotals(server.aggregate),
        plain=None if server.plain is None else OfTotals(server.plain),
        dialogue=dialogue,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class SumDialogue:
    """The server's side of a round: four phases with the remaining clients.

    Attributes:
        summing: see ``summed_server``.
        setup: see ``summed_server``.
        committees: see ``summed_server``.
        roster: see ``summed_server``.
        dropout: see ``summed_server``.
        heard: see ``summed_server``.
        suspects: the clients that are no longer asked.
    """

    summing: Summing
    setup: SecureSum
    committees: Committees
    roster: Roster | None
    dropout: float
    heard: Callable[[SumOfRound], None]
    suspects: Suspects

    def __call__(
        self, ask: Ask, broadcast: Broadcast, clients: Sequence[int], draw: Draw
    ) -> Incoming:
        """Yield a total for each sum; if there is no sum, yield an empty report of no clients.

        Raises:
            RunError: more clients want to take part than a sum can have.
        """
        digest = broadcast_digest(broadcast)
        sums = _Sums(
            [
                SecureSumServer(self.setup, broadcast.round, self._roster(committee), digest)
                for committee in range(self.committees.number)
            ],
            self.committees,
        )
        leaves = self._leaves(self.suspects.spared(clients), draw)
        totals = self._totals(sums, ask, broadcast, digest, leaves)
        for server in sums.servers:
            self.suspects.note(server.complaints)
        self._tell(sums, complete=bool(totals))
        for committee, total in totals.items():
            survivors = sums.servers[committee].survivors
            yield self.summing.total(broadcast.round, total, len(survivors))
        if not totals:
            size = self.setup.size
            yield Report(round=broadcast.round, size=size, payload=b"", chunk=size, weight=0.0)

    def _roster(self, committee: int) -> Roster | None:
        """Return the roster of a committee: the clients whose keys are accepted in it."""
        if self.roster is None or self.committees.number == 1:
            return self.roster
        return self.roster.of(self.committees.members(committee))

    def _totals(
        self,
        sums: _Sums,
        ask: Ask,
        broadcast: Broadcast,
        digest: bytes,
        leaves: Mapping[int, int],
    ) -> dict[int, Words]:
        """Return the total of each committee that has one."""
        # Only the clients that train need the weights.
        light = Broadcast(round=broadcast.round, weights=np.empty(0, np.float32))

        def answers(
            phase: Phase, request: Broadcast, own: Mapping[int, Arrays]
        ) -> Iterator[tuple[int | None, bytes]]:
            # A client whose answer was invalid, or whose committee has no sum, is not asked again.
            there = leaves.keys() if phase is Phase.ADVERTISE else sums.there
            asked = [c for c, when in leaves.items() if c in there and when > phase]
            for report in whole(ask(phase, request, asked, own)):
                yield report.client, report.payload

        def answered(phase: Phase, name: str, told: Mapping[int, bytes]) -> Messages:
            """Tell each committee its own message, and return its clients' answers."""
            if self.committees.number == 1:
                public = {name: _array(told[0])}
                return answers(phase, replace(light, public=public), {})
            arrays = {committee: {name: _array(message)} for committee, message in told.items()}
            own = {c: arrays[self.committees.of(c)] for c in sums.there}
            return answers(phase, light, own)

        told = replace(light, public={TOLD: _array(digest)})
        advertised = sums.divided(answers(Phase.ADVERTISE, told, {}))
        keys = sums.each(lambda server, of: server.collect_keys(advertised[of]))
        if not keys:
            return {}
        shared = sums.divided(answered(Phase.SHARE_KEYS, KEYS, keys))
        shares = sums.each(lambda server, of: server.collect_shares(shared[of]))
        if not shares:
            return {}
        own = {c: {SHARES: _array(box)} for boxes in shares.values() for c, box in boxes.items()}
        for sender, message in answers(Phase.MASKED_INPUT, broadcast, own):
            sums.of(sender).take_masked(sender, message)
        survivors = sums.each(lambda server, of: server.close_masked())
        self._tell(sums, complete=False)
        if not survivors:
            return {}
        revealed = sums.divided(answered(Phase.UNMASK, SURVIVORS, survivors))
        return sums.each(lambda server, of: server.unmask(revealed[of]))

    def _tell(self, sums: _Sums, *, complete: bool) -> None:
        sizes = [len(server.survivors) for server in sums.servers if server.survivors]
        dropped = sum((server.dropped for server in sums.servers), Counter[str]())
        self.heard(
            SumOfRound(
                round=sums.servers[0].round,
                clients=tuple(sorted(c for server in sums.servers for c in server.survivors)),
                fewest=min(sizes, default=0),
                complete=complete,
                dropped=dict(dropped),
            )
        )

    def _leaves(self, clients: Sequence[int], draw: Draw) -> dict[int, int]:
        """Return, for each client, the first phase that it misses."""
        generator, count = draw("dropouts").generator(), len(clients)
        when = generator.integers(Phase.SHARE_KEYS, Phase.UNMASK, count, endpoint=True)
        found = np.where(generator.random(count) < self.dropout, when, len(Phase))
        return dict(zip(clients, found.tolist(), strict=True))


class _Sums:
    """The sums of a round in progress, one for each committee; a failed sum takes no more steps."""

    def __init__(self, servers: list[SecureSumServer], committees: Committees) -> None:
        self.servers, self._committees = servers, committees
        self._left = list(range(len(servers)))

    @property
    def there(self) -> frozenset[int]:
        """The remaining clients of sums that have not failed; empty before the first phase."""
        return frozenset().union(*(self.servers[each].there for each in self._left))

    def of(self, client: int | None) -> SecureSumServer:
        """Return the sum that a client's message is for; any sum if the sender is unknown."""
        return self.servers[0 if client is None else self._committees.of(client)]

    def divided(self, messages: Messages) -> list[list[tuple[int | None, bytes]]]:
        """Return the messages of each committee."""
        found: list[list[tuple[int | None, bytes]]] = [[] for _ in self.servers]
        for sender, message in messages:
            found[0 if sender is None else self._committees.of(sender)].append((sender, message))
        return found

    def each(self, phase: Callable[[SecureSumServer, int], Found]) -> dict[int, Found]:
        """Return the result of a phase for each committee; a committee that fails is left out."""
        found: dict[int, Found] = {}
        for committee in self._left:
            with suppress(NoSum):
                found[committee] = phase(self.servers[committee], committee)
        self._left = list(found)
        return found


def _array(message: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(message, np.uint8)


@dataclass(frozen=True)
class OfTotals:
    """The system's own server step, applied to totals; without a sum the weights do not change.

    Attributes:
        inner: the system's server step.
    """

    inner: ServerStep

    def __call__(self, state: State, reports: Incoming, draw: Draw) -> tuple[State, Metrics]:
        """Return the next state, and the metrics with the number of clients in the sums."""
        totals = list(reports)
        numbers = [
            total.reports if isinstance(total, Counted) else getattr(total, "weight", None)
            for total in totals
        ]
        if not totals or None in numbers:
            raise RunError(f"round {state.round}: there is no sum, and no reason was given")
        number = float(sum(each for each in numbers if each is not None))
        if number == 0:
            return state.next(state.weights), {"clients_in_sum": 0.0}
        following, metrics = self.inner(state, totals, draw)
        return following, {**metrics, "clients_in_sum": number}
