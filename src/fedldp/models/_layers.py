"""A model as data: its layers give its layout and its parameters' names without torch.

``module`` makes the torch module of it, and ``trained_of`` selects the parameters that are trained.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import prod
from typing import TYPE_CHECKING, Literal

from fedldp.core.errors import ConfigError
from fedldp.protocol.wire import Layout

if TYPE_CHECKING:
    from torch import nn
else:  # torch takes over a second to import, and a layout does not need it
    from fedldp.core.deferred import nn

Shape = tuple[int, ...]

Start = Literal["torch", "zeros", "he"]
"""Initial weights: torch's default, zeros, or He normal (He et al. 2015, for ReLU)."""


STATISTICS = ("running_mean", "running_var")
"""The last part of the name of a parameter that follows the examples, and no gradient."""


@dataclass(frozen=True)
class Layer(ABC):
    """One layer; ``shape`` is always the shape of its input for one example.

    Attributes:
        name: the prefix of its parameters' names; None uses the layer's index in the list.
    """

    name: str | None = field(default=None, kw_only=True)

    @abstractmethod
    def module(self, shape: Shape) -> nn.Module:
        """Return the layer as a torch module; it draws its weights from torch's generator."""

    def parameters(self, shape: Shape) -> dict[str, Shape]:
        """Return the shapes of its parameters, in order, by their names in the module."""
        return {}

    def output(self, shape: Shape) -> Shape:
        """Return the shape of one example's output."""
        return shape


@dataclass(frozen=True)
class Dense(Layer):
    """A dense layer on a vector."""

    units: int
    bias: bool = field(default=True, kw_only=True)
    start: Start = field(default="torch", kw_only=True)

    def module(self, shape: Shape) -> nn.Module:
        (inputs,) = shape
        return nn.Linear(inputs, self.units, bias=self.bias)

    def parameters(self, shape: Shape) -> dict[str, Shape]:
        (inputs,) = shape
        bias = {"bias": (self.units,)} if self.bias else {}
        return {"weight": (self.units, inputs), **bias}

    def output(self, shape: Shape) -> Shape:
        return (self.units,)


@dataclass(frozen=True)
class Conv(Layer):
    """A convolution with stride 1 on an image of shape (channels, height, width)."""

    channels: int
    side: int
    padding: int = field(default=0, kw_only=True)
    start: Start = field(default="torch", kw_only=True)

    def module(self, shape: Shape) -> nn.Module:
        return nn.Conv2d(shape[0], self.channels, self.side, padding=self.padding)

    def parameters(self, shape: Shape) -> dict[str, Shape]:
        weight = (self.channels, shape[0], self.side, self.side)
        return {"weight": weight, "bias": (self.channels,)}

    def output(self, shape: Shape) -> Shape:
        _, height, width = shape
        lost = self.side - 1 - 2 * self.padding
        return self.channels, height - lost, width - lost


@dataclass(frozen=True)
class MaxPool(Layer):
    """The largest value in every square of an image; incomplete squares are left out."""

    side: int

    def module(self, shape: Shape) -> nn.Module:
        return nn.MaxPool2d(self.side)

    def output(self, shape: Shape) -> Shape:
        channels, height, width = shape
        return channels, height // self.side, width // self.side


@dataclass(frozen=True)
class Relu(Layer):
    """max(x, 0)."""

    def module(self, shape: Shape) -> nn.Module:
        return nn.ReLU()


@dataclass(frozen=True)
class Dropout(Layer):
    """Each value set to 0 with probability ``share``, and the others divided by 1 - ``share``.

    Attributes:
        share: the probability.
        in_tests: whether values are also dropped when the model is tested; then tests with as many
            examples drop the same ones.
    """

    share: float
    in_tests: bool = field(default=False, kw_only=True)

    def module(self, shape: Shape) -> nn.Module:
        if not self.in_tests:
            return nn.Dropout(self.share)
        from fedldp.models._torch_layers import DropoutInTests

        return DropoutInTests(self.share)


@dataclass(frozen=True)
class BatchNorm(Layer):
    """Batch norm of an image, by torch's defaults (Ioffe, Szegedy 2015).

    Its running means and variances are parameters: a client's training computes them from private
    examples, and they are sent, bounded and randomised like weights. Only systems that give them
    public ranges, or protect nothing, train such a model.
    """

    def module(self, shape: Shape) -> nn.Module:
        from fedldp.models._torch_layers import BatchNormOfParameters

        return BatchNormOfParameters(shape[0])

    def parameters(self, shape: Shape) -> dict[str, Shape]:
        return dict.fromkeys(("weight", "bias", *STATISTICS), shape[:1])


@dataclass(frozen=True)
class Flatten(Layer):
    """An example of any shape, flattened to a vector."""

    def module(self, shape: Shape) -> nn.Module:
        return nn.Flatten()

    def output(self, shape: Shape) -> Shape:
        return (prod(shape),)


def layout(layers: Sequence[Layer], input_shape: Shape) -> Layout:
    """Return the layout in one vector of the parameters of ``module(layers, input_shape)``."""
    named = [
        (f"{name}.{parameter}", of)
        for name, layer, shape in _walk(layers, input_shape)
        for parameter, of in layer.parameters(shape).items()
    ]
    return Layout(tuple(name for name, _ in named), tuple(of for _, of in named))


def output(layers: Sequence[Layer], input_shape: Shape) -> Shape:
    """Return the shape of the last layer's output for one example."""
    shape = input_shape
    for layer in layers:
        shape = layer.output(shape)
    return shape


def multiplications(layers: Sequence[Layer], input_shape: Shape) -> int:
    """Return how many multiplications by a weight one example's logits need; biases need none."""
    return sum(
        prod(of) * prod(layer.output(shape)[1:])  # a kernel's weights are used at each position
        for _, layer, shape in _walk(layers, input_shape)
        for of in layer.parameters(shape).values()
        if len(of) > 1
    )


def module(layers: Sequence[Layer], input_shape: Shape) -> nn.Sequential:
    """Return the layers as a torch module; initial weights come from torch's global generator."""
    modules = OrderedDict(
        (name, layer.module(shape)) for name, layer, shape in _walk(layers, input_shape)
    )
    # Initialise only after all layers are made, because the weights for a seed depend on the order
    # in which they are drawn.
    for layer, made in zip(layers, modules.values(), strict=True):
        start: Start = getattr(layer, "start", "torch")
        if start != "torch":
            begin(made, start)
    return nn.Sequential(modules)


def begin(layer: nn.Module, start: Start) -> None:
    """Set the weights of a dense layer or a convolution anew, from torch's global generator."""
    if start == "torch":
        layer.reset_parameters()  # type: ignore[operator]
        return
    if start == "he":
        nn.init.kaiming_normal_(layer.get_parameter("weight"), nonlinearity="relu")
    else:
        nn.init.zeros_(layer.get_parameter("weight"))
    if "bias" in dict(layer.named_parameters()):
        nn.init.zeros_(layer.get_parameter("bias"))


def is_statistic(name: str) -> bool:
    """Return whether a parameter follows the examples, and no gradient; judged by its name."""
    return name.rpartition(".")[2] in STATISTICS


def _walk(layers: Sequence[Layer], input_shape: Shape) -> Iterator[tuple[str, Layer, Shape]]:
    """Yield the name of every layer, the layer, and the shape of its input."""
    shape = input_shape
    for place, layer in enumerate(layers):
        yield layer.name or str(place), layer, shape
        shape = layer.output(shape)


ALL = "all"
HEAD = "head"

_SHOWN = 5


def trained_of(names: Sequence[str], trainable: str) -> list[str]:
    """Return the names that the setting ``trainable`` selects, in their order.

    Args:
        names: the names of all parameters, in the model's order.
        trainable: "all", "head" (the last layer that has parameters), or name patterns separated by
            commas.

    Raises:
        ConfigError: a pattern selects nothing.

    >>> trained_of(["a.weight", "a.bias", "b.weight", "b.bias"], "head")
    ['b.weight', 'b.bias']
    >>> trained_of(["a.weight", "a.bias", "b.weight", "b.bias"], "*.bias, b.*")
    ['a.bias', 'b.weight', 'b.bias']
    """
    if trainable == ALL:
        return list(names)
    if trainable == HEAD:
        last = _layer(names[-1])
        return [name for name in names if _layer(name) == last]
    patterns = [pattern.strip() for pattern in trainable.split(",")]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            some = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
            raise ConfigError(
                f"trainable = {trainable}: no parameter of the model matches {pattern!r}; the "
                f"parameters are {some}"
            )
    return [name for name in names if any(fnmatchcase(name, each) for each in patterns)]


def _layer(name: str) -> str:
    return name.rpartition(".")[0]
