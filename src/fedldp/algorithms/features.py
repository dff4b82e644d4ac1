"""Features: what the model is given of an example; a public function of one example at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.settings import Offer, Positive
from fedldp.training.portions import scale_features

if TYPE_CHECKING:
    from torch import nn

    from fedldp.algorithms.problem import Problem
    from fedldp.protocol.wire import Broadcast

SCALE = Offer("feature_scale", Positive, "factor on features, such as 255 for images in bytes", 1.0)


@dataclass(frozen=True, kw_only=True)
class Features:
    """Examples as they are, times a factor.

    Attributes:
        scale: the factor, such as 255 for images in bytes. The model multiplies by it, so that
            whoever has the model needs to know nothing else.
    """

    scale: float = 1.0

    def shape(self, problem: Problem) -> tuple[int, ...]:
        """Return the shape of what the model is given of one example.

        Raises:
            ConfigError: these are no features of such examples.
        """
        return problem.input_shape

    def prepare(self, model: nn.Module) -> None:
        """Let the model do its share of the work on whatever it is given."""
        scale_features(model, self.scale)

    def __call__(
        self, problem: Problem, broadcast: Broadcast, examples: NDArray[np.float32]
    ) -> NDArray[np.float32] | None:
        """Return what the model is given of examples, by public means alone.

        Returns:
            Shape (n, ``shape(problem)``); None where each client has features of its own.
        """
        return examples
