"""Recipes: full configurations as data, one for each reproduced figure or table row.

Each TOML file here, and in the folder ``recipes`` of a paper, is a family of recipes. Finding a
recipe makes only the recipes of its own file and of the files that it refers to. A file has

    paper, tolerance        of its recipes, if they have a source; tolerance in percentage points
    [[recipe]]              a recipe, or several that differ in a few settings:
      name, summary         a setting's name in braces stands for its value
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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.systems import find_system
from fedldp.core.errors import ConfigError
from fedldp.core.registry import paper_folders

__all__ = [
    "Expected",
    "Recipe",
    "Source",
    "find_recipe",
    "recipes",
    "shared_settings",
]

_TEXTS = ("label", "what")
_OF_RECIPE = {"accuracy", "column", "metric", "name", "paper", "place", "row", "same_as", "summary"}
_OF_RECIPE |= {"each", "like", "set", "settings", "tolerance", "twin_of", "unset"}
_IN_EACH = {*_TEXTS, "accuracy", "column", "row", "same_as"}


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
        summary: a sentence fragment; a setting's name in braces stands for its value.
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
        """The summary with the settings' values and the paper's number, in one line."""
        text = self.summary.format(**dict(self.config))
        if self.source is not None and self.expected is not None:
            text += f" ({self.source.paper}: {self.expected.text} %)"
        return f"{text}."


def recipes() -> dict[str, Recipe]:
    """Return every recipe by its name, including second names."""
    return {name: recipe for family in _families() for name, recipe in _family(family).items()}


def find_recipe(name: str) -> Recipe:
    """Return the recipe called ``name``.

    Raises:
        ConfigError: there is no such recipe.
    """
    for family in _families():
        if any(re.fullmatch(pattern, name) for pattern in _patterns(family)):
            found = _family(family)
            if name in found:
                return found[name]
    close = " or ".join(get_close_matches(name.lower(), recipes()))
    raise ConfigError(
        f"recipe {name}: there is no such recipe or file; "
        + (f"did you mean {close}? See" if close else "see")
        + " `fedldp list recipes`"
    )


def shared_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings that every system has; a twin in another system has the same values."""
    return config.model_dump(include=set(RunConfig.model_fields) - {"system"})


def _families() -> list[Path]:
    """Return the recipe files, of this folder and of the papers', by their first recipes."""
    folders = [*__path__, *paper_folders("recipes")]
    return sorted((file for each in folders for file in Path(each).glob("*.toml")), key=_patterns)


@cache
def _patterns(family: Path) -> tuple[str, ...]:
    """Return a pattern for the names of each table in a file, without making a recipe."""
    tables = tomllib.loads(family.read_text(encoding="utf-8"))["recipe"]
    parts = (re.split(r"\{.*?\}", table["name"]) for table in tables)
    return tuple(".+".join(map(re.escape, each)) for each in parts)


@cache
def _family(file: Path) -> dict[str, Recipe]:
    """Return the recipes in one file by their names.

    Raises:
        ConfigError: the file has an entry that recipes do not have.
    """
    document = tomllib.loads(file.read_text(encoding="utf-8"))
    found: dict[str, Recipe] = {}
    for table in document["recipe"]:
        unknown = [key for key in table if key not in _OF_RECIPE]
        if unknown:
            raise ConfigError(f"recipes/{file.name}: {unknown[0]} is not a key of a recipe")
        defaults = {key: document[key] for key in ("paper", "tolerance") if key in document}
        for recipe in _recipes(defaults | table, found):
            if recipe.name in found:
                raise ConfigError(f"recipes/{file.name}: there are two recipes {recipe.name}")
            found[recipe.name] = recipe
    return found


def _recipes(table: dict[str, Any], before: Mapping[str, Recipe]) -> Iterator[Recipe]:
    """Yield the recipes in one table: a single recipe, or one for each entry of ``each``."""
    for changes in table.get("each", [{}]):
        own = table | {key: value for key, value in changes.items() if key in _IN_EACH}
        settings = {key: value for key, value in changes.items() if key not in _IN_EACH}
        config = _config(own, settings, before)
        values = dict(config) | {key: own[key] for key in _TEXTS if key in own}
        texts = {key: own[key] for key in _TEXTS if key in own}
        source = expected = None
        if "place" in own:
            source = Source(
                paper=own["paper"],
                place=own["place"],
                row=own["row"].format(**values),
                column=own.get("column", "accuracy").format(**values),
                metric=own.get("metric", "accuracy"),
            )
        if "accuracy" in own:
            expected = _expected(own["accuracy"], own["tolerance"])
        yield Recipe(
            name=own["name"].format(**values),
            config=config,
            summary=_with_texts(own["summary"], texts),
            source=source,
            expected=expected,
            same_as=own.get("same_as"),
        )


def _config(
    own: Mapping[str, Any], settings: Mapping[str, Any], before: Mapping[str, Recipe]
) -> RunConfig:
    """Return the configuration that a table describes, with additional settings."""

    def of(name: str) -> RunConfig:
        return (before[name] if name in before else find_recipe(name)).config

    changes = {key: _value(value) for key, value in {**own.get("set", {}), **settings}.items()}
    changes |= dict.fromkeys(own.get("unset", []))
    if "like" in own:
        return of(own["like"]).changed(**changes)
    if "settings" not in own and "twin_of" not in own:
        return of(own["same_as"])
    if "twin_of" in own:
        whole = shared_settings(of(own["twin_of"])) | changes
    else:
        whole = {key: _value(value) for key, value in own["settings"].items()} | changes
    return find_system(whole["system"]).model_validate(whole)


def _value(value: Any) -> Any:
    """Return a setting's value; a list that is written as a repetition is expanded."""
    if isinstance(value, dict) and set(value) == {"repeat", "times"}:
        return value["repeat"] * value["times"]
    return value


def _expected(accuracy: float | list[float], tolerance: float) -> Expected:
    """Return the paper's number or its range; the arguments are in percent."""
    lowest, highest = accuracy if isinstance(accuracy, list) else (None, accuracy)
    return Expected(
        accuracy=highest / 100,
        tolerance=tolerance / 100,
        lowest=None if lowest is None else lowest / 100,
    )


def _with_texts(summary: str, texts: Mapping[str, str]) -> str:
    """Return a summary with its own strings filled in; names of settings stay in braces."""
    for key, text in texts.items():
        summary = summary.replace(f"{{{key}}}", text)
    return summary
