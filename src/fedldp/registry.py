"""Finding what a package holds: adding a mechanism, a system or a recipe is adding one file.

And finding what is installed only with an extra.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import TypeVar

from fedldp.errors import ConfigError

T = TypeVar("T")


def modules(package: str) -> Iterator[ModuleType]:
    """Import and yield the modules of ``package``, by name, but those that begin with "_"."""
    path = importlib.import_module(package).__path__
    names = sorted(info.name for info in pkgutil.iter_modules(path))
    for name in names:
        if not name.startswith("_"):
            yield importlib.import_module(f"{package}.{name}")


def scan(package: str, base: type[T]) -> list[type[T]]:
    """Return the concrete subclasses of ``base`` that the modules of ``package`` define."""
    return [
        member
        for module in modules(package)
        for _, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, base)
        and member.__module__ == module.__name__
        and not inspect.isabstract(member)
    ]


def import_extra(name: str, *, extra: str) -> ModuleType:
    """Import and return the module ``name``, which comes with an extra of fedldp.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"{error}: install it with pip install 'fedldp[{extra}]'") from error
