"""More noise on the weights of some input features: its settings, and how it shapes a release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Release, UnevenRelease
from fedldp.algorithms.settings import Offer
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.mechanisms.uneven_gaussian import check_ratio
from fedldp.training.feature_importance import FirstLayer, Noisier, NoisierFeatures, NoisierShare

OFFERS = (Offer("noisier", Noisier, default="least"), Offer("noisier_share", NoisierShare))


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
        noisier = NoisierFeatures(
            first_layer=first_layer_of(settings, problem),
            least=least,
            ratio=self.ratio,
            which=settings.noisier,
            share=settings.noisier_share,
        )
        return UnevenRelease(
            bound=release.bound,
            mechanism=least,
            size=release.size,
            noisier=noisier,
            ranks=self.ranks,
        )
