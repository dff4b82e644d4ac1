"""Feature priority, sound: the server ranks features by what it has already published.

    Broadcast: weights W, and for every feature what earlier rounds tell of its importance
        |
        v
    client_step   local SGD from W
        |         Sensitive weights w
        v
    encoder       w - W (send = update) or w, clipped to norm C, plus N(0, sigma^2) on every
        |         coordinate; noise_ratio times as much on the first layer's weights of a share
        |         of the features, least or most important by the broadcast
        |         Report: 32 d bits
        v
    server_step   mean -> weights of the next Broadcast
                  its change from W, less what noise alone would give -> importance

Source: ours, after Talaei, Izadi 2024 (see ``priority``), with three repairs. Importance is
post-processing of released values, so it costs nothing. The sensitivity is the 2 C that the clip
proves. sigma is such that all T rounds of a client together meet (epsilon, delta), by the analytic
Gaussian mechanism (Balle, Wang 2018).

More noise on some features buys no guarantee: a difference between two clients' data may lie
wholly in the others. noise_ratio = 1 is as private and never less accurate; this system is there to
show what the paper's idea costs once it is accounted for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedldp.algorithms.bounds import InNorm
from fedldp.algorithms.calibration import PerRun
from fedldp.algorithms.composition import Algorithm, Composition, EstimateBy, Local, WeightedMean
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Release, UnevenRelease
from fedldp.algorithms.server_update import Estimated, Needs, Sent, Weighted
from fedldp.algorithms.settings import CLIP, Offer, Positive
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.mechanisms.uneven_gaussian import check_ratio
from fedldp.parts.feature_importance import FirstLayer, Noisier, NoisierFeatures, NoisierShare
from fedldp.parts.sides import Draw, State
from fedldp.wire import Broadcast, Incoming

if TYPE_CHECKING:
    import torch

    from fedldp.parts.local_sgd import LocalSgd


@preset(
    Offer("epsilon", Positive, "budget of all that one client sends in the run"),
    CLIP.but(meaning="C, the bound on the norm of what a client sends"),
    Offer(
        "send",
        Literal["weights", "update"],
        "clip and send weights, or their change from the broadcast",
        "update",
    ),
    Offer(
        "noise_ratio",
        Annotated[float, Field(ge=1, allow_inf_nan=False)],
        "noise of the picked features over that of the others",
        20.0,
    ),
    Offer("noisier", Noisier, default="least"),
    Offer("noisier_share", NoisierShare),
)
def priority_public(settings: Settings) -> Composition:
    """Feature priority with public importance; the paper makes no claim of this variant."""

    def rank(release: Release) -> RankFeatures:
        assert isinstance(release, UnevenRelease)
        return RankFeatures(release.noisier, WeightedMean()(release))

    return Composition(
        local=DenseFirst(),
        bound=InNorm(clip=settings.clip, send=settings.send),
        calibration=PerRun(
            epsilon=settings.epsilon,
            delta=settings.delta,
            clip=settings.clip,
            rounds=settings.rounds,
        ),
        shaped=lambda release, problem: uneven(settings, release, problem),
        estimate=EstimateBy(make=rank, needs="reports"),
        arrays=unknown,
        publish=publish_importance,
    )


def uneven(settings: Settings, release: Release, problem: Problem) -> UnevenRelease:
    """Return the release with more noise on the features that public ranks pick.

    Raises:
        ConfigError: they have no weights of their own, or the noise is too much or too little.
    """
    least = release.mechanism
    assert isinstance(least, Gaussian)
    check_ratio(least, settings.noise_ratio, f"noise_ratio = {settings.noise_ratio:g}")
    noisier = NoisierFeatures(
        first_layer=FirstLayer.of(settings.layout(problem), settings.model, problem.input_shape),
        least=least,
        ratio=settings.noise_ratio,
        which=settings.noisier,
        share=settings.noisier_share,
    )
    return UnevenRelease(
        bound=release.bound, mechanism=least, size=release.size, noisier=noisier, ranks="public"
    )


@dataclass(frozen=True, kw_only=True)
class DenseFirst(Local):
    """Plain SGD, of a model whose features have weights of their own."""

    def __call__(self, algorithm: Algorithm, device: torch.device) -> LocalSgd:
        """Return it.

        Raises:
            ConfigError: the model is another one.
        """
        from fedldp.parts.ranking_sgd import check_dense_first

        training = algorithm.sgd(device)
        check_dense_first(training.model, algorithm.config.model)
        return training


def unknown(release: Release, problem: Problem, draw: Draw) -> Mapping[str, NDArray[np.float64]]:
    """Return what the server knows of features before the first round."""
    assert isinstance(release, UnevenRelease)
    nothing = np.zeros(release.noisier.first_layer.num_features)
    return {"importance": nothing, "precision": nothing}


def publish_importance(state: State) -> Broadcast:
    """Return the round's broadcast, with all that is known of the importance of features."""
    told = {name: state.arrays[name] for name in ("importance", "precision")}
    return Broadcast(round=state.round, weights=state.weights, public=told)


@dataclass(frozen=True)
class RankFeatures:
    """The estimate of the mean change, and the importance of features from what is public.

    The importance of a feature is the mean square of a round's change of its weights, estimated
    without bias: the noise on it is known. Rounds are averaged by the inverse variance of their
    estimates, so one in which a feature had more noise hardly counts for it. This is eq. 6 of the
    paper on global weights without its factor |w_ij|, which the noise would swell.

    Attributes:
        noisier: picks the features that get more noise.
        mean: of the reports: of weights, or of their change from the broadcast.
    """

    needs: ClassVar[Needs] = "reports"
    gives: ClassVar[Sent] = "update"

    noisier: NoisierFeatures
    mean: Weighted

    def __call__(
        self, state: State, reports: Incoming, draw: Draw, factor: float = 1.0
    ) -> Estimated:
        """Return the mean change, and what is known of the importance after it."""
        noisier, found = self.noisier, self.mean(state, reports, draw)
        assert found.values is not None
        change = found.values if self.mean.gives == "update" else found.values - state.weights
        importance, precision = state.arrays["importance"], state.arrays["precision"]
        ratio = np.where(noisier.picked_in(state.round, importance), noisier.ratio, 1.0)
        noise_variance = (ratio * noisier.least.sigma) ** 2 / found.weight
        square = np.square(noisier.first_layer.weights(change)).mean(axis=0) - noise_variance
        precision = precision + ratio**-4
        importance = importance + (square - importance) * ratio**-4 / precision
        arrays = {"importance": importance, "precision": precision}
        return Estimated(values=factor * change, weight=found.weight, arrays=arrays)
