"""Two 5x5 convolutions of 10 and 20 channels, two dense layers; d = 21,840 for 28x28 grey images.

The two-layer CNN of Sun, Qian, Chen 2021: 320-50-10 after the convolutions.
"""

from fedldp.errors import ConfigError
from fedldp.models import Conv, Dense, Flatten, Layer, MaxPool, Relu


def build(input_shape: tuple[int, ...], num_classes: int) -> list[Layer]:
    """Return the layers for images of shape (channels, height, width), 16x16 or larger."""
    if len(input_shape) != 3 or min(input_shape[1:]) < 16:
        raise ConfigError(
            f"model = cnn: examples of shape {input_shape} are no images of 16x16 or more; "
            "use mlp or logistic"
        )
    return [
        *(Conv(10, 5, name="conv1"), MaxPool(2), Relu()),
        *(Conv(20, 5, name="conv2"), MaxPool(2), Relu()),
        *(Flatten(), Dense(50, name="dense1"), Relu()),
        Dense(num_classes, name="dense2"),
    ]
