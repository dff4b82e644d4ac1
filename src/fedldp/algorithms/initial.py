"""A model's initial weights from a file: the setting ``initial``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from fedldp.core.errors import ConfigError
from fedldp.data.folder import read_public
from fedldp.models import fill_model, frozen_of

if TYPE_CHECKING:
    from torch import nn


def start_from(model: nn.Module, name: str, data_dir: Path | None) -> None:
    """Set a built model's weights to those in a public file.

    Args:
        model: changed in place; a trained parameter that the file lacks is left unchanged.
        name: a .safetensors file, in the current folder or the data folder.
        data_dir: the data folder.

    Raises:
        ConfigError: there is no such file; it lacks a frozen parameter; or one of its parameters is
            missing from the model, or has another shape or type in the model.
    """
    setting = f"initial = {name}"
    found = _read(name, data_dir)
    missing = sorted(set(frozen_of(model)) - set(found))
    if missing:
        raise ConfigError(
            f"{setting}: it lacks {missing[0]!a:.80}, which is frozen; give a file with the whole "
            "model, such as model.safetensors in a run folder"
        )
    fill_model(model, found, setting)


def _read(name: str, data_dir: Path | None) -> dict[str, NDArray[Any]]:
    # Imported here, because statements need no safetensors.
    from safetensors import SafetensorError
    from safetensors.numpy import load

    setting = f"initial = {name}"
    try:
        return load(read_public(name, setting, data_dir).content)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{setting}: this is not a .safetensors file whose arrays all have types that numpy "
            "supports; give such a file"
        ) from error
