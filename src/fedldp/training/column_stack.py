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


class Dense(NamedTuple):
    """A dense layer, and a ReLU unless it is the last."""

    inputs: int
    outputs: int


class Conv:
    """A convolution of stride 1 without padding, max-pooling, and a ReLU."""

    def __init__(self, conv: nn.Conv2d, pool: int, size: Size) -> None:
        channels, height, width = size
        tall, broad = conv.weight.shape[2:]
        high, wide = (height - tall + 1) // pool, (width - broad + 1) // pool
        self.inputs, self.outputs = channels * tall * broad, conv.out_channels
        self.shape, self.size = size, (self.outputs, high, wide)
        self.pool, self.places = pool * pool, high * wide
        rows = np.arange(channels * height * width).reshape(size)
        seen = np.lib.stride_tricks.sliding_window_view(rows, (tall, broad), (1, 2))
        seen = seen[:, : high * pool, : wide * pool]
        seen = seen.reshape(channels, high, pool, wide, pool, tall, broad)
        taken = seen.transpose(0, 5, 6, 2, 4, 1, 3).reshape(self.inputs, -1)
        ones = np.full((1, taken.shape[1]), rows.size)
        self.taken = torch.from_numpy(np.concatenate([taken, ones]).reshape(-1))
        # For the backward pass: the positions to which each input value was copied, and where each
        # value's list starts.
        self.takers = torch.from_numpy(np.argsort(taken, axis=None, kind="stable"))
        times = np.bincount(taken.reshape(-1), minlength=rows.size)
        self.starts = torch.from_numpy(np.cumsum(times) - times)


class _DenseRun:
    """A dense layer for batches of one size, whose values are written to ``values``.

    Attributes:
        result: the layer's outputs before its ReLU, with a last row of ones.
    """

    def __init__(self, weights: Tensor, slope: Tensor, values: Tensor) -> None:
        examples = values.shape[1]
        self._weights, self._back = weights, weights[:, :-1].t()
        self._slope, self._values, self._across = slope, values, values.t()
        self.result = torch.ones(len(weights) + 1, examples)
        self._sums = self.result[:-1]
        self._given = self._sums

    def forward(self) -> None:
        """Compute ``result``."""
        torch.mm(self._weights, self._values, out=self._sums)

    def backward(self, slope: Tensor) -> None:
        """Set the weights' gradient from the gradient of ``result``; overwrite ``slope``."""
        self._given = slope
        torch.mm(slope, self._across, out=self._slope)

    def spread(self) -> Tensor:
        """Return the gradient with respect to the layer's inputs; call ``backward`` first."""
        return self._back @ self._given


class _ConvRun:
    """A convolution and its pooling, with the attributes and methods of ``_DenseRun``."""

    def __init__(self, layer: Conv, weights: Tensor, slope: Tensor, values: Tensor) -> None:
        examples = values.shape[1]
        self._layer, self._values = layer, values
        self._weights, self._back, self._slope = weights, weights[:, :-1].t(), slope
        self._windows = torch.empty(layer.inputs + 1, layer.pool * layer.places * examples)
        self._across, self._rows = self._windows.t(), self._windows.view(-1, examples)
        self._found = torch.empty(layer.outputs, self._windows.shape[1])
        self._blocks = self._found.view(layer.outputs, layer.pool, -1).unbind(1)
        self.result = torch.ones(layer.outputs * layer.places + 1, examples)
        last = self.result[:-1].view(layer.outputs, -1)
        between = [torch.empty_like(last) for _ in range(layer.pool - 2)]
        # Running maxima: of the first block, of the first two, ..., of all blocks.
        self._largest = [self._blocks[0], *between, last]

    def forward(self) -> None:
        torch.index_select(self._values, 0, self._layer.taken, out=self._rows)
        torch.mm(self._weights, self._windows, out=self._found)
        for place in range(1, self._layer.pool):
            before, block = self._largest[place - 1], self._blocks[place]
            torch.maximum(before, block, out=self._largest[place])

    def backward(self, slope: Tensor) -> None:
        # Among equal values, the first receives the gradient, as in torch: a block receives the
        # gradient where its value is larger than the values of all earlier blocks, and no later
        # block has a larger value.
        left = slope.view(self._layer.outputs, -1)
        for place in range(self._layer.pool - 1, 0, -1):
            block = self._blocks[place].sub_(self._largest[place - 1])
            _keep_positive(left, block, out=block)
            left.sub_(block)
        self._blocks[0].copy_(left)
        torch.mm(self._found, self._across, out=self._slope)

    def spread(self) -> Tensor:
        taken = self._windows[:-1]
        torch.mm(self._back, self._found, out=taken)
        rows = self._rows[: self._layer.takers.numel()]
        return functional.embedding_bag(self._layer.takers, rows, self._layer.starts, mode="sum")


def _keep_positive(slope: Tensor, values: Tensor, out: Tensor) -> None:
    """Set ``out`` to ``slope`` where ``values`` is positive, to 0 elsewhere."""
    torch.ops.aten.threshold_backward.grad_input(slope, values, 0, grad_input=out)


class ColumnStack:
    """The weights of a network that ``layers_of`` recognises, and SGD on them."""

    def __init__(self, layers: Sequence[Conv | Dense]) -> None:
        sizes = [layer.outputs * (layer.inputs + 1) for layer in layers]
        self._layers = layers
        self._all, self._slope = torch.zeros(sum(sizes)), torch.zeros(sum(sizes))
        self._velocity = torch.zeros(sum(sizes))
        self._weights, self._slopes = (
            [
                own.view(layer.outputs, -1)
                for layer, own in zip(layers, torch.split(of, sizes), strict=True)
            ]
            for of in (self._all, self._slope)
        )
        self._batches: dict[int, _Batch] = {}

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
        batch = self._batches.get(len(indices))
        if batch is None:
            if len(self._batches) == KEPT:
                self._batches.pop(next(iter(self._batches)))
            batch = _Batch(self._layers, self._weights, self._slopes, len(indices))
            self._batches[len(indices)] = batch
        torch.index_select(columns, 1, indices, out=batch.values)
        batch.slopes(labels.index_select(0, indices), class_weights)
        slope = self._slope
        if momentum:
            slope = self._velocity.mul_(momentum).add_(slope)
        self._all.add_(slope, alpha=-rate)


class _Batch:
    """All layers, applied to batches of one size."""

    def __init__(
        self,
        layers: Sequence[Conv | Dense],
        weights: Sequence[Tensor],
        slopes: Sequence[Tensor],
        examples: int,
    ) -> None:
        first = layers[0]
        inputs = prod(first.shape) if isinstance(first, Conv) else first.inputs
        values = self.values = torch.ones(inputs + 1, examples)
        self._runs: list[_ConvRun | _DenseRun] = []
        for layer, own, slope in zip(layers, weights, slopes, strict=True):
            if isinstance(layer, Conv):
                self._runs.append(_ConvRun(layer, own, slope, values))
            else:
                self._runs.append(_DenseRun(own, slope, values))
            values = self._runs[-1].result
        self._active = [run.result[:-1] for run in self._runs]
        self._classes = torch.eye(layers[-1].outputs)

    def slopes(self, labels: Tensor, class_weights: Tensor | None) -> None:
        """Set the gradients of all weights for the examples in ``values``."""
        last = len(self._runs) - 1
        for number, run in enumerate(self._runs):
            run.forward()
            if number < last:
                self._active[number].clamp_min_(0)
        slope = self._active[last].softmax(0).sub_(self._classes.index_select(1, labels))
        if class_weights is not None:
            slope.mul_(class_weights.index_select(0, labels))
        slope.div_(len(labels))
        for number in range(last, -1, -1):
            self._runs[number].backward(slope)
            if number:
                slope = self._runs[number].spread()
                _keep_positive(slope, self._active[number - 1], out=slope)


def as_columns(features: Tensor) -> Tensor:
    """Return examples as columns with a last row of ones, shape (values + 1, examples)."""
    return torch.cat([features.flatten(1).t(), torch.ones(1, len(features))])


def layers_of(
    model: nn.Module, shape: tuple[int, ...], batch_size: int
) -> list[Conv | Dense] | None:
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
    layers: list[Any] = []
    values = 0
    size = (shape[0], shape[1], shape[2])
    while len(modules) > 3 and type(modules[0]) is nn.Conv2d:
        conv, pool, relu, *modules = modules
        if not (is_pool(pool) and type(relu) is nn.ReLU and _is_narrow(conv, pool, size)):
            return None
        values += _windows(conv, size) * batch_size
        if values > LARGEST:
            return None
        layers.append(Conv(conv, pool.kernel_size, size))
        size = layers[-1].size
    if not layers or not modules or not _is_flatten(modules[0]):
        return None
    expected = [nn.Linear, nn.ReLU] * (len(modules) // 2)
    dense = modules[1:]
    if not dense or [type(m) for m in dense] != expected[: len(dense)] or len(dense) % 2 == 0:
        return None
    width = prod(size)
    for module in dense[::2]:
        if module.bias is None or module.in_features != width:
            return None
        layers.append(Dense(module.in_features, module.out_features))
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
        and min(_sides(conv, size)) >= pool.kernel_size
    )


def _sides(conv: nn.Conv2d, size: Size) -> list[int]:
    """Return the height and the width of the result of ``conv``."""
    return [have - side + 1 for have, side in zip(size[1:], conv.kernel_size, strict=True)]


def _windows(conv: nn.Conv2d, size: Size) -> int:
    """Return the total number of values in all windows of one image of ``size``."""
    return conv.weight[0].numel() * prod(_sides(conv, size))


def is_pool(module: nn.Module) -> bool:
    """Return whether a module is max-pooling of adjacent squares with sides of 2 or more."""
    return (
        type(module) is nn.MaxPool2d
        and type(module.kernel_size) is int
        and module.kernel_size > 1
        and module.stride == module.kernel_size
        and (module.padding, module.dilation) == (0, 1)
        and not (module.ceil_mode or module.return_indices)
    )


def _is_flatten(module: nn.Module) -> bool:
    return type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)
