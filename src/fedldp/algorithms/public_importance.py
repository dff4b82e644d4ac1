"""The importance of input features, computed from published values, so it costs no privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedldp.algorithms.composition import Algorithm, FirstArrays, Local, WeightedMean
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Release, UnevenRelease
from fedldp.algorithms.server_update import Estimated, Needs, Sent, Weighted
from fedldp.protocol.roles import Draw, State
from fedldp.protocol.wire import Broadcast, Incoming
from fedldp.training.feature_importance import NoisierFeatures

if TYPE_CHECKING:
    import torch

    from fedldp.training.local_sgd import LocalSgd


@dataclass(frozen=True, kw_only=True)
class DenseFirst(Local):
    """Plain SGD for a model in which every feature has its own weights."""

    weighs_classes: ClassVar[bool] = True
    plain_sgd: ClassVar[bool] = True

    def __call__(self, algorithm: Algorithm, device: torch.device) -> LocalSgd:
        """Return the local update.

        Raises:
            ConfigError: the model has no separate weights for each feature.
        """
        from fedldp.training.ranking_sgd import check_dense_first

        training = algorithm.sgd(device)
        check_dense_first(training.model, algorithm.config.model)
        return training


def unknown(release: Release, problem: Problem) -> FirstArrays:
    """Return what the server knows about features before the first round."""
    assert isinstance(release, UnevenRelease)
    nothing = np.zeros(release.noisier.first_layer.num_features)
    return lambda draw: {"importance": nothing, "precision": nothing}


def publish_importance(state: State) -> Broadcast:
    """Return the round's broadcast, with what is known about the importance of features."""
    told = {name: state.arrays[name] for name in ("importance", "precision")}
    return Broadcast(round=state.round, weights=state.weights, public=told)


@dataclass(frozen=True)
class RankFeatures:
    """The estimate of the mean change, and the importance of features from public values.

    The importance of a feature is the mean square of a round's change of its weights. Its estimate
    is unbiased, because the noise on it is known. Rounds are averaged with the inverse variance of
    their estimates as weights, so a round in which a feature had more noise hardly counts for that
    feature. This is eq. 6 of the paper, applied to global weights, without the factor |w_ij|, which
    the noise would inflate.

    Attributes:
        noisier: picks the features that get more noise.
        mean: the mean of the reports: of weights, or of their change from the broadcast.
    """

    needs: ClassVar[Needs] = "reports"
    gives: ClassVar[Sent] = "update"

    noisier: NoisierFeatures
    mean: Weighted

    def __call__(
        self, state: State, reports: Incoming, draw: Draw, factor: float = 1.0
    ) -> Estimated:
        """Return the mean change, and what is known about the importance after the round."""
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


def ranked(release: Release) -> RankFeatures:
    """Return the estimate from reports of ``release``."""
    assert isinstance(release, UnevenRelease)
    return RankFeatures(release.noisier, WeightedMean()(release))
