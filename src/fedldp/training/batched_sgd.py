"""SGD for many clients at once, because one client's small model would leave a CPU or GPU idle.

The arithmetic is the same as if clients trained one after another, with the same batches, but sums
may be rounded differently. Only training is batched: each client's weights are encoded with its own
streams.

On a GPU, clients always train together. On a CPU, they train together if that is faster: if the
model has only dense layers and at most ``LARGEST_MODEL`` weights, and a batch has at most
``LARGEST_BATCH`` examples. With convolutions, or with more weights than a CPU's cache holds for
several clients, training one after another is faster (``benchmarks/``). A group consists of the
next ``GROUP`` clients in the order in which a round asks them, whichever process trains them, so
any number of workers gives the same bits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from fedldp.core.errors import ConfigError, first_line
from fedldp.core.randomness import Stream
from fedldp.data.examples import Examples
from fedldp.models import layout_of_module
from fedldp.protocol.roles import Batch, Client, LocalUpdate, Update
from fedldp.protocol.wire import Broadcast, Sensitive, Vector
from fedldp.training.column_stack import is_changed, is_flatten
from fedldp.training.losses import Losses
from fedldp.training.tensors import as_tensors, writable

GROUP = 64
"""The number of clients that train at once."""

LARGEST_MODEL = 1 << 16
LARGEST_BATCH = 32

_DENSE = (nn.Linear, nn.ReLU, nn.Tanh, nn.Sigmoid)


def group_of(model: nn.Module, device: torch.device, batch: int) -> int:
    """Return how many clients with batches of ``batch`` examples train at once."""
    if device.type != "cpu":
        return GROUP
    size = sum(parameter.numel() for parameter in model.parameters())
    pays = batch <= LARGEST_BATCH and size <= LARGEST_MODEL and _is_dense(model)
    return GROUP if pays else 1


def _is_dense(model: nn.Module) -> bool:
    """Return whether a model is a stack of torch's own dense layers.

    A user's own layer may do anything, and ``_dense_gradients`` does not handle buffers of frozen
    layers.
    """
    if any(True for _ in model.buffers()):
        return False
    leaves = [part for part in model.modules() if type(part) is not nn.Sequential]
    own = sum(len(list(part.parameters(recurse=False))) for part in leaves)
    shared = len(list(model.parameters())) < own  # two layers share a weight
    twice = len(list(model.named_modules(remove_duplicate=False))) > len(list(model.modules()))
    known = all(type(part) in _DENSE or is_flatten(part) for part in leaves)
    return known and not (shared or twice)


Weights = dict[str, Tensor]
"""Parameters of several clients by name, each of shape (clients, *shape)."""

ExampleSource = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Gives the inputs and labels of the examples at some rows, an index array of any shape."""

Gradients = Callable[[Weights, Tensor, Tensor, Tensor], Weights]
"""Gives each client's gradient from weights, inputs, labels, and a mask of the examples to use."""

Advance = Callable[[int, Weights, Weights], None]
"""Updates weights in place with the gradients of step 0, 1, 2, ..."""


def train_together(
    copies: Joined,
    rows: NDArray[np.int64],
    source: ExampleSource,
    gradients: Gradients,
    advance: Advance,
    *,
    steps: NDArray[np.int64] | None = None,
) -> Sensitive[Update]:
    """Return the weights of several clients after training; those on a GPU stay there.

    Args:
        copies: the initial weights; changed in place.
        rows: the rows of each client's examples in each step, shape (clients, steps, batch); a
            smaller batch is padded with -1.
        source: gives the examples.
        gradients: see ``Gradients``.
        advance: see ``Advance``.
        steps: the number of steps that each client takes, shape (clients,); None if all clients
            take the same number.
    """
    device = next(iter(copies.values())).device
    for number in range(rows.shape[1]):
        chosen = torch.from_numpy(rows[:, number]).to(device)
        # An unused entry points to the first example of its batch, or to example 0 if the batch is
        # empty.
        inputs, labels = source(torch.where(chosen < 0, chosen[:, :1].clamp(min=0), chosen))
        found = gradients(copies, inputs, labels, chosen >= 0)
        before = None
        if steps is not None and (done := steps <= number).any():
            idle = torch.from_numpy(done).to(device)
            before = {name: own[idle] for name, own in copies.items()}
        with torch.no_grad():
            advance(number, copies, found)
            if before is not None:
                for name, own in copies.items():
                    own[idle] = before[name]
    return Sensitive(Update(rows=copies.rows.cpu().numpy()))


class OneByOne(LocalUpdate):
    """A local update of clients that train one after another, or several at once if it says how.

    See ``LocalUpdate``.
    """

    @abstractmethod
    def train(self, broadcast: Broadcast, client: Client) -> Vector:
        """Return one client's weights after training, float32, shape (d,)."""

    def together(self, broadcast: Broadcast, batch: Batch) -> Sensitive[Update]:
        """Return the weights of clients that train at once; only if ``group`` may be above 1."""
        raise NotImplementedError

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        """Return the clients' weights after training, float32, shape (n, d)."""
        if group > 1:
            return self.together(broadcast, batch)
        return train_alone(batch, lambda client: self.train(broadcast, client))


def train_alone(batch: Batch, train: Callable[[Client], Vector]) -> Sensitive[Update]:
    """Return the weights of several clients, trained one after another by ``train``."""
    return Sensitive(Update(rows=np.stack([train(client) for client in batch])))


class Joined(Weights):
    """The weights of several clients, as views of one array.

    Attributes:
        rows: the array, shape (clients, d).
    """

    rows: Tensor


def joined(model: nn.Module, broadcast: Broadcast, count: int, device: torch.device) -> Joined:
    """Return one copy of the broadcast weights for each of ``count`` clients."""
    model.train()
    found, layout = Joined(), layout_of_module(model)
    weights = torch.from_numpy(writable(broadcast.weights)).to(device)
    found.rows = weights.expand(count, -1).clone()
    for name, shape, own in zip(
        layout.names, layout.shapes, torch.split(found.rows, list(layout.sizes), 1), strict=True
    ):
        found[name] = own.view(count, *shape)
    return found


def mean_gradients(
    model: nn.Module, class_weights: Tensor | None = None, losses: Losses | None = None
) -> Gradients:
    """Return a function that computes the gradient of each client's mean cross-entropy.

    Each example's loss is multiplied by the weight of its class, if there are weights. If
    ``losses`` are given, their mean is taken separately for each client, even if the loss of one
    example depends on other examples.

    Raises:
        ConfigError: (the result, when called) the model draws random numbers in training, for
            example in dropout; the clients' draws would depend on which clients train together.
    """
    if losses is None and _is_dense(model) and not any(map(is_changed, model.modules())):
        return _dense_gradients(model, class_weights)

    def loss(own: Weights, x: Tensor, y: Tensor, share: Tensor) -> Tensor:
        logits = functional_call(model, own, (x,))
        if losses is not None:
            return (losses(logits, y) * share).sum()
        return _weighted_loss(logits, y, share, class_weights)

    gradient = vmap(grad(loss))

    def gradients(weights: Weights, inputs: Tensor, labels: Tensor, taken: Tensor) -> Weights:
        try:
            found: Weights = gradient(dict(weights), inputs, labels, _shares(taken))
        except RuntimeError as error:
            drew = "randomness" in str(error)
            if losses is None and not drew:
                raise
            why = f"the loss cannot be computed for several clients at once: {first_line(error)}"
            if drew:
                why = (
                    "the model draws random numbers in training (dropout?), which cannot be the "
                    "same for clients that train together"
                )
            raise ConfigError(f"device = cuda: {why}; use --device cpu") from error
        return found

    return gradients


def _dense_gradients(model: nn.Module, class_weights: Tensor | None) -> Gradients:
    """Return ``mean_gradients`` for a stack of dense layers, computed with batched matrix products.

    torch.func can do this too, but takes a second to load.
    """
    layers = [(n, part) for n, part in model.named_modules() if type(part) is not nn.Sequential]
    linear = [(n, part) for n, part in layers if isinstance(part, nn.Linear)]
    flat = [part for _, part in layers if isinstance(part, nn.Flatten)]
    if class_weights is None and len(linear) == len(flat) == 1 and len(layers) == 2:
        name, layer = linear[0]
        if layers[1] == linear[0] and layer.bias is not None:
            return _linear_gradients(f"{name}.weight", f"{name}.bias")

    def forward(weights: Weights, x: Tensor) -> Tensor:
        for name, layer in layers:
            if isinstance(layer, nn.Flatten):
                x = x.flatten(2)
            elif isinstance(layer, nn.Linear):
                flat = x.flatten(1, -2) @ weights[f"{name}.weight"].transpose(1, 2)
                if layer.bias is not None:
                    flat = flat + weights[f"{name}.bias"][:, None]
                x = flat.unflatten(1, x.shape[1:-1])  # type: ignore[no-untyped-call]
            else:
                x = layer(x)
        return x

    def gradients(weights: Weights, inputs: Tensor, labels: Tensor, taken: Tensor) -> Weights:
        leaves = {name: own.detach().requires_grad_() for name, own in weights.items()}
        logits = forward(leaves, inputs).flatten(0, 1)
        shares = _shares(taken).flatten()
        loss = _weighted_loss(logits, labels.flatten(), shares, class_weights)
        return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))

    return gradients


def _linear_gradients(weight: str, bias: str) -> Gradients:
    """Return ``_dense_gradients`` of a flattened input and one linear layer, without autograd.

    Autograd's own work takes longer than that of so small a layer. Autograd multiplies the weights'
    gradient the other way round, so on some processors its last bits differ.
    """

    def gradients(weights: Weights, inputs: Tensor, labels: Tensor, taken: Tensor) -> Weights:
        x = inputs.flatten(2)
        logits = x @ weights[weight].transpose(1, 2) + weights[bias][:, None]
        logs = torch.log_softmax(logits.flatten(0, 1), 1)
        slopes = torch.zeros_like(logs)
        slopes.scatter_(1, labels.reshape(-1, 1), -_shares(taken).reshape(-1, 1))
        slopes = torch._log_softmax_backward_data(slopes, logs, 1, logs.dtype).view_as(logits)
        return {weight: slopes.transpose(1, 2).bmm(x), bias: slopes.sum(1)}

    return gradients


def _shares(taken: Tensor) -> Tensor:
    """Return the share of each example in its client's mean."""
    return taken.float() / taken.sum(1, keepdim=True).clamp(min=1)


def _weighted_loss(
    logits: Tensor, labels: Tensor, shares: Tensor, class_weights: Tensor | None
) -> Tensor:
    losses = functional.cross_entropy(logits, labels, class_weights, reduction="none")
    return (losses * shares).sum()


def descend(
    rate: Callable[[int], float],
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    proximal: float = 0.0,
    drifts: Weights | None = None,
) -> Advance:
    """Return SGD with step sizes ``rate(0)``, ``rate(1)``, ..., and a momentum that starts at zero.

    Args:
        rate: gives the size of a step.
        momentum: factor on the previous step's velocity, which is added to the gradient.
        weight_decay: the multiple of each weight that is added to its gradient.
        clip: the largest norm of one client's gradient, before weight decay.
        proximal: the multiple of each weight's distance from its start that is added to its
            gradient.
        drifts: what is added to each gradient after the above, by parameter, if anything is.
    """
    velocities: dict[str, Tensor] = {}
    starts: dict[str, Tensor] = {}

    def advance(number: int, weights: Weights, gradients: Weights) -> None:
        factors = None
        if proximal and not number:
            starts.update((name, own.clone()) for name, own in weights.items())
        if clip is not None:
            norms = [gradients[name].flatten(1).norm(dim=1) for name in weights]
            factors = shrinking(torch.stack(norms).norm(dim=0), clip)
        for name, own in weights.items():
            slope = gradients[name]
            if factors is not None:
                slope = slope * factors.view(-1, *[1] * (slope.ndim - 1))
            if weight_decay:
                slope = slope.add(own, alpha=weight_decay)
            if proximal:
                slope = slope.add(own - starts[name], alpha=proximal)
            if drifts:
                slope = slope + drifts[name]
            if momentum:
                before = velocities.get(name)
                # Not in place: parameters that are added to each other share a gradient.
                slope = slope if before is None else before.mul(momentum).add_(slope)
                velocities[name] = slope
            own.sub_(slope, alpha=rate(number))

    return advance


def shrinking(norms: Tensor, clip: float) -> Tensor:
    """Return factors that scale vectors with these norms down to ``clip``; 1 for shorter ones."""
    return clip / norms.clamp(min=clip)


def of_examples(examples: Examples, device: torch.device) -> ExampleSource:
    """Return a source whose examples are kept on a device."""
    features, labels = _resident(examples, device)

    def source(rows: Tensor) -> tuple[Tensor, Tensor]:
        found = features.index_select(0, rows.reshape(-1))
        return found.view(*rows.shape, *features.shape[1:]), labels[rows]

    return source


_RESIDENT: WeakKeyDictionary[Examples, dict[torch.device, tuple[Tensor, Tensor]]] = (
    WeakKeyDictionary()
)
"""A simulation's examples as tensors, by the device on which they are stored."""


def _resident(examples: Examples, device: torch.device) -> tuple[Tensor, Tensor]:
    there = _RESIDENT.setdefault(examples, {})
    if device not in there:
        features, labels = as_tensors(examples)
        there[device] = features.to(device), labels.to(device)
    return there[device]


def epochs_of(
    rows: Sequence[NDArray[np.int64]],
    epochs: int,
    batch_size: int,
    streams: Callable[[], Sequence[Stream]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of each step, as in ``LocalSgd``, and the number of steps of each client.

    If one batch holds all of a client's examples, for every client, their order would only affect
    rounding, so no order is drawn.

    Args:
        rows: the rows of each client's examples.
        epochs: passes over them.
        batch_size: examples in one step.
        streams: gives each client's stream for the orders of its examples.
    """
    steps = np.array([epochs * -(-len(own) // batch_size) for own in rows])
    if steps.max() <= epochs:
        whole = padded(rows)
        return np.repeat(whole[:, None], epochs if whole.shape[1] else 0, axis=1), steps
    found = np.full((len(rows), steps.max(), batch_size), -1)
    for place, (own, stream) in enumerate(zip(rows, streams(), strict=True)):
        generator = stream.generator()
        drawn = np.full((epochs, steps[place] // epochs * batch_size), -1)
        for epoch in drawn:
            epoch[: len(own)] = own[generator.permutation(len(own))]
        found[place, : steps[place]] = drawn.reshape(-1, batch_size)
    return found, steps


def padded(rows: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return rows of different lengths as one array padded with -1, shape (clients, most)."""
    most = max(map(len, rows))
    if all(len(own) == most for own in rows):
        return np.stack(rows)
    found = np.full((len(rows), most), -1)
    for place, own in enumerate(rows):
        found[place, : len(own)] = own
    return found


def single_gradients(
    model: nn.Module,
    inputs: Tensor,
    answers: Tensor,
    class_weights: Tensor | None = None,
    weights: Weights | None = None,
) -> Weights:
    """Return each example's gradient of the cross-entropy, by parameter.

    The model receives one example at a time, so no example affects the gradient of another example.
    Random draws of the model, such as dropout, come from torch's global generator and are made
    again for each example.

    Args:
        model: the model at whose parameters the gradients are taken.
        inputs: examples, shape (n, *input_shape), n at least 1.
        answers: their labels, shape (n,).
        class_weights: a weight for each class in the loss, shape (classes,).
        weights: if they are given, those of several clients in place of the model's; inputs,
            answers and gradients then have a first axis for the clients.

    Returns:
        Tensors of shape (n, *shape of the parameter).

    Raises:
        ConfigError: the model cannot be differentiated for one example at a time; or it draws
            random numbers, and there are several clients.
    """

    def loss(own: Weights, example: Tensor, answer: Tensor) -> Tensor:
        logits = functional_call(model, own, (example[None],))
        # A sum, because torch's mean divides by the weight and would cancel it.
        return functional.cross_entropy(logits, answer[None], class_weights, reduction="sum")

    draws = "different" if weights is None else "error"
    single: Callable[..., Weights] = vmap(grad(loss), in_dims=(None, 0, 0), randomness=draws)
    try:
        if weights is not None:
            return vmap(single)(dict(weights), inputs, answers)
        of_model = {name: parameter.detach() for name, parameter in model.named_parameters()}
        return single(of_model, inputs, answers)
    except Exception as error:  # a user's own model may raise any error
        raise ConfigError(
            f"model: torch.func cannot differentiate it for single examples: {first_line(error)}; "
            "use other layers, or system = person_dp_sgd, which takes one person or row after "
            "another"
        ) from error
