"""From what a user names or writes to a checked configuration, and back to TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from fedldp.errors import ConfigError
from fedldp.recipes import find_recipe
from fedldp.systems import SystemConfig, systems


def resolve(recipe: str, assignments: Sequence[str] = ()) -> SystemConfig:
    """Return the configuration of a recipe or a TOML file, with assignments applied.

    Args:
        recipe: a recipe's name, or the path of a file that ends in .toml.
        assignments: "KEY=VALUE" texts; VALUE is read as TOML, else as text. "KEY=" unsets KEY.

    Raises:
        ConfigError: the recipe, a key or a value is wrong.
    """
    config = read_toml(Path(recipe)) if recipe.endswith(".toml") else find_recipe(recipe)
    changes: dict[str, Any] = {}
    for key, value in map(_assignment, assignments):
        _put(changes, key.split("."), value)
    return config.changed(**changes) if changes else config


def _put(settings: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        settings = settings.setdefault(key, {})
    settings[keys[-1]] = value


def from_mapping(settings: Mapping[str, Any]) -> SystemConfig:
    """Return the configuration that ``settings`` describes; its "system" says of which system.

    Raises:
        ConfigError: there is no such system, or a setting is wrong.
    """
    known = systems()
    name = settings.get("system")
    if not isinstance(name, str) or name not in known:
        raise ConfigError(f"system = {name}: choose {', '.join(known)}")
    return known[name].model_validate(dict(settings))


def read_toml(path: Path) -> SystemConfig:
    """Return the configuration in a TOML file.

    Raises:
        ConfigError: the file cannot be read, is no TOML, or describes no valid configuration.
    """
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"recipe {path}: {error.strerror}; check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"recipe {path}: this is no TOML: {error}") from error
    return from_mapping(settings)


def to_toml(config: SystemConfig) -> str:
    """Return the resolved configuration as TOML, which ``read_toml`` reads back the same."""
    text = tomli_w.dumps(config.model_dump(exclude_none=True))
    setting = config.epsilon_in_words()
    return text if setting is None else f"# {setting}\n{text}"


def _assignment(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError(f"set {text}: write it as KEY=VALUE")
    if not value.strip():
        return key, None
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value.strip()
