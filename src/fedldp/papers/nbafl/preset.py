"""NbAFL: Gaussian noise on clipped weights before they are averaged.

    Broadcast: weights W
        |
        v
    local_update  local SGD from W
        |         Sensitive weights w
        v
    encoder       w clipped to norm C, plus N(0, sigma_U^2) on every weight (eq. 4)
        |         Report: 32 d bits, and the example count if weighting = examples
        v
    server_step   weighted mean, plus N(0, sigma_D^2) on every weight (eq. 5) -> next Broadcast

Source: Wei et al., "Federated Learning With Differential Privacy: Algorithms and Performance
Analysis", IEEE TIFS 2020; equations as in Talaei, Izadi 2024 (arXiv 2401.02453), section III-A.

The published noise is sized for a sensitivity of 2 C/m. The clip proves 2 C, both for one record
and for the whole client, and the guarantees state that.
"""

from __future__ import annotations

from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import InNorm
from fedldp.algorithms.composition import Composition, WeightedMean
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.problem import EpsilonMeaning
from fedldp.algorithms.settings import Offer, Positive
from fedldp.papers.nbafl.parts import OFFERS, NbaflCalibration


@preset(
    *OFFERS,
    Offer(
        "epsilon",
        Positive,
        "the epsilon that the paper claims for one record, across all uploads",
    ),
)
def nbafl(settings: Settings) -> Composition:
    """NbAFL; its noise is sized as published, and the statement gives what the clip proves."""
    calibration = NbaflCalibration(
        settings=settings,
        epsilon=settings.epsilon,
        meaning=EpsilonMeaning("record", "claimed"),
    )
    return Composition(
        bound=InNorm(clip=settings.clip, send=settings.send),
        calibration=calibration,
        estimate=WeightedMean(by_examples=settings.weighting == "examples"),
        server_noise=calibration.downlink_noise,
        claim=Claim(
            epsilon=settings.epsilon,
            delta=settings.delta,
            unit="record",
            source="Wei et al. 2020, Theorem 1 and the uplink noise before it",
        ),
    )
