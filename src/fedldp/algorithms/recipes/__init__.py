"""Recipes: full configurations as data, one for each reproduced figure or table row.

They are in TOML files here, and in the folder ``recipes`` of a paper. A file has

    paper, tolerance        of its recipes, if they have a source; tolerance in percentage points
    [[recipe]]              a recipe, or several that differ in a few settings:
      name, summary         a setting's name in braces stands for its value; in a name, for one of
                            this table's own settings, as it is written there
      [recipe.settings]     all settings; or, instead of these, the settings of another recipe:
      like = "NAME"           the same system, with the settings in `set`, without those in `unset`
      twin_of = "NAME"        another system, with the settings that every system has, and `set`
      same_as = "NAME"        the same configuration, for which this is a second name
      each = [{...}, ...]   one recipe for each of these: settings, or any of `label`, `what`
                            (strings for braces), `row`, `column`, `accuracy`, `same_as`
      place, row, column, metric, accuracy      the source; its number in percent, or [low, high]

A long list may be written as { repeat = [...], times = N }.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.systems import find_system, modules_of_systems
from fedldp.core.errors import ConfigError, first_line
from fedldp.core.registry import installed_papers, paper_folders
from fedldp.mechanisms import mechanisms

__all__ = [
    "Expected",
    "Recipe",
    "Source",
    "find_recipe",
    "installed_recipes",
    "recipe_names",
    "recipes",
    "shared_settings",
    "systems_of_recipes",
]

_TEXTS = ("label", "what")
_OF_RECIPE = {"accuracy", "column", "metric", "name", "paper", "place", "row", "same_as", "summary"}
_OF_RECIPE |= {"each", "like", "set", "settings", "tolerance", "twin_of", "unset"}
_IN_EACH = {*_TEXTS, "accuracy", "column", "row", "same_as"}
_NAME = r"[A-Za-z0-9][\w.-]*"
_SHARED = set(RunConfig.model_fields) - {"system"}
"""The settings that every system has; a twin in another system has the same values."""
_Files = dict[str, tuple[Path, str]]
"""The file of each recipe by its name, and the package of its paper, which is "" for fedldp's."""
_MALFORMED = (AttributeError, IndexError, KeyError, OSError, RecursionError, TypeError, ValueError)
"""What reading a file can raise that does not have the form of such a file."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """The source that a recipe reproduces.

    Attributes:
        paper: authors and year.
        place: its table, figure or section: "Table 1", "Fig. 5".
        row: the row of that table; or a curve, with the panel if there are several: "MNIST, fixed".
        column: the column of that table; or a point of the curve: "epsilon 5".
        metric: the per-round metric that the source shows: "accuracy", or a metric that the system
            adds.
    """

    paper: str
    place: str
    row: str
    column: str = "accuracy"
    metric: str = "accuracy"


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The number in the paper.

    Attributes:
        accuracy: 0 to 1, after the last round; the upper end if the source gives a range.
        tolerance: how far a mean over seeds may be from the paper's number, 0 to 1. It covers the
            paper's rounding, the paper's own deviation if known, and what the paper does not state.
        lowest: the lower end, if the source gives a range.
    """

    accuracy: float
    tolerance: float
    lowest: float | None = None

    def difference(self, mean: float) -> float:
        """Return how far ``mean`` is above the number; 0 within a range."""
        lowest = self.accuracy if self.lowest is None else self.lowest
        return mean - min(max(mean, lowest), self.accuracy)

    @property
    def text(self) -> str:
        """The number, or the range, in percent."""
        ends = [self.accuracy] if self.lowest is None else [self.lowest, self.accuracy]
        return " to ".join(f"{100 * end:.4g}" for end in ends)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A configuration with a name.

    Attributes:
        name: the system, the data set and, if needed, a variant, joined by hyphens.
        config: the configuration.
        summary: a sentence fragment.
        source: the source that it reproduces, if any.
        expected: the source's number, if it gives one.
        same_as: the recipe that has the same configuration; papers show some runs twice. This
            recipe has its own source, and may have a different number. None for the first recipe
            with that configuration.

    >>> from fedldp.algorithms.recipes import find_recipe
    >>> print(find_recipe("dp-sgd-digits").description)
    DP-SGD on scikit-learn's digits: 10 clients, noise multiplier 2.
    """

    name: str
    config: RunConfig
    summary: str
    source: Source | None = None
    expected: Expected | None = None
    same_as: str | None = None

    @property
    def description(self) -> str:
        """The summary and the paper's number, in one line."""
        text = self.summary
        if self.source is not None and self.expected is not None:
            text += f" ({self.source.paper}: {self.expected.text} %)"
        return f"{text}."


def recipes() -> dict[str, Recipe]:
    """Return every recipe of fedldp by its name, including second names."""
    files = _own_files()
    return {name: _recipe(name, files) for name in files}


def find_recipe(name: str) -> Recipe:
    """Return the recipe called ``name``; only it and those that it refers to are made.

    If it belongs to a paper of another package, this imports the paper's code.

    Raises:
        ConfigError: there is no such recipe, or it cannot be made.
    """
    files, left_out = _own_files(), list[str]()
    if name not in files:  # other packages are looked at only then, as that takes longer
        files, left_out = _files()
    if name not in files:
        close = " or ".join(get_close_matches(name.lower(), files))
        parts = {"system": modules_of_systems(), "mechanism": mechanisms()}
        for kind in (kind for kind, known in parts.items() if name in known):
            raise ConfigError(
                f"recipe {name}: this is a {kind}, which `fedldp list {kind}s` describes; choose a "
                "recipe, which also has data and a model, from `fedldp list recipes`"
            )
        raise ConfigError(
            f"recipe {name}: there is no such recipe or file; "
            + (f"did you mean {close}? See" if close else "see")
            + " `fedldp list recipes`"
            + "".join(f"; left out: {why}" for why in left_out)
        )
    return _recipe(name, files)


def recipe_names() -> list[str]:
    """Return the names of all recipes, also of papers in other packages, and import nothing."""
    return list(_files()[0])


def systems_of_recipes() -> dict[str, str]:
    """Return the system of every recipe of fedldp by the recipe's name, without making any."""
    files = _own_files()
    return {name: str(_settings(name, files).get("system")) for name in files}


def installed_recipes() -> tuple[list[dict[str, Any]], list[str]]:
    """Return the recipes of papers in other packages, and a line for each that is left out.

    No package is imported. Of each recipe, its ``name``, its ``system``, its ``summary`` (in which
    a setting's name stays in braces if the recipe leaves one to its system), the ``package`` of the
    paper, and ``same_as``, as in ``Recipe``.
    """
    files, left_out = _files()
    found = []
    for name, (file, package) in files.items():
        if not package:
            continue
        try:
            settings = _settings(name, files)
        except ConfigError as error:
            left_out.append(f"paper {package}: {error}")
            continue
        own = _tables(file)[name]
        row = {"name": name, "system": str(settings.get("system")), "package": package}
        row["summary"] = own["summary"]
        with suppress(*_MALFORMED):
            row["summary"] = own["summary"].format(**settings, **_texts(own))
        found.append({**row, "same_as": own.get("same_as")})
    return found, left_out


def shared_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings that every system has; a twin in another system has the same values."""
    return config.model_dump(include=_SHARED)


def _own_files() -> _Files:
    """Return the file of each of fedldp's own recipes by its name."""
    folders = [*__path__, *paper_folders("recipes")]
    own = _by_name(file for each in folders for file in Path(each).glob("*.toml"))
    return {name: (file, "") for name, file in own.items()}


def _files() -> tuple[_Files, list[str]]:
    """Return the file of each recipe by its name, and a line for each paper that is left out.

    fedldp's own recipes come first. A paper of another package is left out if one of its files is
    wrong, or if one of its names is taken.
    """
    found = _own_files()
    papers, left_out = installed_papers()
    for paper in papers:
        try:
            files = _by_name(paper.files("recipes/*.toml"))
        except ConfigError as error:
            left_out.append(f"paper {paper.package}: {error}")
            continue
        taken = sorted(files.keys() & found.keys())
        if taken:
            whose = found[taken[0]][1] or "fedldp"
            left_out.append(
                f"paper {paper.package}: recipe {taken[0]} has the name of a recipe of {whose}; "
                "rename it"
            )
            continue
        found |= {name: (file, paper.package) for name, file in files.items()}
    return found, left_out


def _by_name(files: Iterable[Path]) -> dict[str, Path]:
    """Return the files of recipes by the recipes' names, ordered by the files' first recipes.

    Raises:
        ConfigError: a file is wrong, or two files have the same name for a recipe.
    """
    found: dict[str, Path] = {}
    for file in sorted(files, key=lambda each: tuple(_tables(each))):
        for name in _tables(file):
            if name in found:
                raise ConfigError(f"recipe {name}: it is in {found[name]} and in {file}; rename it")
            found[name] = file
    return found


@cache
def _tables(file: Path) -> dict[str, dict[str, Any]]:
    """Return the table of each recipe in a file by the recipe's name; nothing is made of them.

    A table with ``each`` gives one for each of its entries. Their settings are in ``set``.

    Raises:
        ConfigError: the file cannot be read, has an entry that recipes do not have, or a name
            twice.
    """
    found: dict[str, dict[str, Any]] = {}
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
        defaults = {key: document[key] for key in ("paper", "tolerance") if key in document}
        tables = [defaults | table for table in document["recipe"]]
        named = [each for table in tables for each in _named(table, file)]
    except _MALFORMED as error:
        raise ConfigError(
            f"recipes/{file.name}: {type(error).__name__}: {first_line(error)}; "
            "fedldp.algorithms.recipes has the form of such a file"
        ) from error
    for name, table in named:
        if name in found:
            raise ConfigError(f"recipes/{file.name}: there are two recipes {name}")
        found[name] = table
    return found


def _named(table: dict[str, Any], file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the table of each recipe in one table of a file."""
    unknown = [key for key in table if key not in _OF_RECIPE]
    if unknown:
        raise ConfigError(f"recipes/{file.name}: {unknown[0]} is not a key of a recipe")
    pattern, _ = table["name"], table["summary"]
    for changes in table.get("each", [{}]):
        own = table | {key: value for key, value in changes.items() if key in _IN_EACH}
        settings = {key: value for key, value in changes.items() if key not in _IN_EACH}
        own["set"] = table.get("set", {}) | settings
        values = table.get("settings", {}) | own["set"] | _texts(own)
        try:
            name = pattern.format(**values)
        except KeyError as error:
            raise ConfigError(
                f"recipes/{file.name}: {pattern}: {error} is not among the recipe's own settings; "
                "write it out"
            ) from error
        if not re.fullmatch(_NAME, name):
            raise ConfigError(
                f"recipes/{file.name}: {name!r} cannot be a name; give letters, digits, hyphens"
            )
        yield name, own


_made: dict[tuple[Path, str], Recipe] = {}
"""The recipes that were made, by their files and names."""


def _recipe(name: str, files: _Files) -> Recipe:
    """Return one of the recipes in some files.

    Raises:
        ConfigError: it refers to no recipe or to itself, or its settings are refused.
    """
    key = files[name][0], name
    if key not in _made:
        _made[key] = _new(name, files)
    return _made[key]


def _new(name: str, files: _Files) -> Recipe:
    own, settings = _tables(files[name][0])[name], _settings(name, files)
    if not isinstance(settings.get("system"), str):
        raise ConfigError(f"recipe {name}: it names no system")
    config, texts = find_system(settings["system"]).model_validate(settings), _texts(own)
    values = dict(config) | texts
    source = expected = None
    try:
        if "place" in own:
            source = Source(
                paper=own["paper"],
                place=own["place"],
                row=own["row"].format(**values),
                column=own.get("column", "accuracy").format(**values),
                metric=own.get("metric", "accuracy"),
            )
        if "accuracy" in own:
            ends = own["accuracy"] if isinstance(own["accuracy"], list) else [own["accuracy"]]
            lowest = None if len(ends) == 1 else ends[0] / 100
            tolerance = own["tolerance"] / 100
            expected = Expected(accuracy=ends[-1] / 100, tolerance=tolerance, lowest=lowest)
        summary = own["summary"].format(**values)
    except _MALFORMED as error:
        raise ConfigError(
            f"recipe {name}: {type(error).__name__}: {first_line(error)}; "
            "fedldp.algorithms.recipes has the form of a recipe"
        ) from error
    return Recipe(
        name=name,
        config=config,
        summary=summary,
        source=source,
        expected=expected,
        same_as=own.get("same_as"),
    )


def _texts(table: Mapping[str, Any]) -> dict[str, str]:
    """Return the strings of a table that stand for braces."""
    return {key: table[key] for key in _TEXTS if key in table}


def _settings(name: str, files: _Files) -> dict[str, Any]:
    """Return the settings of a recipe, from its table and those of recipes that it is made of.

    Raises:
        ConfigError: it refers to no recipe, or to itself.
    """
    settings: dict[str, Any] = {}
    for table in reversed(list(_line(name, files))):
        if "twin_of" in table:
            settings = {key: value for key, value in settings.items() if key in _SHARED}
        settings |= table.get("settings", {}) | table["set"] | dict.fromkeys(table.get("unset", ()))
    return {key: _value(value) for key, value in settings.items()}


def _line(name: str, files: _Files) -> Iterator[dict[str, Any]]:
    """Yield the table of a recipe, of the recipe that it is made of, and so on.

    Raises:
        ConfigError: one of them refers to no recipe, or to one before it.
    """
    seen = [name]
    while True:
        own = _tables(files[name][0])[name]
        key, other = _reference(own)
        what = f"recipe {name}: {key} = {other}"
        if key and other not in files:
            raise ConfigError(f"{what}: there is no such recipe; see `fedldp list recipes`")
        if key and other in seen:
            raise ConfigError(
                f"{what}: {other} is itself made of {name}; write out the settings of one of them"
            )
        yield own
        if not key:
            return
        seen.append(name := other)


def _reference(own: Mapping[str, Any]) -> tuple[str, str]:
    """Return the recipe that a recipe is made of, after the key that names it; "" if none is."""
    for key in ("like", "twin_of"):
        if key in own:
            return key, own[key]
    return ("", "") if "settings" in own else ("same_as", own.get("same_as", ""))


def _value(value: Any) -> Any:
    """Return a setting's value; a list that is written as a repetition is expanded."""
    if isinstance(value, dict) and set(value) == {"repeat", "times"}:
        return value["repeat"] * value["times"]
    return value
