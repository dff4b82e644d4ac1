"""Secure aggregation: FedAvg whose server sees the sum of the clients' weights, and none of them.

    Broadcast: weights
        |
        v
    gather        the dialogue of ``parts.secure_sum``, four exchanges in one round:
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Annotated, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedldp.accounting.events import InClear
from fedldp.accounting.statement import Claim
from fedldp.bounding import check_releasable
from fedldp.errors import ConfigError, RunError
from fedldp.parts import Client
from fedldp.parts.local_sgd import LocalSgd
from fedldp.parts.secure_sum import SecureSumClient, SecureSumServer, TooFewClients
from fedldp.parts.secure_sum_messages import SecureSum
from fedldp.randomness import SERVER, Stream
from fedldp.systems import Count, Exchange, Positive, Problem, System, SystemConfig
from fedldp.wire import Broadcast, Incoming, Report, Sensitive, Vector

Share = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class Phase(IntEnum):
    """The four exchanges of a round."""

    ADVERTISE = 0
    SHARE_KEYS = 1
    MASKED_INPUT = 2
    UNMASK = 3


class SecureAggregationConfig(SystemConfig):
    """Settings of secure aggregation."""

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

    def build(self, problem: Problem, *, device: torch.device) -> System:
        """Put secure aggregation together; see the module's diagram."""
        model, layout, weights, training = self.build_training(problem, device)
        setup = self.setup(layout.size)
        return System(
            initial=lambda: Broadcast(round=1, weights=weights),
            client_step=TrainWhenAsked(training),
            encoder=Answer(setup),
            server_step=MeanOfSum(setup),
            model=model,
            layout=layout,
            gather=Dialogue(setup, self.dropout, self.seed),
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

    def release(self, client: int, size: int, problem: Problem) -> InClear:
        """Return what the server learns: the sum, as it is."""
        return InClear(
            what="the exact sum of the clients' weights (of one client's alone, a server that "
            "follows the protocol and colludes with no client sees nothing)"
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
        if _phase(broadcast) is Phase.MASKED_INPUT:
            return self.training(broadcast, client)
        return Sensitive(np.zeros(0, np.float32))


@dataclass(frozen=True)
class Answer:
    """The client's encoder: its answer in each exchange.

    Its secrets come from its stream of the round, the same in each exchange of a simulation. So it
    is made anew for each, and does not remember what it answered: a server that asked twice in one
    phase would not be refused. Ours does not; a deployment keeps ``SecureSumClient`` for the round.
    """

    setup: SecureSum

    def __call__(self, update: Sensitive[Vector], broadcast: Broadcast, client: Client) -> Report:
        """Return the answer of one client to the server's message so far."""
        values = update.open()
        if values.size:
            check_releasable(values)
        own = SecureSumClient(
            self.setup, broadcast.round, client.index, client.stream("secure sum")
        )
        keys, shares, survivors = (
            broadcast.public[name].tobytes() if name in broadcast.public else b""
            for name in ("keys", "shares", "survivors")
        )
        match _phase(broadcast):
            case Phase.ADVERTISE:
                message = own.advertise()
            case Phase.SHARE_KEYS:
                message = own.share_keys(keys)
            case Phase.MASKED_INPUT:
                message = own.masked_input(keys, shares, values)
            case Phase.UNMASK:
                message = own.unmask(keys, shares, survivors)
        return Report(
            round=broadcast.round,
            size=self.setup.size,
            payload=message,
            chunk=self.setup.size,
            client=client.index,
        )


@dataclass(frozen=True)
class Dialogue:
    """The server's side of a round: four exchanges, with those who are still there."""

    setup: SecureSum
    dropout: float
    seed: int

    def __call__(
        self, exchange: Exchange, broadcast: Broadcast, clients: Sequence[int]
    ) -> Incoming:
        """Return one report: the sum of the codes, and how many clients are in it as its weight.

        Where too few clients are left, it is empty, of no clients, and the round ends: another sum
        in it, of those who are left, would draw on the same secrets.
        """
        try:
            total, count = self._sum(exchange, broadcast, clients)
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
        self, exchange: Exchange, broadcast: Broadcast, clients: Sequence[int]
    ) -> tuple[NDArray[np.int64], int]:
        server = SecureSumServer(self.setup, broadcast.round)
        leaves = self._leaves(broadcast.round, len(clients))
        told: dict[str, NDArray[np.uint8]] = {}

        def answers(phase: Phase) -> Iterator[bytes]:
            public = {"phase": np.array([phase], np.uint8), **told}
            there = [c for c, when in zip(clients, leaves, strict=True) if when > phase]
            for report in exchange(replace(broadcast, public=public), there):
                assert isinstance(report, Report)
                yield report.payload

        def tell(name: str, message: bytes) -> None:
            told[name] = np.frombuffer(message, np.uint8)

        tell("keys", server.collect_keys(answers(Phase.ADVERTISE)))
        tell("shares", server.collect_shares(answers(Phase.SHARE_KEYS)))
        tell("survivors", server.collect_masked(answers(Phase.MASKED_INPUT)))
        total = server.unmask(answers(Phase.UNMASK))
        return total, len(server.survivors)

    def _leaves(self, round: int, count: int) -> NDArray[np.int64]:
        """Return for each client the phase that it is not there for any more."""
        stream = Stream.simulation(seed=self.seed, round=round, client=SERVER, purpose="dropouts")
        generator = stream.generator()
        when = generator.integers(Phase.SHARE_KEYS, Phase.UNMASK, count, endpoint=True)
        return np.where(generator.random(count) < self.dropout, when, len(Phase))


@dataclass(frozen=True)
class MeanOfSum:
    """The server step: the mean of the clients that are in the sum; without a sum nothing moves."""

    setup: SecureSum

    def __call__(self, broadcast: Broadcast, reports: Incoming) -> Broadcast:
        """Return the next round's broadcast."""
        report = next(iter(reports), None)
        if not isinstance(report, Report) or report.weight is None:
            raise RunError(f"round {broadcast.round}: there is no sum to take the mean of")
        weights = broadcast.weights
        if report.weight > 0:
            total = self.setup.decode(np.frombuffer(report.payload, "<i8").astype(np.int64))
            weights = (total / report.weight).astype(np.float32)
        return replace(
            broadcast,
            round=broadcast.round + 1,
            weights=weights,
            notes={"clients_in_sum": report.weight},
        )


def _phase(broadcast: Broadcast) -> Phase:
    return Phase(int(broadcast.public["phase"][0])) if broadcast.public else Phase.ADVERTISE
