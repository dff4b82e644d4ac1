"""One hidden layer of 256 units; d = 203,530 for 28x28 grey images and 10 classes."""

import math

from torch import nn

_HIDDEN = 256


def build(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return the model for examples of any shape, which it flattens."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(input_shape), _HIDDEN),
        nn.ReLU(),
        nn.Linear(_HIDDEN, num_classes),
    )
