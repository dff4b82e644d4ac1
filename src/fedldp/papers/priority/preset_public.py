"""Feature priority, sound: the server ranks features by what it has already published.

    Broadcast: weights W, and for every feature what earlier rounds say about its importance
        |
        v
    local_update  local SGD from W
        |         Sensitive weights w
        v
    encoder       w - W (send = update) or w, clipped to norm C, plus N(0, sigma^2) on every
        |         coordinate; noise_ratio times as much on the first layer's weights of a share
        |         of the features, least or most important by the broadcast
        |         Report: 32 d bits
        v
    server_step   mean -> weights of the next Broadcast
                  its change from W, minus what noise alone would give -> importance

Source: ours, after Talaei, Izadi 2024 (see ``priority``), with three repairs. Importance is
post-processing of released values, so it costs nothing. The sensitivity is the 2 C that the clip
proves. sigma is chosen such that all T rounds of a client together meet (epsilon, delta), with the
analytic Gaussian mechanism (Balle, Wang 2018).

More noise on some features gives no guarantee, because two clients' data may differ only in the
other features. noise_ratio = 1 is as private as any other ratio and never less accurate; this
system shows what the paper's idea costs once it is accounted for.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fedldp.algorithms.bounds import InNorm
from fedldp.algorithms.calibration import PerRun
from fedldp.algorithms.composition import Composition
from fedldp.algorithms.participation import participation_of
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.settings import NormBound, Offers, Positive
from fedldp.papers.priority.parts import NoisierSettings, RankFeatures, Uneven


class PriorityPublic(Offers):
    """The settings of the sound system alone."""

    epsilon: Positive
    """epsilon, at delta, for everything that one client sends in the run"""
    clip: NormBound
    """C, the largest norm of what a client sends; longer vectors are scaled down to this norm"""
    send: Literal["weights", "update"] = "update"
    """what is clipped and sent: weights, or update (their change from the broadcast)"""
    noise_ratio: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 20.0
    """standard deviation of the noise on the picked features, as a multiple of the standard
    deviation on the other features"""


@preset(PriorityPublic, NoisierSettings)
def priority_public(settings: Settings) -> Composition:
    """Feature priority with public importance; the paper makes no claim about this variant."""
    return Composition(
        bound=InNorm(clip=settings.clip, send=settings.send),
        calibration=PerRun(
            epsilon=settings.epsilon,
            delta=settings.delta,
            clip=settings.clip,
            rounds=settings.rounds,
            participation=participation_of(settings),
        ),
        shaped=Uneven(
            settings=settings,
            ratio=settings.noise_ratio,
            given=f"noise_ratio = {settings.noise_ratio:g}",
            ranks="public",
        ),
        estimate=RankFeatures(),
    )
