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
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import InBox
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Encoder, Release
from fedldp.algorithms.server_update import Aggregate
from fedldp.algorithms.settings import Count, Positive
from fedldp.core.bounding import Box
from fedldp.core.errors import ConfigError
from fedldp.mechanisms.codes import ClippedCodes
from fedldp.mechanisms.summing import Summing
from fedldp.parts.secure_sum_messages import SecureSum
from fedldp.parts.sides import ClientSide, ServerSide
from fedldp.parts.summed_client import Answer, Phase
from fedldp.parts.summed_server import summed_server
from fedldp.systems._old import MeanServerConfig

if TYPE_CHECKING:
    import torch

    from fedldp.parts.local_sgd import LocalSgd

Share = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class SecureAggregationConfig(MeanServerConfig):
    """Settings of secure aggregation."""

    simulation_only: ClassVar[frozenset[str]] = MeanServerConfig.simulation_only | {"dropout"}
    rounds_only_add: ClassVar[bool] = True

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
        setup = self._setup(1)  # which checks the rest
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
    def codes(self) -> ClippedCodes:
        """The fixed-point codes of weights."""
        return ClippedCodes(clip=self.clip, bits=self.code_bits)

    def summing(self, problem: Problem) -> Summing:
        """Return how codes are summed."""
        return self.codes.summing(self.layout(problem).size, self.round_size)

    @property
    def always_summed(self) -> bool:
        """It is nothing else."""
        return True

    def _setup(self, size: int) -> SecureSum:
        return SecureSum.of(
            self.codes.summing(size, self.round_size), self.round_size, self.threshold
        )

    def setup(self, problem: Problem) -> SecureSum:
        """Return the parameters of one round's sum, where no key is certified.

        Raises:
            ConfigError: a setting is out of range, or the sum would not fit into 64 bits.
        """
        return self._setup(self.layout(problem).size)

    @property
    def exchanges(self) -> int:
        """Four."""
        return len(Phase)

    def client_encoder(self, problem: Problem, client: int) -> Answer:
        """Return what answers in each exchange."""
        return Answer(self.inner_encoder(problem), self.summing(problem), self.setup(problem))

    def inner_encoder(self, problem: Problem) -> Encoder:
        """Return what encodes the reports within the sum."""
        return Encoder(
            release=Release(
                bound=InBox(box=Box(self.clip)),
                mechanism=self.codes,
                size=self.layout(problem).size,
            )
        )

    @property
    def trains_in(self) -> int:
        """In the exchange that sends the result."""
        return Phase.MASKED_INPUT

    def client_step(self, problem: Problem, device: torch.device) -> LocalSgd:
        """Return plain SGD."""
        return self.sgd(problem, device)

    def inner_client(self, problem: Problem, client: int, device: torch.device) -> ClientSide:
        """Return the half of one client without the sum."""
        return replace(
            self.client(problem, client, device),
            encoder=self.inner_encoder(problem),
            exchanges=1,
            trains_in=0,
        )

    def inner_server(self, problem: Problem) -> ServerSide:
        """Return the server that takes the mean of a total."""
        mean = Aggregate(empty=self.codes.aggregate, gives="weights")
        return self.server_update(mean).side(lambda draw: self.first_state(problem, draw))

    def server(self, problem: Problem) -> ServerSide:
        """Return the server that adds up; see the module's diagram."""
        return summed_server(
            self.inner_server(problem),
            self.summing(problem),
            self.setup(problem),
            dropout=self.dropout,
        )

    def claim(self) -> Claim | None:
        """Secure aggregation claims no differential privacy."""
        return None
