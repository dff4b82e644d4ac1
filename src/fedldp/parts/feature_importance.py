"""Importance of input features, from the weights of a model's first layer.

Source: Talaei, Izadi, "Adaptive Differential Privacy in Federated Learning: A Priority-Based
Approach", 2024 (arXiv 2401.02453), sections III-C and III-D.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from fedldp.data import Examples
from fedldp.errors import ConfigError
from fedldp.parts.local_sgd import as_tensors, layout_of, load_weights
from fedldp.wire import Layout, Vector

Noisier = Annotated[
    Literal["least", "most"],
    Field(description="which features get more noise: the least important, or the most"),
]
NoisierShare = Annotated[
    float, Field(ge=0, le=1, description="share of the features that get more noise, 0 to 1")
]

_BLOCK = 2000
"""Activations of the first layer computed at a time, so that they stay in a processor's cache."""


@dataclass(frozen=True, eq=False)
class FirstLayer:
    """The dense layer on the flattened input: there every feature has weights of its own.

    Attributes:
        model: begins with nn.Flatten and nn.Linear; its parameters are overwritten.
        device: where the model is.
    """

    model: nn.Sequential
    device: torch.device

    @classmethod
    def of(cls, model: nn.Module, name: str, device: torch.device) -> FirstLayer:
        """Return the first layer of the model called ``name``.

        Raises:
            ConfigError: it is not dense, or not on the flattened input.
        """
        kinds = [type(part) for part in list(model.children())[:2]]
        if not isinstance(model, nn.Sequential) or kinds != [nn.Flatten, nn.Linear]:
            raise ConfigError(
                f"model = {name}: its first layer is not a dense one on the flattened input, so "
                "features have no weights of their own; use mlp or logistic, or an nn.Sequential "
                "that begins with nn.Flatten() and nn.Linear"
            )
        return cls(model, device)

    @property
    def is_last(self) -> bool:
        """Whether nothing is learnt above: the layer's activations are the logits."""
        return not list(self.model[2:].parameters())

    @property
    def layout(self) -> Layout:
        """How the model's parameters lie in one vector; this layer's weights come first."""
        return layout_of(self.model)

    @property
    def num_features(self) -> int:
        """The number of input features, m."""
        return self.layout.shapes[0][1]

    def weights(self, vector: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the layer's weights among those of the model: a view, shape (hidden, m)."""
        return vector[: self.layout.sizes[0]].reshape(self.layout.shapes[0])

    def coordinates(self, features: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which of the model's weights are those of ``features``, shape (m,), as (d,)."""
        chosen = np.zeros(self.layout.size, np.bool_)
        chosen[: self.layout.sizes[0]] = np.tile(features, self.layout.shapes[0][0])
        return chosen

    def sensitivity_importance(
        self, vector: Vector, examples: Examples, shift: float
    ) -> NDArray[np.float64]:
        """Return |accuracy change| when ``shift`` is added to all weights of one feature.

        That adds shift x_i to every activation of the layer, the same to all of them: so each
        example is evaluated once for every value that is among its features. Values of 0 change
        nothing.

        Args:
            vector: the model's weights, shape (d,).
            examples: on which accuracy is measured.
            shift: sigma sqrt(2/pi), the mean absolute value of the noise.

        Returns:
            One number from 0 to 1 for each feature, shape (m,).

        Source: section III-C.
        """
        load_weights(self.model, self.layout, vector)
        self.model.eval()
        with torch.no_grad():
            features, labels = (tensor.to(self.device) for tensor in as_tensors(examples))
            inputs = features.flatten(1)
            activations = self.model[1](inputs)
            right = self._right(activations, labels)
            rows, columns = inputs.nonzero(as_tuple=True)
            levels, level = torch.unique(inputs[rows, columns], return_inverse=True)
            pairs, place = torch.unique(rows * len(levels) + level, return_inverse=True)
            example, shifts = pairs // len(levels), shift * levels[pairs % len(levels)]
            still = torch.empty(len(pairs), dtype=torch.bool, device=self.device)
            for start in range(0, len(pairs), _BLOCK):
                block = slice(start, start + _BLOCK)
                moved = activations[example[block]].add_(shifts[block, None])
                still[block] = self._right(moved, labels[example[block]])
            change = still[place].double() - right[rows].double()
            total = torch.zeros(inputs.shape[1], dtype=torch.float64, device=self.device)
            total.index_add_(0, columns, change)
        changed: NDArray[np.float64] = np.abs(total.cpu().numpy()) / len(examples)
        return changed

    def _right(self, activations: Tensor, labels: Tensor) -> Tensor:
        """Return whether the layers above classify rightly, shape (n,)."""
        return self.model[2:](activations).argmax(1) == labels  # type: ignore[no-any-return]


def variance_importance(before: Vector, after: Vector) -> NDArray[np.float64]:
    """Return how much the weights of each feature changed, times their size (eq. 6).

    FI_i = sum over j of Var(w_ij) |w_ij|, with Var the variance of the pair (before, after) and
    w_ij on the right the weight after.

    Args:
        before: the last global weights of the first layer, shape (hidden, m).
        after: the client's weights after training, of the same shape.

    Returns:
        One number for each feature, shape (m,).

    Source: section III-D.
    """
    pair = np.stack([before, after]).astype(np.float64)
    importance: NDArray[np.float64] = (pair.var(axis=0) * np.abs(pair[1])).sum(axis=0)
    return importance


def pick_features(
    importance: NDArray[np.float64], share: float, which: Literal["least", "most"]
) -> NDArray[np.bool_]:
    """Return which features are among the ``share`` of least or most important, shape (m,).

    Of equally important features the first ones count as less important.
    """
    count = round(share * importance.size)
    ascending = np.argsort(importance, kind="stable")
    chosen = np.zeros(importance.size, np.bool_)
    chosen[ascending[:count] if which == "least" else ascending[importance.size - count :]] = True
    return chosen
