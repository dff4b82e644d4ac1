"""Features as bits: an encoder's output for an image, in fixed point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.features import Features
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.problem import Problem
from fedldp.data.images import check_images
from fedldp.mechanisms.fixed_point import FixedPoint
from fedldp.protocol.wire import Broadcast
from fedldp.training.architecture import Architecture
from fedldp.training.public_encoder import from_public


@dataclass(frozen=True, kw_only=True)
class Bits(Features):
    """The features that an encoder computes from an image, as bits.

    Attributes:
        settings: the preset's settings.
        code: how a feature becomes bits.
    """

    settings: Settings
    code: FixedPoint

    def architecture(self, problem: Problem) -> Architecture:
        """Return the encoders' network.

        Raises:
            ConfigError: the examples are not images, or the network cannot take images of their
                shape.
        """
        settings = self.settings
        check_images(problem.input_shape, settings.dataset)
        return Architecture(
            problem.input_shape,
            problem.num_classes,
            tuple(settings.encoder_channels),
            settings.encoder_padding,
            settings.encoder_layers,
        )

    def num_bits(self, problem: Problem) -> int:
        """Return r_f l, the length of one example's vector of bits."""
        return self.architecture(problem).num_features * self.code.length

    def shape(self, problem: Problem) -> tuple[int, ...]:
        """Return the shape of one example's vector of bits."""
        return (self.num_bits(problem),)

    def __call__(
        self, problem: Problem, broadcast: Broadcast, examples: NDArray[np.float32]
    ) -> NDArray[np.float32] | None:
        """Return the bits from a public encoder; None if clients have their own encoders."""
        import torch

        if self.settings.encoder == "own":
            return None
        net = from_public(broadcast, self.architecture(problem))
        return self.code.encode(net.features(examples, torch.device("cpu"))).astype(np.float32)
