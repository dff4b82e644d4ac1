"""Models: one file each, found by a scan; and any module of the user's as "module:callable".

Each file holds one ``build(input_shape, num_classes) -> nn.Module``; its first docstring line is
the model's description.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parameter import UninitializedParameter

from fedldp.errors import ConfigError, FedldpError
from fedldp.registry import modules

ModelBuilder = Callable[[tuple[int, ...], int], nn.Module]


def models() -> dict[str, ModelBuilder]:
    """Return the builder of every model by its name."""
    return {m.__name__.rsplit(".", 1)[1]: m.build for m in modules(__name__)}


def find_model(name: str) -> ModelBuilder:
    """Return the builder called ``name``: one of ``models()``, or the user's "module:callable".

    The callable takes (input_shape, num_classes) and returns a torch module that maps float32
    examples, shape (batch, *input_shape), to logits, shape (batch, num_classes).

    Raises:
        ConfigError: there is no such model or callable.
    """
    if ":" in name:
        module, _, attribute = name.partition(":")
        try:
            builder = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"model = {name}: {error}; check the name and PYTHONPATH") from error
        if not callable(builder):
            raise ConfigError(f"model = {name}: it is not callable; name a function or a class")
        return builder  # type: ignore[no-any-return]
    found = models()
    if name not in found:
        raise ConfigError(
            f"model = {name}: there is no such model; choose {', '.join(found)} "
            'or "module:callable"'
        )
    return found[name]


def build_model(name: str, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Build a model and check that it can be federated.

    Every parameter must be float32, finite, with at least one axis and one element, and the module
    may have no buffer: running statistics of a batch norm, for one, are computed from private
    examples and would leave the client unprotected.

    Raises:
        ConfigError: the model cannot be built, or breaks one of these rules.
    """
    try:
        model = find_model(name)(input_shape, num_classes)
    except FedldpError:
        raise
    except Exception as error:
        raise ConfigError(
            f"model = {name}: building it for examples of shape {input_shape} failed with "
            f"{type(error).__name__}: {_first_line(error)}"
        ) from error
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model = {name}: it made a {type(model).__name__}, not a torch module")
    for label, buffer in model.named_buffers():
        raise ConfigError(
            f"model = {name}: the buffer {label} ({buffer.dtype}) is updated from private examples "
            "and no mechanism protects it; use group norm or no norm instead of batch norm"
        )
    parameters = dict(model.named_parameters())
    if not parameters:
        raise ConfigError(f"model = {name}: it has no parameters to train")
    for label, parameter in parameters.items():
        problem = _problem(parameter)
        if problem:
            raise ConfigError(f"model = {name}: the parameter {label} {problem}")
    _try_training(model, name, input_shape, num_classes)
    return model


def _problem(parameter: nn.Parameter) -> str | None:
    if isinstance(parameter, UninitializedParameter):
        return "has no shape yet; use layers that know their sizes"
    if parameter.dtype != torch.float32:
        return f"is {parameter.dtype}; use float32"
    if parameter.device.type != "cpu":
        return f"is on the device {parameter.device}; build the model on the CPU"
    if parameter.ndim == 0:
        return "is 0-d; give it at least one axis"
    if parameter.numel() == 0:
        return "is empty; remove it"
    if not torch.isfinite(parameter).all():
        return "starts with NaN or infinity; check its initialisation"
    if not parameter.requires_grad:
        return "is frozen; remove it, or let it be trained"
    return None


def _try_training(
    model: nn.Module, name: str, input_shape: tuple[int, ...], num_classes: int
) -> None:
    """Take a gradient on batches of two examples and of one, which the last batch may have."""
    parameters = dict(model.named_parameters())
    for size in (2, 1):
        try:
            logits = model(torch.zeros(size, *input_shape))
        except Exception as error:
            raise ConfigError(
                f"model = {name}: it does not take {size} examples of shape {input_shape}: "
                f"{_first_line(error)}"
            ) from error
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        if found != (size, num_classes):
            raise ConfigError(
                f"model = {name}: for {size} examples it returns {found}, not logits of shape "
                f"({size}, {num_classes})"
            )
        try:
            loss = functional.cross_entropy(logits, torch.zeros(size, dtype=torch.int64))
            gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        except Exception as error:
            raise ConfigError(
                f"model = {name}: its output cannot be trained: {_first_line(error)}"
            ) from error
        for label, gradient in zip(parameters, gradients, strict=True):
            if gradient is None:
                raise ConfigError(
                    f"model = {name}: the parameter {label} has no effect on the output; remove it"
                )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
