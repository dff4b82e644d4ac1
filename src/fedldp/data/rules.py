"""The rules for a user's own examples: each is one function, whatever the examples come from.

What these functions refuse depends on rows, so they are called only where a refusal reaches nobody
but the owner of the rows: at a desk, or at a site before it joins a run. A round leaves out invalid
rows instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedldp.core.errors import DataError
from fedldp.data.adapters import Gathered
from fedldp.data.columns import is_missing, log, numbers, places_in, text_of_float, value
from fedldp.data.label_range import LabelRange
from fedldp.data.people import names_of

_LARGEST_LABEL = 2**31 - 1
_MANY = 20
"""The least largest label at which whole numbers may be meant to measure something."""
_INTEGER = re.compile(r"[+-]?\d{1,309}", re.ASCII)  # longer ones are infinite as numbers

_OF_PANDAS = re.compile(r"\s*|Unnamed: \d+(\.\d+)*|__index_level_\d+__")
"""The names of the columns in which pandas (and, without a name, R) writes the numbers of rows."""

_FEW = 30
"""The smallest table in which whole numbers that all differ are taken to number its rows.

Whole numbers that measure something repeat: of 30 ages spread over 70 years, two are equal in 499
of 500 tables. In a smaller table, they may all differ by chance.
"""

_NEARLY = 0.95
"""The least share of different values at which whole numbers are taken to name the rows."""

Refuse = Callable[[Sequence[bool], str], None]
"""Refuses the first row whose label is bad, if any is, and says why."""

_DECLARE = (
    "drop it (for a file: ignore_columns), or declare its public range (for a file: scale_columns; "
    "in Python: scale the column to 0 to 1 by that range)"
)

# Features


def checked(read: Gathered) -> Gathered:
    """Return the examples of one owner as arrays, or refuse them with a one-line reason.

    Returns:
        Features as float32; labels as numbers, truths or strings, which ``numbered`` or
        ``labels_of`` makes classes; and, if persons are named, one spelling of each (``names_of``).

    Raises:
        DataError: the arrays are empty, ragged, of unequal lengths, not finite or of the wrong type
            or shape; the message says which.
    """
    context = read.context
    x = _as_array(read.features, "features", context)
    y = _as_array(read.labels, "labels", context)
    if x.ndim < 2 or y.ndim != 1:
        raise DataError(
            f"{context} features have shape {x.shape} and labels {y.shape}; "
            "give (N, ...) and (N,), with at least one feature axis"
        )
    y = _plain(y, context)
    if len(x) != len(y):
        raise DataError(
            f"{context} there are {len(x)} rows of features but {len(y)} labels; give "
            "one label per row"
        )
    if x.size == 0:
        raise DataError(f"{context} features of shape {x.shape} are empty; give some examples")
    people = None if read.groups is None else names_of(read.groups, len(y), context)
    return replace(read, features=checked_features(x, context), labels=y, groups=people)


def checked_features(features: ArrayLike, context: str) -> NDArray[np.float32]:
    """Turn a user's own examples into float32, or refuse them with a one-line reason.

    Raises:
        DataError: they are ragged, not numbers, or not finite.
    """
    x = _as_array(features, "features", context)
    if x.dtype.kind not in "buif":
        raise DataError(f"{context} features are of type {x.dtype}; give numbers")
    with np.errstate(over="ignore"):  # a float32 overflow becomes infinite, and is refused
        x = np.ascontiguousarray(x, dtype=np.float32)
    if not np.isfinite(x).all():
        row = int(np.argwhere(~np.isfinite(x))[0][0])
        raise DataError(
            f"{context} features of row {row} are NaN, infinite or too large for float32; replace "
            "them with a public number (the mean of the rows would reveal something about them), "
            "or drop such rows"
        )
    return x


def _as_array(given: ArrayLike, what: str, context: str) -> NDArray[Any]:
    try:
        return np.asarray(given)
    except ValueError as error:
        raise DataError(f"{context} {what} are ragged: {error}") from None


def check_column(
    name: str, values: NDArray[Any], context: str, owners: NDArray[np.int64] | None = None
) -> None:
    """Refuse a column of a table that numbers its rows, unless the user declares what it means.

    In a sorted table, such a number predicts the label, although it says nothing about an example.

    Args:
        name: a column that would become a feature without any declaration.
        values: its numbers, shape (N,); NaN for what is not a number.
        context: the beginning of the error message.
        owners: the client of each row, if the rows are those of several clients' tables.

    Raises:
        DataError: the column has the name of an index that pandas wrote; or it holds 0 to N - 1, or
            whole numbers that differ in all rows of the table, or of each client.
    """
    tables = [np.zeros(len(values), np.int64), *([] if owners is None else [owners])]
    counts = _are_whole(values) and any(_counts(values, each) for each in tables)
    if is_row_number(name) or counts:
        raise DataError(
            f"{context} column {name!r} may only number the rows: it holds a different whole "
            f"number in each, or has the name of the row numbers that pandas writes; {_DECLARE}"
        )


def is_row_number(name: str) -> bool:
    """Return whether a column has the name that pandas or R gives to the numbers of rows."""
    return _OF_PANDAS.fullmatch(name) is not None


def are_identifiers(values: NDArray[Any]) -> bool:
    """Return whether nearly all of many values are different whole numbers, like case numbers."""
    different = len(np.unique(values))
    return len(values) >= _FEW and _are_whole(values) and different >= _NEARLY * len(values)


def _are_whole(values: NDArray[Any]) -> bool:
    return values.dtype.kind in "iu" or bool(
        values.dtype.kind == "f" and (np.isfinite(values) & (values == np.floor(values))).all()
    )


def _counts(values: NDArray[Any], tables: NDArray[np.int64]) -> bool:
    """Return whether whole numbers differ in all rows of each table, too often to be by chance.

    The chance depends on the number of pairs of rows in one table. Numbers from 0 on without a gap
    are suspicious in any table of at least 3 rows.
    """
    order = np.lexsort((values, tables))
    ordered, table = values[order], tables[order]
    if ((ordered[1:] == ordered[:-1]) & (table[1:] == table[:-1])).any():  # one repeats
        return False
    sizes = np.unique(tables, return_counts=True)[1]
    if (sizes * (sizes - 1)).sum() >= _FEW * (_FEW - 1):
        return True
    places = np.arange(len(values)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return bool(sizes.max(initial=0) >= 3 and (ordered == places).all())


# Labels


def numbered(
    parts: Sequence[Gathered],
    classes: Sequence[str] | None,
    context: str,
    label_range: LabelRange | None = None,
) -> tuple[list[NDArray[np.int64]], tuple[str, ...] | None, int]:
    """Return the labels of a whole data set as classes.

    With ``classes``, each label is one of them, and its position is the class. Without ``classes``,
    either all labels are whole numbers, from 0 without a gap, or all are strings, which become 0 to
    K - 1 in sorted order. True and False count as strings.

    Args:
        parts: the parts, checked.
        classes: the public list of all possible labels.
        context: the beginning of messages about all labels.
        label_range: the public range of labels that are numbers; these have one "class".

    Returns:
        For each part its labels, int64 of shape (N,); the names of the classes, if they have names;
        and the number of classes.

    Raises:
        DataError: the labels are not of this form; the message says in which part, or which classes
            are missing.
    """
    if label_range is not None:
        return [labels_of(part, None, label_range) for part in parts], None, 1
    texts, places, refuse = _texts(parts, classes)
    if len({text if (number := _whole(text)) is None else number for text in texts}) < 2:
        raise DataError(
            f"{context} the labels have only one class; classification needs at least two"
        )
    names = None if classes is None else tuple(classes)
    found: Sequence[int]
    if names is not None:
        found = _known(texts, names, refuse)
    elif any(are_numbers := list(map(_is_number, texts))):
        others = [not each for each in are_numbers]
        refuse(others, f"a string, but other labels are numbers; correct it, or {_list()}")
        found = _without_gaps(texts, context, refuse)
    else:
        names, found = tuple(texts), range(len(texts))
    num_classes = max(found) + 1 if names is None else len(names)
    ends = np.cumsum([len(part.labels) for part in parts])[:-1]
    return np.split(np.array(found, np.int64)[places], ends), names, num_classes


def labels_of(
    part: Gathered, classes: Sequence[str] | None, label_range: LabelRange | None = None
) -> NDArray[np.int64]:
    """Return the labels of one party, which may have only some of the classes.

    Args:
        part: the party's examples, checked.
        classes: the names of all classes; None if labels are whole numbers from 0.
        label_range: see ``numbered``.

    Raises:
        DataError: a label is missing, or is none of the classes, or no finite number.
    """
    if label_range is not None:
        return _in_range(part, label_range)
    texts, places, refuse = _texts([part], classes)
    return np.array(_known(texts, classes, refuse), np.int64)[places]


def _told(part: Gathered, row: int) -> str:
    """Return the location and the content of a row's label, for a message."""
    if part.where is not None:
        return part.where(row)
    return f"{part.context} the label of row {row} is {text_of(part.labels[row])!r}"


def _in_range(part: Gathered, within: LabelRange) -> NDArray[np.int64]:
    """Return labels that are numbers, in steps of their range; refuse others."""
    labels = part.labels
    if labels.dtype.kind in "uif":
        found = labels.astype(np.float64)
    else:
        found = numbers([str(label) for label in labels.tolist()])
    bad = ~np.isfinite(found)
    if bad.any():
        raise DataError(
            f"{_told(part, int(bad.argmax()))}, which is not a finite number, but label_range = "
            f"{within} says that labels are numbers; correct it, or drop the row"
        )
    return within.steps(found)


def class_of(classes: Sequence[str] | None) -> Callable[[str], int | None]:
    """Return a function from a label's text to its class; None for a text that is not a class.

    Args:
        classes: the names of all classes; None if labels are whole numbers from 0.
    """
    if classes is not None:
        place_of = places_in(classes)
        return lambda text: None if (place := place_of(text)) < 0 else place

    def of_number(text: str) -> int | None:
        number = _whole(text)
        return number if number is not None and 0 <= number <= _LARGEST_LABEL else None

    return of_number


def _plain(labels: NDArray[Any], context: str) -> NDArray[Any]:
    """Return labels that are numbers, truths or strings; refuse others."""
    if labels.dtype.kind == "O" and all(isinstance(each, str) for each in labels.tolist()):
        labels = labels.astype(np.str_)  # pandas stores strings as objects
    if labels.dtype.kind not in "buifU":
        raise DataError(
            f"{context} labels are of type {labels.dtype}; give one integer from 0, or one string, "
            "for each row"
        )
    return labels


def _texts(
    parts: Sequence[Gathered], classes: Sequence[str] | None
) -> tuple[list[str], NDArray[np.int64], Refuse]:
    """Return the different labels of all parts as sorted strings, and each row's place there.

    Without a list of classes, labels with one meaning (see ``columns.value``) are one label. The
    last value refuses rows by their labels; those with a missing label are refused here.
    """
    given = [part.labels for part in parts]
    kinds = {"n" if labels.dtype.kind in "iuf" else labels.dtype.kind for labels in given}
    if len(kinds) > 1:  # numpy would turn truths into numbers, and numbers into strings
        given = [np.array([text_of(each) for each in labels.tolist()], str) for labels in given]
    found, places = np.unique(np.concatenate(given), return_inverse=True)
    spelled = map(text_of, found.tolist())
    meant = list(spelled if classes is not None else map(value, spelled))
    texts, number = np.unique(meant, return_inverse=True)
    places = number[places.reshape(-1)]

    def refuse(bad: Sequence[bool], why: str) -> None:
        if any(bad):
            row, part = int(np.array(bad)[places].argmax()), 0
            while row >= len(given[part]):
                row, part = row - len(given[part]), part + 1
            raise DataError(f"{_told(parts[part], row)}, which is {why}")

    known = places_in(classes or ())
    missing = [is_missing(text) and known(text) < 0 for text in texts.tolist()]
    refuse(missing, "missing; fill it in or drop the row")
    return texts.tolist(), places, refuse


def text_of(label: Any) -> str:
    """Return a label as a table writes it: whole numbers without a decimal point."""
    return text_of_float(label) if isinstance(label, float) else str(label)


def _whole(text: str) -> int | None:
    """Return the whole number that a string stands for, if it does."""
    found = value(text)
    return int(found) if _INTEGER.fullmatch(found) else None


def _is_number(text: str) -> bool:
    truth = text.strip().lower() in ("true", "false")
    return not truth and not np.isnan(numbers([text])[0])


def _known(texts: Sequence[str], classes: Sequence[str] | None, refuse: Refuse) -> list[int]:
    """Return the class of each label; refuse a label without a class."""
    why = "not an integer from 0; give integers with the same meaning at all parties, or the public"
    why += " list of classes"
    if classes is not None:
        known = ", ".join(classes)
        why = f"not one of classes ({known}); correct it, add it to classes, or drop the row"
    found = list(map(class_of(classes), texts))
    refuse([each is None for each in found], why)
    return [each for each in found if each is not None]


def _without_gaps(texts: Sequence[str], context: str, refuse: Refuse) -> list[int]:
    """Return labels that are whole numbers from 0 without a gap."""
    found = list(map(_whole, texts))
    refuse(
        [each is None for each in found],
        f"a number but not an integer; give integers from 0, or {_list()}; or, to predict numbers, "
        "their public range: label_range = [LOW, HIGH]",
    )
    numbers = [each for each in found if each is not None]
    least, largest = min(numbers), max(numbers)
    present = set(numbers)
    lacking = next(each for each in count() if each not in present)
    if least < 0 or lacking < largest:
        raise DataError(
            f"{context} the labels are integers from {least} to {largest}, but no row has "
            f"{lacking}; give integers from 0 without a gap, or {_list(numbers)}"
        )
    if largest >= _MANY:
        log.warning(
            "%s the labels are whole numbers from 0 to %d, and are read as %d classes; if they are "
            "numbers to predict, such as days, give their public range: label_range = [LOW, HIGH]",
            context,
            largest,
            largest + 1,
        )
    return numbers


def _list(numbers: Sequence[int] = ()) -> str:
    """Return how to list the classes; the first numbers serve as the example."""
    shown = "".join(f'"{number}", ' for number in sorted(set(numbers))[:3])
    return (
        f"list the classes in order: classes = [{shown}...] (for arrays, an argument of "
        "Dataset.from_arrays)"
    )
