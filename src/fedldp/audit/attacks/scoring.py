"""What an example does to a model: confidences and gradients, as the adversary computes them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from fedldp.audit.attacks.scenario import AttackScenario, Floats
from fedldp.protocol.roles import State
from fedldp.training.batched_sgd import single_gradients
from fedldp.training.tensors import load_weights, one_thread

MOST_NUMBERS = 50_000_000
"""The most numbers in the gradients of single examples; if there were more, none are computed."""

_LARGEST = 3e38  # a float32


@dataclass(frozen=True, eq=False)
class Scoring:
    """The model of a scenario, as far as the server can use it.

    Attributes:
        scenario: see ``AttackScenario``.
    """

    scenario: AttackScenario

    @cached_property
    def module(self) -> nn.Module:
        """The model, with the weights that were set last."""
        return self.scenario.config.algorithm(self.scenario.problem).untrained()

    def inputs(self, features: NDArray[np.float32], state: State) -> torch.Tensor | None:
        """Return the model's inputs for examples, or None if the server cannot compute them."""
        config, problem = self.scenario.config, self.scenario.problem
        told = self.scenario.server.publish(state)
        found = config.composition.features(problem, told, features)
        return None if found is None else torch.from_numpy(np.require(found, requirements="W"))

    def confidences(
        self, weights: Floats, inputs: torch.Tensor, labels: NDArray[np.int64]
    ) -> Floats:
        """Return ln p/(1 - p) of the right label's probability p under ``weights``, shape (n,)."""
        self.load(weights)
        self.module.eval()
        with one_thread(), torch.no_grad():
            logits = self.module(inputs).double()
            right = torch.from_numpy(labels)[:, None]
            own = logits.gather(1, right)[:, 0]
            others = logits.scatter(1, right, -torch.inf).logsumexp(1)
        return np.asarray(np.nan_to_num((own - others).numpy(), posinf=1e6, neginf=-1e6))

    def gradients(
        self, state: State, inputs: torch.Tensor, labels: NDArray[np.int64]
    ) -> NDArray[np.float32] | None:
        """Return the gradient of each example at a broadcast's weights, shape (n, d).

        None if they would exceed ``MOST_NUMBERS``.
        """
        if len(labels) * state.weights.size > MOST_NUMBERS:
            return None
        self.load(state.weights)
        self.module.eval()
        with one_thread():
            found = single_gradients(self.module, inputs, torch.from_numpy(labels))
        rows = [found[name].flatten(1) for name, _ in self.module.named_parameters()]
        return np.asarray(np.nan_to_num(torch.cat(rows, 1).numpy()))

    def class_gradients(
        self, state: State, inputs: torch.Tensor, labels: NDArray[np.int64]
    ) -> Floats:
        """Return each class's mean gradient, shape (classes, d); zeros for an empty class."""
        self.load(state.weights)
        self.module.eval()
        parameters = list(self.module.parameters())
        found = np.zeros((self.scenario.problem.num_classes, state.weights.size))
        with one_thread():
            for label in np.unique(labels):
                own = torch.from_numpy(np.flatnonzero(labels == label))
                loss = self.loss(inputs[own], torch.from_numpy(labels)[own])
                rows = torch.autograd.grad(loss, parameters, materialize_grads=True)
                found[label] = torch.cat([row.flatten() for row in rows]).numpy()
        return np.nan_to_num(found)

    def loss(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy under the loaded weights, as a differentiable tensor."""
        return functional.cross_entropy(self.module(inputs), labels)

    def load(self, weights: NDArray[np.floating]) -> None:
        """Set the model's weights, each to the nearest float32."""
        finite = np.nan_to_num(weights, posinf=_LARGEST, neginf=-_LARGEST)
        bounded = finite.clip(-_LARGEST, _LARGEST).astype(np.float32)
        load_weights(self.module, self.scenario.config.layout(self.scenario.problem), bounded)
