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
`clip`, which is ours, there is one; see McMahan, Ramage, Talwar, Zhang 2018. Here the server's
noise is simulated: it comes from the run's seed, and whoever knows that can take it off.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from fedldp.accounting.events import Event, InClear, SampledClientsGaussian
from fedldp.accounting.moments import moments_epsilon
from fedldp.accounting.statement import Claim
from fedldp.bounding import SMALLEST_RADIUS
from fedldp.errors import RunError
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.parts.averaging import SendPlain
from fedldp.randomness import SERVER, Stream
from fedldp.systems import NoiseMultiplier, NormBound, Problem, System, SystemConfig
from fedldp.wire import Broadcast, Incoming, Report

Update = NDArray[np.float64]


class CentralDpConfig(SystemConfig):
    """Settings of central DP."""

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

    def build(self, problem: Problem, *, device: torch.device) -> System:
        """Put central DP together; see the module's diagram."""
        model, layout, weights, training = self.build_training(problem, device)
        return System(
            initial=lambda: Broadcast(round=1, weights=weights),
            client_step=training,
            encoder=SendPlain(by_examples=False),
            server_step=AddNoisyMean(self),
            model=model,
            layout=layout,
        )

    def with_budget(self, budget: float) -> Self:
        """Return a copy whose noise multiplier is 1/``budget``."""
        return self.changed(noise_multiplier=1 / budget)

    def release(self, client: int, size: int, problem: Problem) -> InClear:
        """Return the release of the weights: the server sees them as they are."""
        return InClear(what="weights")

    def downlink(self, size: int, problem: Problem) -> Event:
        """Return what a broadcast releases of the clients of the round before."""
        if self.clip is None:
            return InClear(what="the scale of the noise, a median of private norms,")
        mechanism = self.mechanism(self.clip)
        mechanism.ball.check_size(size)
        multiplier = float(mechanism.proven_scale / mechanism.ball.radius)
        return SampledClientsGaussian(
            noise_multiplier=math.nextafter(multiplier, 0),
            sample_size=self.round_size,
            # A client that was not drawn knows so: it sees a sample of the others.
            population=max(self.round_size, self.num_clients - 1),
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


@dataclass(frozen=True)
class AddNoisyMean:
    """The server step: clip the updates, add them up with noise, and divide by their number.

    It holds one sum of d integers where the clip is fixed. The median needs all updates at once.
    """

    config: CentralDpConfig

    def __call__(self, broadcast: Broadcast, reports: Incoming) -> Broadcast:
        """Return the next round's broadcast."""
        updates: Iterable[Update] = (_update(broadcast, report) for report in reports)
        clip = self.config.clip
        if clip is None:
            updates = list(updates)
            clip = _median_norm(updates)
        mechanism = self.config.mechanism(clip)
        total, count = np.zeros(broadcast.weights.size, np.int64), 0
        for update in updates:
            total += mechanism.ball.clip(update)
            count += 1
        if count == 0:
            raise RunError("no report came in: there is no mean to take")
        stream = Stream.simulation(
            seed=self.config.seed, round=broadcast.round, client=SERVER, purpose="mechanism"
        )
        total += mechanism.noise(total.size, stream)
        change = total * (mechanism.ball.step / count)
        weights = (broadcast.weights + change).astype(np.float32)
        return replace(broadcast, round=broadcast.round + 1, weights=weights)


def _update(broadcast: Broadcast, report: object) -> Update:
    if not isinstance(report, Report):
        raise RunError("this server averages whole reports, not shuffled messages")
    weights = np.frombuffer(report.payload, "<f4").astype(np.float64)
    return weights - broadcast.weights


def _median_norm(updates: list[Update]) -> float:
    """Return the S of Algorithm 1, but for updates that are all next to nothing."""
    if not updates:
        raise RunError("no report came in: there is no mean to take")
    median = float(np.median([np.linalg.norm(update) for update in updates]))
    return max(median, SMALLEST_RADIUS)
