"""Feature priority: NbAFL with more noise on the weights of some input features.

    Broadcast: weights W
        |
        v
    client_step   local SGD from W; importance of every feature: of the new weights and the
        |         client's examples (III-C), or of the new weights and W (eq. 6)
        |         Sensitive weights w, and importance
        v
    encoder       a share of the features, least or most important, is picked
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
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import InNorm
from fedldp.algorithms.release import Encoder, UnevenRelease
from fedldp.errors import ConfigError
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.mechanisms.uneven_gaussian import check_ratio
from fedldp.parts.feature_importance import (
    FirstLayer,
    Noisier,
    NoisierFeatures,
    NoisierShare,
)
from fedldp.parts.sides import ServerSide
from fedldp.systems._nbafl import NbaflSettings
from fedldp.systems.base import Problem
from fedldp.systems.settings import Positive

if TYPE_CHECKING:
    import torch

    from fedldp.parts.ranking_sgd import RankingSgd


class PriorityConfig(NbaflSettings):
    """Settings of feature priority."""

    system: Literal["priority"] = "priority"
    epsilon_low: Positive = Field(description="as claimed where there is more noise")
    epsilon_high: Positive = Field(description="as claimed everywhere else")
    importance: Literal["variance", "sensitivity"] = Field(
        "variance", description="how the importance of a feature is measured"
    )
    noisier: Noisier = "least"
    noisier_share: NoisierShare

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.epsilon_low > self.epsilon_high:
            raise ConfigError(
                f"epsilon_low = {self.epsilon_low:g} is above epsilon_high = "
                f"{self.epsilon_high:g}: the features that are picked get more noise, so give "
                "them the smaller epsilon"
            )
        return self

    def first_layer(self, problem: Problem) -> FirstLayer:
        """Return the model's first layer.

        Raises:
            ConfigError: its features have no weights of their own, or those have no importance.
        """
        first_layer = FirstLayer.of(self.layout(problem), self.model, problem.input_shape)
        if self.importance == "sensitivity" and first_layer.is_last:
            raise ConfigError(
                f"importance = sensitivity: model = {self.model} has no hidden layer, so adding "
                "the same to all weights of a feature changes no answer; use mlp, or set "
                "importance = variance"
            )
        return first_layer

    def mechanism(self, problem: Problem) -> Gaussian:
        """Return the randomiser of every weight that does not get more noise."""
        least = self.noise(problem).mechanism(self.epsilon_high, "epsilon_high")
        check_ratio(
            least,
            self.epsilon_high / self.epsilon_low,
            f"epsilon_low = {self.epsilon_low:g} and epsilon_high = {self.epsilon_high:g}",
        )
        return least

    def client_encoder(self, problem: Problem, client: int) -> Encoder:
        """Return the encoder, which is the same for all clients."""
        noisier = NoisierFeatures(
            first_layer=self.first_layer(problem),
            least=self.mechanism(problem),
            ratio=self.epsilon_high / self.epsilon_low,
            which=self.noisier,
            share=self.noisier_share,
        )
        return Encoder(
            release=UnevenRelease(
                bound=InNorm(clip=self.clip, send=self.send),
                mechanism=noisier.least,
                size=noisier.first_layer.layout.size,
                noisier=noisier,
                ranks="own",
            ),
            tells_examples=self.by_examples,
        )

    def client_step(self, problem: Problem, device: torch.device) -> RankingSgd:
        """Return SGD that finds the importance of features, too."""
        from fedldp.parts.ranking_sgd import RankingSgd, check_dense_first

        training = self.sgd(problem, device)
        check_dense_first(training.model, self.model)
        shift = None
        if self.importance == "sensitivity":
            # The mean absolute value of the noise that a feature may get.
            shift = self.noise(problem).uplink_sigma(self.epsilon_low) * math.sqrt(2 / math.pi)
        return RankingSgd(training, self.first_layer(problem), shift)

    def server(self, problem: Problem) -> ServerSide:
        """Return the averaging server, which adds noise of its own."""
        return self.averaging(problem, self.mechanism(problem), self.epsilon_high)

    def claim(self) -> Claim | None:
        """Return the paper's claim: of the least noise, which "all parameters" have."""
        return Claim(
            epsilon=self.epsilon_high,
            delta=self.delta,
            unit="record",
            source="Talaei, Izadi 2024, Definition 1, eq. 4 and the last paragraph of III-D; "
            f"epsilon {self.epsilon_low:g} for the features with more noise",
        )
