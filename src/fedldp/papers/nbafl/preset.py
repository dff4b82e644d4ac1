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
and for the whole client, and the guarantees state that. So does that of the authors' code
(``noise = "code"``), which has another formula and no server's noise; its newer state clips each
example's gradient (``example_clip``), and is sized for 2 C/m times the learning rate.
"""

from __future__ import annotations

from typing import Literal

from fedldp.accounting.guarantees import EpsilonMeaning
from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import InNorm
from fedldp.algorithms.composition import Composition, Sgd
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.server_update import WeightedMean
from fedldp.algorithms.settings import NormBound, Offers, Positive
from fedldp.papers.nbafl.parts import ClippedSteps, NbaflCalibration, NbaflSettings

_CODE = "https://github.com/AdamWei-boop/Federated-Learning-with-Local-Differential-Privacy"


class Nbafl(Offers):
    """The settings of NbAFL, besides those that feature priority shares."""

    epsilon: Positive
    """the epsilon that the paper claims for one record, across all uploads"""
    noise: Literal["paper", "code"] = "paper"
    """how the noise is sized: paper (eqs. 4 and 5), or code (the formula in the authors' code,
    which adds none at the server)"""
    example_clip: NormBound | None = None
    """the largest norm of one example's gradient, for which the noise of the authors' code has been
    sized since November 2022, in place of clip; needs noise = code"""


@preset(Nbafl, NbaflSettings)
def nbafl(settings: Settings) -> Composition:
    """NbAFL; its noise is sized as published, and the statement gives what the clip proves."""
    as_published = settings.noise == "paper"
    calibration = NbaflCalibration(
        settings=settings,
        epsilon=settings.epsilon,
        as_code=not as_published,
        meaning=EpsilonMeaning("record", "claimed"),
    )
    unused = {"exposures": "with noise = code no noise depends on it"}
    source = f"the authors' code of Wei et al. 2020, {_CODE}"
    if as_published:
        unused = {"example_clip": "with noise = paper the clip bounds what a client sends"}
        source = "Wei et al. 2020, Theorem 1 and the uplink noise before it"
    clipped = settings.example_clip is not None
    return Composition(
        local=ClippedSteps(settings=settings) if clipped else Sgd(),
        bound=InNorm(clip=settings.clip, send=settings.send),
        calibration=calibration,
        estimate=WeightedMean(by_examples=settings.weighting == "examples"),
        server_noise=calibration.downlink_noise,
        claim=Claim(
            epsilon=settings.epsilon,
            delta=settings.delta,
            unit="record",
            source=source,
        ),
        unused=unused,
    )
