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
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from fedldp.accounting.events import Event
from fedldp.accounting.gaussian import gaussian_sigma
from fedldp.accounting.statement import Claim
from fedldp.bounding import replace_one_sensitivity
from fedldp.mechanisms.gaussian import Gaussian, check_noise
from fedldp.parts import Client
from fedldp.parts.averaging import read_report, weighted_mean
from fedldp.parts.changes import open_update
from fedldp.parts.feature_importance import FirstLayer, Noisier, NoisierShare, pick_features
from fedldp.parts.uneven_gaussian import UnevenGaussian, check_ratio
from fedldp.systems import NormBound, Positive, Problem, System, SystemConfig
from fedldp.wire import Broadcast, Incoming, Report, Sensitive, Vector

_MARGIN = 1 + 1e-7
"""On sigma, so that the statement, which rounds epsilon up by 1e-8 or so, stays within budgets."""


class PriorityPublicConfig(SystemConfig):
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

    def build(self, problem: Problem, *, device: torch.device) -> System:
        """Put the system together; see the module's diagram."""
        model, layout, weights, training = self.build_training(problem, device)
        first_layer = FirstLayer.of(model, self.model, device)
        check_ratio(self.mechanism(), self.noise_ratio, f"noise_ratio = {self.noise_ratio:g}")
        unknown = np.zeros(first_layer.num_features)
        return System(
            initial=lambda: Broadcast(
                round=1, weights=weights, public={"importance": unknown, "precision": unknown}
            ),
            client_step=training,
            encoder=PerturbPublicly(self, first_layer),
            server_step=RankFeatures(self, first_layer),
            model=model,
            layout=layout,
        )

    def release(self, client: int, size: int, problem: Problem) -> Event:
        """Return what one report releases: that of the least noise."""
        return self.mechanism().event(size)

    def claim(self) -> Claim | None:
        """Return None: the paper makes no claim of this variant."""
        return None


@lru_cache(maxsize=4096)
def _calibrated(epsilon: float, delta: float) -> float:
    return gaussian_sigma(epsilon, delta)


@dataclass(frozen=True)
class PerturbPublicly:
    """The client's encoder: the only place where this system opens a sensitive value."""

    config: PriorityPublicConfig
    first_layer: FirstLayer

    def __call__(self, update: Sensitive[Vector], broadcast: Broadcast, client: Client) -> Report:
        """Return the report of one client."""
        values = open_update(update, broadcast, self.config.send)
        least = self.config.mechanism()
        mechanism = UnevenGaussian(
            least.clip,
            least.sigma,
            self.first_layer.coordinates(picked(self.config, broadcast)),
            self.config.noise_ratio,
        )
        return Report(
            round=broadcast.round,
            size=values.size,
            payload=mechanism.encode(values, client.stream("mechanism")),
            chunk=values.size,
        )


def picked(config: PriorityPublicConfig, broadcast: Broadcast) -> NDArray[np.bool_]:
    """Return which features get more noise in the round of ``broadcast``, shape (m,).

    None in the first: nothing is known of them yet.
    """
    importance = broadcast.public["importance"]
    share = config.noisier_share if broadcast.round > 1 else 0.0
    return pick_features(importance, share, config.noisier)


@dataclass(frozen=True)
class RankFeatures:
    """The server step: the next weights, and the importance of features from what is public.

    The importance of a feature is the mean square of a round's change of its weights, estimated
    without bias: the noise on it is known. Rounds are averaged by the inverse variance of their
    estimates, so one in which a feature had more noise hardly counts for it. This is eq. 6 of the
    paper on global weights without its factor |w_ij|, which the noise would swell.
    """

    config: PriorityPublicConfig
    first_layer: FirstLayer

    def __call__(self, broadcast: Broadcast, reports: Incoming) -> Broadcast:
        """Return the next round's broadcast."""
        config, size = self.config, broadcast.weights.size
        least = config.mechanism()
        mean, reports_in = weighted_mean(
            reports, size, lambda payload: read_report(least, payload, size)
        )
        change = mean if config.send == "update" else mean - broadcast.weights
        ratio = np.where(picked(config, broadcast), config.noise_ratio, 1.0)
        noise_variance = (ratio * least.sigma) ** 2 / reports_in
        square = np.square(self.first_layer.weights(change)).mean(axis=0) - noise_variance
        precision = broadcast.public["precision"] + ratio**-4
        importance = broadcast.public["importance"]
        importance = importance + (square - importance) * ratio**-4 / precision
        return replace(
            broadcast,
            round=broadcast.round + 1,
            weights=(broadcast.weights + change).astype(np.float32),
            public={"importance": importance, "precision": precision},
        )
