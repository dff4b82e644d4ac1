"""A small VGG without batch norm for 32x32 colour images; d = 357,706.

Sun, Qian, Chen 2021 train "a small VGG" on CIFAR-10 and do not say which; this one is ours. Three
blocks of two 3x3 convolutions (32, 64, 128 channels) with max-pooling, a hidden dense layer of 64.
"""

from torch import nn

from fedldp.errors import ConfigError

_BLOCKS = (32, 64, 128)
_HIDDEN = 64


def build(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return the model for images of shape (channels, height, width), sides of 8 or more."""
    if len(input_shape) != 3 or min(input_shape[1:]) < 8:
        raise ConfigError(
            f"model = vgg: examples of shape {input_shape} are no images of 8x8 or more; "
            "use mlp or logistic"
        )
    channels, height, width = input_shape
    layers: list[nn.Module] = []
    for wider in _BLOCKS:
        layers += [nn.Conv2d(channels, wider, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(wider, wider, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        channels, height, width = wider, height // 2, width // 2
    layers += [nn.Flatten(), nn.Linear(channels * height * width, _HIDDEN), nn.ReLU()]
    layers += [nn.Linear(_HIDDEN, num_classes)]
    model = nn.Sequential(*layers)
    # Without batch norm, torch's default initialisation starves so deep a stack of its signal.
    for layer in model:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return model
