"""Local SGD as in the newer code of NbAFL's authors, which clips each example's gradient.

Source: https://github.com/AdamWei-boop/Federated-Learning-with-Local-Differential-Privacy, since
November 2022; there, Opacus clips.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedldp.core.randomness import torch_seeded
from fedldp.models import layout_of_module
from fedldp.protocol.roles import Client
from fedldp.protocol.wire import Broadcast, Vector
from fedldp.training.batched_sgd import OneByOne, shrinking, single_gradients
from fedldp.training.local_sgd import LocalSgd
from fedldp.training.tensors import as_tensors, load_weights, read_weights, to_device


@dataclass(frozen=True, eq=False)
class ClippedSgd(OneByOne):
    """The local update: SGD whose steps are means of gradients that are clipped one by one.

    A step changes the weights by at most the learning rate times ``clip``, and so does one example.
    What an example changes in a round is not bounded by that: later steps depend on the first.

    Attributes:
        plain: SGD with the same model, batches and learning rate.
        clip: the largest norm of an example's gradient.
    """

    plain: LocalSgd
    clip: float

    def train(self, broadcast: Broadcast, client: Client) -> Vector:
        """Return one client's weights after training, shape (d,).

        Raises:
            ConfigError: the model cannot be trained on examples one by one.
        """
        plain, model = self.plain, self.plain.model
        load_weights(model, layout_of_module(model), broadcast.weights)
        model.train()
        features, labels = as_tensors(client.examples)
        with torch_seeded(client.fresh("model")):
            for indices in map(torch.from_numpy, plain.batches(client)):
                found = single_gradients(
                    model,
                    to_device(features.index_select(0, indices), plain.device),
                    labels.index_select(0, indices).to(plain.device),
                    plain.class_weights,
                )
                lengths = torch.stack([each.flatten(1).norm(dim=1) for each in found.values()])
                shares = shrinking(lengths.norm(dim=0), self.clip) / len(indices)
                with torch.no_grad():
                    for name, parameter in model.named_parameters():
                        step = torch.tensordot(shares, found[name], dims=1)
                        parameter.add_(step, alpha=-plain.learning_rate)
        return read_weights(model)
