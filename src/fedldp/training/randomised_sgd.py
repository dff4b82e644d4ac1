"""SGD on features of images, with gradients that are randomised one by one; and a tester.

Source: ours. Randomising gradients one by one follows Duchi, Jordan, Wainwright 2013, "Local
Privacy and Statistical Minimax Rates".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedldp.core.randomness import torch_seeded
from fedldp.data.examples import Examples
from fedldp.data.oriented_gradients import OrientedGradients
from fedldp.mechanisms import Mechanism
from fedldp.models import layout_of_module
from fedldp.protocol.roles import Batch, Client, Score, Update
from fedldp.protocol.wire import Broadcast, Sensitive, Vector
from fedldp.training.batched_sgd import train_alone
from fedldp.training.local_sgd import evaluate
from fedldp.training.portions import indices_of_round, kept_order
from fedldp.training.single_gradients import single_gradients
from fedldp.training.tensors import load_weights

PIECE = 200
"""The number of examples whose gradients are computed at a time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomisedSgd:
    """The local update: SGD with gradients that are randomised one by one, each example used once.

    Attributes:
        features: the public encoder of images.
        mechanism: the randomiser of a gradient divided by ``clip``.
        clip: bound on the gradient of one example, in the mechanism's norm.
        rounds: the number of rounds of the run; an example is used in one of them.
        batch_size: examples in one step.
        learning_rate: step size.
        model: the model on the features.
        device: where gradients are computed.
        class_weights: a factor for each class on an example's gradient, before it is clipped.
    """

    features: OrientedGradients
    mechanism: Mechanism
    clip: float
    rounds: int
    batch_size: int
    learning_rate: float
    model: nn.Module
    device: torch.device
    class_weights: Tensor | None = None

    def group(self, most_examples: int) -> int:
        """Return 1: clients train one after another."""
        return 1

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        """Return the clients' weights after this round's examples, float32, shape (n, d)."""
        return train_alone(batch, lambda client: self._once(broadcast, client))

    def _once(self, broadcast: Broadcast, client: Client) -> Vector:
        kept = client.store.arrays(
            "trained",
            lambda: {"weights": self._train(broadcast, client)},
            round=broadcast.round,
        )
        return kept["weights"]

    def _train(self, broadcast: Broadcast, client: Client) -> Vector:
        weights, mechanism = broadcast.weights, self.mechanism
        order = kept_order(client, self.rounds)
        indices = indices_of_round(order, broadcast.round, self.rounds)
        features = self.features(client.examples.features[indices])
        labels = client.examples.labels[indices]
        stream = client.fresh("mechanism")
        with torch_seeded(client.fresh("model")):
            for start in range(0, len(indices), self.batch_size):
                batch = slice(start, start + self.batch_size)
                aggregate = mechanism.aggregate(weights.size)
                for gradient in self._gradients(weights, features[batch], labels[batch]):
                    aggregate.add(mechanism.encode(gradient / self.clip, stream))
                step = self.learning_rate * self.clip * aggregate.mean()
                weights = (weights - step).astype(np.float32)
        return weights

    def _gradients(
        self, weights: Vector, features: NDArray[np.float32], labels: NDArray[np.int64]
    ) -> Iterator[NDArray[np.float64]]:
        """Yield each example's gradient of the cross-entropy at ``weights``, shape (d,).

        Zeros replace gradients with NaN or infinity, because a server may choose weights that cause
        such gradients.
        """
        load_weights(self.model, layout_of_module(self.model), weights)
        self.model.train()
        for start in range(0, len(labels), PIECE):
            piece = slice(start, start + PIECE)
            found = single_gradients(
                self.model,
                torch.from_numpy(features[piece]).to(self.device),
                torch.from_numpy(labels[piece]).to(self.device),
                self.class_weights,
            )
            rows = torch.cat(
                [found[name].flatten(1) for name, _ in self.model.named_parameters()], 1
            )
            rows[~rows.isfinite().all(1)] = 0  # a refusal would reveal something about one example
            yield from rows.cpu().numpy().astype(np.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreOnFeatures:
    """The tester: each client encodes and classifies a part of the test set.

    Attributes:
        features: the public encoder of images.
        num_clients: the number of clients that divide the test set among them.
        model: the model on the features.
        device: where to test.
    """

    features: OrientedGradients
    num_clients: int
    model: nn.Module
    device: torch.device

    def __call__(self, broadcast: Broadcast, client: Client, test: Examples) -> Score:
        """Return the score of the broadcast's weights on this client's part."""
        part = slice(client.index, None, self.num_clients)
        kept = client.store.arrays("test", lambda: {"features": self.features(test.features[part])})
        load_weights(self.model, layout_of_module(self.model), broadcast.weights)
        return evaluate(self.model, Examples(kept["features"], test.labels[part]), self.device)
