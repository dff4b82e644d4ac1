"""SGD on a small convolutional network by matrix products, equal to autograd up to rounding.

Convolutions with few channels leave most of a vector unit idle, and with ten examples, the overhead
of autograd's calls takes as long as the convolutions. Here an example is a column, and each value
of a layer has a row. A convolution gathers its windows from those rows and is then one matrix
product, like a dense layer. Its results are ordered so that max-pooling takes the largest of
neighbouring blocks. With a last row of ones, the bias becomes one more column of the weights. All
buffers are allocated once.

This module handles only networks that ``layers_of`` recognises; autograd handles all others.
Source: Chellapilla, Puri, Simard 2006, for convolutions as matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

WIDEST = 32
"""Largest number of output channels; with more, oneDNN's own convolutions are faster."""

LARGEST = 700_000
"""Largest number of values in all windows of a batch; more would miss the CPU's cache too often."""

KEPT = 4
"""The number of batch sizes whose buffers are kept; a client's last batch may be smaller."""

Size = tuple[int, int, int]


class Layer(NamedTuple):
    """A dense layer; or a convolution of stride 1 without padding, max-pooling, and a ReLU.

    Attributes:
        weight: the shape of its weights.
        pool: the side of a square of the pooling.
        size: the shape of the images that a convolution takes.
    """

    weight: torch.Size
    pool: int = 1
    size: Size = (0, 0, 0)


class _Dense:
    """A dense layer for batches of one size.

    Args:
        weights: the weights, with the bias as the last column.
        slope: where their gradient is written to.
        values: the inputs, with a last row of ones.
        rows: the number of outputs of one example.

    Attributes:
        values: the inputs.
        active: the outputs, to which a ReLU is then applied.
        result: the same with a last row of ones.
    """

    def __init__(self, weights: Tensor, slope: Tensor, values: Tensor, rows: int) -> None:
        self.values, self._across = values, values.t()
        self._weights, self._back, self._slope = weights, weights[:, :-1].t(), slope
        self.result = torch.ones(rows + 1, values.shape[1])
        self.active = self._given = self.result[:-1]

    def forward(self) -> None:
        """Compute the outputs."""
        torch.mm(self._weights, self.values, out=self.active)

    def backward(self, slope: Tensor) -> None:
        """Set the weights' gradient from the gradient of the outputs; overwrite ``slope``."""
        self._given = slope
        torch.mm(slope, self._across, out=self._slope)

    def spread(self) -> Tensor:
        """Return the gradient with respect to the inputs; call ``backward`` first."""
        return self._back @ self._given


class _Conv(_Dense):
    """A convolution and its pooling, for batches of one size."""

    def __init__(self, layer: Layer, weights: Tensor, slope: Tensor, values: Tensor) -> None:
        (outputs, channels, tall, broad), pool = layer.weight, layer.pool
        high, wide = (side // pool for side in _sides(layer.weight, layer.size))
        rows = np.arange(prod(layer.size)).reshape(layer.size)
        seen = np.lib.stride_tricks.sliding_window_view(rows, (tall, broad), (1, 2))
        seen = seen[:, : high * pool, : wide * pool]
        seen = seen.reshape(channels, high, pool, wide, pool, tall, broad)
        taken = seen.transpose(0, 5, 6, 2, 4, 1, 3).reshape(channels * tall * broad, -1)
        ones = np.full((1, taken.shape[1]), rows.size)
        self._taken = torch.from_numpy(np.concatenate([taken, ones]).reshape(-1))
        # For the backward pass: the positions to which each input value was copied, and where each
        # value's list starts.
        self._takers = torch.from_numpy(np.argsort(taken, axis=None, kind="stable"))
        times = np.bincount(taken.reshape(-1), minlength=rows.size)
        self._starts = torch.from_numpy(np.cumsum(times) - times)
        super().__init__(weights, slope, values, outputs * high * wide)
        examples = values.shape[1]
        self._windows = torch.empty(len(taken) + 1, taken.shape[1] * examples)
        self._across, self._rows = self._windows.t(), self._windows.view(-1, examples)
        self._found = torch.empty(outputs, self._windows.shape[1])
        self._blocks = self._found.view(outputs, pool * pool, -1).unbind(1)
        last = self.active.view(outputs, -1)
        between = [torch.empty_like(last) for _ in self._blocks[2:]]
        # Running maxima: of the first block, of the first two, ..., of all blocks.
        self._largest = [self._blocks[0], *between, last]

    def forward(self) -> None:
        torch.index_select(self.values, 0, self._taken, out=self._rows)
        torch.mm(self._weights, self._windows, out=self._found)
        for place, block in enumerate(self._blocks[1:]):
            torch.maximum(self._largest[place], block, out=self._largest[place + 1])

    def backward(self, slope: Tensor) -> None:
        # Among equal values, the first receives the gradient, as in torch: a block receives the
        # gradient where its value is larger than the values of all earlier blocks, and no later
        # block has a larger value.
        left = slope.view(len(self._found), -1)
        for place in range(len(self._blocks) - 1, 0, -1):
            block = self._blocks[place].sub_(self._largest[place - 1])
            _keep_positive(left, block, out=block)
            left.sub_(block)
        self._blocks[0].copy_(left)
        torch.mm(self._found, self._across, out=self._slope)

    def spread(self) -> Tensor:
        torch.mm(self._back, self._found, out=self._windows[:-1])
        rows = self._rows[: self._takers.numel()]
        return functional.embedding_bag(self._takers, rows, self._starts, mode="sum")


def _keep_positive(slope: Tensor, values: Tensor, out: Tensor) -> None:
    """Set ``out`` to ``slope`` where ``values`` is positive, to 0 elsewhere."""
    torch.ops.aten.threshold_backward.grad_input(slope, values, 0, grad_input=out)


class ColumnStack:
    """The weights of a network that ``layers_of`` recognises, and SGD on them."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        shapes = [(layer.weight[0], prod(layer.weight[1:]) + 1) for layer in layers]
        sizes = list(map(prod, shapes))
        self._all, self._slope, self._velocity = torch.zeros(3, sum(sizes)).unbind()
        self._weights, self._slopes = (
            [own.view(shape) for own, shape in zip(torch.split(of, sizes), shapes, strict=True)]
            for of in (self._all, self._slope)
        )
        self._classes = torch.eye(layers[-1].weight[0])
        made = partial(_runs_of, layers, self._weights, self._slopes)
        self._runs = lru_cache(maxsize=KEPT)(made)

    @classmethod
    def of(cls, model: nn.Module, shape: tuple[int, ...], batch_size: int) -> ColumnStack | None:
        """Return the stack of ``model`` on examples of ``shape``; None if it is not recognised."""
        layers = layers_of(model, shape, batch_size)
        return None if layers is None else cls(layers)

    @torch.no_grad()
    def load(self, parameters: Sequence[Tensor]) -> None:
        """Copy the weights from the network's ``parameters``, and reset the momentum to zero."""
        self._velocity.zero_()
        for own, weight, bias in zip(self._weights, parameters[::2], parameters[1::2], strict=True):
            own[:, :-1] = weight.reshape(len(own), -1)
            own[:, -1] = bias

    @torch.no_grad()
    def store(self, parameters: Sequence[Tensor]) -> None:
        """Set the network's ``parameters`` to the weights."""
        for own, weight, bias in zip(self._weights, parameters[::2], parameters[1::2], strict=True):
            weight.copy_(own[:, :-1].view(weight.shape))
            bias.copy_(own[:, -1])

    @torch.no_grad()
    def step(
        self,
        columns: Tensor,
        labels: Tensor,
        indices: Tensor,
        rate: float,
        momentum: float = 0.0,
        class_weights: Tensor | None = None,
    ) -> None:
        """Take a gradient step on the mean cross-entropy of the examples at ``indices``.

        Args:
            columns: all of a client's examples, as ``as_columns`` returns them.
            labels: the labels of the client's examples, shape (examples,).
            indices: the examples of the batch, shape (batch,).
            rate: step size.
            momentum: factor on the previous step's velocity, as in torch's SGD.
            class_weights: a weight for each class in the loss, shape (classes,).
        """
        runs = self._runs(len(indices))
        torch.index_select(columns, 1, indices, out=runs[0].values)
        answers = labels.index_select(0, indices)
        for run in runs[:-1]:
            run.forward()
            run.active.clamp_min_(0)
        runs[-1].forward()
        slope = runs[-1].active.softmax(0).sub_(self._classes.index_select(1, answers))
        if class_weights is not None:
            slope.mul_(class_weights.index_select(0, answers))
        slope.div_(len(answers))
        for run, before in zip(runs[:0:-1], runs[-2::-1], strict=True):
            run.backward(slope)
            slope = run.spread()
            _keep_positive(slope, before.active, out=slope)
        runs[0].backward(slope)
        change = self._slope
        if momentum:
            change = self._velocity.mul_(momentum).add_(change)
        self._all.add_(change, alpha=-rate)


def _runs_of(
    layers: Sequence[Layer], weights: Sequence[Tensor], slopes: Sequence[Tensor], examples: int
) -> list[_Dense]:
    """Return the layers for batches of a size, each with the result of the one before it."""
    runs, values = list[_Dense](), torch.ones(prod(layers[0].size) + 1, examples)
    for layer, own, slope in zip(layers, weights, slopes, strict=True):
        if len(layer.weight) > 2:
            runs.append(_Conv(layer, own, slope, values))
        else:
            runs.append(_Dense(own, slope, values, layer.weight[0]))
        values = runs[-1].result
    return runs


def as_columns(features: Tensor) -> Tensor:
    """Return examples as columns with a last row of ones, shape (values + 1, examples)."""
    return torch.cat([features.flatten(1).t(), torch.ones(1, len(features))])


def layers_of(model: nn.Module, shape: tuple[int, ...], batch_size: int) -> list[Layer] | None:
    """Return the layers of ``model`` if its kind is known to train faster this way, or else None.

    The known networks consist of convolutions, each followed by max-pooling and a ReLU, and then
    dense layers with a ReLU between them. All are torch's own modules in a plain ``nn.Sequential``,
    without hooks, and nothing is frozen.
    """
    if any(True for _ in model.buffers()):
        return None
    if type(model) is not nn.Sequential or len(shape) != 3:
        return None
    modules: list[Any] = list(model)
    if len(set(modules)) < len(modules) or any(map(is_changed, [model, *modules])):
        return None
    layers: list[Layer] = []
    values = 0
    size = (shape[0], shape[1], shape[2])
    while len(modules) > 3 and type(modules[0]) is nn.Conv2d:
        conv, pool, relu, *modules = modules
        if not (_is_pool(pool) and type(relu) is nn.ReLU and _is_narrow(conv, pool, size)):
            return None
        places = prod(_sides(conv.weight.shape, size))
        values += conv.weight[0].numel() * places * batch_size
        if values > LARGEST:
            return None
        layers.append(Layer(conv.weight.shape, pool.kernel_size, size))
        high, wide = (side // pool.kernel_size for side in _sides(conv.weight.shape, size))
        size = (conv.out_channels, high, wide)
    if not layers or not modules or not is_flatten(modules[0]):
        return None
    expected = [nn.Linear, nn.ReLU] * (len(modules) // 2)
    dense = modules[1:]
    if not dense or [type(m) for m in dense] != expected[: len(dense)] or len(dense) % 2 == 0:
        return None
    width = prod(size)
    for module in dense[::2]:
        if module.bias is None or module.in_features != width:
            return None
        layers.append(Layer(module.weight.shape))
        width = module.out_features
    return layers


def is_changed(module: nn.Module) -> bool:
    """Return whether hooks or its own ``forward`` make a module differ from its class."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return "forward" in vars(module) or any(getattr(module, name) for name in hooks)


def _is_narrow(conv: nn.Conv2d, pool: Any, size: Size) -> bool:
    """Return whether ``conv`` is a plain convolution of images of ``size``, with few channels."""
    plain = (conv.stride, conv.padding, conv.dilation) == ((1, 1), (0, 0), (1, 1))
    return (
        (plain and conv.groups == 1 and conv.bias is not None)
        and (conv.in_channels == size[0] and conv.out_channels <= WIDEST)
        and min(_sides(conv.weight.shape, size)) >= pool.kernel_size
    )


def _sides(weight: torch.Size, size: Size) -> list[int]:
    """Return the height and the width of what a convolution gives of an image of ``size``."""
    return [have - side + 1 for have, side in zip(size[1:], weight[2:], strict=True)]


def _is_pool(module: nn.Module) -> bool:
    """Return whether a module is max-pooling of adjacent squares with sides of 2 or more."""
    return (
        type(module) is nn.MaxPool2d
        and type(module.kernel_size) is int
        and module.kernel_size > 1
        and module.stride == module.kernel_size
        and (module.padding, module.dilation) == (0, 1)
        and not (module.ceil_mode or module.return_indices)
    )


def is_flatten(module: nn.Module) -> bool:
    """Return whether a module makes one vector of each example."""
    return type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)
