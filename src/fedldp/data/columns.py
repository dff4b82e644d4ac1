"""The meaning of a table's columns: public facts declared by the user, never measured on data.

Files, arrays and declarations are read by the functions on cells, so a value means the same
wherever it comes from. Each of them sees a single cell: what a row means never depends on other
rows.
"""

from __future__ import annotations

import logging
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError
from fedldp.data.label_range import LabelRange

_LARGEST = 1e30
"""The largest allowed centre; a value minus this centre cannot exceed the range of float32."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """How the columns of a .csv or .parquet file become features and labels.

    Attributes:
        label: the column of the labels; None if they are not read.
        client: the column that names the client of a row, or None.
        person: the column that names the person of a row, or None; it is not a feature.
        ignored: columns that are left out.
        scaled: public range (low, high) by column: low becomes 0, high becomes 1, and values beyond
            a bound are clipped to that bound. Measured ranges would be a release of the data's
            extremes.
        spreads: public (typical value, spread) by column: the typical value becomes 0, the value
            one spread above it 1, and values beyond 3 spreads are clipped. If there are any, a
            category without a centre has the centre 1/(number of its column's strings).
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
        others: for columns with categories, the category that stands for every string that is not
            declared.
        folded: columns with a spread that also become a feature "column=folded", 0.5 (|z| - 0.8)
            of the column's number z, with which a linear model can fit the shape of a U.
        label_range: the public range of labels that are numbers to predict; None for classes.
        only: the columns that are features, if not all others are.

    Raises:
        ConfigError: the declarations contradict each other, or a range or a list is invalid.
    """

    label: str | None = "label"
    client: str | None = None
    ignored: tuple[str, ...] = ()
    scaled: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    classes: tuple[str, ...] | None = None
    centres: Mapping[str, float] = field(default_factory=dict)
    person: str | None = None
    persons_at_sites: int = 1
    filled: Mapping[str, float | str] = field(default_factory=dict)
    spreads: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)
    folded: tuple[str, ...] = ()
    label_range: LabelRange | None = None
    only: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        taken: dict[str, str] = {}
        for setting, names in self._said:
            for name in names:
                if name in taken:
                    raise _twice(setting, name, taken[name])
                taken[name] = setting
        features = ("scale_columns", "spread_columns", "categories")
        for setting, names in (("ask", self.only or ()), ("fill_columns", self.filled)):
            for name in names:
                if taken.get(name, "categories") not in features:
                    raise _twice(setting, name, taken[name])
        for name, (low, high) in self.scaled.items():
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ConfigError(
                    f"scale_columns.{name} = [{text_of_float(low)}, {text_of_float(high)}]: give "
                    "two numbers, the lower first"
                )
        for name, (typical, spread) in self.spreads.items():
            _check_spread(name, typical, spread, self.centres)
        for name, values in self.categories.items():
            _check_list(f"categories.{name}", values, 1)
        if self.classes is not None:
            _check_list("classes", self.classes, 2)
            if self.label_range is not None:
                raise ConfigError(
                    f"classes and label_range = {self.label_range}: labels are either classes or "
                    "numbers; leave one of the two out"
                )
        shares = {name: (0.0, 1.0) for column in self.categories for name in self.made(column)}
        shares |= {f"{name}=missing": (0.0, 1.0) for name in self.filled.keys() - self.categories}
        for name, centre in self.centres.items():
            _check_public("centre_columns", name, centre, {**self.scaled, **shares})
        for name, value in self.filled.items():
            if name in self.categories:
                _check_category("fill_columns", name, value, self.categories[name])
            elif isinstance(value, str):
                raise ConfigError(
                    f"fill_columns.{name} = {value!r}: a column without categories holds numbers; "
                    f'give a number, or list all its strings: categories.{name} = [..., "{value}"]'
                )
            else:
                _check_public("fill_columns", name, value, self.scaled)
        for name, other in self.others.items():
            if name not in self.categories:
                raise ConfigError(
                    f"other_columns.{name} = {other!r}: this column has no categories; list its "
                    f'strings: categories.{name} = [..., "{other}"]'
                )
            _check_category("other_columns", name, other, self.categories[name])
        for name in self.folded:
            if name not in self.spreads:
                raise ConfigError(
                    f"fold_columns: the column {name!r} has no declared spread to be folded by; "
                    f"give spread_columns.{name} = [TYPICAL VALUE, SPREAD], or leave it out"
                )

    def made(self, column: str) -> list[str]:
        """Return the names of the features that a column becomes."""
        if column in self.categories:
            return [f"{column}={text}" for text in self.categories[column]]
        more = {"missing": self.marks_missing(column), "folded": column in self.folded}
        return [column, *(f"{column}={kind}" for kind, there in more.items() if there)]

    def marks_missing(self, column: str) -> bool:
        """Return whether a column of numbers has a feature that marks missing values.

        Those with a replacement have one, and so have all that people are asked for.
        """
        return column in self.filled or self.only is not None

    def place_in(self, column: str) -> Callable[[str], int]:
        """Return a function from a cell's text to the place of its category, or -1.

        A missing value counts as what replaces it, and any other string that is not declared as
        the category that stands for others, if there is one.
        """
        place_of = places_in(self.categories[column])
        gap, other = (
            place_of(str(stands_for[column])) if column in stands_for else -1
            for stands_for in (self.filled, self.others)
        )

        def place(text: str) -> int:
            found = place_of(text)
            if found >= 0:
                return found
            return gap if is_missing(text) else other

        return place

    def group_of(self, column: str) -> Callable[[str], str]:
        """Return a function from a cell's text to the name of its group: its category, if any."""
        values = self.categories.get(column, ())
        place = self.place_in(column) if values else None

        def group(text: str) -> str:
            at = -1 if place is None else place(text)
            return value(text) if at < 0 else values[at]

        return group

    def is_feature(self, column: str) -> bool:
        """Return whether a table's column is one of the model's."""
        aside = (self.label, self.client, self.person, *self.ignored)
        return column not in aside and (self.only is None or column in self.only)

    @property
    def folds(self) -> tuple[str, ...]:
        """The names of the features that folding makes."""
        return tuple(f"{column}=folded" for column in self.folded)

    def centred(self, name: str) -> float:
        """Return the value of a feature that becomes 0, in the feature's unit."""
        centre = self.centres.get(name)
        if centre is None:
            return self._equal_shares.get(name, 0.0) if self.spreads else 0.0
        low, high = self.scaled.get(name, (0.0, 1.0))
        return (centre - low) / (high - low)

    @cached_property
    def _equal_shares(self) -> dict[str, float]:
        made = ((self.made(column), values) for column, values in self.categories.items())
        return {name: 1 / len(values) for names, values in made for name in names}

    def without(self, *roles: Literal["label", "client", "person"]) -> Columns:
        """Return the same for a table whose columns with some roles are ignored."""
        names = [name for role in roles if (name := getattr(self, role)) is not None]
        nothing: dict[str, Any] = dict.fromkeys(roles)
        return replace(self, ignored=(*self.ignored, *names), **nothing)

    @property
    def needed(self) -> dict[str, str]:
        """The setting that names a column, by the name of each column that a table must have."""
        more = dict.fromkeys(self.filled, "fill_columns") | dict.fromkeys(self.only or (), "ask")
        said = [*self._said, *((setting, [name]) for name, setting in more.items())]
        found: dict[str, str] = {}
        for setting, names in said:
            for name in names if setting != "ignore_columns" else ():
                found.setdefault(name, setting)
        return found

    @property
    def _said(self) -> list[tuple[str, Iterable[str]]]:
        """The settings of which only one may name a column, with the columns that they name."""
        single = {"label": self.label, "client": self.client, "person": self.person}
        return [
            *((f"{role}_column", [name]) for role, name in single.items() if name is not None),
            ("ignore_columns", self.ignored),
            ("scale_columns", self.scaled),
            ("spread_columns", self.spreads),
            ("categories", self.categories),
        ]


def _twice(setting: str, column: str, other: str) -> ConfigError:
    return ConfigError(
        f"{setting}: the column {column!r} is listed there and in {other}; leave it in one"
    )


def _check_spread(name: str, typical: float, spread: float, centres: Mapping[str, float]) -> None:
    if not (abs(typical) <= _LARGEST and 0 < spread <= _LARGEST):
        raise ConfigError(
            f"spread_columns.{name} = [{text_of_float(typical)}, {text_of_float(spread)}]: give a "
            "typical value, and the spread around it, above 0"
        )
    if name in centres:
        raise ConfigError(
            f"centre_columns.{name}: spread_columns.{name} already gives its typical value; leave "
            "the centre out"
        )


def _check_public(
    setting: str, name: str, value: float, ranges: Mapping[str, tuple[float, float]]
) -> None:
    low, high = ranges.get(name, (-_LARGEST, _LARGEST))
    if not low <= value <= high:  # the condition is true for NaN
        raise ConfigError(
            f"{setting}.{name} = {text_of_float(value)}: it is not between {text_of_float(low)} "
            f"and {text_of_float(high)}; give a number that is public knowledge about the column"
        )


def _check_category(setting: str, name: str, value: float | str, values: Sequence[str]) -> None:
    if places_in(values)(str(value)) < 0:
        shown = text_of_float(value) if isinstance(value, float) else repr(value)
        what = ("missing", "unknown") if setting == "fill_columns" else ("other", "other")
        raise ConfigError(
            f"{setting}.{name} = {shown}: the categories of {name} are {', '.join(values)}; give "
            f"one of them, or add a category for {what[0]} values to categories.{name}, such as "
            f'"{what[1]}"'
        )


def _check_list(setting: str, values: Sequence[str], least: int) -> None:
    if len(values) < least or repeated(values):
        raise ConfigError(
            f"{setting} = {list(values)}: give at least {least} strings that look different, none "
            "of them empty"
        )


log = logging.getLogger("fedldp.data")


def tell_owner(message: str, *values: object) -> None:
    """Tell the owner of private rows about them, in the log, and say that nobody else may know.

    The message may have counts, which are exact, but no names.
    """
    log.warning(f"{message} (exact, of private rows: told only here)", *values)


_T = TypeVar("_T")

INEXACT = (
    "holds numbers that are not integers, or that may have lost digits (a decimal point or an "
    "exponent), so one name could stand for several; save the column as integers or strings"
)
"""What is wrong with a column of clients or persons for whose cells ``identity`` returns None."""

_MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})
"""The texts that stand for a missing value, in lower case."""

_TRUTHS = {"false": 0.0, "true": 1.0}
_EXACT = 2.0**53
"""Float64 represents every integer below this number, but not every larger integer."""

_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf|infinity)", re.ASCII | re.I)
_NOT_OF_NUMBERS = re.compile(r"[^0-9+\-.eE ]")
_INTEGER = re.compile(r"0|-?[1-9]\d*", re.ASCII)
_WRITTEN = re.compile(r"-?(0|[1-9]\d*)([.,]\d+)?([eE][+-]\d+)?", re.ASCII)
"""A number as programs write it. Codes such as 007 and 1E5 are text."""

_UNSEEN = re.compile(
    # Control characters other than spaces, and what Unicode calls default ignorable:
    # https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def is_missing(text: str) -> bool:
    """Return whether a cell's text stands for a missing value."""
    # Most numbers begin with a digit; they need no spelling.
    return not text[:1].isdigit() and _spelled(text, "NFC").lower() in _MISSING


def numbers(texts: Sequence[str], *, comma: bool = False) -> NDArray[np.float64]:
    """Return the numbers in texts, with NaN for a text that is not a number, shape (n,).

    A number has ASCII digits, and a point as the decimal sign. The words true and false, in lower
    or upper case, are 1 and 0.

    Args:
        texts: n texts.
        comma: whether a decimal comma is accepted, too.
    """
    if comma:
        texts = [text.replace(",", ".") for text in texts]
    if not _NOT_OF_NUMBERS.search("".join(texts)):  # numpy accepts more, such as 1_000
        try:
            return np.array(texts, dtype=np.float64)
        except ValueError:  # there is an empty cell, or a cell such as 1-2
            pass
    return np.array([_number(text.strip()) for text in texts], dtype=np.float64)


def identity(text: str) -> str | None:
    """Return the one spelling of the name of a client or person; "" if it is missing.

    Names are equal if they look equal: their text is normalised by Unicode's NFKC, invisible and
    bidirectional characters are removed, and spaces are reduced to one. The number 2.0 is 2.

    Returns:
        None for a number that is not an integer, or that has a decimal point or an exponent and may
        have lost digits.
    """
    found = _spelled(text, "NFKC")
    if found.lower() in _MISSING:
        return ""
    if _INTEGER.fullmatch(found) or not _WRITTEN.fullmatch(found):
        return found
    whole = _of_float(found)
    return whole if "e" not in found.lower() and _INTEGER.fullmatch(whole) else None


def value(text: str) -> str:
    """Return the one spelling of a category or class.

    The text is normalised by Unicode's NFC (NFKC would make "m²" and "m2" equal), and cleaned like
    the name of a person. Equal numbers have one spelling, with a decimal point; true and false are
    in lower case.
    """
    found = _spelled(text, "NFC")
    if found.lower() in _TRUTHS:
        return found.lower()
    if _INTEGER.fullmatch(found) or not _WRITTEN.fullmatch(found):
        return found
    return _of_float(found)


def text_of_float(number: float) -> str:
    """Return the shortest text of a float; integers below 2^53 have no decimal point."""
    whole = abs(number) < _EXACT and float(number).is_integer()
    return str(int(number)) if whole else repr(float(number))


def places_in(values: Sequence[str]) -> Callable[[str], int]:
    """Return a function from a cell's text to the position of its value in a public list, or -1.

    The exact text is looked for first, then the number that it holds, unless the list tells apart
    texts that hold the same number. In a list with true and false, 1 and 0 are found as well.
    """
    exact = {_spelled(each, "NFC"): place for place, each in enumerate(values)}
    counts = Counter(map(value, values))
    found = {value(each): place for each, place in exact.items() if counts[value(each)] == 1}
    if found.keys() >= _TRUTHS.keys():
        found = {"1": found["true"], "0": found["false"]} | found
    return lambda text: exact.get(_spelled(text, "NFC"), found.get(value(text), -1))


def repeated(values: Sequence[str]) -> bool:
    """Return whether two values of a public list have the same spelling, or one has none."""
    spelled = {_spelled(each, "NFC") for each in values}
    return len(spelled) < len(values) or "" in spelled


def of_each(texts: Sequence[str], meaning: Callable[[str], _T]) -> list[_T]:
    """Return the meaning of each text; equal texts are read once."""
    found = {text: meaning(text) for text in set(texts)}
    return [found[text] for text in texts]


def tell_spellings(
    texts: Iterable[str],
    meaning: Callable[[str], str | None],
    where: str,
    what: Literal["client", "person", "class"],
) -> None:
    """Tell the owner of the data, in the log, how many names have several spellings.

    Args:
        texts: the names as they were given.
        meaning: the function that returns the one spelling of a name.
        where: the beginning of the message.
        what: what is named.
    """
    spellings = Counter(name for text in set(texts) if (name := meaning(text)))
    several = sum(count > 1 for count in spellings.values())
    kinds = {"client": "clients", "person": "persons", "class": "classes"}[what]
    if several:
        tell_owner(
            "%s %d spellings (in Unicode, spaces or decimals) are read as %d %s",
            where,
            sum(count for count in spellings.values() if count > 1),
            several,
            what if several == 1 else kinds,
        )
    folded = Counter(name.casefold() for name in spellings)
    alike = sum(count for count in folded.values() if count > 1)
    if alike:
        tell_owner(
            "%s %d %s differ from each other only in upper and lower case, and count as different; "
            "if two are the same, give them one spelling",
            where,
            alike,
            kinds,
        )


def _number(text: str) -> float:
    return float(text) if _NUMBER.fullmatch(text) else _TRUTHS.get(text.lower(), float("nan"))


def _of_float(text: str) -> str:
    number = float(text.replace(",", "."))
    return text_of_float(number) if math.isfinite(number) else text


def _spelled(text: str, form: Literal["NFC", "NFKC"]) -> str:
    if not text.isascii():
        text = unicodedata.normalize(form, _UNSEEN.sub("", text))
    elif not text.isprintable():
        text = _UNSEEN.sub("", text)
    return " ".join(text.split())
