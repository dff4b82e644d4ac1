"""What an example does to a model: confidences and gradients, as the adversary computes them.

``matching`` finds an image that trains like a client's, for models without a dense first layer.
Using Adam on the signs of gradients, it searches for the image that changes the weights in the
direction that was sent, with a penalty on the image's total variation. The local steps are
simulated as the client takes them on its one image, because after five steps the change of the
weights no longer lies along the first gradient. The search begins at the mean of public images of
the guessed class.

Source: Geiping, Bauermeister, Droege, Moeller 2020, "Inverting Gradients: How easy is it to break
privacy in federated learning?", eq. 4, and Section 6 on several local steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.func import functional_call
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


VARIATION = 0.03
"""Weight of the total variation, relative to the range of pixels."""

_RATE = 0.1
_MOST_LOCAL = 5
"""The largest number of local steps that are simulated; additional steps are left out."""


def matching(scoring: Scoring, steps: int, update: Floats, label: int, start: Floats) -> Floats:
    """Return the image, shape (pixels,), that explains the first round's update best.

    Args:
        scoring: the model.
        steps: the number of steps of the search.
        update: the update of one client, shape (d,).
        label: the guessed class.
        start: the image to begin with, shape (pixels,).
    """
    scenario = scoring.scenario
    low, high = float(scenario.public.features.min()), float(scenario.public.features.max())
    scoring.load(scenario.states[0].weights)
    scoring.module.eval()
    weights = {name: p.detach() for name, p in scoring.module.named_parameters()}
    target = torch.from_numpy(update).float()
    answer = torch.tensor([label])
    # If a pixel is the same in all images, the gradient of its variation would stay 0.
    generator = torch.Generator().manual_seed(scenario.seed)
    noise = torch.randn((1, *scenario.problem.input_shape), generator=generator)
    image = torch.from_numpy(start).float().reshape(noise.shape) + 0.05 * (high - low) * noise
    image = image.clamp(low, high).requires_grad_()
    optimizer = torch.optim.Adam([image], lr=_RATE * (high - low))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    with one_thread():
        for _ in range(steps):
            change = _trained(scoring, weights, image, answer)
            cosine = functional.cosine_similarity(change, target, dim=0)
            objective = 1 - cosine + VARIATION / (high - low) * _total_variation(image)
            (slope,) = torch.autograd.grad(objective, [image])
            image.grad = slope.sign()
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                image.clamp_(low, high)
    return image.detach().double().numpy().ravel()


def _trained(
    scoring: Scoring, weights: dict[str, torch.Tensor], image: torch.Tensor, answer: torch.Tensor
) -> torch.Tensor:
    """Return the change from a client's steps, shape (d,), differentiable in the client's image."""
    config, now = scoring.scenario.config, dict(weights)
    now = {name: value.requires_grad_() for name, value in now.items()}
    for _ in range(min(config.local_epochs, _MOST_LOCAL)):
        loss = functional.cross_entropy(functional_call(scoring.module, now, (image,)), answer)
        rows = torch.autograd.grad(loss, list(now.values()), create_graph=True)
        now = {
            name: value - config.learning_rate * row
            for (name, value), row in zip(now.items(), rows, strict=True)
        }
    return torch.cat([(now[name] - weights[name]).flatten() for name in weights])


def _total_variation(image: torch.Tensor) -> torch.Tensor:
    across = (image[..., 1:] - image[..., :-1]).abs().mean()
    down = (image[..., 1:, :] - image[..., :-1, :]).abs().mean()
    return across + down
