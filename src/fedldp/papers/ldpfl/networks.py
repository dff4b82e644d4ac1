"""A convolutional network that computes features, trained by a client or on public data.

A network that a client trains never leaves the client. Source: Chamikara et al. 2022, "Local
Differential Privacy for Federated Learning", Section 4.1 and Appendix A. The activations, the
dropout rates and the hidden layer of the paper's MNIST network appear in its Fig. 13, which we do
not have. ELU and the dropout rates are those of the authors' code for the deep network,
https://github.com/chamikara1986/LDPFL. The 512 hidden units and their dropout rate of 0.2 are our
choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedldp.algorithms.preset import Settings
from fedldp.core.errors import RunError
from fedldp.core.randomness import Stream, torch_seeded
from fedldp.data.examples import Examples
from fedldp.papers.ldpfl.architecture import KERNEL, Architecture
from fedldp.training.augmentation import augmented
from fedldp.training.local_sgd import batches, evaluate
from fedldp.training.tensors import as_tensors, to_device

KERNEL_PENALTY = 1e-4
_DROPOUT = (0.2, 0.3, 0.4)
_HIDDEN = 512
_HIDDEN_DROPOUT = 0.2
_RATE = 1e-3  # both in the text and in the code
_PIECE = 500  # the number of examples whose features are computed together

Body = Mapping[str, NDArray[Any]]
"""The parameters and running statistics of a network's body, by name."""


class FeatureNet(nn.Module):
    """The network of an ``Architecture``: ``body`` gives the features, ``head`` the logits."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        inward = architecture.input_shape[0]
        blocks = _deep_block if architecture.layers == "deep" else _mnist_block
        layers: list[nn.Module] = []
        for block, outward in enumerate(architecture.channels):
            layers += blocks(block, inward, outward, int(architecture.padding))
            inward = outward
        layers.append(nn.Flatten())
        size, classes = architecture.num_features, architecture.num_classes
        self.head: nn.Module
        if architecture.layers == "deep":
            self.body, self.head = nn.Sequential(*layers), nn.Linear(size, classes)
            return
        # The last batch norm (layer 17) follows the flattened features (16), not the max-pool (15).
        self.body = nn.Sequential(*layers[:-2], layers[-1], nn.BatchNorm1d(size))
        self.head = nn.Sequential(
            *(nn.Linear(size, _HIDDEN), nn.ELU(), nn.BatchNorm1d(_HIDDEN)),
            *(nn.Dropout(_HIDDEN_DROPOUT), nn.Linear(_HIDDEN, classes)),
        )

    def forward(self, examples: Tensor) -> Tensor:
        """Return the logits, shape (batch, num_classes)."""
        return self.head(self.body(examples))  # type: ignore[no-any-return]

    def features(self, examples: NDArray[np.float32], device: torch.device) -> NDArray[np.float32]:
        """Return the feature vectors of examples, shape (n, num_features), without dropout.

        The features are finite: an overflow becomes the largest number, and NaN becomes 0. Refusing
        an example would reveal something about it, and a public encoder may overflow on some
        examples.
        """
        # The weights' memory layout decides how sums are rounded, so trained and restored nets use
        # the same one.
        self.eval().to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        with torch.no_grad():
            pieces = [
                self.body(to_device(torch.from_numpy(examples[start : start + _PIECE]), device))
                for start in range(0, len(examples) or 1, _PIECE)
            ]
        return torch.cat(pieces).nan_to_num().cpu().numpy()

    def blank(self) -> None:
        """Set the whole body to 0, so that the features of every example are zeros."""
        with torch.no_grad():
            for value in self.body.state_dict().values():
                value.zero_()


def _deep_block(block: int, inward: int, outward: int, padding: int) -> list[nn.Module]:
    return [
        *(nn.Conv2d(inward, outward, KERNEL, padding=padding), nn.ELU(), nn.BatchNorm2d(outward)),
        *(nn.Conv2d(outward, outward, KERNEL, padding=padding), nn.ELU(), nn.BatchNorm2d(outward)),
        *(nn.MaxPool2d(2), nn.Dropout(_DROPOUT[min(block, len(_DROPOUT) - 1)])),
    ]


def _mnist_block(block: int, inward: int, outward: int, padding: int) -> list[nn.Module]:
    return [
        *(nn.Conv2d(inward, outward, KERNEL, padding=padding), nn.ELU(), nn.BatchNorm2d(outward)),
        *(nn.Conv2d(outward, outward, KERNEL, padding=padding), nn.ELU()),
        *(nn.MaxPool2d(2), nn.BatchNorm2d(outward)),
    ]


def build(architecture: Architecture, stream: Stream) -> FeatureNet:
    """Return a network with random weights from ``stream``."""
    with torch_seeded(stream):
        return FeatureNet(architecture)


def restore(architecture: Architecture, body: Body) -> FeatureNet:
    """Return a network whose body comes from ``state_of``; its head is arbitrary.

    Raises:
        RunError: the arrays belong to another network.
    """
    net = build(architecture, Stream(bytes(32), simulated=True))  # any key: the body is replaced
    try:
        net.body.load_state_dict({n: torch.from_numpy(value) for n, value in body.items()})
    except RuntimeError as error:
        raise RunError("the encoder is not a network of the agreed architecture") from error
    return net


def state_of(net: FeatureNet) -> dict[str, NDArray[Any]]:
    """Return the parameters and running statistics of the body of ``net``."""
    return {n: value.cpu().contiguous().numpy() for n, value in net.body.state_dict().items()}


def num_right(net: FeatureNet, examples: Examples, device: torch.device) -> int:
    """Return how many examples the whole network, with its head, classifies correctly."""
    net.to(device)
    pieces = (slice(start, start + _PIECE) for start in range(0, len(examples), _PIECE))
    return sum(evaluate(net, examples.taken(piece), device).right for piece in pieces)


def train(
    net: FeatureNet,
    examples: Examples,
    how: Settings,
    *,
    draw: Callable[[str], Stream],
    device: torch.device,
) -> bool:
    """Train ``net`` with RMSprop on the cross-entropy plus an L2 penalty on the kernels.

    Args:
        net: its weights are changed.
        examples: the examples to train on; shape (n, channels, height, width).
        how: the preset's settings, of which those of the encoder say how: step s has the size
            0.001/(1 + decay s), like Keras's ``decay``.
        draw: gives the stream for a purpose.
        device: where to train.

    Returns:
        Whether all weights of ``net`` are finite; they are not if training diverged.
    """
    net.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    kernels = [layer.weight for layer in net.modules() if isinstance(layer, nn.Conv2d)]
    others = [p for p in net.parameters() if all(p is not kernel for kernel in kernels)]
    # The derivative of c |w|^2 is 2 c w. Decay 0.9 and eps 1e-7 are Keras's defaults for RMSprop.
    groups: list[dict[str, Any]] = [
        {"params": kernels, "weight_decay": 2 * KERNEL_PENALTY},
        {"params": others},
    ]
    optimizer = torch.optim.RMSprop(groups, lr=_RATE, alpha=0.9, eps=1e-7)
    features, labels = as_tensors(examples)
    # A batch norm on vectors needs two examples. Torch would refuse a single example, and the
    # refusal would reveal that there is only one.
    least = 2 if any(isinstance(layer, nn.BatchNorm1d) for layer in net.modules()) else 1
    net.train()
    moves = None if how.encoder_augmentation == "none" else draw("encoder augmentation").generator()
    order = batches(
        len(examples), how.encoder_epochs, how.encoder_batch_size, draw("encoder batches")
    )
    with torch_seeded(draw("encoder dropout")):
        for step, indices in enumerate(order):
            if len(indices) < least:
                continue
            images = features[indices]
            if moves is not None:
                images = augmented(images, moves, how.encoder_augmentation)
            batch = to_device(images, device)
            if how.encoder_decay:
                for group in optimizer.param_groups:
                    group["lr"] = _RATE / (1 + how.encoder_decay * step)
            loss = functional.cross_entropy(net(batch), labels[indices].to(device))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return all(bool(parameter.isfinite().all()) for parameter in net.parameters())
