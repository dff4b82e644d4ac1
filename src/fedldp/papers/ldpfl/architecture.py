"""The architecture of a feature network, which needs no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fedldp.core.errors import ConfigError
from fedldp.data.image_features import check_images

Layers = Literal["deep", "mnist"]

KERNEL = 3
"""The height and the width of the kernel of every convolution."""


@dataclass(frozen=True)
class Architecture:
    """Blocks of two convolutions, each with ELU, and a 2x2 max-pool; then a classifier.

    Chamikara et al. 2022, Appendix A, numbers the layers of its two networks. In the "deep" one
    (CIFAR-10, Fashion-MNIST, SVHN) batch norm follows every convolution's ELU, and dropout follows
    every block. In the "mnist" one batch norm follows the first convolution and the max-pool of
    each block (layers 5, 9, 12, 17), and the hidden dense layer after the features (20).

    Attributes:
        input_shape: (channels, height, width) of an example.
        num_classes: the number of classes.
        channels: the number of output channels of the convolutions in each block.
        layers: the positions of batch norm and dropout; in the deep network convolutions are also
            padded, so that they keep the height and the width.

    Raises:
        ConfigError: the examples are not images, or are too small.
    """

    input_shape: tuple[int, ...]
    num_classes: int
    channels: tuple[int, ...]
    layers: Layers = "deep"

    def __post_init__(self) -> None:
        check_images(self.input_shape)
        if min(self._sides()) < 1:
            raise ConfigError(
                f"encoder_channels = {list(self.channels)}: images of "
                f"{self.input_shape[1]}x{self.input_shape[2]} are too small for "
                f"{len(self.channels)} blocks; give fewer blocks"
            )

    @property
    def padding(self) -> bool:
        """Whether convolutions keep the height and the width."""
        return self.layers == "deep"

    @property
    def num_features(self) -> int:
        """The length of a feature vector, r_f."""
        height, width = self._sides()
        return self.channels[-1] * height * width

    @property
    def multiplications(self) -> int:
        """The number of multiplications by a weight that one example's features need."""
        inward, *sides = self.input_shape
        count = 0
        for outward in self.channels:
            for each in (inward, outward):
                sides = [side if self.padding else side - 2 for side in sides]
                count += each * outward * KERNEL**2 * math.prod(sides)
            inward, sides = outward, [side // 2 for side in sides]
        return count

    def _sides(self) -> tuple[int, ...]:
        sides = self.input_shape[1:]
        for _ in self.channels:
            sides = tuple((side if self.padding else side - 4) // 2 for side in sides)
        return sides
