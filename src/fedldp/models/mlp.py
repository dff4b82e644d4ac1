"""One hidden layer of 256 units; d = 203,530 for 28x28 grey images and 10 classes."""

from fedldp.models import Dense, Flatten, Layer, Relu


def build(input_shape: tuple[int, ...], num_classes: int) -> list[Layer]:
    """Return the layers for examples of any shape, which they flatten."""
    return [Flatten(), Dense(256), Relu(), Dense(num_classes)]
