"""Linear models expressed in contrasts of the classes, and the statistics that determine them.

Adding a number to the logits of all k classes changes no prediction, so k - 1 contrasts of the
classes determine a linear model. In an orthonormal basis, the contrasts have the same norm as the
weights that sum to zero over the classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedldp.core.deferred import linalg
from fedldp.protocol.wire import Layout

Floats = NDArray[np.float64]

STATISTICS = "statistics"
"""The key under which an update carries statistics in addition to its weights."""


@dataclass(frozen=True)
class LinearModel:
    """A matrix of weights, and optionally an intercept for each class.

    Attributes:
        classes: k.
        features: the number of an example's features.
        intercept: whether the model has an intercept, which counts as the weight of a last feature
            that is always 1.
    """

    classes: int
    features: int
    intercept: bool

    @classmethod
    def of(cls, layout: Layout) -> LinearModel:
        """Return the linear model whose parameters have this layout."""
        classes, features = layout.shapes[0]
        return cls(classes, features, len(layout.shapes) > 1)

    @property
    def inputs(self) -> int:
        """The number of features, including the intercept's, p."""
        return self.features + self.intercept

    @property
    def contrasts(self) -> int:
        """The number of contrasts, (k - 1) p."""
        return (self.classes - 1) * self.inputs

    def in_contrasts(self, rows: NDArray[np.floating]) -> Floats:
        """Return the contrasts of n models' weights.

        Args:
            rows: weights of n models, shape (n, d).

        Returns:
            Shape (n, k - 1, p); no bit of a row depends on other rows.
        """
        weights = self.by_class(rows)
        found = np.zeros((len(rows), self.classes - 1, self.inputs))
        for coefficients, own in zip(basis(self.classes).T, weights.swapaxes(0, 1), strict=True):
            found += coefficients[:, None] * own[:, None]
        return found

    def by_class(self, rows: NDArray[np.floating]) -> Floats:
        """Return the weights of each class, with its intercept last.

        Args:
            rows: weights of n models, shape (n, d).

        Returns:
            Shape (n, k, p).
        """
        split = self.classes * self.features
        found = np.empty((len(rows), self.classes, self.inputs))
        found[..., : self.features] = rows[:, :split].reshape(len(rows), self.classes, -1)
        if self.intercept:
            found[..., -1] = rows[:, split:]
        return found

    def weights(self, contrasts: Floats) -> Floats:
        """Return the weights with these contrasts that sum to zero over the classes, shape (d,).

        Args:
            contrasts: shape (k - 1, p).
        """
        return self.of_classes(basis(self.classes).T @ contrasts)

    def of_classes(self, found: Floats) -> Floats:
        """Return weights, shape (d,), from the weights of each class, shape (k, p)."""
        return np.concatenate(
            [found[:, : self.features].ravel(), found[:, self.features :].ravel()]
        )


@lru_cache(maxsize=16)
def basis(classes: int) -> Floats:
    """Return Helmert's orthonormal basis of the contrasts of k classes, shape (k - 1, k).

    >>> basis(2).round(3).tolist()
    [[0.707, -0.707]]
    """
    found: Floats = linalg.helmert(classes)
    found.flags.writeable = False
    return found


@dataclass(frozen=True)
class Statistics:
    """The mean of (x x', contrasts of y times x') over a client's examples, as one vector.

    An entry of the symmetric x x' above the diagonal stands for two entries and is multiplied by
    sqrt(2), so that the vector has the same norm as both matrices together. This norm is at most
    sqrt(2 - 1/k) for |x| = 1.

    Attributes:
        model: the model that the statistics determine.
    """

    model: LinearModel

    @property
    def size(self) -> int:
        """The length of the vector: p (p + 1)/2 + (k - 1) p."""
        inputs = self.model.inputs
        return inputs * (inputs + 1) // 2 + self.model.contrasts

    def join(self, products: Floats, moments: Floats) -> Floats:
        """Return the vector, shape (``size``,).

        Args:
            products: the mean x x', shape (p, p).
            moments: the mean of contrasts times x', shape (k - 1, p).
        """
        upper, factors = _upper(self.model.inputs)
        return np.concatenate([products[upper] * factors, moments.ravel()])

    def split(self, vector: Floats) -> tuple[Floats, Floats]:
        """Return the arguments from which ``join`` makes ``vector``."""
        inputs = self.model.inputs
        upper, factors = _upper(inputs)
        products = np.zeros((inputs, inputs))
        count = factors.size
        products[upper] = vector[:count] / factors
        products += np.triu(products, 1).T
        return products, vector[count:].reshape(-1, inputs)

    def solve(self, vector: Floats, ridge: float) -> Floats:
        """Return the weights of the ridge regression that noisy statistics determine, shape (d,).

        With noise, the products may have negative eigenvalues, which is impossible without noise.
        Negative eigenvalues count as zero, so a positive ``ridge`` always gives a solution.

        Args:
            vector: finite, shape (``size``,).
            ridge: added to every eigenvalue; positive.
        """
        products, moments = self.split(vector)
        values, vectors = np.linalg.eigh(products)
        scaled = moments @ vectors / (np.maximum(values, 0.0) + ridge)
        return self.model.weights(scaled @ vectors.T)


@lru_cache(maxsize=4)
def _upper(size: int) -> tuple[tuple[NDArray[np.intp], NDArray[np.intp]], Floats]:
    """Return the indices on and above the diagonal, and the factors of their entries."""
    rows, columns = np.triu_indices(size)
    return (rows, columns), np.where(rows == columns, 1.0, math.sqrt(2.0))
