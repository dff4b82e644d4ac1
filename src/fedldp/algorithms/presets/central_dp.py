"""Central DP: clients send updates in the clear, and a server that they trust adds the noise.

    Broadcast: weights W
        |
        v
    local_update  local SGD from W
        |         Sensitive weights
        v
    encoder       float32 weights, unchanged
        |         Report: 32 d bits
        v
    server_step   D = weights - W, scaled down to the norm S: the median of this round's norms, or
                  `clip`; W + (sum of D + N(0, (sigma S)^2 I))/m -> weights of the next Broadcast

Source: R. Geyer, T. Klein, M. Nabi, "Differentially Private Federated Learning: A Client Level
Perspective", 2017, Algorithm 1. Nothing protects a client from the server. The scale of the
published noise is the median of private norms, so there is no guarantee against someone who sees
only the broadcasts. With a fixed `clip`, which is our addition, there is such a guarantee; see
McMahan, Ramage, Talwar, Zhang 2018. The noise comes from the server's own randomness: anyone who
knows this randomness (in a simulation, the seed) can subtract the noise.

With ``noise = "discrete-gaussian"``, which is also ours, no step before the broadcast uses floats:
a client rounds its change to a public grid and clips it there, in integers; the sum is exact, and
so is the discrete Gaussian that the server adds. The proof covers exactly what is computed, so this
variant can be deployed:

    encoder       change w - W in whole grid steps, of norm S at most   Report: d words of 64 bits
    server_step   W + step (sum + discrete Gaussian of deviation sigma S)/m

With ``clip_quantile``, the norm bound follows this quantile of the norms of updates. The server
counts how many updates of a round are within the bound, and adds noise to this count, too. A client
adds a vector of norm S or less to one sum, and 1/2 or -1/2 to the other. The two are one Gaussian
sum of vectors with one more coordinate: ``noise_multiplier`` is that of both together, and the next
bound follows from what was released.

    S next        S exp(0.2 (clip_quantile - noisy share of updates within S))

Source: G. Andrew, O. Thakkar, B. McMahan, S. Ramaswamy, "Differentially Private Learning with
Adaptive Clipping", NeurIPS 2021, Algorithm 1 and Theorem 1, with its rate of 0.2, and noise on the
count of a twentieth of the clients in a round. Under replacement both sensitivities double, which
leaves the theorem as it is.

A secure sum can also carry reports of exact integers: the server sees their exact sum. The line for
the broadcasts does not rely on sampling: every client is charged for every round.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedldp.accounting.events import Event, InClear, SampledClientsGaussian
from fedldp.accounting.numerics.moments import moments_epsilon
from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import InNorm, Send
from fedldp.algorithms.calibration import Fixed
from fedldp.algorithms.channel import Channel
from fedldp.algorithms.composition import Composition
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Needs
from fedldp.algorithms.server_update import (
    Estimate,
    Estimated,
    FirstArrays,
    Values,
    stream_of_noise,
)
from fedldp.algorithms.settings import NoiseMultiplier, NormBound, Offers
from fedldp.core.bounding import SMALLEST_RADIUS
from fedldp.core.errors import ConfigError
from fedldp.mechanisms.codes import BoundedSteps
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.mechanisms.grids import LARGEST_CLIP, SMALLEST_CLIP
from fedldp.mechanisms.none import Plain, read_plain
from fedldp.mechanisms.words import INTEGERS
from fedldp.protocol.roles import Draw, State
from fedldp.protocol.updates import arrived, whole
from fedldp.protocol.wire import Incoming


class CentralDp(Offers):
    """The settings of central DP."""

    noise_multiplier: NoiseMultiplier
    """sigma: the standard deviation of the noise, as a multiple of the norm bound on one update"""
    clip: NormBound | None = None
    """largest norm of one update; longer updates are scaled down to this norm; if not set, the
    median of each round's norms, as published; with clip_quantile, the bound of the first round"""
    clip_quantile: Annotated[float, Field(gt=0, lt=1)] | None = None
    """share of updates that the norm bound should leave as they are: the bound of the next round
    follows a noisy count, which noise_multiplier covers; if not set, clip stays"""
    noise: Literal["gaussian", "discrete-gaussian"] = "gaussian"
    """the server's noise: gaussian (as published; its guarantee is for real numbers) or
    discrete-gaussian (whole grid steps, added to exact sums, as in deployments)"""


@preset(CentralDp, calibrated="noise_multiplier", inverse=True)
def central_dp(settings: Settings) -> Composition:
    """Central DP: the server, which clients trust, adds the noise."""
    if settings.noise == "discrete-gaussian":
        return discrete(settings)
    followed = None if settings.clip_quantile is None else FollowedClip.of(settings)
    unused = {}
    if settings.clip is None:
        unused["untrusted_clients"] = "no line of the statement depends on it while clip is not set"

    def claim() -> Claim:
        return Claim(
            epsilon=moments_epsilon(
                settings.noise_multiplier,
                settings.round_size / settings.num_clients,
                settings.rounds,
                settings.delta,
            ),
            delta=settings.delta,
            unit="client-run",
            source=f"{_PUBLISHED if followed is None else _FOLLOWED}, Algorithm 1, with the "
            "moments accountant of Abadi et al. 2016",
        )

    return Composition(
        calibration=Fixed(every=Plain()),
        estimate=followed
        or NoisySum(
            noise_multiplier=settings.noise_multiplier,
            clip=settings.clip,
            number=settings.round_size,
        ),
        channel=Channel(kind="central"),
        downlink=lambda size, problem, round: of_broadcast(settings, size),
        claim=claim if settings.clip is None or followed is not None else None,
        unused=unused,
    )


def discrete(settings: Settings) -> Composition:
    """Return central DP with exact noise on exact sums of updates that clients clip themselves.

    Raises:
        ConfigError: there is no fixed clip, from which the public grid follows.
    """
    if settings.clip is None:
        raise ConfigError(
            "noise = discrete-gaussian: its grid follows from the norm bound, which must be "
            "public; set clip"
        )
    if settings.clip_quantile is not None:
        raise ConfigError(
            f"clip_quantile = {settings.clip_quantile:g} and noise = discrete-gaussian: clients "
            "clip on a public grid, which does not follow the updates; leave one of the two out"
        )
    steps = BoundedSteps(gaussian(settings.noise_multiplier, settings.clip))
    return Composition(
        bound=InNorm(clip=settings.clip, send="update"),
        calibration=Fixed(every=steps),
        estimate=NoisyTotal(steps=steps, number=settings.round_size),
        channel=Channel(kind="central"),
        downlink=lambda size, problem, round: steps.noised(size),
        unused={
            "untrusted_clients": "no line of the statement depends on it, because every client is "
            "charged for every round"
        },
    )


@dataclass(frozen=True, kw_only=True)
class ByServer(Estimate):
    """A noisy mean of updates, whose noise the server adds.

    It divides by the agreed number of clients. Dividing by the number that answered would reveal
    that number through the scale of the noise.

    Attributes:
        number: the agreed number of clients in a round.
    """

    gives: ClassVar[Send] = "update"
    needs: ClassVar[Needs] = "reports"
    setting: ClassVar[str] = "system = central_dp"

    number: int


@dataclass(frozen=True, kw_only=True)
class NoisySum(ByServer):
    """The noisy mean of updates sent in the clear, which the server clips.

    Attributes:
        noise_multiplier: the noise over the norm bound.
        clip: the norm bound; None takes the median of a round's norms. The median is the paper's
            rule and has no guarantee; it needs all of a round's updates at once.
    """

    noise_multiplier: float
    clip: float | None

    def __call__(self, state: State, reports: Incoming, draw: Draw) -> Estimated:
        """Return the noisy mean change; see ``Estimate``."""
        size, clip = state.weights.size, self.clip
        updates: Iterable[Values] = (
            read_plain(report.payload, size) - state.weights for report in arrived(reports)
        )
        if clip is None:
            updates = list(updates)
            median = float(np.median([np.linalg.norm(update) for update in updates]))
            clip = max(median, SMALLEST_RADIUS)
        mechanism, total = gaussian(self.noise_multiplier, clip), np.zeros(size, np.int64)
        for update in updates:
            total += mechanism.ball.clip(update)
        total += mechanism.noise(size, stream_of_noise(total, draw))
        return Estimated(values=total * (mechanism.ball.step / self.number))


@dataclass(frozen=True, kw_only=True)
class NoisyTotal(ByServer):
    """The noisy mean of updates that clients clip on a grid: the server adds noise to their sum.

    It clips each single report again, which does not change an honest report; nobody can clip the
    single reports in a secure sum.

    Attributes:
        steps: the mechanism that clips the updates and adds the noise.
    """

    needs: ClassVar[Needs] = "sum"

    steps: BoundedSteps

    def __call__(self, state: State, reports: Incoming, draw: Draw) -> Estimated:
        """Return the noisy mean change; see ``Estimate``."""
        size, ball = state.weights.size, self.steps.ball
        found = self.steps.aggregate(size)
        for report in whole(reports):
            if report.weight is not None:
                found.add(report.payload, int(report.weight))
                continue
            alone = self.steps.aggregate(size)
            alone.add(report.payload)
            clipped = ball.clip(alone.mean())
            found.add(INTEGERS.pack(clipped).tobytes())
        total = found.total()
        # As in ``stream_of_noise``; a simulation's stream, too, depends on the sum.
        stream = draw(f"noise on {hashlib.sha256(total.tobytes()).hexdigest()}")
        total = self.steps.noisy(total, stream)
        return Estimated(values=total * (ball.step / self.number))


_PUBLISHED = "Geyer, Klein, Nabi 2017"
_FOLLOWED = "Andrew, Thakkar, McMahan, Ramaswamy 2021"

_RATE = 0.2
"""eta_C of Andrew et al. 2021."""

_SHARE_OF_CLIENTS = 1 / 20
"""sigma_b of Andrew et al. 2021, over the number of clients in a round."""

_CLIP = "clip"


@dataclass(frozen=True, kw_only=True)
class FollowedClip(ByServer):
    """The noisy mean of updates whose norm bound follows a quantile of their norms.

    Attributes:
        start: the norm bound of the first round.
        quantile: the share of updates that should be within the bound.
        vectors: clips updates, divided by the bound, and draws their noise.
        counts: bounds what a client adds to the count, and draws the noise of the count.
    """

    start: float
    quantile: float
    vectors: Gaussian
    counts: Gaussian

    @classmethod
    def of(cls, settings: Settings) -> FollowedClip:
        """Return the estimate that the settings describe.

        Raises:
            ConfigError: there is no first bound, or too much noise for the number of clients.
        """
        if settings.clip is None:
            raise ConfigError(
                f"clip_quantile = {settings.clip_quantile:g}: the norm bound of the first round is "
                "missing; set clip"
            )
        both, deviation = settings.noise_multiplier, settings.round_size * _SHARE_OF_CLIENTS
        room = both**-2 - (2 * deviation) ** -2
        if room <= 0:
            raise ConfigError(
                f"noise_multiplier = {both:g}: with clip_quantile it must be below a tenth of the "
                f"clients in a round, {2 * deviation:g}; give less noise, or more clients"
            )
        return cls(
            start=settings.clip,
            quantile=settings.clip_quantile,
            vectors=Gaussian(1.0, room**-0.5),
            counts=Gaussian(0.5, deviation),
            number=settings.round_size,
        )

    def arrays(self, problem: Problem) -> FirstArrays:
        """Return what gives the bound of the first round, which the server keeps."""
        return lambda draw: {_CLIP: np.array([self.start])}

    def multiplier(self, size: int) -> float:
        """Return the noise of both sums over the norm of what a client adds to them, rounded down.

        Raises:
            ConfigError: a vector of ``size`` coordinates is too long (see ``GridBall.check_size``).
        """
        self.vectors.ball.check_size(size)
        both = math.hypot(1 / _multiplier(self.vectors), 1 / _multiplier(self.counts))
        return (1 - 2.0**-50) / both

    def __call__(self, state: State, reports: Incoming, draw: Draw) -> Estimated:
        """Return the noisy mean change, and the bound of the next round; see ``Estimate``."""
        clip, size = float(state.arrays[_CLIP][0]), state.weights.size
        total = np.zeros(size + 1, np.int64)
        for report in arrived(reports):
            update = read_plain(report.payload, size) - state.weights
            half = 0.5 if np.linalg.norm(update) <= clip else -0.5
            total[:-1] += self.vectors.ball.clip(update / clip)
            total[-1:] += self.counts.ball.clip(np.array([half]))
        stream = stream_of_noise(total, draw)
        total[:-1] += self.vectors.noise(size, stream)
        total[-1:] += self.counts.noise(1, stream)
        within = 0.5 + int(total[-1]) * self.counts.ball.step / self.number
        following = clip * math.exp(_RATE * (self.quantile - within))
        return Estimated(
            values=total[:-1] * (clip * self.vectors.ball.step / self.number),
            metrics={_CLIP: clip},
            arrays={_CLIP: np.clip([following], SMALLEST_CLIP, LARGEST_CLIP)},
        )


def gaussian(noise_multiplier: float, clip: float) -> Gaussian:
    """Return the mechanism that clips the updates and draws the noise for a norm bound."""
    return Gaussian(clip, clip * noise_multiplier)


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
        return InClear(what="noise-scale")
    if settings.clip_quantile is not None:
        multiplier = FollowedClip.of(settings).multiplier(size)
    else:
        mechanism = gaussian(settings.noise_multiplier, settings.clip)
        mechanism.ball.check_size(size)
        multiplier = _multiplier(mechanism)
    # The client that the guarantee protects is always trusted, even if no other client is.
    honest = max(1, settings.num_clients - max(1, settings.untrusted_clients))
    return SampledClientsGaussian(
        noise_multiplier=multiplier,
        sample_size=min(settings.round_size, honest),
        population=honest,
    )


def _multiplier(mechanism: Gaussian) -> float:
    """Return a mechanism's noise over the norm bound of one vector, rounded down."""
    return math.nextafter(float(mechanism.proven_scale / mechanism.ball.radius), 0)
