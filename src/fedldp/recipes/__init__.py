"""Recipes: full configurations as data, one for each reproduced figure or table row.

Each module holds its recipes in ``RECIPES``. A recipe's name begins with its module's, so that to
find one imports nothing but that module.
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches

from fedldp.errors import ConfigError
from fedldp.recipes._recipe import Expected, Recipe, Source, grid, shared_settings
from fedldp.registry import module_names

__all__ = ["Expected", "Recipe", "Source", "find_recipe", "grid", "recipes", "shared_settings"]


def recipes() -> dict[str, Recipe]:
    """Return every recipe by its name, second names included."""
    return {
        name: recipe for module in module_names(__name__) for name, recipe in _of(module).items()
    }


def find_recipe(name: str) -> Recipe:
    """Return the recipe called ``name``.

    Raises:
        ConfigError: there is no such recipe.
    """
    for module in sorted(module_names(__name__), key=lambda each: -_fit(each, name)):
        found = _of(module)
        if name in found:
            return found[name]
    close = " or ".join(get_close_matches(name.lower(), recipes()))
    raise ConfigError(
        f"recipe {name}: there is no such recipe or file; "
        + (f"did you mean {close}? See" if close else "see")
        + " `fedldp list recipes`"
    )


def _of(module: str) -> dict[str, Recipe]:
    found: tuple[Recipe, ...] = importlib.import_module(f"{__name__}.{module}").RECIPES
    return {recipe.name: recipe for recipe in found}


def _fit(module: str, name: str) -> int:
    """Return how much of a recipe's name a module's name is; 0 where it does not begin with it."""
    start = module.replace("_", "-")
    return len(start) if f"{name}-".startswith(f"{start}-") else 0
