"""Random convolutions: the responses of untrained filters to an image."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError
from fedldp.core.randomness import numbered_generator
from fedldp.data.image_features import digest_of
from fedldp.data.soft_gradients import unit
from fedldp.data.unit_norm import finite_rows

if TYPE_CHECKING:
    from torch import Tensor

_SIDE, _CELLS, _SEED = 5, 3, 2026
_ROUNDING = 1e-5


@dataclass(frozen=True)
class RandomConvolutions:
    """The positive and negative parts of filter responses in 3 x 3 cells, with norm 1.

    A filter has 5 x 5 normal random numbers for each channel, minus their mean, drawn from a public
    seed. A feature is the mean of a filter's responses of one sign in a cell. The mean of an
    example's own features is subtracted, and the vector is scaled to norm 1. An image to which no
    filter responds gives zeros, and so does an image that holds NaN or infinity, or whose values
    are too large for floats.

    Attributes:
        input_shape: (channels, height, width) of an image.
        filters: the number of filters; each gives 18 features.

    Source: Saxe, Koh, Chen, Bhand, Suresh, Ng 2011, "On Random Weights and Unsupervised Feature
    Learning", for pooled responses of random filters.
    """

    input_shape: tuple[int, ...]
    filters: int = 16

    each: ClassVar[int] = 2 * _CELLS**2
    """The number of features of one filter."""

    def __post_init__(self) -> None:
        if min(self.input_shape[1:]) < _SIDE:
            raise ConfigError(
                "features = random-convolutions: images of "
                f"{self.input_shape[1]}x{self.input_shape[2]} are smaller than a filter, "
                f"{_SIDE}x{_SIDE}; choose other features"
            )

    @property
    def size(self) -> int:
        """The length of a feature vector."""
        return self.each * self.filters

    @property
    def digest(self) -> str:
        """See ``ExampleMap``."""
        drawn = (self.filters, _SIDE, _SEED)
        return digest_of("random-convolutions", 1, self.input_shape, drawn, _CELLS)

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the features of images, shape (n, size)."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = finite_rows(self.responses(images))
        # The rounding errors of a uniformly grey image do not count as a response.
        largest = np.abs(finite_rows(images)).max(axis=1, initial=0)
        found[np.abs(found).max(axis=1, initial=0) <= _ROUNDING * largest] = 0
        return unit(found).astype(np.float32)

    def responses(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return filter responses minus each image's mean, shape (n, size); may be infinite.

        Images are processed one at a time, because a convolution of several images may sum in
        another order.
        """
        import torch
        from torch.nn import functional

        filters = _filters(self.filters, self.input_shape[0])
        found = np.empty((len(images), self.size), np.float32)
        for row, image in zip(found, images, strict=True):
            each = functional.conv2d(torch.tensor(image[None]), filters)
            both = torch.cat([each.relu(), (-each).relu()], 1)
            row[:] = functional.adaptive_avg_pool2d(both, _CELLS).flatten().numpy()
        found -= found.mean(1, keepdims=True)
        return found


@lru_cache(maxsize=4)
def _filters(count: int, channels: int) -> Tensor:
    """Return the public filters, shape (count, channels, 5, 5)."""
    import torch

    drawn = numbered_generator(_SEED, 0).standard_normal((count, channels, _SIDE, _SIDE))
    return torch.from_numpy((drawn - drawn.mean((2, 3), keepdims=True)).astype(np.float32))
