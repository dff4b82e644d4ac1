"""The models that come with the package: one function each, listed in ``MODELS``.

Each takes (input_shape, num_classes). The first line of its docstring describes the model, as
``fedldp list models`` shows it.
"""

from fedldp.core.errors import ConfigError
from fedldp.models._layers import (
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPool,
    Relu,
    Start,
)


def cnn(input_shape: tuple[int, ...], num_classes: int) -> list[Layer]:
    """Two 5x5 convolutions (10, 20 channels), two dense layers; d = 21,840 for 28x28 grey images.

    The two-layer CNN of Sun, Qian, Chen 2021: 320-50-10 after the convolutions.

    Args:
        input_shape: (channels, height, width), 16x16 or larger.
        num_classes: the number of logits.

    Raises:
        ConfigError: the examples are not images, or are too small.
    """
    return _two_layers("cnn", input_shape, num_classes, (10, 20))


def cnn_32(input_shape: tuple[int, ...], num_classes: int) -> list[Layer]:
    """Two 5x5 convolutions (16, 32 channels), two dense layers; d = 39,408 for 28x28 grey images.

    The cnn with more channels: Sun, Qian, Chen 2021 do not say how many channels their "two-layer
    CNN" has.

    Args:
        input_shape: (channels, height, width), 16x16 or larger.
        num_classes: the number of logits.

    Raises:
        ConfigError: the examples are not images, or are too small.
    """
    return _two_layers("cnn_32", input_shape, num_classes, (16, 32))


def linear(input_shape: tuple[int, ...], num_classes: int) -> list[Layer]:
    """Linear classifier without a bias, all weights zero at the start; d = 1,280 for 128 inputs."""
    return [Flatten(), Dense(num_classes, bias=False, start="zeros")]


def logistic(input_shape: tuple[int, ...], num_classes: int) -> list[Layer]:
    """Multinomial logistic regression, all weights zero at the start; d = 650 for 8x8 digits."""
    return [Flatten(), Dense(num_classes, start="zeros")]


def mlp(input_shape: tuple[int, ...], num_classes: int) -> list[Layer]:
    """One hidden layer of 256 units; d = 203,530 for 28x28 grey images and 10 classes."""
    return [Flatten(), Dense(256), Relu(), Dense(num_classes)]


def mlp_linear(input_shape: tuple[int, ...], num_classes: int) -> list[Layer]:
    """Like mlp, without an activation between its layers: the network of NbAFL's authors' code.

    Source: https://github.com/AdamWei-boop/Federated-Learning-with-Local-Differential-Privacy.
    """
    return [Flatten(), Dense(256), Dense(num_classes)]


def mlp_64(input_shape: tuple[int, ...], num_classes: int) -> list[Layer]:
    """One hidden layer of 64 units; d = 737,994 for 11,520 inputs and 10 classes."""
    return [Flatten(), Dense(64), Relu(), Dense(num_classes)]


def mlp_2048(input_shape: tuple[int, ...], num_classes: int) -> list[Layer]:
    """One hidden layer of 2,048 units; d = 20,994,058 for 10,240 inputs and 10 classes."""
    return [Flatten(), Dense(2048), Relu(), Dense(num_classes)]


def mlp_2048_dropout(input_shape: tuple[int, ...], num_classes: int) -> list[Layer]:
    """mlp_2048 with dropout of 0.1, also in tests, and logits of at least 0, as LDPFL's authors'.

    The network of the code of Chamikara et al. 2022, https://github.com/chamikara1986/LDPFL, which
    never puts it into evaluation mode.
    """
    dropout = Dropout(0.1, in_tests=True)
    return [Flatten(), Dense(2048), Relu(), dropout, Dense(num_classes), Relu()]


def vgg(input_shape: tuple[int, ...], num_classes: int) -> list[Layer]:
    """A small VGG without batch norm for 32x32 colour images; d = 418,794.

    Sun, Qian, Chen 2021 train "a small VGG" on CIFAR-10 and do not say which; this one is our
    choice. Three blocks of two 3x3 convolutions (32, 64, 128 channels) with max-pooling, then a
    hidden dense layer of 64 units.

    Args:
        input_shape: (channels, height, width), sides of 8 or more.
        num_classes: the number of logits.

    Raises:
        ConfigError: the examples are not images, or are too small.
    """
    # Use He initialisation: with torch's default and without batch norm, the signal in such a deep
    # network vanishes.
    return _small_vgg("vgg", input_shape, num_classes, "he", [])


def vgg_batch_norm(input_shape: tuple[int, ...], num_classes: int) -> list[Layer]:
    """The vgg with batch norm after each convolution, and torch's initial weights; d = 420,586.

    A trial of ours: Sun, Qian, Chen 2021 do not mention batch norm. Its running means and variances
    are sent like weights.

    Args:
        input_shape: (channels, height, width), sides of 8 or more.
        num_classes: the number of logits.

    Raises:
        ConfigError: the examples are not images, or are too small.
    """
    return _small_vgg("vgg_batch_norm", input_shape, num_classes, "torch", [BatchNorm()])


def _small_vgg(
    name: str, input_shape: tuple[int, ...], num_classes: int, start: Start, norm: list[Layer]
) -> list[Layer]:
    """Return three blocks of two convolutions, each followed by ``norm``, and two dense layers."""
    _check_images(name, input_shape, 8)
    layers: list[Layer] = []
    for channels in (32, 64, 128):
        layers += [Conv(channels, 3, padding=1, start=start), *norm, Relu()] * 2
        layers += [MaxPool(2)]
    layers += [Flatten(), Dense(64, start=start), Relu(), Dense(num_classes, start=start)]
    return layers


def _two_layers(
    name: str, input_shape: tuple[int, ...], num_classes: int, channels: tuple[int, int]
) -> list[Layer]:
    """Return a model called ``name`` with the given numbers of channels."""
    _check_images(name, input_shape, 16)
    return [
        *(Conv(channels[0], 5, name="conv1"), MaxPool(2), Relu()),
        *(Conv(channels[1], 5, name="conv2"), MaxPool(2), Relu()),
        *(Flatten(), Dense(50, name="dense1"), Relu()),
        Dense(num_classes, name="dense2"),
    ]


def _check_images(name: str, input_shape: tuple[int, ...], side: int) -> None:
    if len(input_shape) != 3 or min(input_shape[1:]) < side:
        raise ConfigError(
            f"model = {name}: examples of shape {input_shape} are not images of {side}x{side} or "
            "more; use mlp or logistic"
        )


_ALL = (
    *(cnn, cnn_32, linear, logistic, mlp, mlp_64, mlp_2048, mlp_2048_dropout, mlp_linear),
    *(vgg, vgg_batch_norm),
)
MODELS = {made.__name__: made for made in _ALL}
