"""Feature priority: NbAFL with more noise on the weights of some input features.

    Broadcast: weights W
        |
        v
    client_step   local SGD from W
        |         Sensitive weights w
        v
    encoder       importance of every feature: of w and the client's examples (III-C), or of w
        |         and W (eq. 6); a share of the features, least or most important, is picked
        |         w clipped to norm C, plus N(0, sigma_U^2) on every weight (eq. 4): that of
        |         epsilon_low on the first layer's weights of the picked features, that of
        |         epsilon_high on all others
        |         Report: 32 d bits, and the example count where weighting = examples
        v
    server_step   weighted mean, plus N(0, sigma_D^2) of epsilon_high on every weight (eq. 5)
                  -> next Broadcast

Source: M. Talaei, I. Izadi, "Adaptive Differential Privacy in Federated Learning: A Priority-Based
Approach", 2024 (arXiv 2401.02453). It does not say which epsilon the server's noise has, nor for
which epsilon the sensitivity-based importance takes the noise: here epsilon_high, the level that
all parameters have before some get more noise, and epsilon_low, the noise that a feature may get.

Which features get more noise is computed from private examples, and a report shows it: the spread
of a feature's weights tells how much noise they got. So nothing is proven of this system; the sound
variant is ``priority_public``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedldp.accounting.events import Event, InClear
from fedldp.accounting.statement import Claim
from fedldp.bounding import check_releasable
from fedldp.errors import ConfigError
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.parts import Client
from fedldp.parts.feature_importance import (
    FirstLayer,
    Noisier,
    NoisierShare,
    pick_features,
    variance_importance,
)
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
from fedldp.parts.uneven_gaussian import UnevenGaussian, check_ratio
from fedldp.systems import NormBound, Positive, Problem, System, SystemConfig
from fedldp.wire import Broadcast, Report, Sensitive, Vector


class PriorityConfig(SystemConfig):
    """Settings of feature priority."""

    system: Literal["priority"] = "priority"
    epsilon_low: Positive = Field(description="as claimed where there is more noise")
    epsilon_high: Positive = Field(description="as claimed everywhere else")
    importance: Literal["variance", "sensitivity"] = Field(
        "variance", description="how the importance of a feature is measured"
    )
    noisier: Noisier = "least"
    noisier_share: NoisierShare
    clip: NormBound = Field(description="C, the bound on the norm of a client's weights")
    send: Send = "weights"
    exposures: Exposures = None
    min_client_examples: MinClientExamples = None
    weighting: Weighting = "uniform"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.epsilon_low > self.epsilon_high:
            raise ConfigError(
                f"epsilon_low = {self.epsilon_low:g} is above epsilon_high = "
                f"{self.epsilon_high:g}: the features that are picked get more noise, so give "
                "them the smaller epsilon"
            )
        return self

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

    def check_shares(self, sizes: Sequence[int]) -> None:
        """Refuse a client with fewer examples than ``min_client_examples``."""
        check_smallest(self.min_client_examples, sizes)

    def build(self, problem: Problem, *, device: torch.device) -> System:
        """Put feature priority together; see the module's diagram."""
        model, layout, weights, training = self.build_training(problem, device)
        noise = self.noise(problem)
        least = noise.mechanism(self.epsilon_high, "epsilon_high")
        check_ratio(
            least,
            self.epsilon_high / self.epsilon_low,
            f"epsilon_low = {self.epsilon_low:g} and epsilon_high = {self.epsilon_high:g}",
        )
        first_layer = FirstLayer.of(model, self.model, device)
        if self.importance == "sensitivity" and first_layer.is_last:
            raise ConfigError(
                f"importance = sensitivity: model = {self.model} has no hidden layer, so adding "
                "the same to all weights of a feature changes no answer; use mlp, or set "
                "importance = variance"
            )
        return System(
            initial=lambda: Broadcast(round=1, weights=weights),
            client_step=training,
            encoder=PerturbByPriority(
                self, first_layer, least, noise.uplink_sigma(self.epsilon_low)
            ),
            server_step=NoisyAverage(
                least, self.send, noise.downlink_sigma(self.epsilon_high), self.seed
            ),
            model=model,
            layout=layout,
        )

    def release(self, client: int, size: int, problem: Problem) -> Event:
        """Return the release of the features that a client finds important, which is in clear."""
        return InClear(what="which features get more noise")

    def claim(self) -> Claim | None:
        """Return the paper's claim: of the least noise, which "all parameters" have."""
        return Claim(
            epsilon=self.epsilon_high,
            delta=self.delta,
            unit="record",
            source="Talaei, Izadi 2024, Definition 1, eq. 4 and the last paragraph of III-D; "
            f"epsilon {self.epsilon_low:g} for the features with more noise",
        )


@dataclass(frozen=True)
class PerturbByPriority:
    """The client's encoder: the only place where feature priority opens a sensitive value.

    Attributes:
        config: the settings.
        first_layer: of the model.
        least: the mechanism of epsilon_high.
        noisier_sigma: the noise of epsilon_low.
    """

    config: PriorityConfig
    first_layer: FirstLayer
    least: Gaussian
    noisier_sigma: float

    def __call__(self, update: Sensitive[Vector], broadcast: Broadcast, client: Client) -> Report:
        """Return the report of one client."""
        weights = update.open()
        check_releasable(weights)
        picked = pick_features(
            self.importance(weights, broadcast, client),
            self.config.noisier_share,
            self.config.noisier,
        )
        mechanism = UnevenGaussian(
            self.least.clip,
            self.least.sigma,
            self.first_layer.coordinates(picked),
            self.config.epsilon_high / self.config.epsilon_low,
        )
        values: NDArray[np.floating] = weights
        if self.config.send == "update":
            values = weights - broadcast.weights.astype(np.float64)
        return Report(
            round=broadcast.round,
            size=values.size,
            payload=mechanism.encode(values, client.stream("mechanism")),
            chunk=values.size,
            weight=float(len(client.examples)) if self.config.weighting == "examples" else None,
        )

    def importance(
        self, weights: Vector, broadcast: Broadcast, client: Client
    ) -> NDArray[np.float64]:
        """Return the importance of every feature to ``client``, shape (m,)."""
        if self.config.importance == "variance":
            before, after = map(self.first_layer.weights, (broadcast.weights, weights))
            return variance_importance(before, after)
        shift = self.noisier_sigma * math.sqrt(2 / math.pi)
        return self.first_layer.sensitivity_importance(weights, client.examples, shift)
