"""NbAFL: Gaussian noise on clipped weights before they are averaged.

    Broadcast: weights W
        |
        v
    client_step   local SGD from W
        |         Sensitive weights w
        v
    encoder       w clipped to norm C, plus N(0, sigma_U^2) on every weight (eq. 4)
        |         Report: 32 d bits, and the example count where weighting = examples
        v
    server_step   weighted mean, plus N(0, sigma_D^2) on every weight (eq. 5) -> next Broadcast

Source: Wei et al., "Federated Learning With Differential Privacy: Algorithms and Performance
Analysis", IEEE TIFS 2020; equations as in Talaei, Izadi 2024 (arXiv 2401.02453), section III-A.

The noise is as published, sized for a sensitivity of 2 C/m. The clip proves 2 C, for one record as
for the whole client: that is what the guarantees say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import InNorm
from fedldp.algorithms.release import Encoder, Release
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.parts.sides import ServerSide
from fedldp.systems._nbafl import NbaflSettings
from fedldp.systems.base import EpsilonMeaning, Problem
from fedldp.systems.settings import Positive

if TYPE_CHECKING:
    import torch

    from fedldp.parts.local_sgd import LocalSgd


class NbaflConfig(NbaflSettings):
    """Settings of NbAFL."""

    system: Literal["nbafl"] = "nbafl"
    epsilon: Positive = Field(description="as claimed for one record, all uploads together")

    def mechanism(self, problem: Problem) -> Gaussian:
        """Return the randomiser of every client."""
        return self.noise(problem).mechanism(self.epsilon)

    def client_encoder(self, problem: Problem, client: int) -> Encoder:
        """Return the encoder, which is the same for all clients."""
        return Encoder(
            release=Release(
                bound=InNorm(clip=self.clip, send=self.send),
                mechanism=self.mechanism(problem),
                size=self.layout(problem).size,
            ),
            tells_examples=self.by_examples,
        )

    def client_step(self, problem: Problem, device: torch.device) -> LocalSgd:
        """Return plain SGD."""
        return self.sgd(problem, device)

    def server(self, problem: Problem) -> ServerSide:
        """Return the averaging server, which adds noise of its own."""
        return self.averaging(problem, self.mechanism(problem), self.epsilon)

    @property
    def epsilon_meaning(self) -> EpsilonMeaning:
        """One record's, as claimed."""
        return EpsilonMeaning("record", "claimed")

    def claim(self) -> Claim | None:
        """Return the source's claim, for one record."""
        return Claim(
            epsilon=self.epsilon,
            delta=self.delta,
            unit="record",
            source="Wei et al. 2020, Theorem 1 and the uplink noise before it",
        )
