"""More noise on the weights of some input features: its settings, and how it shapes a release.

The importance of input features for one client, which the client's reports then reveal.

The importance of input features, computed from published values, so it costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedldp.accounting.events import Event, InClear
from fedldp.algorithms.bounds import Send
from fedldp.algorithms.composition import SGD_SETTINGS, Algorithm, Local
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Release
from fedldp.algorithms.server_update import Estimated, FirstArrays, WeightedMean
from fedldp.algorithms.settings import Offers
from fedldp.core.errors import ConfigError, UnfitEvent
from fedldp.core.facts import Kind, Unprotected
from fedldp.core.randomness import Stream
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.papers.nbafl.parts import NbaflCalibration
from fedldp.papers.priority.importance import (
    FirstLayer,
    pick_features,
)
from fedldp.papers.priority.mechanism import UnevenGaussian, check_ratio
from fedldp.protocol.roles import Arrays, Draw, State, Update
from fedldp.protocol.wire import Broadcast, Incoming

if TYPE_CHECKING:
    import torch

    from fedldp.papers.priority.training import RankingSgd


NOISIER_FEATURES = Kind("noisier-features", Unprotected, {})()
"""Which features get more noise."""


@dataclass(frozen=True, kw_only=True)
class UnevenRelease(Release):
    """A release with more noise on the weights of some input features than on all other weights.

    Attributes:
        mechanism: the mechanism for all other weights.
        first_layer: the layer with the weights of features.
        ratio: the standard deviation of the features' noise over that of ``mechanism``, at least 1.
        which: whether the least or the most important features get more noise.
        share: the share of the features, 0 to 1.
        ranks: whose ranks decide which features get more noise. The broadcast's "importance" is
            public and costs nothing. A client's own ranks are its update's "importance", which is
            then released in the clear.
    """

    mechanism: Gaussian
    first_layer: FirstLayer
    ratio: float
    which: Literal["least", "most"]
    share: float
    ranks: Literal["public", "own"]

    def picked_in(self, round: int, importance: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which features get more noise in a round, from their public importance, (m,).

        No feature gets more noise in the first round, because nothing is known about the features
        yet.
        """
        share = 0.0 if round == 1 else self.share
        return pick_features(importance, share, self.which)

    def uneven(self, picked: NDArray[np.bool_]) -> UnevenGaussian:
        """Return the mechanism that adds more noise to the weights of ``picked`` features, (m,)."""
        noisier = self.first_layer.coordinates(picked)
        return UnevenGaussian(self.mechanism.clip, self.mechanism.sigma, noisier, self.ratio)

    def category(self) -> Event:
        """Refuse, because a report from several mechanisms is not one category."""
        raise UnfitEvent("a report with more noise on some features is not one category")

    def event(self) -> Event:
        """Return the event for the least noise; for own ranks, for features in the clear."""
        if self.ranks == "own":
            return InClear(what=(NOISIER_FEATURES,))
        return super().event()

    def randomise(
        self,
        values: NDArray[np.floating],
        update: Update,
        broadcast: Broadcast,
        streams: Sequence[Stream],
    ) -> NDArray[np.uint8]:
        """Return the reports for bounded values; see ``Release.randomise``."""
        if self.ranks == "public":
            told = broadcast.public["importance"]
            mechanism = self.uneven(self.picked_in(broadcast.round, told))
            return mechanism.encode_many(values, streams)
        unknown = np.zeros((len(values), self.first_layer.num_features))
        importance = update.aux.get("importance", unknown)
        reports = [
            self.uneven(pick_features(own, self.share, self.which)).encode(row, stream)
            for own, row, stream in zip(importance, values, streams, strict=True)
        ]
        return np.array([np.frombuffer(report, np.uint8) for report in reports])


class NoisierSettings(Offers):
    """Which features get more noise."""

    noisier: Literal["least", "most"] = "least"
    """which features get more noise: the least important, or the most"""
    noisier_share: Annotated[float, Field(ge=0, le=1)]
    """share of the features that get more noise, 0 to 1"""


def first_layer_of(settings: RunConfig, problem: Problem) -> FirstLayer:
    """Return the model's first layer.

    Raises:
        ConfigError: the model has no separate weights for each feature.
    """
    algorithm = settings.algorithm(problem)
    return FirstLayer.of(algorithm.layout, settings.model, algorithm.input_shape)


@dataclass(frozen=True, kw_only=True)
class Uneven:
    """Shapes a Gaussian release so that a share of the features gets more noise.

    Attributes:
        settings: the settings in ``OFFERS``, and the run's settings.
        ratio: the ratio of the larger to the smaller standard deviation, at least 1.
        given: the settings from which the ratio follows, with their values, for error messages.
        ranks: see ``UnevenRelease``.
    """

    settings: Settings
    ratio: float
    given: str
    ranks: Literal["public", "own"]

    def __call__(self, release: Release, problem: Problem) -> UnevenRelease:
        """Return the release.

        Raises:
            ConfigError: the model has no separate weights for each feature; or the noise is too
                large.
        """
        settings, least = self.settings, release.mechanism
        assert isinstance(least, Gaussian)
        check_ratio(least, self.ratio, self.given)
        return UnevenRelease(
            bound=release.bound,
            mechanism=least,
            size=release.size,
            first_layer=first_layer_of(settings, problem),
            ratio=self.ratio,
            which=settings.noisier,
            share=settings.noisier_share,
            ranks=self.ranks,
        )


@dataclass(frozen=True, kw_only=True)
class Ranking(Local):
    """Local SGD that also finds the importance of features.

    Attributes:
        settings: the preset's settings.
        calibration: the calibration of the noise.
    """

    uses: ClassVar[frozenset[str]] = frozenset({"class_weights", *SGD_SETTINGS})

    settings: Settings
    calibration: NbaflCalibration

    def check(self, algorithm: Algorithm) -> None:
        """Refuse a model for which importance is not defined; see ``first_layer``."""
        self.first_layer(algorithm)

    def first_layer(self, algorithm: Algorithm) -> FirstLayer:
        """Return the model's first layer.

        Raises:
            ConfigError: the model has no separate weights for each feature, or importance is not
                defined for it.
        """
        found = first_layer_of(self.settings, algorithm.problem)
        if self.settings.importance == "sensitivity" and found.is_last:
            raise ConfigError(
                f"importance = sensitivity: model = {self.settings.model} has no hidden layer, so "
                "adding the same number to all weights of a feature changes no prediction; set "
                "model = mlp, or set importance = variance"
            )
        return found

    def __call__(self, algorithm: Algorithm, device: torch.device) -> RankingSgd:
        """Return the local update."""
        from fedldp.papers.priority.training import RankingSgd, check_dense_first

        training = algorithm.sgd(device)
        check_dense_first(training.model, algorithm.config.model)
        shift = None
        if self.settings.importance == "sensitivity":
            # The mean absolute value of the noise on a weight at the budget ``epsilon_low``.
            noise = self.calibration.noise(algorithm.problem)
            shift = noise.uplink_sigma(self.settings.epsilon_low) * math.sqrt(2 / math.pi)
        return RankingSgd(training, self.first_layer(algorithm), shift)


@dataclass(frozen=True, kw_only=True)
class RankFeatures(WeightedMean):
    """The estimate of the mean change, and the importance of features from public values.

    The importance of a feature is the mean square of a round's change of its weights. Its estimate
    is unbiased, because the noise on it is known. Rounds are averaged with the inverse variance of
    their estimates as weights, so a round in which a feature had more noise hardly counts for that
    feature. This is eq. 6 of the paper, applied to global weights, without the factor |w_ij|, which
    the noise would inflate.
    """

    gives: ClassVar[Send] = "update"
    setting: ClassVar[str] = "system = priority_public"

    @property
    def _uneven(self) -> UnevenRelease:
        assert isinstance(self.release, UnevenRelease)
        return self.release

    def arrays(self, problem: Problem) -> FirstArrays:
        """Return what the server knows about features before the first round."""
        nothing = np.zeros(self._uneven.first_layer.num_features)
        return lambda draw: {"importance": nothing, "precision": nothing}

    def told(self, state: State) -> Arrays:
        """Return what the server knows about the importance of features."""
        return {name: state.arrays[name] for name in ("importance", "precision")}

    def __call__(self, state: State, reports: Incoming, draw: Draw) -> Estimated:
        """Return the mean change, and what is known about the importance after the round."""
        uneven, found = self._uneven, super().__call__(state, reports, draw)
        change = found.change(self.released.bound.send, state.weights)
        importance, precision = state.arrays["importance"], state.arrays["precision"]
        ratio = np.where(uneven.picked_in(state.round, importance), uneven.ratio, 1.0)
        noise_variance = (ratio * uneven.mechanism.sigma) ** 2 / found.weight
        square = np.square(uneven.first_layer.weights(change)).mean(axis=0) - noise_variance
        precision = precision + ratio**-4
        importance = importance + (square - importance) * ratio**-4 / precision
        arrays = {"importance": importance, "precision": precision}
        return Estimated(values=change, weight=found.weight, arrays=arrays)
