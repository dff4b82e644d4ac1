"""Central DP: clients send updates in clear, and a server that they trust adds the noise.

    Broadcast: weights W
        |
        v
    client_step   local SGD from W
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

import math
from collections.abc import Iterable

import numpy as np

from fedldp.accounting.events import Event, InClear, SampledClientsGaussian
from fedldp.accounting.numerics.moments import moments_epsilon
from fedldp.accounting.statement import Claim
from fedldp.algorithms.calibration import Fixed
from fedldp.algorithms.channel import Central
from fedldp.algorithms.composition import Composition, EstimateBy
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.server_update import NoisySum, Values
from fedldp.algorithms.settings import CLIP, NoiseMultiplier, NormBound, Offer
from fedldp.core.bounding import SMALLEST_RADIUS
from fedldp.core.errors import RunError
from fedldp.mechanisms.gaussian import Gaussian
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
    solved="noise_multiplier",
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

    def bounded(updates: Iterable[Values]) -> tuple[Gaussian, Iterable[Values]]:
        """Return what clips a round's updates, and these; for the median they are all held."""
        if settings.clip is not None:
            return gaussian(settings, settings.clip), updates
        held = list(updates)
        return gaussian(settings, _median_norm(held)), held

    return Composition(
        calibration=Fixed(every=Plain()),
        estimate=EstimateBy(
            make=lambda release: NoisySum(bounded=bounded, number=settings.round_size),
            needs="reports",
            setting="system = central_dp",
        ),
        channel=Central(),
        downlink=lambda size: of_broadcast(settings, size),
        claim=claim,
        unused=unused,
    )


def gaussian(settings: Settings, clip: float) -> Gaussian:
    """Return what clips the updates and draws the noise for a norm bound."""
    return Gaussian(clip, clip * settings.noise_multiplier)


def of_broadcast(settings: Settings, size: int) -> Event:
    """Return what a broadcast releases of the clients of the round before.

    It is for those who see broadcasts only. Among them may be the u untrusted clients, or one
    where none is named, who pool what they know. (Any m of the N clients may be drawn, so if no
    round has more than u untrusted participants, there are no more of them at all.) They know
    how many of them were drawn, say k, and what these sent. The m - k others are a sample of
    the N - u others, all sets equally likely, each of whom is in it with probability
    q = (m - k)/(N - u). What a release costs grows with q (docs/privacy.md, "Sums over secret
    samples"), so the worst k is the least one: 0, which makes it m of N - u, or m - (N - u) if
    that is more, which makes it all of them. So it is in every round, whatever k is in others.
    Those who know less see smaller q: m/(N - u') with u' < u, or m/N if they are no clients.
    """
    if settings.clip is None:
        return InClear(what="the scale of the noise, a median of private norms,")
    mechanism = gaussian(settings, settings.clip)
    mechanism.ball.check_size(size)
    multiplier = float(mechanism.proven_scale / mechanism.ball.radius)
    # The one whom the line is about is trusted, also where there is no other.
    honest = max(1, settings.num_clients - max(1, settings.untrusted_clients))
    return SampledClientsGaussian(
        noise_multiplier=math.nextafter(multiplier, 0),
        sample_size=min(settings.round_size, honest),
        population=honest,
    )


def _median_norm(updates: list[Values]) -> float:
    """Return the S of Algorithm 1, but for updates that are all next to nothing."""
    if not updates:
        raise RunError("no report came in: there is no mean to take")
    median = float(np.median([np.linalg.norm(update) for update in updates]))
    return max(median, SMALLEST_RADIUS)
