"""The client step that most systems share: some epochs of SGD from the broadcast weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedldp.data import Examples
from fedldp.errors import ConfigError
from fedldp.models import layout_of_module
from fedldp.parts.sides import Client, Score
from fedldp.randomness import Stream, torch_seeded
from fedldp.wire import Broadcast, Layout, Sensitive, Vector

PIECE = 1000
"""Test examples evaluated at a time; sums over pieces do not depend on who evaluated which."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch with one thread: float sums then agree bit for bit between all processes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def read_weights(model: nn.Module) -> Vector:
    """Return the parameters of ``model`` as one float32 vector, shape (d,)."""
    return np.concatenate(
        [p.detach().cpu().contiguous().numpy().reshape(-1) for p in model.parameters()]
    )


def load_weights(model: nn.Module, layout: Layout, weights: Vector) -> None:
    """Set the parameters of ``model`` to ``weights``, shape (d,)."""
    pieces = layout.split(writable(weights))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(pieces[name]))


def writable(array: NDArray[Any]) -> NDArray[Any]:
    """Return ``array``, or a copy where it is read-only: torch warns of those, and has no such."""
    return np.require(array, requirements="W")


def as_tensors(examples: Examples) -> tuple[Tensor, Tensor]:
    """Return features and labels as tensors, without a copy where the arrays may be written."""
    features, labels = writable(examples.features), writable(examples.labels)
    return torch.from_numpy(features), torch.from_numpy(labels)


def to_device(features: Tensor, device: torch.device) -> Tensor:
    """Return examples on ``device``; images channels-last, which convolutions are faster on."""
    moved = features.to(device)
    return moved.contiguous(memory_format=torch.channels_last) if moved.ndim == 4 else moved


@dataclass(frozen=True, eq=False)
class LocalSgd:
    """Plain SGD on a client's examples, cross-entropy loss, no momentum.

    Every epoch visits every example once, in an order from the client's stream "batches"; the last
    batch of an epoch may be smaller.

    Attributes:
        model: the module to train with; its parameters are overwritten.
        local_epochs: passes over the client's examples in one round.
        batch_size: examples in one step.
        learning_rate: step size.
        device: where to train.

    Source: McMahan et al. 2017, ClientUpdate; Sun, Qian, Chen 2021, Algorithm 1, LocalUpdate.
    """

    model: nn.Module
    local_epochs: int
    batch_size: int
    learning_rate: float
    device: torch.device

    def __post_init__(self) -> None:
        self.model.to(self.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def __call__(self, broadcast: Broadcast, client: Client) -> Sensitive[Vector]:
        """Return the client's weights after training, float32, shape (d,)."""
        return self.train(broadcast, client, lambda step: self.learning_rate)

    def train(
        self, broadcast: Broadcast, client: Client, rate: Callable[[int], float]
    ) -> Sensitive[Vector]:
        """Return the client's weights as ``__call__`` does, with ``rate`` of steps 0, 1, 2, ..."""
        load_weights(self.model, layout_of_module(self.model), broadcast.weights)
        self.model.train()
        parameters: list[Tensor] = list(self.model.parameters())
        features, labels = as_tensors(client.examples)
        with torch_seeded(client.fresh("model")):
            for step, indices in enumerate(map(torch.from_numpy, self.batches(client))):
                batch = to_device(features.index_select(0, indices), self.device)
                answers = labels.index_select(0, indices).to(self.device)
                found = gradients(self.model, batch, answers, parameters)
                with torch.no_grad():
                    torch._foreach_add_(parameters, found, alpha=-rate(step))
        return Sensitive(read_weights(self.model))

    def batches(self, client: Client) -> Iterator[NDArray[np.int64]]:
        """Yield the indices of each step's examples among the client's own."""
        return batches(
            len(client.examples), self.local_epochs, self.batch_size, client.fresh("batches")
        )


def gradients(
    model: nn.Module, batch: Tensor, labels: Tensor, parameters: Sequence[Tensor]
) -> list[Tensor]:
    """Return the gradient of the mean cross-entropy on one batch, by parameter.

    Raises:
        ConfigError: the model fails; a user's may raise anything.
    """
    try:
        loss = functional.cross_entropy(model(batch), labels)
        return list(torch.autograd.grad(loss, parameters, materialize_grads=True))
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"model: training it failed: {reason}") from error


def batches(size: int, epochs: int, batch_size: int, stream: Stream) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of each step's examples, of ``size``: every epoch in another order."""
    generator = stream.generator()
    for _ in range(epochs):
        order = generator.permutation(size)
        for start in range(0, size, batch_size):
            yield order[start : start + batch_size]


def evaluate(model: nn.Module, examples: Examples, device: torch.device) -> Score:
    """Return how ``model`` does on ``examples``."""
    model.eval()
    with torch.no_grad():
        features, labels = as_tensors(examples)
        labels = labels.to(device)
        logits = model(to_device(features, device))
        loss = functional.cross_entropy(logits, labels, reduction="sum")
        right = (logits.argmax(1) == labels).sum()
    return Score(right=int(right), loss=float(loss), total=len(examples))
