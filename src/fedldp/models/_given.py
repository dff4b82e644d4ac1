"""Models that a Python program passes as objects: a class, a function, or a torch module."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from copy import deepcopy
from typing import Any
from uuid import uuid4

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
    _check_makes(model, "a name, ")
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
    if name not in _GIVEN and _is_elsewhere(name):
        raise ConfigError(
            f"model = {name}: it was passed as a Python object in another process; in Python, "
            "pass it again: fedldp.load(DIR, model=...) or fedldp.resume(DIR, model=...); for "
            "the command line, put its class into a file and name it module:Class in a new run"
        )
    return _GIVEN.get(name)


def give_again(name: str, model: object) -> None:
    """Keep a model, or a class or function that makes one, under its name in another process.

    Args:
        name: the name that the other process recorded.
        model: the same model: a torch module, or a class or function that makes one.

    Raises:
        ConfigError: ``model`` is neither of these, or ``name`` finds a model in this process.
    """
    _check_makes(model)
    if not _is_elsewhere(name) or name in _GIVEN:
        raise ConfigError(
            f"model: the run's model is {name}, which is found by name; leave model out"
        )
    _GIVEN[name] = deepcopy(model) if _is_module(model) else model


def _check_makes(model: object, also: str = "") -> None:
    """Refuse what is neither a torch module nor makes one; ``also`` is what else may be given."""
    if not callable(model):
        raise ConfigError(
            f"model = {model!r}: give {also}a torch module, or a class or function that makes one"
        )


def _is_elsewhere(name: str) -> bool:
    """Return whether a name belongs to a model that only another process has."""
    place, _, label = name.partition(":")
    return place == _PLACE or (place == _SCRIPT and not hasattr(sys.modules.get(_SCRIPT), label))


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
    if isinstance(found, type) and not _takes_two(found):
        return lambda shape, classes: found()
    return found


def _is_module(found: object) -> bool:
    torch = sys.modules.get("torch")  # without it there are no torch modules
    return torch is not None and isinstance(found, torch.nn.Module)


def _takes_two(found: type) -> bool:
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind((1,), 2)
    except TypeError:
        return False
    return True
