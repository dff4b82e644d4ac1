"""One hidden layer of 64 units; d = 738,010 for 11,520 inputs and 10 classes."""

from torch import nn

from fedldp.models.mlp import one_hidden_layer


def build(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return the model for examples of any shape, which it flattens."""
    return one_hidden_layer(input_shape, num_classes, 64)
