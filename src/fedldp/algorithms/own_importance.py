"""The importance of input features for one client, which the client's reports then reveal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedldp.algorithms.composition import Algorithm, Local
from fedldp.algorithms.nbafl import NbaflCalibration
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.uneven import first_layer_of
from fedldp.core.errors import ConfigError
from fedldp.training.feature_importance import FirstLayer

if TYPE_CHECKING:
    import torch

    from fedldp.training.ranking_sgd import RankingSgd


@dataclass(frozen=True, kw_only=True)
class Ranking(Local):
    """Local SGD that also finds the importance of features.

    Attributes:
        settings: the preset's settings.
        calibration: the calibration of the noise.
    """

    weighs_classes: ClassVar[bool] = True
    plain_sgd: ClassVar[bool] = True

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
        from fedldp.training.ranking_sgd import RankingSgd, check_dense_first

        training = algorithm.sgd(device)
        check_dense_first(training.model, algorithm.config.model)
        shift = None
        if self.settings.importance == "sensitivity":
            # The mean absolute value of the noise on a weight at the budget ``epsilon_low``.
            noise = self.calibration.noise(algorithm.problem)
            shift = noise.uplink_sigma(self.settings.epsilon_low) * math.sqrt(2 / math.pi)
        return RankingSgd(training, self.first_layer(algorithm), shift)
