"""Recipes: full configurations as functions, one per reproduced figure or table row.

Each module's public functions that return a SystemConfig are recipes; ldp_fl_mnist() is the recipe
ldp-fl-mnist. A module with a whole family of them, or with a second name for one, holds a mapping
RECIPES of functions by name as well. The docstring's first line describes a recipe.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from types import ModuleType

from fedldp.errors import ConfigError
from fedldp.registry import modules
from fedldp.systems import SystemConfig

Recipe = Callable[[], SystemConfig]


def recipes() -> dict[str, Recipe]:
    """Return every recipe by its name."""
    return {
        name: recipe for module in modules(__name__) for name, recipe in _recipes_of(module).items()
    }


def _recipes_of(module: ModuleType) -> dict[str, Recipe]:
    functions: dict[str, Recipe] = {
        name.replace("_", "-"): function
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
    return functions | getattr(module, "RECIPES", {})


def find_recipe(name: str) -> SystemConfig:
    """Return the configuration of the recipe called ``name``.

    Raises:
        ConfigError: there is no such recipe.
    """
    for module in modules(__name__):  # up to the right one: each imports its system
        found = _recipes_of(module)
        if name in found:
            return found[name]()
    close = " or ".join(get_close_matches(name.lower(), recipes()))
    raise ConfigError(
        f"recipe {name}: there is no such recipe or file; "
        + (f"did you mean {close}? See" if close else "see")
        + " `fedldp list recipes`"
    )
