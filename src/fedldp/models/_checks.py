"""Requirements on a federated torch module. Importing this file imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parameter import UninitializedParameter

from fedldp.core.errors import ConfigError, first_line
from fedldp.models._frozen import check_buffers, freeze
from fedldp.models._trained import ALL, REQUIRES_GRAD, trained_of


def check_module(
    model: object, name: str, input_shape: tuple[int, ...], num_classes: int, trainable: str = ALL
) -> nn.Module:
    """Return ``model`` if it is a torch module that can be federated; see ``build_model``.

    Raises:
        ConfigError: ``model`` is not a torch module, or breaks a rule.
    """
    found = check_parameters(model, name, trainable)
    if trainable != ALL:
        freeze(found, names_of_trained(found, name, trainable))
        check_buffers(found, name)
    known = {label for label, _ in found.named_parameters()}
    _try_training(found, name, input_shape, num_classes)
    _try_testing(found, name, input_shape, num_classes)
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
        raise ConfigError(
            f"model = {name}: it returned a {type(model).__name__}, not a torch module"
        )
    if trainable == ALL:
        for label, buffer in model.named_buffers():
            raise ConfigError(
                f"model = {name}: the buffer {label} ({buffer.dtype}) is updated from private "
                "examples and no mechanism protects it; use group norm or no norm instead of batch "
                "norm, or freeze its layer with trainable"
            )
    parameters = dict(model.named_parameters())
    if not parameters:
        raise ConfigError(f"model = {name}: it has no parameters to train")
    for label, parameter in parameters.items():
        problem = _problem(parameter)
        if problem is None and trainable == ALL and not parameter.requires_grad:
            problem = f"is frozen; set trainable = {REQUIRES_GRAD}, remove it, or make it trainable"
        if problem:
            raise ConfigError(f"model = {name}: the parameter {label} {problem}")
    return model


def names_of_trained(model: nn.Module, name: str, trainable: str) -> list[str]:
    """Return the names of the parameters that the setting ``trainable`` selects, in their order.

    Raises:
        ConfigError: ``trainable`` selects no parameter.
    """
    parameters = dict(model.named_parameters())
    if trainable != REQUIRES_GRAD:
        return trained_of(list(parameters), trainable)
    found = [label for label, parameter in parameters.items() if parameter.requires_grad]
    if not found:
        raise ConfigError(
            f"trainable = {trainable}: model = {name} has no parameter that requires a gradient; "
            "set requires_grad on some parameters, or select some by a pattern"
        )
    return found


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
    return None


def _try_training(
    model: nn.Module, name: str, input_shape: tuple[int, ...], num_classes: int
) -> None:
    """Compute gradients on a batch of two examples, and on a batch of only one example.

    The last batch of an epoch may have only one example. Buffers must not change. Nonzero examples
    are tried too, because zeros leave a running mean at zero.
    """
    parameters = dict(model.named_parameters())
    constants = {label: buffer.clone() for label, buffer in model.named_buffers()}
    for size in (2, 1):
        try:
            logits = model(torch.zeros(size, *input_shape))
        except Exception as error:
            raise ConfigError(
                f"model = {name}: it does not take {size} examples of shape {input_shape}: "
                f"{first_line(error)}"
            ) from error
        _check_logits(logits, name, size, num_classes)
        try:
            loss = functional.cross_entropy(logits, torch.zeros(size, dtype=torch.int64))
            gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        except Exception as error:
            raise ConfigError(
                f"model = {name}: its output cannot be trained: {first_line(error)}"
            ) from error
        for label, gradient in zip(parameters, gradients, strict=True):
            if gradient is None:
                raise ConfigError(
                    f"model = {name}: the parameter {label} has no effect on the output; remove it"
                )
        _check_constant(model, name, constants)
    if constants:
        with suppress(Exception), torch.no_grad():  # the model may refuse these numbers
            model(torch.full((2, *input_shape), 0.5))
        _check_constant(model, name, constants)


def _try_testing(
    model: nn.Module, name: str, input_shape: tuple[int, ...], num_classes: int
) -> None:
    """Compute logits in eval mode.

    Models are tested in this mode, and the first test only takes place after a round.
    """
    modes = {module: module.training for module in model.modules()}
    constants = {label: buffer.clone() for label, buffer in model.named_buffers()}
    model.eval()
    try:
        with torch.no_grad():
            logits = model(torch.zeros(2, *input_shape))
    except Exception as error:
        raise ConfigError(
            f"model = {name}: in eval mode, in which it is tested, it does not take 2 examples of "
            f"shape {input_shape}: {type(error).__name__}: {first_line(error)}; forward must "
            "also work after model.eval()"
        ) from error
    finally:
        model.train()  # a user's own module may do more than record its mode
        for module, mode in modes.items():
            module.training = mode
    _check_logits(logits, name, 2, num_classes, " in eval mode, in which it is tested")
    _check_constant(model, name, constants)


def _check_logits(logits: object, name: str, size: int, num_classes: int, mode: str = "") -> None:
    found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if found != (size, num_classes):
        raise ConfigError(
            f"model = {name}: for {size} examples it returns {found}{mode}, not logits of shape "
            f"({size}, {num_classes})"
        )


def _check_constant(model: nn.Module, name: str, constants: Mapping[str, Tensor]) -> None:
    for label, buffer in model.named_buffers():
        if not torch.equal(buffer, constants[label]):
            raise ConfigError(
                f"model = {name}: the buffer {label} ({buffer.dtype}) is updated from private "
                "examples and no mechanism protects it; freeze its layer with trainable, or use "
                "group norm or no norm instead of batch norm"
            )
