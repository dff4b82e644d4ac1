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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import InNorm
from fedldp.algorithms.composition import Algorithm, Composition, Local, WeightedMean
from fedldp.algorithms.nbafl import OFFERS, NbaflCalibration
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Release, UnevenRelease
from fedldp.algorithms.settings import Offer, Positive
from fedldp.core.errors import ConfigError
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.mechanisms.uneven_gaussian import check_ratio
from fedldp.parts.feature_importance import FirstLayer, Noisier, NoisierFeatures, NoisierShare

if TYPE_CHECKING:
    import torch

    from fedldp.parts.ranking_sgd import RankingSgd


@preset(
    *OFFERS,
    Offer("epsilon_low", Positive, "as claimed where there is more noise"),
    Offer("epsilon_high", Positive, "as claimed everywhere else"),
    Offer(
        "importance",
        Literal["variance", "sensitivity"],
        "how the importance of a feature is measured",
        "variance",
    ),
    Offer("noisier", Noisier, default="least"),
    Offer("noisier_share", NoisierShare),
)
def priority(settings: Settings) -> Composition:
    """Feature priority: NbAFL, with more noise on the features that matter less to a client."""
    low, high = settings.epsilon_low, settings.epsilon_high
    if low > high:
        raise ConfigError(
            f"epsilon_low = {low:g} is above epsilon_high = {high:g}: the features that are picked "
            "get more noise, so give them the smaller epsilon"
        )
    calibration = NbaflCalibration(settings=settings, epsilon=high, setting="epsilon_high")
    return Composition(
        local=Ranking(settings=settings, calibration=calibration),
        bound=InNorm(clip=settings.clip, send=settings.send),
        calibration=calibration,
        shaped=lambda release, problem: uneven(settings, release, problem),
        estimate=WeightedMean(by_examples=settings.weighting == "examples"),
        server_noise=calibration.downlink_noise,
        claim=Claim(
            epsilon=high,
            delta=settings.delta,
            unit="record",
            source="Talaei, Izadi 2024, Definition 1, eq. 4 and the last paragraph of III-D; "
            f"epsilon {low:g} for the features with more noise",
        ),
    )


def first_layer_of(settings: Settings, problem: Problem) -> FirstLayer:
    """Return the model's first layer.

    Raises:
        ConfigError: its features have no weights of their own, or those have no importance.
    """
    found = FirstLayer.of(settings.layout(problem), settings.model, problem.input_shape)
    if settings.importance == "sensitivity" and found.is_last:
        raise ConfigError(
            f"importance = sensitivity: model = {settings.model} has no hidden layer, so adding "
            "the same to all weights of a feature changes no answer; use mlp, or set "
            "importance = variance"
        )
    return found


def uneven(settings: Settings, release: Release, problem: Problem) -> UnevenRelease:
    """Return the release with more noise on the features that each client's own ranks pick.

    Raises:
        ConfigError: see ``first_layer_of``; or the noise is too much.
    """
    least, low, high = release.mechanism, settings.epsilon_low, settings.epsilon_high
    assert isinstance(least, Gaussian)
    check_ratio(least, high / low, f"epsilon_low = {low:g} and epsilon_high = {high:g}")
    noisier = NoisierFeatures(
        first_layer=first_layer_of(settings, problem),
        least=least,
        ratio=high / low,
        which=settings.noisier,
        share=settings.noisier_share,
    )
    return UnevenRelease(
        bound=release.bound, mechanism=least, size=release.size, noisier=noisier, ranks="own"
    )


@dataclass(frozen=True, kw_only=True)
class Ranking(Local):
    """Local SGD that finds the importance of features, too.

    Attributes:
        settings: of the preset.
        calibration: of the noise.
    """

    settings: Settings
    calibration: NbaflCalibration

    def __call__(self, algorithm: Algorithm, device: torch.device) -> RankingSgd:
        """Return it as a client step."""
        from fedldp.parts.ranking_sgd import RankingSgd, check_dense_first

        training = algorithm.sgd(device)
        check_dense_first(training.model, algorithm.config.model)
        shift = None
        if self.settings.importance == "sensitivity":
            # The mean absolute value of the noise that a feature may get.
            noise = self.calibration.noise(algorithm.problem)
            shift = noise.uplink_sigma(self.settings.epsilon_low) * math.sqrt(2 / math.pi)
        return RankingSgd(training, first_layer_of(self.settings, algorithm.problem), shift)
