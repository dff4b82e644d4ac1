"""Importance of input features, from the weights of a model's first layer.

Source: Talaei, Izadi, "Adaptive Differential Privacy in Federated Learning: A Priority-Based
Approach", 2024 (arXiv 2401.02453), sections III-C and III-D.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError
from fedldp.protocol.wire import Layout, Vector


@dataclass(frozen=True)
class FirstLayer:
    """The dense layer on the flattened input, in which every feature has its own weights.

    Attributes:
        layout: the model's layout; this layer's weights come first.
    """

    layout: Layout

    @classmethod
    def of(cls, layout: Layout, name: str, input_shape: tuple[int, ...]) -> FirstLayer:
        """Return the first layer of the model called ``name``, judged by its layout alone.

        Raises:
            ConfigError: the layer is not dense, or does not take the flattened input.
        """
        shape = layout.shapes[0]
        if len(shape) != 2 or shape[1] != math.prod(input_shape):
            raise not_dense(name)
        return cls(layout)

    @property
    def is_last(self) -> bool:
        """Whether it is the model's only layer, so that its activations are the logits."""
        return len({name.rpartition(".")[0] for name in self.layout.names}) == 1

    @property
    def num_features(self) -> int:
        """The number of input features, m."""
        return self.layout.shapes[0][1]

    def weights(self, vector: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the layer's part of the model's weights: a view, shape (hidden, m)."""
        return vector[: self.layout.sizes[0]].reshape(self.layout.shapes[0])

    def coordinates(self, features: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a mask of the model's weights, shape (d,), for the features in a mask (m,)."""
        chosen = np.zeros(self.layout.size, np.bool_)
        chosen[: self.layout.sizes[0]] = np.tile(features, self.layout.shapes[0][0])
        return chosen


def not_dense(name: str) -> ConfigError:
    """Return the error for a model called ``name`` whose features have no weights of their own."""
    return ConfigError(
        f"model = {name}: its first layer is not a dense layer on the flattened input, so features "
        "have no weights of their own; use mlp or logistic, or an nn.Sequential that begins with "
        "nn.Flatten() and nn.Linear"
    )


def variance_importance(before: Vector, after: Vector) -> NDArray[np.float64]:
    """Return how much each feature's weights changed, times their size (eq. 6).

    FI_i = sum over j of Var(w_ij) |w_ij|, where Var is the variance of the pair (before, after),
    and the w_ij in |w_ij| is the weight after training.

    Args:
        before: the global weights of the first layer, before training, shape (hidden, m).
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
    """Return which features belong to the least or most important ``share``, shape (m,).

    Among equally important features, the first ones count as less important.
    """
    count = round(share * importance.size)
    ascending = np.argsort(importance, kind="stable")
    chosen = np.zeros(importance.size, np.bool_)
    chosen[ascending[:count] if which == "least" else ascending[importance.size - count :]] = True
    return chosen
