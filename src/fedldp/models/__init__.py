"""Models: one function each in ``networks``; a user's own model is named "module:callable".

A function of (input_shape, num_classes) returns a list of layers, whose layout is known without
torch, or any torch module. The functions below check a model and build it.

It may use core, protocol.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, FedldpError, first_line
from fedldp.core.randomness import Stream, torch_seeded
from fedldp.core.registry import is_address, load
from fedldp.models._given import builder_of, check_travels, given, name_of
from fedldp.models._layers import (
    ALL,
    HEAD,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPool,
    Relu,
    Start,
    begin,
    is_statistic,
    layout,
    module,
    multiplications,
    output,
    trained_of,
)
from fedldp.models.networks import MODELS
from fedldp.protocol.wire import Layout

if TYPE_CHECKING:
    from torch import nn

    State = Mapping[str, NDArray[Any]]

__all__ = [
    "ALL",
    "HEAD",
    "BatchNorm",
    "Conv",
    "Dense",
    "Dropout",
    "Flatten",
    "Layer",
    "MaxPool",
    "ModelBuilder",
    "Relu",
    "Start",
    "begin_again",
    "build_model",
    "check_travels",
    "copy_frozen",
    "fill_model",
    "find_model",
    "frozen_digest",
    "frozen_of",
    "is_linear",
    "is_statistic",
    "layers_of",
    "layout_of",
    "layout_of_module",
    "layout_of_trained",
    "models",
    "multiplications_of",
    "name_of",
    "start_from",
    "trained_of",
]

ModelBuilder = Callable[[tuple[int, ...], int], "list[Layer] | nn.Module"]


def models() -> dict[str, ModelBuilder]:
    """Return the builder of every model by its name."""
    return {**MODELS}


def find_model(name: str) -> ModelBuilder:
    """Return the builder called ``name``: one of ``models()``, or the user's "module:name".

    The user's name refers to a callable that takes (input_shape, num_classes) and returns a list of
    ``Layer``, or a torch module that maps float32 examples, shape (batch, *input_shape), to logits,
    shape (batch, num_classes). The callable may also take no argument, and the name may refer to a
    torch module.

    Raises:
        ConfigError: there is no such model or callable.
    """
    if is_address(name):
        return builder_of(given(name) or load(name, "model"), name)  # type: ignore[no-any-return]
    found = models()
    if name not in found:
        raise ConfigError(
            f"model = {name}: there is no such model; choose {', '.join(found)} "
            'or "module:callable"'
        )
    return found[name]


@lru_cache(maxsize=64)
def layout_of(
    name: str, input_shape: tuple[int, ...], num_classes: int, trainable: str = ALL
) -> Layout:
    """Return the layout of a model's trained parameters in one vector.

    A model that is a list of layers, as all of ``models()`` are, needs no torch for this. A model
    that is a torch module must be built first.

    Raises:
        ConfigError: the model cannot be built, or cannot be federated (see ``build_model``).

    >>> layout_of("cnn", (1, 28, 28), 10).size
    21840
    >>> layout_of("cnn", (1, 28, 28), 10, "head").size
    510
    """
    # A module that is built here is discarded, so restore torch's generator, which the caller may
    # have seeded.
    loaded = "torch" in sys.modules
    with torch_seeded(Stream(bytes(32), simulated=True)) if loaded else nullcontext():
        made = _call(name, input_shape, num_classes)
        if isinstance(made, list):
            found = _described(made, name, input_shape, num_classes)
            return _part(found, trainable)
        from fedldp.models._modules import check_module

        return layout_of_module(check_module(made, name, input_shape, num_classes, trainable))


def multiplications_of(name: str, input_shape: tuple[int, ...], num_classes: int) -> int:
    """Return how many multiplications by a weight the logits of one example need.

    For a torch module the result is its number of weights, which is too small if kernels slide over
    the input.

    Raises:
        ConfigError: the model cannot be built.

    >>> multiplications_of("cnn", (1, 28, 28), 10)
    480500
    """
    made = _call(name, input_shape, num_classes)
    if isinstance(made, list):
        return multiplications(made, input_shape)
    return layout_of(name, input_shape, num_classes).size


def layers_of(name: str, input_shape: tuple[int, ...], num_classes: int) -> list[Layer] | None:
    """Return the layers of a model that is a list of layers; None for a torch module.

    Raises:
        ConfigError: the model cannot be built, or cannot be federated (see ``build_model``).
    """
    made = _call(name, input_shape, num_classes)
    if not isinstance(made, list):
        return None
    _described(made, name, input_shape, num_classes)
    return made


def is_linear(name: str, input_shape: tuple[int, ...], num_classes: int) -> bool:
    """Return whether a model is one dense layer on its input, judging by its layers.

    Raises:
        ConfigError: the model cannot be built.

    >>> is_linear("logistic", (1, 8, 8), 10), is_linear("mlp", (1, 8, 8), 10)
    (True, False)
    """
    made = layers_of(name, input_shape, num_classes) or []
    return [type(layer) for layer in made if type(layer) is not Flatten] == [Dense]


def layout_of_module(model: nn.Module) -> Layout:
    """Return the layout in one vector of a torch module's parameters; buffers are left out."""
    named = list(model.named_parameters())
    return Layout(tuple(n for n, _ in named), tuple(tuple(p.shape) for _, p in named))


def layout_of_trained(model: nn.Module, trainable: str = ALL) -> Layout:
    """Return the layout in one vector of the trained parameters of a model.

    Other code trains the model, whose inputs and outputs are not checked here.

    Args:
        model: a torch module.
        trainable: which parameters are trained; see ``build_model``. With "all" the model must not
            have a buffer; otherwise buffers are not checked and, like frozen weights, not sent.

    Raises:
        ConfigError: it is no torch module, or a parameter or buffer cannot be protected.
    """
    from fedldp.models._modules import check_parameters

    checked = check_parameters(model, type(model).__name__, trainable)
    return _part(layout_of_module(checked), trainable)


def build_model(
    name: str, input_shape: tuple[int, ...], num_classes: int, trainable: str = ALL
) -> nn.Module:
    """Build a model as a torch module and check that it can be federated.

    Every parameter must be float32 and finite, with at least one axis and one element. With
    ``trainable = all`` the module must not have a buffer: the running statistics of a batch norm,
    for example, are computed from private examples and would leave the client unprotected. In the
    package's own ``BatchNorm`` they are parameters, which are protected like weights.

    Args:
        name: see ``find_model``.
        input_shape: the shape of one example.
        num_classes: the number of logits that the model returns.
        trainable: which parameters are trained: "all"; "head", the last layer that has parameters;
            or name patterns separated by commas. Every other parameter becomes a buffer of the
            returned module, and layers with only frozen parameters stay in evaluation mode. The
            module's own buffers are constants; a buffer that training changes is refused.

    Raises:
        ConfigError: the model cannot be built, or breaks one of these rules.
    """
    from fedldp.models._modules import check_module

    made = _call(name, input_shape, num_classes)
    if isinstance(made, list):
        described = _described(made, name, input_shape, num_classes)
        made = module(made, input_shape)
        found = layout_of_module(made)
        if found != described:  # a user's own layer does not build what it describes
            raise ConfigError(
                f"model = {name}: its layers describe {described}, but their module has {found}"
            )
    return check_module(made, name, input_shape, num_classes, trainable)


def begin_again(model: nn.Module, start: Start) -> None:
    """Draw the trained weights of a built model's dense layers and convolutions anew.

    Args:
        model: changed in place; its other layers stay as they are.
        start: "torch", torch's own rule; "he", He normal with biases of 0; or "zeros".
    """
    from torch import nn

    for part in model.modules():
        if isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d) and "weight" in part._parameters:
            begin(part, start)


def frozen_of(model: nn.Module) -> dict[str, NDArray[Any]]:
    """Return copies of the frozen state of a built model, by name."""
    trained = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return {
        name: tensor.detach().cpu().numpy().copy()
        for name, tensor in model.state_dict().items()
        if name not in trained
    }


def frozen_digest(model: nn.Module) -> str | None:
    """Return the SHA-256 of a built model's frozen state, in hexadecimal; None if it has none.

    The digest covers the names, types, shapes and bytes of all buffers, even of buffers that are
    not saved.
    """
    found = sorted((name, buffer.cpu().numpy()) for name, buffer in model.named_buffers())
    if not found:
        return None
    digest = hashlib.sha256(b"fedldp frozen\x01")
    for name, array in found:
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{name}\0{little.dtype.str}\0{little.shape}\0".encode())
        digest.update(np.ascontiguousarray(little).tobytes())
    return digest.hexdigest()


def copy_frozen(source: nn.Module, model: nn.Module) -> None:
    """Copy the frozen state of a built model to another model with the same settings."""
    for own, other in zip(model.buffers(), source.buffers(), strict=True):
        own.copy_(other)  # frozen state has no gradient


def fill_model(model: nn.Module, values: State, what: str) -> None:
    """Overwrite parameters and frozen state of a built model with the arrays in ``values``.

    Args:
        model: changed in place.
        values: arrays by name, as in ``state_dict``.
        what: the setting and its value, for the error message.

    Raises:
        ConfigError: the model has no array with that name, or an array of another shape or type.
    """
    from fedldp.models._modules import fill

    fill(model, values, what)


def start_from(model: nn.Module, content: bytes, setting: str) -> None:
    """Set a built model's weights to those in a public file.

    Args:
        model: changed in place; a trained parameter that the file lacks is left unchanged.
        content: of a .safetensors file.
        setting: the setting that names the file, with its value, for error messages.

    Raises:
        ConfigError: it is no such file; it lacks a frozen parameter; or one of its parameters is
            missing from the model, or has another shape or type in the model.
    """
    # Imported here, because statements need no safetensors.
    import safetensors.numpy

    try:
        found = safetensors.numpy.load(content)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{setting}: this is not a .safetensors file whose arrays all have types that numpy "
            "supports; give such a file"
        ) from error
    missing = sorted(set(frozen_of(model)) - set(found))
    if missing:
        raise ConfigError(
            f"{setting}: it lacks {missing[0]!a:.80}, which is frozen; give a file with the whole "
            "model, such as model.safetensors in a run folder"
        )
    fill_model(model, found, setting)


def _part(layout: Layout, trainable: str) -> Layout:
    """Return the layout of the trained parameters."""
    names = trained_of(layout.names, trainable)
    shapes = dict(zip(layout.names, layout.shapes, strict=True))
    return Layout(tuple(names), tuple(shapes[name] for name in names))


def _call(name: str, input_shape: tuple[int, ...], num_classes: int) -> list[Layer] | nn.Module:
    try:
        return find_model(name)(input_shape, num_classes)
    except FedldpError:
        raise
    except Exception as error:
        raise _failed(name, input_shape, error) from error


def _described(
    layers: list[Layer], name: str, input_shape: tuple[int, ...], num_classes: int
) -> Layout:
    for layer in layers:
        if not isinstance(layer, Layer):
            raise ConfigError(
                f"model = {name}: its list holds a {type(layer).__name__}, not a "
                "fedldp.models.Layer; put torch's own layers into an nn.Sequential"
            )
    try:
        found, end = layout(layers, input_shape), output(layers, input_shape)
    except Exception as error:
        raise _failed(name, input_shape, error) from error
    if len(set(found.names)) < len(found.names):
        raise ConfigError(f"model = {name}: two of its layers have the same name; rename one")
    if end != (num_classes,):
        raise ConfigError(
            f"model = {name}: for one example it returns {end}, not {num_classes} logits"
        )
    return found


def _failed(name: str, input_shape: tuple[int, ...], error: Exception) -> ConfigError:
    return ConfigError(
        f"model = {name}: building it for examples of shape {input_shape} failed with "
        f"{type(error).__name__}: {first_line(error)}"
    )
