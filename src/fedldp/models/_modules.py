"""Torch modules that can be federated: what they must meet, and their frozen parameters.

Frozen parameters become buffers, the module's constants. Importing this file imports torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parameter import UninitializedParameter

from fedldp.core.errors import ConfigError, first_line
from fedldp.models._layers import ALL, is_statistic, trained_of


def freeze(model: nn.Module, trained: Collection[str]) -> None:
    """Turn every parameter except the ``trained`` ones into a buffer of the same name and value.

    Code that looks at a model's parameters (training, bounds, wire, statement) then sees only the
    trained ones, and ``state_dict`` still has all of them. A module whose parameters are all frozen
    stays in evaluation mode: its dropout does nothing, and its batch norms change nothing.
    """
    kept = {id(p) for name, p in model.named_parameters() if name in trained}
    constants: dict[int, Tensor] = {}  # a parameter that two modules share stays shared
    wholly = [m for m in model.modules() if _is_frozen(m, kept)]
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if id(parameter) in kept:
                parameter.requires_grad_(True)
                continue
            parameter.requires_grad_(False)
            del module._parameters[name]
            module.register_buffer(name, constants.setdefault(id(parameter), parameter.detach()))
    for module in wholly:
        for part in module.modules():
            part.training = False
            part.train = partial(_stay, part)  # type: ignore[method-assign]


def _is_frozen(module: nn.Module, kept: Collection[int]) -> bool:
    own = list(module.parameters())
    return bool(own) and not any(id(parameter) in kept for parameter in own)


def _stay(module: nn.Module, mode: bool = True) -> nn.Module:
    """Replace ``module.train`` for a module without trained parameters."""
    return module


def check_buffers(model: nn.Module, name: str) -> None:
    """Refuse buffers that cannot be written to a file or covered by a digest.

    Raises:
        ConfigError: there is such a buffer.
    """
    for label, buffer in model.named_buffers():
        try:
            buffer.numpy()
        except Exception as error:
            raise ConfigError(
                f"model = {name}: the buffer {label} ({buffer.dtype}, {buffer.device}) cannot be "
                "converted to an array; build the model on the CPU, with float32 numbers"
            ) from error


@torch.no_grad()
def fill(model: nn.Module, values: Mapping[str, NDArray[Any]], what: str) -> None:
    """Overwrite parameters and buffers of a model with the arrays in ``values``.

    Args:
        model: changed in place.
        values: arrays by name, as in ``state_dict``.
        what: the setting and its value, for the error message.

    Raises:
        ConfigError: the model has no array with that name, or an array of another shape or type; or
            a weight is NaN or infinite.
    """
    state, weights = model.state_dict(), dict(model.named_parameters())
    for name, value in values.items():
        if name not in state:
            raise ConfigError(f"{what}: the model has no {name!a:.80}; give weights for this model")
        own = state[name]
        given = torch.from_numpy(np.array(value))
        if given.shape != own.shape or given.dtype != own.dtype:
            raise ConfigError(
                f"{what}: {name} is {_described(given)}, but the model has {_described(own)}; give "
                "weights for this model"
            )
        if name in weights and not given.isfinite().all():
            raise ConfigError(f"{what}: {name} holds NaN or infinity; give finite weights")
        own.copy_(given)


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def check_module(
    model: object, name: str, input_shape: tuple[int, ...], num_classes: int, trainable: str = ALL
) -> nn.Module:
    """Return ``model`` if it is a torch module that can be federated; see ``build_model``.

    Raises:
        ConfigError: ``model`` is not a torch module, or breaks a rule.
    """
    found = check_parameters(model, name, trainable)
    if trainable != ALL:
        freeze(found, trained_of([label for label, _ in found.named_parameters()], trainable))
        check_buffers(found, name)
    known = {label for label, _ in found.named_parameters()}
    _try(found, name, input_shape, num_classes)
    for label in {label for label, _ in found.named_parameters()} - known:
        raise ConfigError(
            f"model = {name}: the parameter {label} appears only when the model is used; create it "
            "in __init__"
        )
    return found


def check_parameters(model: object, name: str, trainable: str = ALL) -> nn.Module:
    """Return ``model`` if it is a torch module that meets ``build_model``'s rules on parameters.

    Raises:
        ConfigError: ``model`` is not such a module.
    """
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model = {name}: it is a {type(model).__name__}, not a torch module")
    if trainable == ALL:
        for label, buffer in model.named_buffers():
            raise _unprotected(name, label, buffer)
    parameters = dict(model.named_parameters())
    if not parameters:
        raise ConfigError(f"model = {name}: it has no parameters to train")
    for label, parameter in parameters.items():
        problem = _problem(parameter)
        if problem is None and trainable == ALL and not parameter.requires_grad:
            problem = "is frozen; set trainable to names of those to train, or remove it"
        if problem:
            raise ConfigError(f"model = {name}: the parameter {label} {problem}")
    return model


def _problem(parameter: nn.Parameter) -> str | None:
    if isinstance(parameter, UninitializedParameter):
        return "has no shape yet; use layers that know their sizes"
    where, shape = parameter.device.type, tuple(parameter.shape)
    if (parameter.dtype, where) == (torch.float32, "cpu") and shape and parameter.numel():
        return None if parameter.isfinite().all() else "starts with NaN or infinity"
    return (
        f"is {_described(parameter)} on {where}; build the model on the CPU of float32 numbers, "
        "each parameter with an axis and an element"
    )


def _try(model: nn.Module, name: str, input_shape: tuple[int, ...], num_classes: int) -> None:
    """Compute gradients on batches of two examples and of one, and logits in eval mode.

    The last batch of an epoch may have only one example, and models are tested in eval mode.
    Buffers must not change. Nonzero examples are tried too, because zeros leave a running mean at
    zero.
    """
    parameters = dict(model.named_parameters())
    constants = {label: buffer.clone() for label, buffer in model.named_buffers()}
    starts = {
        label: own.detach().clone() for label, own in parameters.items() if is_statistic(label)
    }
    modes = {module: module.training for module in model.modules()}
    for size in (2, 1):
        logits = _logits(model, name, (size, *input_shape), num_classes)
        try:
            loss = functional.cross_entropy(logits, torch.zeros(size, dtype=torch.int64))
            gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        except Exception as error:
            raise ConfigError(
                f"model = {name}: its output cannot be trained: {first_line(error)}"
            ) from error
        for label, gradient in zip(parameters, gradients, strict=True):
            if gradient is None and not is_statistic(label):
                raise ConfigError(
                    f"model = {name}: the parameter {label} has no effect on the output; remove it"
                )
        _check_constant(model, name, constants)
    with torch.no_grad():
        if constants:
            with suppress(Exception):  # the model may refuse these numbers
                model(torch.full((2, *input_shape), 0.5))
            _check_constant(model, name, constants)
        for label, start in starts.items():
            parameters[label].copy_(start)
        model.eval()
        _logits(model, name, (2, *input_shape), num_classes, " in eval mode, in which it is tested")
    model.train()  # a user's own module may do more than record its mode
    for module, mode in modes.items():
        module.training = mode
    _check_constant(model, name, constants)


def _logits(
    model: nn.Module, name: str, shape: tuple[int, ...], num_classes: int, mode: str = ""
) -> Tensor:
    """Return the model's outputs for examples of zeros; refuse it if they are not logits."""
    try:
        logits: Tensor = model(torch.zeros(shape))
    except Exception as error:
        raise ConfigError(
            f"model = {name}: it does not take {shape[0]} examples of shape {shape[1:]}{mode}: "
            f"{type(error).__name__}: {first_line(error)}"
        ) from error
    found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if found != (shape[0], num_classes):
        raise ConfigError(
            f"model = {name}: for {shape[0]} examples it returns {found}{mode}, not logits of "
            f"shape ({shape[0]}, {num_classes})"
        )
    return logits


def _check_constant(model: nn.Module, name: str, constants: Mapping[str, Tensor]) -> None:
    for label, buffer in model.named_buffers():
        if not torch.equal(buffer, constants[label]):
            raise _unprotected(name, label, buffer)


def _unprotected(name: str, label: str, buffer: Tensor) -> ConfigError:
    return ConfigError(
        f"model = {name}: the buffer {label} ({buffer.dtype}) is updated from private examples and "
        "no mechanism protects it; use group norm, no norm, or fedldp.models.BatchNorm, or freeze "
        "its layer with trainable"
    )
