"""The meaning of a table's columns: public facts declared by the user, never measured on data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedldp.core.errors import ConfigError
from fedldp.data.cells import places_in, repeated, text_of_float

_LARGEST = 1e30
"""The largest allowed centre; a value minus this centre cannot exceed the range of float32."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """How the columns of a .csv or .parquet file become features and labels.

    Attributes:
        label: the column of the labels.
        client: the column that names the client of a row, or None.
        person: the column that names the person of a row, or None; it is not a feature.
        ignored: columns that are left out.
        scaled: public range (low, high) by column: low becomes 0, high becomes 1, and values beyond
            a bound are clipped to that bound. Measured ranges would be a release of the data's
            extremes.
        categories: the public list of strings by column; each string becomes a feature that is 0 or
            1.
        classes: the public list of labels, whose positions are the classes; None if labels are
            integers from 0, or strings, which are numbered in sorted order.
        centres: the public value that becomes 0, by column (in the column's unit) or by category
            ("column=string", as a share from 0 to 1).
        persons_at_sites: the number of clients at which one person may have rows.
        filled: the public value that replaces a missing value, by column: either one of the
            column's categories, or a number in the column's unit; for a number, a 0/1 feature
            "column=missing" marks the replaced values.

    Raises:
        ConfigError: the declarations contradict each other, or a range or a list is invalid.
    """

    label: str = "label"
    client: str | None = None
    ignored: tuple[str, ...] = ()
    scaled: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    classes: tuple[str, ...] | None = None
    centres: Mapping[str, float] = field(default_factory=dict)
    person: str | None = None
    persons_at_sites: int = 1
    filled: Mapping[str, float | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        taken = {self.label: "label_column"}
        if self.client is not None:
            _take(taken, [self.client], "client_column")
        if self.person is not None:
            _take(taken, [self.person], "person_column")
        _take(taken, self.ignored, "ignore_columns")
        _take(taken, self.scaled, "scale_columns")
        _take(taken, self.categories, "categories")
        for name in self.filled:
            if taken.get(name, "scale_columns") not in ("scale_columns", "categories"):
                raise ConfigError(
                    f"fill_columns: the column {name!r} is listed there and in {taken[name]}; "
                    "leave it in one"
                )
        for name, (low, high) in self.scaled.items():
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ConfigError(
                    f"scale_columns.{name} = [{text_of_float(low)}, {text_of_float(high)}]: give "
                    "two numbers, the lower first"
                )
        for name, values in self.categories.items():
            _check_list(f"categories.{name}", values, 1)
        if self.classes is not None:
            _check_list("classes", self.classes, 2)
        shares = {name: (0.0, 1.0) for column in self.categories for name in self.made(column)}
        shares |= {made: (0.0, 1.0) for column in self.filled for made in self.made(column)[1:]}
        for name, centre in self.centres.items():
            _check_public("centre_columns", name, centre, {**self.scaled, **shares})
        for name, value in self.filled.items():
            if name in self.categories:
                _check_category(name, value, self.categories[name])
            elif isinstance(value, str):
                raise ConfigError(
                    f"fill_columns.{name} = {value!r}: a column without categories holds numbers; "
                    f'give a number, or list all its strings: categories.{name} = [..., "{value}"]'
                )
            else:
                _check_public("fill_columns", name, value, self.scaled)

    def made(self, column: str) -> list[str]:
        """Return the names of the features that a column becomes."""
        if column in self.categories:
            return [f"{column}={text}" for text in self.categories[column]]
        return [column, f"{column}=missing"] if column in self.filled else [column]

    def centred(self, name: str) -> float:
        """Return the value of a feature that becomes 0, in the feature's unit."""
        centre = self.centres.get(name)
        if centre is None:
            return 0.0
        low, high = self.scaled.get(name, (0.0, 1.0))
        return (centre - low) / (high - low)

    @property
    def named(self) -> dict[str, str]:
        """The setting that names a column, by the column's name; without the label column."""
        found: dict[str, str] = {} if self.client is None else {self.client: "client_column"}
        if self.person is not None:
            _take(found, [self.person], "person_column")
        _take(found, self.ignored, "ignore_columns")
        _take(found, self.scaled, "scale_columns")
        _take(found, self.categories, "categories")
        return {**dict.fromkeys(self.filled, "fill_columns"), **found}


def _take(taken: dict[str, str], names: Sequence[str] | Mapping[str, object], setting: str) -> None:
    for name in names:
        if name in taken:
            raise ConfigError(
                f"{setting}: the column {name!r} is listed there and in {taken[name]}; "
                "leave it in one"
            )
        taken[name] = setting


def _check_public(
    setting: str, name: str, value: float, ranges: Mapping[str, tuple[float, float]]
) -> None:
    low, high = ranges.get(name, (-_LARGEST, _LARGEST))
    if not low <= value <= high:  # the condition is true for NaN
        raise ConfigError(
            f"{setting}.{name} = {text_of_float(value)}: it is not between {text_of_float(low)} "
            f"and {text_of_float(high)}; give a number that is public knowledge about the column"
        )


def _check_category(name: str, value: float | str, values: Sequence[str]) -> None:
    if places_in(values)(str(value)) < 0:
        shown = text_of_float(value) if isinstance(value, float) else repr(value)
        raise ConfigError(
            f"fill_columns.{name} = {shown}: the categories of {name} are {', '.join(values)}; "
            f"give one of them, or add a category for missing values to categories.{name}, such as "
            '"unknown"'
        )


def _check_list(setting: str, values: Sequence[str], least: int) -> None:
    if len(values) < least or repeated(values):
        raise ConfigError(
            f"{setting} = {list(values)}: give at least {least} strings that look different, none "
            "of them empty"
        )
