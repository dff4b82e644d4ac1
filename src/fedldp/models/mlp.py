"""One hidden layer of 256 units; d = 203,530 for 28x28 grey images and 10 classes."""

import math

from torch import nn


def one_hidden_layer(input_shape: tuple[int, ...], num_classes: int, hidden: int) -> nn.Module:
    """Return a network for examples of any shape, which it flattens."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(input_shape), hidden),
        nn.ReLU(),
        nn.Linear(hidden, num_classes),
    )


def build(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return the model for examples of any shape, which it flattens."""
    return one_hidden_layer(input_shape, num_classes, 256)
