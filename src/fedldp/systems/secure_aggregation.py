"""Secure aggregation: FedAvg whose server sees the sum of the clients' weights, and none of them.

    Broadcast: weights
        |
        v
    dialogue      of ``parts.secure_sum``, four exchanges in one round:
        |           advertise    two public keys of each client
        |           share keys   sealed Shamir shares of its two secrets
        |           masked input client_step: local SGD; encoder: fixed point + masks, modular
        |           unmask       shares that remove the masks of those who stayed and who left
        |         Report: the sum of codes of the clients that stayed, exact
        v
    server_step   sum/count -> weights of the next Broadcast

Clients may drop out at any point, as long as ``threshold`` stay; ``dropout`` simulates that. A
round in which fewer stay has no sum, and leaves the weights as they are. The sum itself is exact
and unprotected: this is no differential privacy, and what a cheating server could do is told in
``parts.secure_sum``.

Source: Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS
2017, the honest-but-curious protocol. The mean is uniform: example counts would be sent in clear.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedldp.accounting.events import Event, InClear, NoData
from fedldp.accounting.statement import Claim
from fedldp.errors import ConfigError, RunError
from fedldp.parts.changes import open_weights, whole
from fedldp.parts.secure_sum import SecureSumClient, SecureSumServer, TooFewClients
from fedldp.parts.secure_sum_messages import SecureSum
from fedldp.parts.sides import Ask, Client, Draw, Sender, ServerSide, State
from fedldp.systems.base import Problem, SystemConfig
from fedldp.systems.settings import Count, Positive
from fedldp.wire import Broadcast, Incoming, Report, Sensitive, Vector

if TYPE_CHECKING:
    import torch

    from fedldp.parts.local_sgd import LocalSgd

Share = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class Phase(IntEnum):
    """The four exchanges of a round."""

    ADVERTISE = 0
    SHARE_KEYS = 1
    MASKED_INPUT = 2
    UNMASK = 3


class SecureAggregationConfig(SystemConfig):
    """Settings of secure aggregation."""

    simulation_only: ClassVar[frozenset[str]] = SystemConfig.simulation_only | {"dropout"}

    system: Literal["secure_aggregation"] = "secure_aggregation"
    clip: Positive = Field(8.0, description="bound on the magnitude of one weight")
    code_bits: Count = Field(24, description="bits of a weight's fixed-point code")
    threshold: Count | None = Field(
        None, description="clients needed to the end of a round; two thirds where it is not set"
    )
    dropout: Share = Field(
        0.0, description="simulated: chance that a client leaves in the middle of a round"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        clients = self.round_size
        if clients == 1:
            name = "num_clients" if self.clients_per_round is None else "clients_per_round"
            raise ConfigError(f"{name} = 1: a sum of one hides nothing; give 2 or more")
        setup = self.setup(1)  # which checks the rest
        staying = clients * (1 - self.dropout)
        if staying < setup.threshold:
            most = math.floor(1000 * (1 - setup.threshold / clients)) / 1000
            raise ConfigError(
                f"dropout = {self.dropout:g}: of {clients} clients in a round, {staying:g} are "
                f"expected to stay, fewer than threshold = {setup.threshold} (two thirds, where it "
                f"is not set); give a dropout of at most {most:g}"
                + ("" if setup.threshold == clients // 2 + 1 else ", or a lower threshold")
            )
        return self

    @property
    def exchanges(self) -> int:
        """Four."""
        return len(Phase)

    def client_encoder(self, problem: Problem, client: int) -> Answer:
        """Return what answers in each exchange."""
        return Answer(self.setup(self.layout(problem).size))

    def client_step(self, problem: Problem, device: torch.device) -> TrainWhenAsked:
        """Return plain SGD, in the exchange that sends its result."""
        return TrainWhenAsked(self.sgd(problem, device))

    def server(self, problem: Problem) -> ServerSide:
        """Return the server that adds up; see the module's diagram."""
        setup = self.setup(self.layout(problem).size)
        return ServerSide(
            initial=lambda draw: self.first_state(problem, draw),
            aggregate=MeanOfSum(setup),
            dialogue=Dialogue(setup, self.dropout),
        )

    def setup(self, size: int) -> SecureSum:
        """Return the parameters of one round's sum, for a model of ``size`` weights.

        Raises:
            ConfigError: a setting is out of range, or the sum would not fit into 64 bits.
        """
        clients = self.round_size
        return SecureSum(
            num_clients=clients,
            threshold=2 * clients // 3 + 1 if self.threshold is None else self.threshold,
            size=size,
            clip=self.clip,
            bits=self.code_bits,
        )

    def claim(self) -> Claim | None:
        """Secure aggregation claims no differential privacy."""
        return None


@dataclass(frozen=True)
class TrainWhenAsked:
    """The client step: training, in the one exchange of a round that sends its result."""

    training: LocalSgd

    def __call__(self, broadcast: Broadcast, client: Client) -> Sensitive[Vector]:
        """Return the client's weights after training; nothing in the other exchanges."""
        if client.exchange == Phase.MASKED_INPUT:
            return self.training(broadcast, client)
        return Sensitive(np.zeros(0, np.float32))


@dataclass(frozen=True)
class Answer:
    """The client's encoder: its answer in each exchange.

    Which one it is says the runtime, which charges for it and answers each once in a round; nothing
    in the broadcast does. It is made anew for each, so its secrets of the round are kept ones, and
    the client's store has what it was asked, and the vector that it masks: a server that asks
    otherwise later, also after a restart of the client, is refused, and no second vector comes
    under the same masks. Both follow from the server's messages alone.

    Attributes:
        setup: the parameters of a round's sum.
    """

    setup: SecureSum

    def event(self, exchange: int = 0) -> Event:
        """Return what the answer in an exchange releases: one of them depends on examples."""
        match Phase(exchange):
            case Phase.ADVERTISE:
                return NoData(what="public keys")
            case Phase.SHARE_KEYS:
                return NoData(what="sealed shares of the secrets behind masks")
            case Phase.MASKED_INPUT:
                return InClear(
                    what="the exact sum of the clients' weights (of one client's alone, a server "
                    "that follows the protocol and colludes with no client sees nothing)"
                )
            case Phase.UNMASK:
                return NoData(what="shares of the secrets behind masks")

    def __call__(
        self, update: Sensitive[Vector | None], broadcast: Broadcast, sender: Sender
    ) -> Report:
        """Return the answer of one client to the server's message so far.

        Raises:
            PrivacyError: the server asked otherwise before, or its message is not to be answered.
            RunError: its message is malformed.
        """
        own = SecureSumClient(
            self.setup,
            broadcast.round,
            sender.index,
            sender.kept(f"secure sum {broadcast.round}"),
            _Remembered(broadcast.round, sender),
        )
        keys, shares, survivors = (
            broadcast.public[name].tobytes() if name in broadcast.public else b""
            for name in ("keys", "shares", "survivors")
        )
        match Phase(sender.exchange):
            case Phase.ADVERTISE:
                message = own.advertise()
            case Phase.SHARE_KEYS:
                message = own.share_keys(keys)
            case Phase.MASKED_INPUT:
                message = own.masked_input(
                    keys, shares, lambda: _kept_weights(update, broadcast, sender)
                )
            case Phase.UNMASK:
                message = own.unmask(keys, shares, survivors)
        return Report(
            round=broadcast.round,
            size=self.setup.size,
            payload=message,
            chunk=self.setup.size,
            client=sender.index,
        )


def _kept_weights(update: Sensitive[Vector | None], broadcast: Broadcast, sender: Sender) -> Vector:
    """Return the vector that the client masks in this round, which is the first that it had.

    To be called for a question that will be answered: what is kept of earlier rounds goes.
    """
    kept = sender.store.arrays(
        "masked-input", lambda: {"weights": open_weights(update, broadcast)}, round=broadcast.round
    )
    return kept["weights"]


@dataclass(frozen=True)
class _Remembered:
    """The first digests of what a client was asked in a round, in its store."""

    round: int
    sender: Sender

    def __call__(self, name: str, digest: bytes) -> bytes:
        kept = self.sender.store.arrays(
            f"asked-{name}",
            lambda: {"digest": np.frombuffer(digest, np.uint8)},
            round=self.round,
        )
        return kept["digest"].tobytes()


@dataclass(frozen=True)
class Dialogue:
    """The server's side of a round: four exchanges, with those who are still there.

    Attributes:
        setup: the parameters of the sum.
        dropout: simulated: the chance that a client is not asked any more from some exchange on.
    """

    setup: SecureSum
    dropout: float

    def __call__(
        self, ask: Ask, broadcast: Broadcast, clients: Sequence[int], draw: Draw
    ) -> Incoming:
        """Return one report: the sum of the codes, and how many clients are in it as its weight.

        Where too few clients are left, it is empty, of no clients, and the round ends: another sum
        in it, of those who are left, would draw on the same secrets.
        """
        leaves = self._leaves(clients, draw)
        try:
            total, count = self._sum(ask, broadcast, leaves)
        except TooFewClients:
            total, count = np.zeros(0, np.int64), 0
        yield Report(
            round=broadcast.round,
            size=self.setup.size,
            payload=total.astype("<i8").tobytes(),
            chunk=self.setup.size,
            weight=float(count),
        )

    def _sum(
        self, ask: Ask, broadcast: Broadcast, leaves: Mapping[int, int]
    ) -> tuple[NDArray[np.int64], int]:
        server = SecureSumServer(self.setup, broadcast.round)
        told: dict[str, NDArray[np.uint8]] = {}
        there: set[int | None] = set(leaves)

        def answers(phase: Phase) -> Iterator[bytes]:
            asked = [c for c, when in leaves.items() if c in there and when > phase]
            there.clear()  # who does not answer now is not asked again
            for report in whole(ask(phase, replace(broadcast, public=dict(told)), asked)):
                there.add(report.client)
                yield report.payload

        def tell(name: str, message: bytes) -> None:
            told[name] = np.frombuffer(message, np.uint8)

        tell("keys", server.collect_keys(answers(Phase.ADVERTISE)))
        tell("shares", server.collect_shares(answers(Phase.SHARE_KEYS)))
        tell("survivors", server.collect_masked(answers(Phase.MASKED_INPUT)))
        total = server.unmask(answers(Phase.UNMASK))
        return total, len(server.survivors)

    def _leaves(self, clients: Sequence[int], draw: Draw) -> dict[int, int]:
        """Return for each client the phase that it is not there for any more."""
        generator, count = draw("dropouts").generator(), len(clients)
        when = generator.integers(Phase.SHARE_KEYS, Phase.UNMASK, count, endpoint=True)
        found = np.where(generator.random(count) < self.dropout, when, len(Phase))
        return dict(zip(clients, found.tolist(), strict=True))


@dataclass(frozen=True)
class MeanOfSum:
    """The server step: the mean of the clients that are in the sum; without a sum nothing moves."""

    setup: SecureSum

    def __call__(
        self, state: State, reports: Incoming, draw: Draw
    ) -> tuple[State, Mapping[str, float]]:
        """Return the next state."""
        report = next(whole(reports), None)
        if report is None or report.weight is None:
            raise RunError(f"round {state.round}: there is no sum to take the mean of")
        weights = state.weights
        if report.weight > 0:
            total = self.setup.decode(np.frombuffer(report.payload, "<i8").astype(np.int64))
            weights = (total / report.weight).astype(np.float32)
        return state.next(weights), {"clients_in_sum": report.weight}
