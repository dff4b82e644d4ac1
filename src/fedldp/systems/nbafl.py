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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field

from fedldp.accounting.events import Event, InClear
from fedldp.accounting.statement import Claim
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.parts import Client
from fedldp.parts.changes import open_update
from fedldp.parts.nbafl import (
    Exposures,
    MinClientExamples,
    NbaflNoise,
    NoisyAverage,
    Send,
    Weighting,
    check_smallest,
    smallest_share,
)
from fedldp.systems import NormBound, Positive, Problem, System, SystemConfig
from fedldp.wire import Broadcast, Report, Sensitive, Vector


class NbaflConfig(SystemConfig):
    """Settings of NbAFL."""

    system: Literal["nbafl"] = "nbafl"
    epsilon: Positive = Field(description="as claimed for one record, all uploads together")
    clip: NormBound = Field(description="C, the bound on the norm of a client's weights")
    send: Send = "weights"
    exposures: Exposures = None
    min_client_examples: MinClientExamples = None
    weighting: Weighting = "uniform"

    def noise(self, problem: Problem) -> NbaflNoise:
        """Return the published noise levels."""
        return NbaflNoise(
            clip=self.clip,
            delta=self.delta,
            rounds=self.rounds,
            exposures=self.exposures or self.rounds,
            clients=self.round_size,
            smallest=smallest_share(
                self.min_client_examples,
                partition=self.partition,
                num_examples=problem.num_examples,
                num_clients=self.num_clients,
            ),
        )

    def mechanism(self, problem: Problem) -> Gaussian:
        """Return the randomiser of every client."""
        return self.noise(problem).mechanism(self.epsilon)

    def check_shares(self, sizes: Sequence[int]) -> None:
        """Refuse a client with fewer examples than ``min_client_examples``."""
        check_smallest(self.min_client_examples, sizes)

    def build(self, problem: Problem, *, device: torch.device) -> System:
        """Put NbAFL together; see the module's diagram."""
        model, layout, weights, training = self.build_training(problem, device)
        mechanism = self.mechanism(problem)
        return System(
            initial=lambda: Broadcast(round=1, weights=weights),
            client_step=training,
            encoder=ClipAndPerturb(self, mechanism),
            server_step=NoisyAverage(
                mechanism, self.send, self.noise(problem).downlink_sigma(self.epsilon), self.seed
            ),
            model=model,
            layout=layout,
        )

    def release(self, client: int, size: int, problem: Problem) -> Event:
        """Return what one report releases: clipped weights with noise, perhaps a count as it is."""
        if self.weighting == "examples":
            return InClear(what="number of examples")
        return self.mechanism(problem).event(size)

    def claim(self) -> Claim | None:
        """Return the source's claim, for one record."""
        return Claim(
            epsilon=self.epsilon,
            delta=self.delta,
            unit="record",
            source="Wei et al. 2020, Theorem 1 and the uplink noise before it",
        )


@dataclass(frozen=True)
class ClipAndPerturb:
    """The client's encoder: the only place where NbAFL opens a sensitive value.

    Attributes:
        config: the settings.
        mechanism: clips and adds the noise.
    """

    config: NbaflConfig
    mechanism: Gaussian

    def __call__(self, update: Sensitive[Vector], broadcast: Broadcast, client: Client) -> Report:
        """Return the report of one client."""
        values = open_update(update, broadcast, self.config.send)
        return Report(
            round=broadcast.round,
            size=values.size,
            payload=self.mechanism.encode(values, client.stream("mechanism")),
            chunk=values.size,
            weight=float(len(client.examples)) if self.config.weighting == "examples" else None,
        )
