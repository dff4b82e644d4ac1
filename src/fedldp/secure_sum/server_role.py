"""The server's half of a secure sum as a channel: a dialogue, and a server step on its total.

See ``summed_client`` for the phases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, RunError
from fedldp.mechanisms.summing import Summing, Words
from fedldp.protocol.roles import Aggregate, Arrays, Ask, Draw, Metrics, ServerRole, State
from fedldp.protocol.updates import whole
from fedldp.protocol.wire import Broadcast, Counted, Incoming, Report, broadcast_digest
from fedldp.secure_sum.client_role import KEYS, SHARES, SURVIVORS, TOLD, Phase
from fedldp.secure_sum.committees import Committees
from fedldp.secure_sum.identities import Roster
from fedldp.secure_sum.messages import SecureSum
from fedldp.secure_sum.server import Messages, NoSum, SecureSumServer, Suspects

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class SumOfRound:
    """What became of a round's sum, or of those of its committees.

    Attributes:
        round: the round.
        clients: whose reports are in a sum, ascending: U3 of all committees together; none of one
            that did not come so far that masks may be taken off.
        fewest: how many of them one such sum has, at least; 0 where there is none. What a statement
            says of the round rests on it.
        complete: whether the server step was given a total.
        dropped: how many messages were left out, by what was wrong with them.
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
    """Return the half of a server that is given totals.

    Args:
        server: the server's half of the system, of one phase.
        summing: how the reports of one sum add up.
        setup: the parameters of one sum.
        committees: who is in which sum; None: one sum of all. One that is not complete is left out
            of the round, and the others count.
        roster: whose keys are taken, where they are certified.
        dropout: simulated: chance that a client leaves in the middle of a round.
        heard: is told what became of a round's sums: once it is settled whose reports are in them,
            before any mask is taken off, and again when the round's dialogue is over. What it was
            told first counts, whatever happens to the server in between.

    Raises:
        ConfigError: the system has a dialogue of its own.
    """
    if server.dialogue is not None:
        raise ConfigError("dialogue: only a system of one exchange a round can be summed")
    dialogue = Dialogue(
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
class Dialogue:
    """The server's side of a round: four phases, with those who are still there.

    Attributes:
        summing: see ``summed_server``.
        setup: see ``summed_server``.
        committees: see ``summed_server``.
        roster: see ``summed_server``.
        dropout: see ``summed_server``.
        heard: see ``summed_server``.
        suspects: who is not asked any more.
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
        """Yield a total for each sum; where there is none, an empty report of no clients.

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
        """Return whose keys are taken in a committee."""
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
        # The weights are needed where clients train, and nowhere else.
        light = Broadcast(round=broadcast.round, weights=np.empty(0, np.float32))

        def answers(
            phase: Phase, question: Broadcast, own: Mapping[int, Arrays]
        ) -> Iterator[tuple[int | None, bytes]]:
            # Who gave no fit answer is not asked again, nor whose committee has no sum.
            there = leaves.keys() if phase is Phase.ADVERTISE else sums.there
            asked = [c for c, when in leaves.items() if c in there and when > phase]
            for report in whole(ask(phase, question, asked, own)):
                yield report.client, report.payload

        def answered(phase: Phase, name: str, told: Mapping[int, bytes]) -> Messages:
            """Tell each committee its own, and return what its clients answer."""
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
        """Return for each client the phase that it is not there for any more."""
        generator, count = draw("dropouts").generator(), len(clients)
        when = generator.integers(Phase.SHARE_KEYS, Phase.UNMASK, count, endpoint=True)
        found = np.where(generator.random(count) < self.dropout, when, len(Phase))
        return dict(zip(clients, found.tolist(), strict=True))


class _Sums:
    """The sums of a round under way, one for each committee; those that failed are over."""

    def __init__(self, servers: list[SecureSumServer], committees: Committees) -> None:
        self.servers, self._committees = servers, committees
        self._left = list(range(len(servers)))

    @property
    def there(self) -> frozenset[int]:
        """The clients that the last phase left in sums that are not over, after the first one."""
        return frozenset().union(*(self.servers[each].there for each in self._left))

    def of(self, client: int | None) -> SecureSumServer:
        """Return the sum that a client's message is for; one without a sender is for any."""
        return self.servers[0 if client is None else self._committees.of(client)]

    def divided(self, messages: Messages) -> list[list[tuple[int | None, bytes]]]:
        """Return messages by committee."""
        found: list[list[tuple[int | None, bytes]]] = [[] for _ in self.servers]
        for sender, message in messages:
            found[0 if sender is None else self._committees.of(sender)].append((sender, message))
        return found

    def each(self, phase: Callable[[SecureSumServer, int], Found]) -> dict[int, Found]:
        """Return what a phase gives by committee; one that has no sum now has none to the end."""
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
    """The server step: that of the system on the totals; without a sum the weights stay.

    Attributes:
        inner: the system's.
    """

    inner: Aggregate

    def __call__(self, state: State, reports: Incoming, draw: Draw) -> tuple[State, Metrics]:
        """Return the next state, and with the system's figures how many clients are in a sum."""
        totals = list(reports)
        numbers = [
            total.reports if isinstance(total, Counted) else getattr(total, "weight", None)
            for total in totals
        ]
        if not totals or None in numbers:
            raise RunError(f"round {state.round}: there is no sum, and no word of why")
        number = float(sum(each for each in numbers if each is not None))
        if number == 0:
            return state.next(state.weights), {"clients_in_sum": 0.0}
        following, metrics = self.inner(state, totals, draw)
        return following, {**metrics, "clients_in_sum": number}
