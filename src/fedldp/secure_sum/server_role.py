"""The server's half of a secure sum as a channel: a dialogue, and a server step on its total.

See ``summed_client`` for the phases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, RunError
from fedldp.mechanisms.summing import Summing, Words
from fedldp.protocol.roles import Aggregate, Arrays, Ask, Draw, Metrics, ServerRole, State
from fedldp.protocol.updates import whole
from fedldp.protocol.wire import Broadcast, Counted, Incoming, Report, broadcast_digest
from fedldp.secure_sum.client_role import KEYS, SHARES, SURVIVORS, TOLD, Phase
from fedldp.secure_sum.identities import Roster
from fedldp.secure_sum.messages import SecureSum
from fedldp.secure_sum.server import NoSum, SecureSumServer, Suspects


@dataclass(frozen=True, kw_only=True)
class SumOfRound:
    """What became of a round's sum.

    Attributes:
        round: the round.
        clients: whose reports are in the sum, U3, ascending; none where it did not come so far that
            masks may be taken off. What a statement says of the round rests on their number.
        complete: whether the server step was given the total.
        dropped: how many messages were left out, by what was wrong with them.
    """

    round: int
    clients: tuple[int, ...]
    complete: bool
    dropped: Mapping[str, int] = field(default_factory=dict)


def summed_server(
    server: ServerRole,
    summing: Summing,
    setup: SecureSum,
    *,
    roster: Roster | None = None,
    dropout: float = 0.0,
    heard: Callable[[SumOfRound], None] = lambda outcome: None,
) -> ServerRole:
    """Return the half of a server that is given totals.

    Args:
        server: the server's half of the system, of one phase.
        summing: how its reports are summed.
        setup: the parameters.
        roster: whose keys are taken, where they are certified.
        dropout: simulated: chance that a client leaves in the middle of a round.
        heard: is told what became of a round's sum: once it is settled whose reports are in it,
            before any mask is taken off, and again when the round's dialogue is over. What it was
            told first counts, whatever happens to the server in between.

    Raises:
        ConfigError: the system has a dialogue of its own.
    """
    if server.dialogue is not None:
        raise ConfigError("dialogue: only a system of one exchange a round can be summed")
    suspects = Suspects(setup.untrusted)
    return replace(
        server,
        aggregate=OfTotal(server.aggregate),
        plain=None if server.plain is None else OfTotal(server.plain),
        dialogue=Dialogue(summing, setup, roster, dropout, heard, suspects),
    )


@dataclass(frozen=True, eq=False)
class Dialogue:
    """The server's side of a round: four phases, with those who are still there.

    Attributes:
        summing: see ``summed_server``.
        setup: see ``summed_server``.
        roster: see ``summed_server``.
        dropout: see ``summed_server``.
        heard: see ``summed_server``.
        suspects: who is not asked any more.
    """

    summing: Summing
    setup: SecureSum
    roster: Roster | None
    dropout: float
    heard: Callable[[SumOfRound], None]
    suspects: Suspects

    def __call__(
        self, ask: Ask, broadcast: Broadcast, clients: Sequence[int], draw: Draw
    ) -> Incoming:
        """Yield the total; where there is none, an empty report of no clients.

        Raises:
            RunError: more clients want to take part than the sum can have.
        """
        digest = broadcast_digest(broadcast)
        server = SecureSumServer(self.setup, broadcast.round, self.roster, digest)
        leaves = self._leaves(self.suspects.spared(clients), draw)
        total: Words | None
        try:
            total = self._sum(server, ask, broadcast, digest, leaves)
        except NoSum:
            total = None
        self.suspects.note(server.complaints)
        self._tell(server, complete=total is not None)
        if total is not None:
            yield self.summing.total(broadcast.round, total, len(server.survivors))
        else:
            size = self.setup.size
            yield Report(round=broadcast.round, size=size, payload=b"", chunk=size, weight=0.0)

    def _sum(
        self,
        server: SecureSumServer,
        ask: Ask,
        broadcast: Broadcast,
        digest: bytes,
        leaves: Mapping[int, int],
    ) -> Words:
        # The weights are needed where clients train, and nowhere else.
        light = Broadcast(round=broadcast.round, weights=np.empty(0, np.float32))

        def answers(
            phase: Phase, question: Broadcast, own: Mapping[int, Arrays]
        ) -> Iterator[tuple[int | None, bytes]]:
            # Who gave no fit answer is not asked again.
            there = leaves.keys() if phase is Phase.ADVERTISE else server.there
            asked = [c for c, when in leaves.items() if c in there and when > phase]
            for report in whole(ask(phase, question, asked, own)):
                yield report.client, report.payload

        told = replace(light, public={TOLD: _array(digest)})
        keys = server.collect_keys(answers(Phase.ADVERTISE, told, {}))
        told = replace(light, public={KEYS: _array(keys)})
        shares = server.collect_shares(answers(Phase.SHARE_KEYS, told, {}))
        own = {client: {SHARES: _array(boxes)} for client, boxes in shares.items()}
        survivors = server.collect_masked(answers(Phase.MASKED_INPUT, broadcast, own))
        self._tell(server, complete=False)
        told = replace(light, public={SURVIVORS: _array(survivors)})
        return server.unmask(answers(Phase.UNMASK, told, {}))

    def _tell(self, server: SecureSumServer, *, complete: bool) -> None:
        self.heard(
            SumOfRound(
                round=server.round,
                clients=server.survivors,
                complete=complete,
                dropped=dict(server.dropped),
            )
        )

    def _leaves(self, clients: Sequence[int], draw: Draw) -> dict[int, int]:
        """Return for each client the phase that it is not there for any more."""
        generator, count = draw("dropouts").generator(), len(clients)
        when = generator.integers(Phase.SHARE_KEYS, Phase.UNMASK, count, endpoint=True)
        found = np.where(generator.random(count) < self.dropout, when, len(Phase))
        return dict(zip(clients, found.tolist(), strict=True))


def _array(message: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(message, np.uint8)


@dataclass(frozen=True)
class OfTotal:
    """The server step: that of the system on the total; without a sum the weights stay.

    Attributes:
        inner: the system's.
    """

    inner: Aggregate

    def __call__(self, state: State, reports: Incoming, draw: Draw) -> tuple[State, Metrics]:
        """Return the next state, and with the system's figures how many clients are in the sum."""
        total = next(iter(reports), None)
        number = total.reports if isinstance(total, Counted) else getattr(total, "weight", None)
        if total is None or number is None:
            raise RunError(f"round {state.round}: there is no sum, and no word of why")
        if number == 0:
            return state.next(state.weights), {"clients_in_sum": 0.0}
        following, metrics = self.inner(state, [total], draw)
        return following, {**metrics, "clients_in_sum": float(number)}
