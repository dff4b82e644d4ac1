"""Two 5x5 convolutions of 10 and 20 channels, two dense layers; d = 21,840 for 28x28 grey images.

The two-layer CNN of Sun, Qian, Chen 2021: 320-50-10 after the convolutions.
"""

from fedldp.core.errors import ConfigError
from fedldp.models import Conv, Dense, Flatten, Layer, MaxPool, Relu


def build(input_shape: tuple[int, ...], num_classes: int) -> list[Layer]:
    """Return the layers for images of shape (channels, height, width), 16x16 or larger."""
    return two_layers("cnn", input_shape, num_classes, (10, 20))


def two_layers(
    name: str, input_shape: tuple[int, ...], num_classes: int, channels: tuple[int, int]
) -> list[Layer]:
    """Return a model called ``name`` with the given numbers of channels.

    Raises:
        ConfigError: the examples are not images, or are too small.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < 16:
        raise ConfigError(
            f"model = {name}: examples of shape {input_shape} are not images of 16x16 or more; "
            "use mlp or logistic"
        )
    return [
        *(Conv(channels[0], 5, name="conv1"), MaxPool(2), Relu()),
        *(Conv(channels[1], 5, name="conv2"), MaxPool(2), Relu()),
        *(Flatten(), Dense(50, name="dense1"), Relu()),
        Dense(num_classes, name="dense2"),
    ]
