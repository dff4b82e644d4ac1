"""Turns recipes, TOML files and assignments into checked configurations, and these into TOML."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import find_recipe
from fedldp.algorithms.settings_docs import commented_toml
from fedldp.algorithms.systems import find_system
from fedldp.algorithms.validation import shown
from fedldp.core.errors import ConfigError
from fedldp.reporting.record import RunFolder

_NOTHING: Mapping[str, Any] = MappingProxyType({})


def resolve(recipe: str, assignments: Sequence[str] = ()) -> RunConfig:
    """Return the configuration of a recipe or a TOML file, with assignments applied.

    Args:
        recipe: a recipe's name, or the path of a file that ends in .toml, which may leave out any
            setting that is assigned here.
        assignments: "KEY=VALUE" strings; VALUE is read as TOML, or else as a string. "KEY=" unsets
            KEY.

    Raises:
        ConfigError: the recipe, a key or a value is wrong.
    """
    changes = [assignment(text) for text in assignments]
    if not changes:
        return named(recipe)
    base = named(recipe, nested(changes))
    found = base.changed(**nested(changes, base))
    if found.client_column is not None and any(key == "num_clients" for key, _ in changes):
        _check_agrees(found)
    return found


def named(recipe: str, left_out: Mapping[str, Any] | None = None) -> RunConfig:
    """Return the configuration of a recipe or a TOML file.

    Args:
        recipe: a recipe's name, or the path of a file that ends in .toml, or of a run's
            config.json.
        left_out: settings that complete such a file if the file is invalid without them.

    Raises:
        ConfigError: there is no such recipe, or the file is invalid.
    """
    if not recipe.strip():
        raise ConfigError(
            f"recipe {recipe!r} is empty: give a recipe's name or the path of a .toml file; "
            "see `fedldp list recipes`"
        )
    path = Path(recipe)
    if recipe.endswith(".toml"):
        try:
            return read_toml(path)
        except ConfigError:
            # A complete file is read before it is changed, because one change may be incompatible
            # with a setting that another change replaces.
            if not left_out:
                raise
            return read_toml(path, left_out)
    if path.name == "config.json" and path.is_file():  # a run's own
        return from_mapping(RunFolder(path.parent).read_config()["config"])
    if path.is_file():
        raise ConfigError(
            f"recipe {recipe}: the name of a settings file must end in .toml; write such a file "
            "with `fedldp run RECIPE --print-config`, or rename it"
        )
    return find_recipe(recipe).config


def nested(
    settings: Iterable[tuple[str, Any]], base: RunConfig | Mapping[str, Any] = _NOTHING
) -> dict[str, Any]:
    """Return settings by name; a dotted name such as "target.epsilon" gives a nested mapping.

    Args:
        settings: the settings, by dotted name.
        base: the settings so far, whose tables keep the values that are not changed.
    """
    known = base if isinstance(base, Mapping) else base.model_dump()
    changes: dict[str, Any] = {}
    for key, value in settings:
        table, _, below = key.partition(".")
        if below and isinstance(known.get(table), dict):
            changes.setdefault(table, deepcopy(known[table]))
        _put(changes, key, value)
    return changes


def check_setting(configs: Iterable[RunConfig], key: str) -> None:
    """Refuse a setting that none of some configurations has.

    Raises:
        ConfigError: none has it; the error lists the settings of the first configuration.
    """
    found = list(configs)
    if found and not any(config.has(key) for config in found):
        found[0].changed(**nested([(key, None)]))


def _check_agrees(config: RunConfig) -> None:
    """Refuse a requested number of clients that differs from the number in the data."""
    from fedldp.simulation.plan import problem_of

    clients = problem_of(config, None).num_clients
    if config.num_clients != clients:
        raise ConfigError(
            f"num_clients = {config.num_clients}: the column {config.client_column} of "
            f"{config.dataset} has {clients}; leave num_clients out"
        )


def _put(settings: dict[str, Any], key: str, value: Any) -> None:
    """Store a value under a key such as target.epsilon."""
    *tables, last = key.split(".")
    for place, name in enumerate(tables, start=1):
        settings = settings.setdefault(name, {})
        if not isinstance(settings, dict):
            whole = ".".join(tables[:place])
            raise ConfigError(
                f"set {key}: {whole} is {shown(settings)}, which has no nested settings; set "
                f"either {whole} or {key}"
            )
    settings[last] = value


def from_mapping(settings: Mapping[str, Any]) -> RunConfig:
    """Return the configuration that ``settings`` describes; its "system" names the system.

    Raises:
        ConfigError: there is no such system, or a setting is wrong.
    """
    name = settings.get("system")
    if not isinstance(name, str):
        raise ConfigError(f"system = {shown(name)}: give the name of a system")
    return find_system(name).model_validate(dict(settings))


def read_toml(path: Path, left_out: Mapping[str, Any] | None = None) -> RunConfig:
    """Return the configuration in a TOML file, completed with settings that the file lacks.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or describes no valid configuration.
    """
    settings = settings_in(path)
    more = {key: value for key, value in (left_out or {}).items() if value is not None}
    if "system" not in {**more, **settings}:
        raise ConfigError(
            f"recipe {path}: it names no system; add one (see fedldp list systems), let fedldp "
            f"advise {path} search for the settings of its table, or, if it is for nodes of your "
            f"own loop: fedldp account {path} --size WEIGHTS"
        )
    return from_mapping(with_clients(more | beside(path, settings)))


def settings_in(path: Path, what: str = "recipe") -> dict[str, Any]:
    """Return the settings that a TOML file has, unchecked; messages call the file ``what``.

    Raises:
        ConfigError: the file cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{what} {path}: {error.strerror}; check the path") from error
    except RecursionError as error:
        raise ConfigError(
            f"{what} {path}: its values are nested too deeply; flatten them"
        ) from error
    except ValueError as error:  # not TOML, not UTF-8, or a number with thousands of digits
        raise ConfigError(f"{what} {path}: this is not valid TOML: {error}") from error


_FILES = ("dataset", "test_file")
"""The settings that name a table."""


def beside(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a TOML file, with the paths of tables relative to the current folder.

    A relative path is searched for in the file's own folder, so that the file can be used from
    anywhere; if there is no such table, the path is relative to the current folder.

    Args:
        path: the path of the file.
        settings: the file's settings.
    """
    found = dict(settings)
    for name in _FILES:
        text = found.get(name)
        if isinstance(text, str) and _is_relative(text) and (path.parent / text).is_file():
            found[name] = _as_seen(path.parent / text, Path())
    return found


def seen_from(folder: Path, config: RunConfig) -> dict[str, str]:
    """Return the paths of a configuration's tables as seen from a TOML file in ``folder``."""
    return {
        name: _as_seen(Path(text), folder)
        for name in _FILES
        if (text := getattr(config, name)) is not None and _is_relative(text)
    }


def _as_seen(file: Path, folder: Path) -> str:
    """Return a file's path relative to a folder, without resolving links."""
    plain = os.path.relpath(file, folder)
    if (folder / plain).exists() and (folder / plain).samefile(file):
        return plain
    return os.path.relpath(file.resolve(), folder.resolve())  # in the path, a link precedes a ".."


def _is_relative(text: str) -> bool:
    """Return whether a setting is the relative path of a file, rather than a data set's name."""
    from fedldp.data.custom import is_own_file

    return is_own_file(text) and not Path(text).expanduser().is_absolute()


def with_clients(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings; if they lack the number of clients, count the clients in the table."""
    from fedldp.data.columns import identity
    from fedldp.data.custom import is_table
    from fedldp.data.tables import read_table

    column, path = settings.get("client_column"), settings.get("dataset")
    if "num_clients" in settings or not isinstance(column, str) or not isinstance(path, str):
        return settings
    if not is_table(path):
        return settings
    table = read_table(Path(path).expanduser())
    if column not in table.names:
        raise ConfigError(
            f"client_column names {column!r}, which {path} does not have; its columns are "
            f"{table.listed}"
        )
    names = set(map(identity, set(table.texts(column))))
    return {**settings, "num_clients": len(names)}


def to_toml(config: RunConfig) -> str:
    """Return the resolved configuration as TOML; ``read_toml`` reads it back unchanged.

    Each setting has a comment that explains it.
    """
    text = commented_toml(config)
    setting = epsilon_as_set(config)
    return text if setting is None else f"# {setting}\n\n{text}"


def epsilon_as_set(config: RunConfig) -> str | None:
    """Return the note, if any, on a configuration's epsilon before its run is planned."""
    if config.target is not None and config.has(config.calibrated):
        return f"{config.calibrated} is solved for the target, whatever its value here"
    return config.epsilon_in_words()


def assignment(text: str) -> tuple[str, Any]:
    """Return the key and the value in "KEY=VALUE"; the value is None if it is empty.

    Raises:
        ConfigError: the string does not have this form.
    """
    key, equals, given = text.partition("=")
    key, given = key.strip(), given.strip()
    if not equals or not all(part.strip() for part in key.split(".")):
        raise ConfigError(f"set {shown(text)}: write it as KEY=VALUE")
    if not given:
        return key, None
    return key, value_of(given, key)


def value_of(text: str, key: str = "") -> Any:
    """Return a value that a user wrote for ``key``, read as TOML, or else as a string.

    Raises:
        ConfigError: the value is nested too deeply, or is a number with thousands of digits.
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()
    except (RecursionError, ValueError) as error:
        raise ConfigError(
            f"set {key}: its value is nested too deeply, or has thousands of digits; give a flat "
            "one with fewer digits"
        ) from error
