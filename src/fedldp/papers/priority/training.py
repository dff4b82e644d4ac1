"""A local update that computes the importance of input features in addition to the weights.

Source: Talaei, Izadi, "Adaptive Differential Privacy in Federated Learning: A Priority-Based
Approach", 2024 (arXiv 2401.02453), sections III-C and III-D.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedldp.data.examples import Examples
from fedldp.papers.priority.importance import FirstLayer, not_dense, variance_importance
from fedldp.protocol.roles import Batch, Client, LocalUpdate, Update
from fedldp.protocol.wire import Broadcast, Sensitive, Vector
from fedldp.training.local_sgd import LocalSgd
from fedldp.training.tensors import as_tensors, read_weights

_BLOCK = 2000
"""The number of first-layer activation vectors computed at a time, so that they stay in the
cache."""


def check_dense_first(model: nn.Module, name: str) -> None:
    """Refuse a model called ``name`` that does not begin with nn.Flatten and nn.Linear.

    Raises:
        ConfigError: the model begins differently, whatever its layout looks like.
    """
    kinds = [type(part) for part in list(model.children())[:2]]
    if not isinstance(model, nn.Sequential) or kinds != [nn.Flatten, nn.Linear]:
        raise not_dense(name)


@dataclass(frozen=True, eq=False)
class RankingSgd(LocalUpdate):
    """Plain SGD, followed by the importance of every feature to the client.

    Attributes:
        training: its model begins with nn.Flatten and nn.Linear, see ``check_dense_first``.
        first_layer: the first layer of that model.
        shift: the mean absolute value of the noise, for the importance by sensitivity; None for the
            importance by variance.
    """

    training: LocalSgd
    first_layer: FirstLayer
    shift: float | None

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        """Return the clients' weights, and in ``aux`` the features' "importance", shape (n, m)."""
        found = [self._train(broadcast, client) for client in batch]
        weights, importance = map(np.stack, zip(*found, strict=True))
        return Sensitive(Update(rows=weights, aux={"importance": importance}))

    def _train(self, broadcast: Broadcast, client: Client) -> tuple[Vector, NDArray[np.float64]]:
        self.training.train(broadcast, client)
        weights = read_weights(self.training.model)  # the weights after training
        if self.shift is not None:
            return weights, sensitivity_importance(
                self.training.model, client.examples, self.shift, self.training.device
            )
        before, after = map(self.first_layer.weights, (broadcast.weights, weights))
        with np.errstate(invalid="ignore"):  # no encoder lets non-finite weights pass
            return weights, variance_importance(before, after)


def sensitivity_importance(
    model: nn.Module, examples: Examples, shift: float, device: torch.device
) -> NDArray[np.float64]:
    """Return |accuracy change| when ``shift`` is added to all weights of one feature at a time.

    Shifting the weights of feature i adds shift x_i equally to every activation of the layer. Each
    example is therefore evaluated once for every distinct value among its features; values of 0
    change nothing.

    Args:
        model: a model on ``device`` that begins with nn.Flatten and nn.Linear.
        examples: the examples on which accuracy is measured.
        shift: sigma sqrt(2/pi), the mean absolute value of the noise.
        device: the model's device.

    Returns:
        One number from 0 to 1 for each feature, shape (m,).

    Source: section III-C.
    """
    assert isinstance(model, nn.Sequential)
    first, rest = model[1], model[2:].eval()
    with torch.no_grad():
        features, labels = (tensor.to(device) for tensor in as_tensors(examples))
        inputs = features.flatten(1)
        activations = first(inputs)
        right = _right(rest, activations, labels)
        rows, columns = inputs.nonzero(as_tuple=True)
        levels, level = torch.unique(inputs[rows, columns], return_inverse=True)
        pairs, place = torch.unique(rows * len(levels) + level, return_inverse=True)
        example, shifts = pairs // len(levels), shift * levels[pairs % len(levels)]
        still = torch.empty(len(pairs), dtype=torch.bool, device=device)
        for start in range(0, len(pairs), _BLOCK):
            block = slice(start, start + _BLOCK)
            moved = activations[example[block]].add_(shifts[block, None])
            still[block] = _right(rest, moved, labels[example[block]])
        change = still[place].double() - right[rows].double()
        total = torch.zeros(inputs.shape[1], dtype=torch.float64, device=device)
        total.index_add_(0, columns, change)
    changed: NDArray[np.float64] = np.abs(total.cpu().numpy()) / len(examples)
    return changed


def _right(rest: nn.Module, activations: Tensor, labels: Tensor) -> Tensor:
    """Return which rows the layers above the first classify correctly, shape (n,)."""
    return rest(activations).argmax(1) == labels  # type: ignore[no-any-return]
