"""A small VGG without batch norm for 32x32 colour images; d = 418,794.

Sun, Qian, Chen 2021 train "a small VGG" on CIFAR-10 and do not say which; this one is our choice.
Three blocks of two 3x3 convolutions (32, 64, 128 channels) with max-pooling, then a hidden dense
layer of 64 units.
"""

from fedldp.core.errors import ConfigError
from fedldp.models import Conv, Dense, Flatten, Layer, MaxPool, Relu

_BLOCKS = (32, 64, 128)
_HIDDEN = 64


def build(input_shape: tuple[int, ...], num_classes: int) -> list[Layer]:
    """Return the layers for images of shape (channels, height, width), sides of 8 or more."""
    if len(input_shape) != 3 or min(input_shape[1:]) < 8:
        raise ConfigError(
            f"model = vgg: examples of shape {input_shape} are not images of 8x8 or more; "
            "use mlp or logistic"
        )
    # Use He initialisation: with torch's default and without batch norm, the signal in such a deep
    # network vanishes.
    layers: list[Layer] = []
    for channels in _BLOCKS:
        layers += [Conv(channels, 3, padding=1, start="he"), Relu()] * 2
        layers += [MaxPool(2)]
    layers += [Flatten(), Dense(_HIDDEN, start="he"), Relu(), Dense(num_classes, start="he")]
    return layers
