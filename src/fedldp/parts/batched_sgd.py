"""Local SGD of many clients at once: for a GPU, which one small client leaves idle.

The arithmetic is that of ``LocalSgd``, client by client in the same batches; sums may be rounded
otherwise. Only the training is batched: each client's weights are encoded on their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from fedldp.errors import ConfigError
from fedldp.models import layout_of_module
from fedldp.parts.local_sgd import LocalSgd, writable
from fedldp.parts.sides import Client
from fedldp.wire import Broadcast, Sensitive, Vector

GROUP = 100
"""Clients trained at once."""


def train_together(
    step: LocalSgd, broadcast: Broadcast, clients: Sequence[Client]
) -> list[Sensitive[Vector]]:
    """Return the weights of ``clients`` after training, in their order, float32, shape (d,) each.

    Raises:
        ConfigError: the model draws random numbers in training, such as dropout: the clients'
            draws would then depend on who trains together.
    """
    layout = layout_of_module(step.model)
    weights = {
        name: torch.from_numpy(piece).to(step.device).expand(len(clients), *piece.shape).clone()
        for name, piece in layout.split(writable(broadcast.weights)).items()
    }
    features, labels = _stack(clients, step.device)
    rows = torch.arange(len(clients), device=step.device)[:, None]
    step.model.train()

    def loss(own: dict[str, Tensor], x: Tensor, y: Tensor, taken: Tensor) -> Tensor:
        losses = functional.cross_entropy(
            functional_call(step.model, own, (x,)), y, reduction="none"
        )
        return (losses * taken).sum() / taken.sum().clamp(min=1)

    gradient = vmap(grad(loss))
    for chosen, taken in _schedule(step, clients):
        indices = torch.from_numpy(chosen).to(step.device)
        mask = torch.from_numpy(taken).to(step.device)
        try:
            gradients = gradient(weights, features[rows, indices], labels[rows, indices], mask)
        except RuntimeError as error:
            if "randomness" not in str(error):
                raise
            raise ConfigError(
                "device = cuda: the model draws random numbers in training (dropout?), which "
                "clients that train together cannot do alike; use --device cpu"
            ) from error
        with torch.no_grad():
            for name, own in weights.items():
                own.sub_(gradients[name], alpha=step.learning_rate)
    stacked = [weights[name].reshape(len(clients), -1) for name in layout.names]
    return [Sensitive(row) for row in torch.cat(stacked, 1).cpu().numpy()]


def _stack(clients: Sequence[Client], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return all examples, shape (clients, most, ...), padded with zeros, and their labels."""
    most = max(len(client.examples) for client in clients)
    shape = clients[0].examples.features.shape[1:]
    features = np.zeros((len(clients), most, *shape), np.float32)
    labels = np.zeros((len(clients), most), np.int64)
    for row, client in enumerate(clients):
        features[row, : len(client.examples)] = client.examples.features
        labels[row, : len(client.examples)] = client.examples.labels
    return torch.from_numpy(features).to(device), torch.from_numpy(labels).to(device)


def _schedule(
    step: LocalSgd, clients: Sequence[Client]
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Return for every step the examples' indices, shape (clients, batch), and which are taken.

    The batches are those of ``LocalSgd``; a client with fewer steps has empty ones at the end.
    """
    batches = [list(step.batches(client)) for client in clients]
    width = max(len(indices) for own in batches for indices in own)
    schedule = []
    for number in range(max(map(len, batches))):
        indices = np.zeros((len(clients), width), np.int64)
        taken = np.zeros((len(clients), width), np.float32)
        for row, own in enumerate(batches):
            if number < len(own):
                indices[row, : len(own[number])] = own[number]
                taken[row, : len(own[number])] = 1
        schedule.append((indices, taken))
    return schedule
