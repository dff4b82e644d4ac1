"""Two 5x5 convolutions of 10 and 20 channels, two dense layers; d = 21,840 for 28x28 grey images.

The two-layer CNN of Sun, Qian, Chen 2021: 320-50-10 after the convolutions.
"""

from torch import Tensor, nn
from torch.nn import functional

from fedldp.errors import ConfigError


class Cnn(nn.Module):
    """conv 5x5 - pool - conv 5x5 - pool - dense 50 - dense; ReLU after each but the last."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        side = [((size - 4) // 2 - 4) // 2 for size in (height, width)]
        self.conv1 = nn.Conv2d(channels, 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        self.dense1 = nn.Linear(20 * side[0] * side[1], 50)
        self.dense2 = nn.Linear(50, num_classes)

    def forward(self, examples: Tensor) -> Tensor:
        """Return the logits, shape (batch, num_classes)."""
        hidden = functional.relu(functional.max_pool2d(self.conv1(examples), 2))
        hidden = functional.relu(functional.max_pool2d(self.conv2(hidden), 2))
        hidden = functional.relu(self.dense1(hidden.flatten(1)))
        return self.dense2(hidden)  # type: ignore[no-any-return]


def build(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return the model for images of shape (channels, height, width), 16x16 or larger."""
    if len(input_shape) != 3 or min(input_shape[1:]) < 16:
        raise ConfigError(
            f"model = cnn: examples of shape {input_shape} are no images of 16x16 or more; "
            "use mlp or logistic"
        )
    return Cnn(input_shape, num_classes)
