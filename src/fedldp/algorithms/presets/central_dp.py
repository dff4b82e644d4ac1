"""Central DP: clients send updates in clear, and a server that they trust adds the noise.

    Broadcast: weights W
        |
        v
    local_update  local SGD from W
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
`clip`, which is ours, there is one; see McMahan, Ramage, Talwar, Zhang 2018. The noise comes from
the server's own randomness: whoever knows that, in a simulation the seed, can take it off.
"""

from __future__ import annotations

from fedldp.accounting.numerics.moments import moments_epsilon
from fedldp.accounting.statement import Claim
from fedldp.algorithms.calibration import Fixed
from fedldp.algorithms.channel import Central
from fedldp.algorithms.composition import Composition, EstimateBy
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.server_noise import noisy_sum, of_broadcast
from fedldp.algorithms.settings import CLIP, NoiseMultiplier, NormBound, Offer
from fedldp.mechanisms.none import Plain


@preset(
    Offer(
        "noise_multiplier",
        NoiseMultiplier,
        "sigma: the noise's standard deviation over the norm bound of one update",
    ),
    CLIP.but(
        type=NormBound | None,
        meaning="norm bound of one update; the median of each round's norms, as published, "
        "where it is not set",
        default=None,
    ),
    calibrated="noise_multiplier",
    inverse=True,
)
def central_dp(settings: Settings) -> Composition:
    """Central DP: its release is at the server, which clients trust."""
    claim, unused = None, {}
    if settings.clip is None:
        unused["untrusted_clients"] = "no line of the statement rests on it while clip is not set"
        claim = Claim(
            epsilon=moments_epsilon(
                settings.noise_multiplier,
                settings.round_size / settings.num_clients,
                settings.rounds,
                settings.delta,
            ),
            delta=settings.delta,
            unit="client-run",
            source="Geyer, Klein, Nabi 2017, Algorithm 1, with the moments accountant of Abadi et "
            "al. 2016",
        )

    return Composition(
        calibration=Fixed(every=Plain()),
        estimate=EstimateBy(
            make=lambda release: noisy_sum(settings),
            needs="reports",
            setting="system = central_dp",
        ),
        channel=Central(),
        downlink=lambda size, problem: of_broadcast(settings, size),
        claim=claim,
        unused=unused,
    )
