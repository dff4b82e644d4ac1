"""Feature priority, sound: the server ranks features by what it has already published.

    Broadcast: weights W, and for every feature what earlier rounds tell of its importance
        |
        v
    client_step   local SGD from W
        |         Sensitive weights w
        v
    encoder       w - W (send = update) or w, clipped to norm C, plus N(0, sigma^2) on every
        |         coordinate; noise_ratio times as much on the first layer's weights of a share
        |         of the features, least or most important by the broadcast
        |         Report: 32 d bits
        v
    server_step   mean -> weights of the next Broadcast
                  its change from W, less what noise alone would give -> importance

Source: ours, after Talaei, Izadi 2024 (see ``priority``), with three repairs. Importance is
post-processing of released values, so it costs nothing. The sensitivity is the 2 C that the clip
proves. sigma is such that all T rounds of a client together meet (epsilon, delta), by the analytic
Gaussian mechanism (Balle, Wang 2018).

More noise on some features buys no guarantee: a difference between two clients' data may lie
wholly in the others. noise_ratio = 1 is as private and never less accurate; this system is there to
show what the paper's idea costs once it is accounted for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedldp.accounting.gaussian import gaussian_sigma
from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import InNorm
from fedldp.algorithms.release import Encoder, UnevenRelease
from fedldp.algorithms.server_update import Estimated, Needs, Sent, Weighted, read_report
from fedldp.bounding import replace_one_sensitivity
from fedldp.mechanisms.gaussian import Gaussian, check_noise
from fedldp.mechanisms.uneven_gaussian import check_ratio
from fedldp.parts.feature_importance import FirstLayer, Noisier, NoisierFeatures, NoisierShare
from fedldp.parts.sides import Draw, ServerSide, State
from fedldp.systems._server import MeanServerConfig
from fedldp.systems.base import EpsilonMeaning, Problem
from fedldp.systems.settings import NormBound, Positive
from fedldp.wire import Broadcast, Incoming

if TYPE_CHECKING:
    import torch

    from fedldp.parts.local_sgd import LocalSgd

_MARGIN = 1 + 1e-7
"""On sigma, so that the statement, which rounds epsilon up by 1e-8 or so, stays within budgets."""


class PriorityPublicConfig(MeanServerConfig):
    """Settings of feature priority with public importance."""

    system: Literal["priority_public"] = "priority_public"
    epsilon: Positive = Field(description="budget of all that one client sends in the run")
    clip: NormBound = Field(description="C, the bound on the norm of what a client sends")
    send: Literal["weights", "update"] = Field(
        "update", description="clip and send weights, or their change from the broadcast"
    )
    noise_ratio: float = Field(
        20.0,
        ge=1,
        allow_inf_nan=False,
        description="noise of the picked features over that of the others",
    )
    noisier: Noisier = "least"
    noisier_share: NoisierShare

    def mechanism(self) -> Gaussian:
        """Return the randomiser with the least noise, calibrated to the whole run.

        Raises:
            ConfigError: it does not go so far.
        """
        sigma_per_sensitivity = _calibrated(self.epsilon, self.delta) * math.sqrt(self.rounds)
        sigma = replace_one_sensitivity(self.clip) * sigma_per_sensitivity * _MARGIN
        given = f"epsilon = {self.epsilon:g}, delta = {self.delta:g} and rounds = {self.rounds}"
        check_noise(self.clip, sigma, given=given, knob="epsilon")
        return Gaussian(self.clip, sigma)

    def noisier_features(self, problem: Problem) -> NoisierFeatures:
        """Return what picks the features that get more noise.

        Raises:
            ConfigError: they have no weights of their own, or the noise is too much or too little.
        """
        least = self.mechanism()
        check_ratio(least, self.noise_ratio, f"noise_ratio = {self.noise_ratio:g}")
        return NoisierFeatures(
            first_layer=FirstLayer.of(self.layout(problem), self.model, problem.input_shape),
            least=least,
            ratio=self.noise_ratio,
            which=self.noisier,
            share=self.noisier_share,
        )

    def client_encoder(self, problem: Problem, client: int) -> Encoder:
        """Return the encoder, which is the same for all clients."""
        noisier = self.noisier_features(problem)
        return Encoder(
            release=UnevenRelease(
                bound=InNorm(clip=self.clip, send=self.send),
                mechanism=noisier.least,
                size=noisier.first_layer.layout.size,
                noisier=noisier,
                ranks="public",
            )
        )

    def client_step(self, problem: Problem, device: torch.device) -> LocalSgd:
        """Return plain SGD."""
        from fedldp.parts.ranking_sgd import check_dense_first

        training = self.sgd(problem, device)
        check_dense_first(training.model, self.model)
        return training

    def server(self, problem: Problem) -> ServerSide:
        """Return the server that averages, and ranks features."""
        noisier = self.noisier_features(problem)
        unknown = np.zeros(noisier.first_layer.num_features)

        def initial(draw: Draw) -> State:
            return State(
                weights=self.first_weights(problem, draw),
                arrays={"importance": unknown, "precision": unknown},
            )

        mean = Weighted(read=partial(read_report, noisier.least), gives=self.send)
        return self.server_update(RankFeatures(noisier, mean)).side(
            initial, publish=publish_importance
        )

    @property
    def epsilon_meaning(self) -> EpsilonMeaning:
        """All that a client sends in a run; proven."""
        return EpsilonMeaning("client-run", "proven")

    def claim(self) -> Claim | None:
        """Return None: the paper makes no claim of this variant."""
        return None


@lru_cache(maxsize=4096)
def _calibrated(epsilon: float, delta: float) -> float:
    return gaussian_sigma(epsilon, delta)


def publish_importance(state: State) -> Broadcast:
    """Return the round's broadcast, with all that is known of the importance of features."""
    told = {name: state.arrays[name] for name in ("importance", "precision")}
    return Broadcast(round=state.round, weights=state.weights, public=told)


@dataclass(frozen=True)
class RankFeatures:
    """The estimate of the mean change, and the importance of features from what is public.

    The importance of a feature is the mean square of a round's change of its weights, estimated
    without bias: the noise on it is known. Rounds are averaged by the inverse variance of their
    estimates, so one in which a feature had more noise hardly counts for it. This is eq. 6 of the
    paper on global weights without its factor |w_ij|, which the noise would swell.

    Attributes:
        noisier: picks the features that get more noise.
        mean: of the reports: of weights, or of their change from the broadcast.
    """

    needs: ClassVar[Needs] = "reports"
    gives: ClassVar[Sent] = "update"

    noisier: NoisierFeatures
    mean: Weighted

    def __call__(
        self, state: State, reports: Incoming, draw: Draw, factor: float = 1.0
    ) -> Estimated:
        """Return the mean change, and what is known of the importance after it."""
        noisier, found = self.noisier, self.mean(state, reports, draw)
        assert found.values is not None
        change = found.values if self.mean.gives == "update" else found.values - state.weights
        importance, precision = state.arrays["importance"], state.arrays["precision"]
        ratio = np.where(noisier.picked_in(state.round, importance), noisier.ratio, 1.0)
        noise_variance = (ratio * noisier.least.sigma) ** 2 / found.weight
        square = np.square(noisier.first_layer.weights(change)).mean(axis=0) - noise_variance
        precision = precision + ratio**-4
        importance = importance + (square - importance) * ratio**-4 / precision
        arrays = {"importance": importance, "precision": precision}
        return Estimated(values=factor * change, weight=found.weight, arrays=arrays)
