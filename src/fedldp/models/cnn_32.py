"""Two 5x5 convolutions of 16 and 32 channels, two dense layers; d = 39,408 for 28x28 grey images.

The cnn with more channels: Sun, Qian, Chen 2021 do not say how many channels their "two-layer CNN"
has.
"""

from fedldp.models import Layer
from fedldp.models.cnn import two_layers


def build(input_shape: tuple[int, ...], num_classes: int) -> list[Layer]:
    """Return the layers for images of shape (channels, height, width), 16x16 or larger."""
    return two_layers("cnn_32", input_shape, num_classes, (16, 32))
