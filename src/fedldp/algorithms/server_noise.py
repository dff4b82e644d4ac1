"""Central DP's part: a trusted server clips clients' updates, and adds the noise once."""

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
    """Return the estimate: updates clipped to ``clip`` or a round's median norm, plus noise.

    The median is the paper's rule and has no guarantee; it needs all of a round's updates at once.
    """

    def bounded(updates: Iterable[Values]) -> tuple[Gaussian, Iterable[Values]]:
        if settings.clip is not None:
            return gaussian(settings, settings.clip), updates
        held = list(updates)
        return gaussian(settings, _median_norm(held)), held

    return NoisySum(bounded=bounded, number=settings.round_size)


def gaussian(settings: Settings, clip: float) -> Gaussian:
    """Return the mechanism that clips the updates and draws the noise for a norm bound."""
    return Gaussian(clip, clip * settings.noise_multiplier)


def of_broadcast(settings: Settings, size: int) -> Event:
    """Return what a broadcast releases about the clients of the previous round.

    The adversary sees only broadcasts. It may include the u untrusted clients, who pool what they
    know, or one client if none is named. (Any m of the N clients may be drawn, so if no round has
    more than u untrusted participants, there are at most u of them in all.) They know how many of
    them were drawn, say k, and what these sent. The other m - k participants are a sample of the
    other N - u clients, with all sets equally likely, so each of those clients is in the sample
    with probability q = (m - k)/(N - u). What a release costs grows with q (docs/privacy, "Sums
    over secret samples"), so the smallest k is the worst. If m is at most N - u, the smallest k is
    0, and m of the N - u are drawn. Otherwise it is m - (N - u), and all N - u are drawn. This
    holds in every round, whatever k is in other rounds. Adversaries who know less see a smaller q:
    m/(N - u') with u' < u, or m/N if they are not clients.
    """
    if settings.clip is None:
        return InClear(what="the scale of the noise, a median of private norms,")
    mechanism = gaussian(settings, settings.clip)
    mechanism.ball.check_size(size)
    multiplier = float(mechanism.proven_scale / mechanism.ball.radius)
    # The client that the guarantee protects is always trusted, even if no other client is.
    honest = max(1, settings.num_clients - max(1, settings.untrusted_clients))
    return SampledClientsGaussian(
        noise_multiplier=math.nextafter(multiplier, 0),
        sample_size=min(settings.round_size, honest),
        population=honest,
    )


def _median_norm(updates: list[Values]) -> float:
    """Return S from Algorithm 1, or another positive bound if all updates are close to zero."""
    if not updates:
        raise RunError("no report arrived, so there is no mean to compute")
    median = float(np.median([np.linalg.norm(update) for update in updates]))
    return max(median, SMALLEST_RADIUS)
