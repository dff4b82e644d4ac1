"""Training and testing of a global network on clients' randomised bits, unpacked batch by batch.

Source: Chamikara et al. 2022, "Local Differential Privacy for Federated Learning", Algorithm 1,
line 19.

SGD on features of images, with gradients that are randomised one by one.

Source: ours. Randomising gradients one by one follows Duchi, Jordan, Wainwright 2013, "Local
Privacy and Statistical Minimax Rates".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedldp.core.randomness import torch_seeded
from fedldp.data.examples import Examples
from fedldp.mechanisms import Mechanism
from fedldp.models import layout_of_module
from fedldp.papers.ldpfl.encoding import PIECE, Codes
from fedldp.protocol.roles import Batch, Client, Score, Update
from fedldp.protocol.wire import Broadcast, Sensitive, Vector
from fedldp.training import batched_sgd
from fedldp.training.batched_sgd import OneByOne, Weights, single_gradients
from fedldp.training.draws import drawing
from fedldp.training.local_sgd import LocalSgd, batches, evaluate, gradients
from fedldp.training.portions import indices_of_round, kept_order
from fedldp.training.tensors import load_weights, read_weights


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainOnBits(OneByOne):
    """The local update: epochs of training on the client's randomised bits.

    Attributes:
        codes: gives the bits that the client keeps on its disk.
        sgd: the global network, and how it is trained.
        optimizer: the optimizer that takes the steps.
    """

    codes: Codes
    sgd: LocalSgd
    optimizer: Literal["adam", "sgd"]

    def group(self, most_examples: int) -> int:
        """Return how many clients train at once; see ``batched_sgd``."""
        return self.sgd.group(most_examples)

    def train(self, broadcast: Broadcast, client: Client) -> Vector:
        """Return one client's weights after training, float32, shape (d,)."""
        kept = self.codes.for_training(broadcast, client)
        sgd, model = self.sgd, self.sgd.model
        load_weights(model, layout_of_module(model), broadcast.weights)
        model.train()
        parameters: list[Tensor] = list(model.parameters())
        optimizer = self._optimizer(parameters)
        labels = torch.from_numpy(kept["labels"])
        order = client.fresh("batches")
        with drawing(model, client.fresh("model")):
            for indices in batches(len(labels), sgd.local_epochs, sgd.batch_size, order):
                inputs = torch.from_numpy(self.codes.inputs(kept["bits"][indices])).to(sgd.device)
                answers = labels[torch.from_numpy(indices)].to(sgd.device)
                found = gradients(model, inputs, answers, parameters, sgd.class_weights)
                for parameter, gradient in zip(parameters, found, strict=True):
                    if gradient.stride() != parameter.stride():  # a fused optimizer needs that
                        gradient = torch.empty_like(parameter).copy_(gradient)
                    parameter.grad = gradient
                optimizer.step()
        return read_weights(model)

    def together(self, broadcast: Broadcast, batch: Batch) -> Sensitive[Update]:
        """Return the weights of clients that train at once."""
        sgd = self.sgd
        kept = [self.codes.for_training(broadcast, client) for client in batch]
        bits = np.concatenate([own["bits"] for own in kept])
        labels = torch.from_numpy(np.concatenate([own["labels"] for own in kept]))
        stops = np.cumsum([len(own["labels"]) for own in kept])
        rows, steps = batched_sgd.epochs_of(
            np.split(np.arange(stops[-1]), stops[:-1]),
            sgd.local_epochs,
            sgd.batch_size,
            lambda: batch.fresh("batches"),
        )

        def source(rows: Tensor) -> tuple[Tensor, Tensor]:
            places = rows.cpu()
            inputs = torch.from_numpy(self.codes.inputs(bits[places.reshape(-1).numpy()]))
            return inputs.view(*rows.shape, -1).to(sgd.device), labels[places].to(sgd.device)

        weights = batched_sgd.joined(sgd.model, broadcast, len(batch), sgd.device)
        optimizer = self._optimizer([weights.rows])

        def advance(number: int, own: Weights, found: Weights) -> None:
            weights.rows.grad = torch.cat([found[name].flatten(1) for name in own], 1)
            optimizer.step()

        return batched_sgd.train_together(
            weights,
            rows,
            source,
            batched_sgd.mean_gradients(sgd.model, sgd.class_weights),
            advance,
            steps=steps,
        )

    def _optimizer(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        if self.optimizer == "sgd":
            return torch.optim.SGD(parameters, lr=self.sgd.learning_rate)
        # If it were not fused, the optimizer's passes over the weights would take as long as the
        # gradients.
        return torch.optim.Adam(parameters, lr=self.sgd.learning_rate, fused=True)


@dataclass(frozen=True, eq=False)
class ScoreOnBits:
    """The tester: it evaluates the global network on the bits of a client's test examples."""

    codes: Codes
    sgd: LocalSgd

    def __call__(self, broadcast: Broadcast, client: Client, test: Examples) -> Score:
        """Return the score of the broadcast's weights."""
        kept = self.codes.for_test(broadcast, client, test)
        bits, labels = kept["bits"], kept["labels"]
        model, device = self.sgd.model, self.sgd.device
        load_weights(model, layout_of_module(model), broadcast.weights)
        pieces = [slice(start, start + PIECE) for start in range(0, len(labels), PIECE)]
        scores = [
            evaluate(model, Examples(self.codes.inputs(bits[p]), labels[p]), device) for p in pieces
        ]
        return Score(
            right=sum(score.right for score in scores),
            loss=sum(score.loss for score in scores),
            total=len(labels),
            own_right=self.codes.own_right(client),
        )


GRADIENTS_PIECE = 200
"""The number of examples whose gradients are computed at a time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomisedSgd(OneByOne):
    """The local update: SGD with gradients that are randomised one by one, each example used once.

    Attributes:
        mechanism: the randomiser of a gradient divided by ``clip``.
        clip: bound on the gradient of one example, in the mechanism's norm.
        rounds: the number of rounds of the run; an example is used in one of them.
        sgd: the model on the features, and how it is trained; the weights of classes are factors
            on an example's gradient, before it is clipped.
    """

    mechanism: Mechanism
    clip: float
    rounds: int
    sgd: LocalSgd

    def train(self, broadcast: Broadcast, client: Client) -> Vector:
        """Return one client's weights after this round's examples, shape (d,)."""
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
        features, labels = client.examples.features[indices], client.examples.labels[indices]
        stream = client.fresh("mechanism")
        with torch_seeded(client.fresh("model")):
            for start in range(0, len(indices), self.sgd.batch_size):
                batch = slice(start, start + self.sgd.batch_size)
                aggregate = mechanism.aggregate(weights.size)
                for gradient in self._gradients(weights, features[batch], labels[batch]):
                    aggregate.add(mechanism.encode(gradient / self.clip, stream))
                step = self.sgd.learning_rate * self.clip * aggregate.mean()
                weights = (weights - step).astype(np.float32)
        return weights

    def _gradients(
        self, weights: Vector, features: NDArray[np.float32], labels: NDArray[np.int64]
    ) -> Iterator[NDArray[np.float64]]:
        """Yield each example's gradient of the cross-entropy at ``weights``, shape (d,).

        Zeros replace gradients with NaN or infinity, because a server may choose weights that cause
        such gradients.
        """
        model, device = self.sgd.model, self.sgd.device
        load_weights(model, layout_of_module(model), weights)
        model.train()
        for start in range(0, len(labels), GRADIENTS_PIECE):
            piece = slice(start, start + GRADIENTS_PIECE)
            found = single_gradients(
                model,
                torch.from_numpy(features[piece]).to(device),
                torch.from_numpy(labels[piece]).to(device),
                self.sgd.class_weights,
            )
            rows = torch.cat([found[name].flatten(1) for name, _ in model.named_parameters()], 1)
            rows[~rows.isfinite().all(1)] = 0  # a refusal would reveal something about one example
            yield from rows.cpu().numpy().astype(np.float64)
