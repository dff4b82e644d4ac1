"""Feature priority: NbAFL with more noise on the weights of some input features.

    Broadcast: weights W
        |
        v
    local_update  local SGD from W; importance of every feature: of the new weights and the
        |         client's examples (III-C), or of the new weights and W (eq. 6)
        |         Sensitive weights w, and importance
        v
    encoder       a share of the features, least or most important, is picked
        |         w clipped to norm C, plus N(0, sigma_U^2) on every weight (eq. 4), with sigma_U
        |         for epsilon_low on the first layer's weights of the picked features, and for
        |         epsilon_high on all other weights
        |         Report: 32 d bits, and the example count if weighting = examples
        v
    server_step   weighted mean, plus N(0, sigma_D^2) for epsilon_high on every weight (eq. 5)
                  -> next Broadcast

Source: M. Talaei, I. Izadi, "Adaptive Differential Privacy in Federated Learning: A Priority-Based
Approach", 2024 (arXiv 2401.02453). The paper does not say which epsilon the server's noise has, nor
whose noise the sensitivity-based importance uses. Here the server's noise has epsilon_high, the
level of all parameters before some get more noise; the importance uses epsilon_low, the noise that
a feature may get.

A client computes from private examples which features get more noise, and a report reveals the
result: the spread of a feature's weights shows how much noise they got. So nothing is proven about
this system; the sound variant is ``priority_public``.
"""

from __future__ import annotations

from typing import Literal

from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import InNorm
from fedldp.algorithms.composition import Composition
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.server_update import WeightedMean
from fedldp.algorithms.settings import Offers, Positive
from fedldp.core.errors import ConfigError
from fedldp.papers.nbafl.parts import NbaflCalibration, NbaflSettings
from fedldp.papers.priority.parts import NoisierSettings, Ranking, Uneven


class Priority(Offers):
    """The settings of the published system alone."""

    epsilon_low: Positive
    """the epsilon that the paper claims for the features with more noise"""
    epsilon_high: Positive
    """the epsilon that the paper claims for all other weights"""
    importance: Literal["variance", "sensitivity"] = "variance"
    """how a client measures the importance of a feature"""


@preset(Priority, NbaflSettings, NoisierSettings)
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
        shaped=Uneven(
            settings=settings,
            ratio=high / low,
            given=f"epsilon_low = {low:g} and epsilon_high = {high:g}",
            ranks="own",
        ),
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
