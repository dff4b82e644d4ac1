"""Frozen parameters of a torch module, which become its constants. This file imports torch."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedldp.core.errors import ConfigError


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


def frozen_of(model: nn.Module) -> dict[str, NDArray[Any]]:
    """Return copies of the frozen state of a model, by name."""
    trained = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return {
        name: tensor.detach().cpu().numpy().copy()
        for name, tensor in model.state_dict().items()
        if name not in trained
    }


def digest_of(model: nn.Module) -> str | None:
    """Return the SHA-256 of a model's frozen state in hexadecimal; None without frozen state.

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


@torch.no_grad()
def fill(model: nn.Module, values: Mapping[str, NDArray[Any]], what: str) -> None:
    """Overwrite parameters and buffers of a model with the arrays in ``values``.

    Args:
        model: changed in place.
        values: arrays by name, as in ``state_dict``.
        what: the setting and its value, for the error message.

    Raises:
        ConfigError: the model has no array with that name, or an array of another shape or type.
    """
    state = model.state_dict()
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
        own.copy_(given)


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
