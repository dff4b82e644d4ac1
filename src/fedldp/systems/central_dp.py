"""Central DP: clients send updates in clear, and a server that they trust adds the noise.

    Broadcast: weights W
        |
        v
    client_step   local SGD from W
        |         Sensitive weights
        v
    encoder       float32 weights as they are
        |         Report: 32 d bits
        v
    server_step   D = weights - W, scaled down to the norm S: the median of this round's norms, or
                  `clip`; W + (sum of D + N(0, (sigma S)^2 I))/m -> weights of the next Broadcast

Source: R. Geyer, T. Klein, M. Nabi, "Differentially Private Federated Learning: A Client Level
Perspective", 2017, Algorithm 1. Nothing protects a client from the server. Who sees the broadcasts
alone sees noise whose scale is the median of private norms: that has no guarantee. With a fixed
`clip`, which is ours, there is one; see McMahan, Ramage, Talwar, Zhang 2018. The noise comes from
the server's own randomness: whoever knows that, in a simulation the seed, can take it off.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from fedldp.accounting.events import Event, InClear, SampledClientsGaussian
from fedldp.accounting.moments import moments_epsilon
from fedldp.accounting.statement import Claim
from fedldp.algorithms.release import Encoder, in_clear
from fedldp.algorithms.server_update import NoisySum, Values
from fedldp.bounding import SMALLEST_RADIUS
from fedldp.errors import RunError
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.parts.sides import ServerSide
from fedldp.systems._server import MeanServerConfig
from fedldp.systems.base import Problem
from fedldp.systems.settings import NoiseMultiplier, NormBound

if TYPE_CHECKING:
    import torch

    from fedldp.parts.local_sgd import LocalSgd


class CentralDpConfig(MeanServerConfig):
    """Settings of central DP."""

    rounds_only_add: ClassVar[bool] = True
    solved: ClassVar[str] = "noise_multiplier"

    system: Literal["central_dp"] = "central_dp"
    noise_multiplier: NoiseMultiplier = Field(
        description="sigma: the noise's standard deviation over the norm bound of one update"
    )
    clip: NormBound | None = Field(
        None,
        description="norm bound of one update; the median of each round's norms, as published, "
        "where it is not set",
    )

    def mechanism(self, clip: float) -> Gaussian:
        """Return what clips the updates and draws the noise for a norm bound."""
        return Gaussian(clip, clip * self.noise_multiplier)

    def idle_settings(self) -> Mapping[str, str]:
        """Without a fixed clip there is no guarantee that untrusted clients could weaken."""
        idle = dict(super().idle_settings())
        if self.clip is None:
            idle["untrusted_clients"] = "no line of the statement rests on it while clip is not set"
        return idle

    def client_encoder(self, problem: Problem, client: int) -> Encoder:
        """Return what sends the weights: the server sees them as they are."""
        return Encoder(release=in_clear(self.layout(problem).size))

    def client_step(self, problem: Problem, device: torch.device) -> LocalSgd:
        """Return plain SGD."""
        return self.sgd(problem, device)

    def server(self, problem: Problem) -> ServerSide:
        """Return the server that adds the noise; see the module's diagram."""
        mean = NoisySum(bounded=self._bounded, number=self.round_size)
        return self.server_update(mean).side(
            lambda draw: self.first_state(problem, draw),
            downlink=self.downlink(self.layout(problem).size),
        )

    def _bounded(self, updates: Iterable[Values]) -> tuple[Gaussian, Iterable[Values]]:
        """Return what clips a round's updates, and these; for the median they are all held."""
        if self.clip is not None:
            return self.mechanism(self.clip), updates
        held = list(updates)
        return self.mechanism(_median_norm(held)), held

    @property
    def has_downlink(self) -> bool:
        """The server's noise is for those who see its broadcasts only."""
        return True

    def with_budget(self, budget: float) -> Self:
        """Return a copy whose noise multiplier is 1/``budget``."""
        return self.changed(noise_multiplier=1 / budget)

    def downlink(self, size: int) -> Event:
        """Return what a broadcast releases of the clients of the round before.

        It is for those who see broadcasts only. Among them may be the u untrusted clients, or one
        where none is named, who pool what they know. (Any m of the N clients may be drawn, so if no
        round has more than u untrusted participants, there are no more of them at all.) They know
        how many of them were drawn, say k, and what these sent. The m - k others are a sample of
        the N - u others, all sets equally likely, each of whom is in it with probability
        q = (m - k)/(N - u). What a release costs grows with q (docs/privacy.md, "Sums over secret
        samples"), so the worst k is the least one: 0, which makes it m of N - u, or m - (N - u) if
        that is more, which makes it all of them. So it is in every round, whatever k is in others.
        Those who know less see smaller q: m/(N - u') with u' < u, or m/N if they are no clients.
        """
        if self.clip is None:
            return InClear(what="the scale of the noise, a median of private norms,")
        mechanism = self.mechanism(self.clip)
        mechanism.ball.check_size(size)
        multiplier = float(mechanism.proven_scale / mechanism.ball.radius)
        # The one whom the line is about is trusted, also where there is no other.
        honest = max(1, self.num_clients - max(1, self.untrusted_clients))
        return SampledClientsGaussian(
            noise_multiplier=math.nextafter(multiplier, 0),
            sample_size=min(self.round_size, honest),
            population=honest,
        )

    def claim(self) -> Claim | None:
        """Return the paper's claim by its accountant; it has none on a fixed clip."""
        if self.clip is not None:
            return None
        rate = self.round_size / self.num_clients
        return Claim(
            epsilon=moments_epsilon(self.noise_multiplier, rate, self.rounds, self.delta),
            delta=self.delta,
            unit="client-run",
            source="Geyer, Klein, Nabi 2017, Algorithm 1, with the moments accountant of Abadi et "
            "al. 2016",
        )


def _median_norm(updates: list[Values]) -> float:
    """Return the S of Algorithm 1, but for updates that are all next to nothing."""
    if not updates:
        raise RunError("no report came in: there is no mean to take")
    median = float(np.median([np.linalg.norm(update) for update in updates]))
    return max(median, SMALLEST_RADIUS)
