"""DP-SGD in a federation: clients protect single examples while they train, and send the weights.

    Broadcast: weights
        |
        v
    client_step   steps of DP-SGD: Poisson sample, each gradient scaled down to the norm `clip`,
        |         sum + N(0, (noise_multiplier clip)^2 I), over batch_size
        |         Sensitive weights
        v
    encoder       float32 weights as they are
        |         Report: 32 d bits
        v
    server_step   uniform mean -> weights of the next Broadcast

The sampling rate is batch_size over the mean number of examples of a client, so that it is public,
and so is the number of steps. What is protected is one example of a client, from the server; a
client as a whole is not.

Source: Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang, "Deep Learning with Differential
Privacy", CCS 2016, Algorithm 1, as the row DP-SGD of tables on federated learning under LDP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field

from fedldp.accounting.events import InClear, PerRecord
from fedldp.accounting.statement import Claim
from fedldp.algorithms.release import Encoder, in_clear
from fedldp.algorithms.server_update import Weighted, read_plain
from fedldp.parts.noisy_sums import NoisySums, sampling_rate
from fedldp.parts.sides import ServerSide
from fedldp.systems._server import MeanServerConfig
from fedldp.systems.base import Problem
from fedldp.systems.settings import NoiseMultiplier, NormBound

if TYPE_CHECKING:
    import torch

    from fedldp.parts.private_sgd import PrivateSgd


class DpSgdConfig(MeanServerConfig):
    """Settings of DP-SGD; ``batch_size`` is the mean size of a Poisson sample."""

    rounds_only_add: ClassVar[bool] = True
    needs_extra: ClassVar[str | None] = "baselines"
    solved: ClassVar[str] = "noise_multiplier"

    system: Literal["dp_sgd"] = "dp_sgd"
    noise_multiplier: NoiseMultiplier = Field(
        description="the noise's standard deviation over the norm bound of one gradient"
    )
    clip: NormBound = Field(1.0, description="norm bound of the gradient of one example")

    def sums(self, problem: Problem) -> NoisySums:
        """Return what a client's steps compute in one round.

        Raises:
            ConfigError: clients have too few examples for a batch.
        """
        rate = sampling_rate(self.batch_size, self.num_clients, problem.num_examples)
        return NoisySums(
            steps=self.local_epochs * round(1 / rate),
            sampling_rate=rate,
            batch_size=self.batch_size,
            clip=self.clip,
            noise_multiplier=self.noise_multiplier,
        )

    def client_encoder(self, problem: Problem, client: int) -> Encoder:
        """Return what sends the weights, which release a round's noisy sums of one example."""
        released = PerRecord(
            record=self.sums(problem).event,
            client=InClear(what="weights that hide single examples only"),
        )
        return Encoder(release=in_clear(self.layout(problem).size), inner=released)

    def client_step(self, problem: Problem, device: torch.device) -> PrivateSgd:
        """Return the steps of DP-SGD."""
        from fedldp.parts.private_sgd import PrivateSgd

        model = self.sgd(problem, device).model
        return PrivateSgd(model, self.sums(problem), self.learning_rate, device)

    def server(self, problem: Problem) -> ServerSide:
        """Return the averaging server."""
        mean = Weighted(read=read_plain, gives="weights")
        return self.server_update(mean).side(lambda draw: self.first_state(problem, draw))

    def with_budget(self, budget: float) -> Self:
        """Return a copy whose noise multiplier is 1/``budget``."""
        return self.changed(noise_multiplier=1 / budget)

    def claim(self) -> Claim | None:
        """Return None: what Abadi et al. prove is of one data set, and for other neighbours."""
        return None
