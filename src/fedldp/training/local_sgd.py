"""The local update of most systems: epochs of SGD that start from the broadcast weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedldp.core.errors import ConfigError, first_line
from fedldp.core.randomness import Stream
from fedldp.data import Examples
from fedldp.data.image_features import Augmentation
from fedldp.data.label_range import centred
from fedldp.models import is_statistic, layout_of_module
from fedldp.protocol.roles import Batch, Client, Score, Update
from fedldp.protocol.wire import Broadcast, Sensitive, Vector
from fedldp.training import batched_sgd
from fedldp.training.augmentation import augmented
from fedldp.training.batched_sgd import OneByOne, descend, shrinking
from fedldp.training.column_stack import ColumnStack, as_columns
from fedldp.training.draws import drawing
from fedldp.training.losses import Losses
from fedldp.training.tensors import as_tensors, load_weights, read_weights, to_device

PIECE = 1000
"""Test examples evaluated at a time; the sums do not depend on how processes share the pieces."""

MOST_CLASSES = 100
"""The largest number of classes for a confusion matrix; nobody would read a larger table."""


@final
@dataclass(frozen=True, eq=False)
class LocalSgd(OneByOne):
    """SGD on a client's examples; with cross-entropy loss and plain steps unless set otherwise.

    Every epoch visits every example once, in an order from the client's stream "batches". The last
    batch of an epoch may be smaller.

    Attributes:
        model: the module to train with; its parameters are overwritten.
        local_epochs: passes over the client's examples in one round.
        batch_size: examples in one step.
        learning_rate: step size.
        device: where to train.
        momentum: factor on the previous step's velocity, which starts at zero in every round.
        class_weights: a weight for each class in the loss, shape (classes,). A batch's loss is the
            plain mean of its examples' weighted losses, because torch's own mean divides by the sum
            of the weights, which would cancel the weights in a batch whose examples are all of one
            class.
        losses: losses of single examples, which include class weights; None means cross-entropy.
        weight_decay: the multiple of each weight that is added to its gradient, as in torch's SGD.
        gradient_clip: the largest norm of a batch's gradient; a longer gradient is scaled down to
            this norm. The limit keeps steps short but guarantees no privacy, because it bounds a
            whole batch, not one example.
        proximal: the multiple of each weight's distance from the broadcast that is added to its
            gradient, so that clients with different data stay close to each other: mu of FedProx.
        augmentation: how the images of each batch are changed, from the client's stream
            "augmentation".

    Source: McMahan et al. 2017, ClientUpdate; Sun, Qian, Chen 2021, Algorithm 1, LocalUpdate;
    T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith, "Federated Optimization in
    Heterogeneous Networks", MLSys 2020, for ``proximal``.
    """

    group_of_equals: ClassVar[int] = 256
    """How many clients train at once if all have equally many examples, so that no client's rows
    are padded because of another. A larger group's own cost is shared by more clients."""

    model: nn.Module
    local_epochs: int
    batch_size: int
    learning_rate: float
    device: torch.device
    momentum: float = 0.0
    class_weights: Tensor | None = None
    losses: Losses | None = None
    weight_decay: float = 0.0
    gradient_clip: float | None = None
    proximal: float = 0.0
    augmentation: Augmentation = "none"
    _stacks: dict[tuple[int, ...], ColumnStack | None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.model.to(self.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def group(self, most_examples: int) -> int:
        """Return how many clients train at once; see ``batched_sgd``.

        With other losses the number is one on a CPU, because ``batched_sgd`` has matrix products
        for cross-entropy only. It is one with augmentation and for models with statistics, too.
        """
        alone = self.augmentation != "none"
        alone |= any(is_statistic(name) for name, _ in self.model.named_parameters())
        if alone or (self.losses is not None and self.device.type == "cpu"):
            return 1
        return batched_sgd.group_of(self.model, self.device, min(self.batch_size, most_examples))

    def together(self, broadcast: Broadcast, batch: Batch) -> Sensitive[Update]:
        """Return the weights of clients that train at once, each on all its examples."""
        return self.train_together(broadcast, batch, batch.rows)

    def train(
        self,
        broadcast: Broadcast,
        client: Client,
        rate: Callable[[int], float] | None = None,
        drift: Vector | None = None,
    ) -> Vector:
        """Return one client's weights after training, float32, shape (d,).

        Args:
            broadcast: its weights are those that training starts from.
            client: the client.
            rate: gives the size of step 0, 1, 2, ...; None for the learning rate.
            drift: what is added to each gradient, shape (d,); only for models without statistics.
        """
        rate = rate or (lambda step: self.learning_rate)
        layout = layout_of_module(self.model)
        load_weights(self.model, layout, broadcast.weights)
        self.model.train()
        named = {n: own for n, own in self.model.named_parameters() if not is_statistic(n)}
        parameters = list(named.values())
        features, labels = as_tensors(client.examples)
        stack = self._stack(features.shape[1:])
        if stack is not None and drift is None:
            stack.load(parameters)
            columns = as_columns(features)
            for step, indices in enumerate(map(torch.from_numpy, self.batches(client))):
                stack.step(columns, labels, indices, rate(step), self.momentum, self.class_weights)
            stack.store(parameters)
            return read_weights(self.model)
        own = {name: each.detach()[None] for name, each in named.items()}
        split = {} if drift is None else layout.split(drift)
        drifts = {name: torch.from_numpy(part).to(self.device) for name, part in split.items()}
        # As batched_sgd has it, for one client; its norm of a gradient has other bits.
        advance = descend(rate, self.momentum, self.weight_decay, None, self.proximal, drifts)
        moves = None
        if self.augmentation != "none":
            moves = client.fresh("augmentation").generator()
        own_loss = self.losses is not None
        with drawing(self.model, client.fresh("model"), other_code=own_loss):
            for step, indices in enumerate(map(torch.from_numpy, self.batches(client))):
                images = features.index_select(0, indices)
                if moves is not None:
                    images = augmented(images, moves, self.augmentation)
                batch = to_device(images, self.device)
                answers = labels.index_select(0, indices).to(self.device)
                found = gradients(
                    self.model, batch, answers, parameters, self.class_weights, self.losses
                )
                with torch.no_grad():  # not in place: parameters that are added share a gradient
                    if self.gradient_clip is not None:
                        norm = torch.stack(torch._foreach_norm(found)).norm()
                        shorter = torch._foreach_mul(found, shrinking(norm, self.gradient_clip))
                        found = list(shorter)
                    advance(step, own, dict(zip(own, (each[None] for each in found), strict=True)))
        return read_weights(self.model)

    def train_together(
        self,
        broadcast: Broadcast,
        batch: Batch,
        rows: Sequence[NDArray[np.int64]],
        rate: Callable[[int], float] | None = None,
    ) -> Sensitive[Update]:
        """Return the weights of clients that train at once, each on the given ``rows``.

        The ``rate`` is that of ``train``.
        """
        rate = rate or (lambda step: self.learning_rate)
        chosen, steps = batched_sgd.epochs_of(
            rows, self.local_epochs, self.batch_size, lambda: batch.fresh("batches")
        )
        return batched_sgd.train_together(
            batched_sgd.joined(self.model, broadcast, len(batch), self.device),
            chosen,
            batched_sgd.of_examples(batch.examples, self.device),
            batched_sgd.mean_gradients(self.model, self.class_weights, self.losses),
            descend(rate, self.momentum, self.weight_decay, self.gradient_clip, self.proximal),
            steps=None if (steps == steps[0]).all() else steps,
        )

    def _stack(self, shape: tuple[int, ...]) -> ColumnStack | None:
        """Return a faster trainer than autograd for examples of ``shape``, if there is one."""
        if shape not in self._stacks:
            changed = self.weight_decay or self.proximal or self.gradient_clip is not None
            plain = self.losses is None and not changed and self.augmentation == "none"
            known = self.device.type == "cpu" and plain
            self._stacks[shape] = (
                ColumnStack.of(self.model, shape, self.batch_size) if known else None
            )
        return self._stacks[shape]

    def batches(self, client: Client) -> Iterator[NDArray[np.int64]]:
        """Yield, for each step, the indices of its examples among the client's examples."""
        return batches(
            len(client.examples), self.local_epochs, self.batch_size, client.fresh("batches")
        )


def gradients(
    model: nn.Module,
    batch: Tensor,
    labels: Tensor,
    parameters: Sequence[Tensor],
    class_weights: Tensor | None = None,
    losses: Losses | None = None,
) -> list[Tensor]:
    """Return the gradient of the mean cross-entropy on one batch, by parameter.

    Each example's loss is multiplied by the weight of its class, if there are weights. If
    ``losses`` are given, the gradient is that of their mean.

    Raises:
        ConfigError: the model fails; a user's model may raise any error.
    """
    try:
        logits = model(batch)
        if losses is not None:
            loss = losses(logits, labels).mean()
        elif class_weights is None:
            loss = functional.cross_entropy(logits, labels)
        else:
            total = functional.cross_entropy(logits, labels, class_weights, reduction="sum")
            loss = total / len(labels)
        return list(torch.autograd.grad(loss, parameters, materialize_grads=True))
    except Exception as error:
        raise ConfigError(f"model: training it failed: {first_line(error)}") from error


def batches(size: int, epochs: int, batch_size: int, stream: Stream) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of each step's examples, out of ``size``; each epoch has a new order."""
    generator = stream.generator()
    for _ in range(epochs):
        order = generator.permutation(size)
        for start in range(0, size, batch_size):
            yield order[start : start + batch_size]


def evaluate(model: nn.Module, examples: Examples, device: torch.device) -> Score:
    """Return the score of ``model`` on ``examples``.

    Raises:
        ConfigError: the model fails on the examples.
    """
    model.eval()
    with torch.no_grad():
        features, labels = as_tensors(examples)
        labels = labels.to(device)
        try:
            logits = model(to_device(features, device))
        except Exception as error:
            raise ConfigError(f"model: testing it failed: {first_line(error)}") from error
        if logits.shape[1] == 1:
            return _of_numbers(logits[:, 0].double().cpu().numpy(), examples.labels)
        loss = functional.cross_entropy(logits, labels, reduction="sum")
        found = logits.argmax(1)
        right = (found == labels).sum()
        classes, confusion, shares = logits.shape[1], None, None
        if tabled := classes <= MOST_CLASSES:
            places = examples.labels.astype(np.int64) * classes + found.cpu().numpy()
            confusion = np.bincount(places, minlength=classes**2).reshape(classes, classes)
            shares = torch.softmax(logits.double(), 1).cpu().numpy()
    return Score(
        right=int(right),
        loss=float(loss),
        total=len(examples),
        confusion=confusion,
        labels=examples.labels if tabled else None,
        probabilities=shares,
    )


def _of_numbers(outputs: NDArray[np.float64], labels: NDArray[np.int64]) -> Score:
    """Return the score of a model for labels that are numbers."""
    errors = outputs.clip(-1, 1) - centred(labels)
    return Score(
        right=0,
        loss=float(np.square(errors).sum() / 2),
        total=len(labels),
        labels=labels,
        probabilities=outputs[:, None],
    )
