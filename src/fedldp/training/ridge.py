"""Ridge regression in closed form, from a client's examples or from statistics of them.

The labels are one-hot vectors minus their mean, in contrasts of the classes. Examples, with a 1 for
the intercept if the model has one, are scaled to norm 1. This does not change a linear model's
predictions; it bounds the largest eigenvalue of the examples' mean product by 1, and it bounds the
norm of statistics. An example that is zero, or holds NaN or infinity, is replaced by zeros.

A positive ridge always gives a solution, whatever the examples are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedldp.protocol.roles import Batch, Update
from fedldp.protocol.wire import Broadcast, Sensitive
from fedldp.training.batched_sgd import GROUP
from fedldp.training.linear_models import STATISTICS, Floats, LinearModel, Statistics, basis


@dataclass(frozen=True, kw_only=True)
class RidgeSolution:
    """The weights that best fit a client's examples, near the broadcast weights, in closed form.

    With x of norm 1, y in contrasts, and the contrasts V of the broadcast weights, the change D
    minimises the mean of |y - (V + D) x|^2 plus ``ridge`` |D|^2. If the broadcast weights are zero,
    this is ridge regression.

    Attributes:
        model: the shape of the linear model.
        ridge: lambda, positive.
    """

    model: LinearModel
    ridge: float

    def group(self, most_examples: int) -> int:
        """Return how many clients are encoded at once; each solution is computed alone."""
        return GROUP

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        """Return the clients' weights, float32, shape (n, d)."""
        before = torch.from_numpy(self.model.in_contrasts(broadcast.weights[None])[0])
        targets = basis(self.model.classes).T
        rows = np.empty((len(batch), broadcast.weights.size), np.float32)
        for place, own in enumerate(batch.rows):
            x = unit_examples(batch.examples.features[own], self.model)
            told = (torch.from_numpy(x) @ before.T).numpy()
            change = solution(x, targets[batch.examples.labels[own]] - told, self.ridge)
            with np.errstate(over="ignore"):  # beyond float32 the row is not finite, as in training
                rows[place] = broadcast.weights + self.model.weights(change)
        return Sensitive(Update(rows=rows))


@dataclass(frozen=True, kw_only=True)
class OwnStatistics:
    """Statistics of a client's examples, in addition to the weights; see ``Statistics``.

    Attributes:
        statistics: the kind of statistics.
    """

    statistics: Statistics

    def group(self, most_examples: int) -> int:
        """Return how many clients are encoded at once; statistics are computed client by client."""
        return GROUP

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        """Return the weights unchanged, and statistics of shape (n, size)."""
        model = self.statistics.model
        targets = basis(model.classes).T
        found = np.zeros((len(batch), self.statistics.size))
        for place, own in enumerate(batch.rows):
            x = torch.from_numpy(unit_examples(batch.examples.features[own], model))
            y = torch.from_numpy(targets[batch.examples.labels[own]])
            count = max(1, len(own))
            products, moments = x.T @ x / count, y.T @ x / count
            found[place] = self.statistics.join(products.numpy(), moments.numpy())
        rows = np.repeat(broadcast.weights[None], len(batch), axis=0)
        return Sensitive(Update(rows=rows, aux={STATISTICS: found}))


def unit_examples(features: NDArray[np.float32], model: LinearModel) -> Floats:
    """Return examples with the feature of the intercept, scaled to norm 1, shape (n, p)."""
    found = np.ones((len(features), model.inputs))
    found[:, : model.features] = features.reshape(len(features), model.features)
    norms = np.sqrt(np.square(found).sum(axis=1))
    usable = np.isfinite(norms) & (norms > 0)
    found[~usable] = 0
    found[usable] /= norms[usable, None]
    return found


def solution(x: Floats, y: Floats, ridge: float) -> Floats:
    """Return V that minimises the mean of |y - V x|^2 plus ``ridge`` |V|^2, shape (targets, p).

    With fewer examples than features, V = y' (x x' + n ridge)^-1 x, which needs a linear system
    with one row for each example.

    Args:
        x: examples of norm at most 1, shape (n, p).
        y: their targets, shape (n, targets).
        ridge: positive; at least 1e-6, so that the system can be solved.
    """
    examples, targets = torch.from_numpy(x), torch.from_numpy(y)
    count, inputs = x.shape
    if count < inputs:
        return (_solved(examples @ examples.T, targets, count * ridge).T @ examples).numpy()
    return _solved(examples.T @ examples, examples.T @ targets, count * ridge).T.numpy()


def _solved(system: torch.Tensor, right: torch.Tensor, added: float) -> torch.Tensor:
    system.diagonal().add_(added)
    factor, _ = torch.linalg.cholesky_ex(system)
    return torch.cholesky_solve(right, factor)
