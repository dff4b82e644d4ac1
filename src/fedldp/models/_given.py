"""Models that a Python program passes as objects: a class, a function, or a torch module."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any
from uuid import uuid4  # noqa: TID251  # a name

from fedldp.core.errors import ConfigError
from fedldp.core.registry import address_of

_PLACE = "python"
_SCRIPT = "__main__"
_GIVEN: dict[str, object] = {}
"""Objects without an address, by the name that each got; they are kept until the process ends."""


def name_of(model: object) -> str:
    """Return a name under which ``find_model`` finds ``model``.

    A module-level class or function is identified by its import path, which any process can
    resolve. Anything else, such as a torch module, is kept in its present state, and only this
    process can find it.

    Raises:
        ConfigError: ``model`` cannot build a model.
    """
    if not callable(model):
        raise ConfigError(
            f"model = {model!r}: give a name, a torch module, or a class or function that makes one"
        )
    address = address_of(model)
    if address is not None:
        return address
    name = getattr(model, "__qualname__", type(model).__name__)
    label = f"{_PLACE}:{name.rpartition('.')[2]}-{uuid4().hex}"  # in a forked process, too
    _GIVEN[label] = deepcopy(model) if _is_module(model) else model
    return label


def given(name: str) -> object | None:
    """Return the object given under ``name``; None if there is none.

    Raises:
        ConfigError: the object was given in another process.
    """
    place, _, label = name.partition(":")
    of_script = place == _SCRIPT and not hasattr(sys.modules.get(_SCRIPT), label)
    if name not in _GIVEN and (place == _PLACE or of_script):
        raise ConfigError(
            f"model = {name}: it was passed as a Python object, or defined by the script, in "
            "another process; define the script's class or function here as well, or put it into "
            "a file and name it module:Class in a new run"
        )
    return _GIVEN.get(name)


def check_travels(settings: Mapping[str, Any], where: str) -> None:
    """Refuse a model or other code that other processes cannot find.

    Args:
        settings: a run's settings.
        where: the setting that asks for other processes.

    Raises:
        ConfigError: the model was given as an object, or a setting names what the script defines.
    """
    for name, value in settings.items():
        if isinstance(value, str) and value.startswith((f"{_PLACE}:", f"{_SCRIPT}:")):
            raise ConfigError(
                f"{where}: the {name} was given as an object or by the script itself, which other "
                "processes do not have; put its class or function into a file and name it "
                "module:NAME, or use workers = 1"
            )


def builder_of(found: object, name: str) -> Any:
    """Return a function of an example's shape and a number of classes that builds the model.

    Raises:
        ConfigError: ``found`` is not callable.
    """
    if _is_module(found):
        return lambda shape, classes: deepcopy(found)
    if not callable(found):
        raise ConfigError(f"model = {name}: it is not callable; name a function or a class")
    if not _takes_two(found):
        return lambda shape, classes: found()
    return found


def _is_module(found: object) -> bool:
    torch = sys.modules.get("torch")  # without it there are no torch modules
    return torch is not None and isinstance(found, torch.nn.Module)


def _takes_two(found: Callable[..., Any]) -> bool:
    try:
        inspect.signature(found).bind((1,), 2)
    except TypeError:
        return False
    except ValueError:  # it has no signature
        return True
    return True
