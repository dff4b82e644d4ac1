"""The server's role in a secure sum as a channel: a dialogue, and a server step on its total.

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
from fedldp.protocol.roles import Arrays, Ask, Draw, Metrics, ServerRole, ServerStep, State
from fedldp.protocol.updates import whole
from fedldp.protocol.wire import Broadcast, Counted, Incoming, Report, broadcast_digest
from fedldp.secure_sum.client_role import KEYS, SHARES, SURVIVORS, TOLD, Phase
from fedldp.secure_sum.identities import Roster
from fedldp.secure_sum.messages import Committees, SecureSum
from fedldp.secure_sum.server import Messages, NoSum, SecureSumServer, Suspects

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
