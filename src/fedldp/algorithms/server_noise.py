"""Central DP's part: a server that clients trust clips their updates, and adds the noise once."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from fedldp.accounting.events import Event, InClear, SampledClientsGaussian
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.server_update import NoisySum, Values
from fedldp.core.bounding import SMALLEST_RADIUS
from fedldp.core.errors import RunError
from fedldp.mechanisms.gaussian import Gaussian


def noisy_sum(settings: Settings) -> NoisySum:
    """Return the estimate: updates within ``clip``, or the median of a round's norms; and noise.

    For the median, which is published and has no guarantee, a round's updates are all held.
    """

    def bounded(updates: Iterable[Values]) -> tuple[Gaussian, Iterable[Values]]:
        if settings.clip is not None:
            return gaussian(settings, settings.clip), updates
        held = list(updates)
        return gaussian(settings, _median_norm(held)), held

    return NoisySum(bounded=bounded, number=settings.round_size)


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
    q = (m - k)/(N - u). What a release costs grows with q (docs/privacy, "Sums over secret
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
