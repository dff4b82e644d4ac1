"""Examples from users' own objects: torch's data sets and loaders, tables with named columns.

This module imports no library: an object from torch or Hugging Face's ``datasets`` exists only if
the user has already loaded that library. Everything is read once, before a run, in an order that
does not depend on any random state.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import DataError

LABEL = "label"
"""The name of the column that holds the classes, unless the user gives another name."""


@dataclass(frozen=True, eq=False)
class Gathered:
    """Examples of one owner that were read; ``rules.checked`` checks them.

    Attributes:
        context: the beginning of messages about them, which names their owner.
        features: the features of each example, shape (N, ...).
        labels: shape (N,).
        groups: the person of each example, shape (N,), if the source names the persons.
        names: the names of the features, if they are columns.
        classes: the names of the classes, if the source has them.
        owners: the client of each example, shape (N,), if the source names the clients.
        undeclared: columns of a table that are features although nothing declares what they mean,
            by name, each of shape (N,).
        where: returns the location and the content of a row's label, for messages; None for arrays.
    """

    context: str
    features: Any
    labels: Any
    groups: Any = None
    names: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    owners: Any = None
    undeclared: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    where: Callable[[int], str] | None = None


def is_source(given: Any) -> bool:
    """Return whether an object holds labelled examples, and is not a pair of arrays."""
    if isinstance(given, tuple | list):  # before the slow search for libraries
        return False
    torch = _found("torch.utils.data", "DataLoader", "Dataset")
    known: tuple[type, ...] = (*torch, *_hugging_face())
    return isinstance(given, known) or _is_frame(given)


def is_clients(given: Any) -> bool:
    """Return whether an object lists clients' examples, as sources or as tuples.

    A tuple is not such a list: it is read as a pair of features and labels.
    """
    if not isinstance(given, list) or not given:
        return False
    if all(isinstance(each, tuple) for each in given):
        return True
    return all(map(is_source, given)) or any_source(given)


def any_source(given: Iterable[Any]) -> bool:
    """Return whether any object is a source; data frames do not count, as they may be features."""
    return any(is_source(each) and not _is_frame(each) for each in given)


def gathered(given: Any, context: str) -> Gathered:
    """Return the examples of a source: a torch data set or loader, or a table.

    A torch data set yields pairs (features, label), triples (features, label, group), or mappings
    with ``label`` and one more key. A DataLoader stands for its data set, which is read in order,
    so shuffling and ``drop_last`` have no effect. A table has a column ``label``; see
    ``of_columns``.

    Args:
        given: an object for which ``is_source`` is true.
        context: the beginning of error messages, which names the owner of the examples.

    Raises:
        DataError: the source is empty, may never end, or is malformed; the message says how.
    """
    is_loader = isinstance(given, _found("torch.utils.data", "DataLoader"))
    data = given.dataset if is_loader else given
    if isinstance(data, _found("torch.utils.data", "IterableDataset")):
        raise DataError(
            f"{context} it has no length, and may never end; give a data set with a length, or "
            "arrays"
        )
    if is_loader:
        _check_whole(given, context)
    if is_loader or isinstance(data, _found("torch.utils.data", "Dataset")):
        return _of_map(data, context)
    return of_columns(data, context=context)


def of_columns(
    table: Any,
    *,
    label: str = LABEL,
    client: str | None = None,
    person: str | None = None,
    optional: bool = False,
    context: str,
) -> Gathered:
    """Return the examples of a table with named columns.

    Features are either one column of arrays or images, or any number of columns of numbers, in
    their order. Images become numbers from 0 to 1, of shape (channels, height, width).

    Args:
        table: a Hugging Face ``Dataset``, a pandas ``DataFrame``, or a mapping of names to arrays.
        label: the column that holds the classes.
        client: the column that names each row's client, if there is one.
        person: the column that names each row's person, if there is one.
        optional: whether these two columns may be missing.
        context: the beginning of error messages.

    Raises:
        DataError: a column is missing, or the remaining columns are not features.
    """
    columns = _columns_of(table, context)
    aside = [each for each in (client, person) if each is not None]
    for name in (label, *aside):
        if name not in columns and not (optional and name != label):
            raise DataError(
                f"{context} there is no column {name!r}; rename one of {', '.join(columns)}, or "
                "give its name"
            )
    features = {name: each for name, each in columns.items() if name not in (label, *aside)}
    if not features:
        raise DataError(f"{context} it has no feature columns besides {label!r}; add some")
    classes = _class_names(table, label)
    labels = columns[label] if classes is None else _named(columns[label], classes)
    owners, groups = (None if name is None else columns.get(name) for name in (client, person))
    found = _stacked(features, context)
    return replace(found, labels=labels, classes=classes, groups=groups, owners=owners)


def of_arrays(features: Any, labels: Any, groups: Any = None, *, context: str) -> Gathered:
    """Return the examples of arrays; the columns of a pandas ``DataFrame`` keep their names.

    Args:
        features: the features of each example, shape (N, ...).
        labels: shape (N,).
        groups: the person of each example, shape (N,).
        context: the beginning of error messages.

    Raises:
        DataError: a column of a data frame is not a feature.
    """
    if not _is_frame(features) or not all(isinstance(name, str) for name in features.columns):
        return Gathered(context, features, labels, groups)
    found = _stacked(_columns_of(features, context), context)
    return replace(found, labels=labels, groups=groups)


def _stacked(columns: Mapping[str, NDArray[Any]], context: str) -> Gathered:
    """Return columns as the features of each row; the labels are still missing.

    Raises:
        DataError: a column does not hold numbers, or one of several columns holds arrays.
    """
    for name, column in columns.items():
        if column.dtype.kind not in "buif":
            raise DataError(
                f"{context} column {name!r} holds no numbers; make a 0/1 column for each "
                f"of its public values, table['{name}=VALUE'] = (table['{name}'] == 'VALUE') * "
                f"1.0, and drop {name!r}; or write the table to a .csv or .parquet file, give its "
                "path as dataset, and list the values in categories (if the column names each "
                "row's client or person, use from_table(client=..., person=...))"
            )
    wide = [name for name, column in columns.items() if column.ndim > 1]
    if wide and len(columns) > 1:
        others = ", ".join(name for name in columns if name != wide[0])
        raise DataError(
            f"{context} column {wide[0]!r} holds arrays, so it must be the only feature column, "
            f"but the table also has {others}; drop one or the other"
        )
    if wide:
        return Gathered(context, columns[wide[0]], ())
    named = {str(name): column for name, column in columns.items()}
    features = np.stack(list(named.values()), axis=1)
    return Gathered(context, features, (), names=tuple(named), undeclared=named)


def _columns_of(table: Any, context: str) -> dict[str, NDArray[Any]]:
    """Return the columns of a table as arrays, by name.

    Raises:
        DataError: it is not a table, or has several splits.
    """
    if isinstance(table, _found("datasets", "DatasetDict", "IterableDatasetDict")):
        raise DataError(
            f"{context} it has the splits {', '.join(table)}; give one of them, and another as test"
        )
    if isinstance(table, _found("datasets", "Dataset")):
        if not len(table):
            raise DataError(f"{context} it is empty; give some examples")
        return {name: _hugging_face_column(table, name) for name in table.column_names}
    if isinstance(table, Mapping) or _is_frame(table):
        return {name: np.asarray(table[name]) for name in table.keys()}  # noqa: SIM118 (of a frame)
    raise DataError(
        f"{context} {type(table).__name__} is not a table; give a Hugging Face Dataset, a pandas "
        "DataFrame, or a mapping of names to arrays"
    )


def _hugging_face() -> Any:
    return _found("datasets", "Dataset", "IterableDataset", "DatasetDict", "IterableDatasetDict")


def _found(module: str, *names: str) -> Any:
    """Return the named classes of a library as a tuple, empty if it is not loaded."""
    library = sys.modules.get(module)
    found = (getattr(library, name, None) for name in names)
    return tuple(each for each in found if isinstance(each, type))


def _is_frame(given: Any) -> bool:
    if isinstance(given, np.ndarray):  # before the slow search for a library
        return False
    return isinstance(given, _found("pandas", "DataFrame"))


# torch


def _check_whole(loader: Any, context: str) -> None:
    """Refuse a loader that does not yield each example of its data set once, as it is."""
    sampler = loader.sampler
    orders = _found("torch.utils.data", "SequentialSampler", "RandomSampler")
    batches = (type(None), *_found("torch.utils.data", "BatchSampler"))
    all_once = type(sampler) in orders and len(sampler) == len(loader.dataset)
    alone = type(loader.batch_sampler) in batches and not getattr(sampler, "replacement", False)
    as_is = getattr(loader.collate_fn, "__name__", "") in ("default_collate", "default_convert")
    if not (all_once and alone and as_is):
        raise DataError(
            f"{context} its sampler or its collate_fn decides which examples it yields, or what is "
            "in them; give a data set of these, such as a torch.utils.data.Subset"
        )


def _of_map(data: Any, context: str) -> Gathered:
    """Return the examples of a torch data set."""
    found = [_as_arrays(data[row], f"{context} example {row}:") for row in range(len(data))]
    if not found:
        raise DataError(f"{context} it is empty; give some examples")
    first, *others = ([part.shape for part in parts] for parts in found)
    for row, shapes in enumerate(others, start=1):
        if shapes != first:
            raise DataError(
                f"{context} example {row} has parts of the shapes {shapes}, and example 0 of "
                f"{first}; give all of them the same shapes, and a group to all or to none"
            )
    features, labels, *groups = map(np.stack, zip(*found, strict=True))
    return Gathered(context, features, labels, groups[0] if groups else None)


def _as_arrays(item: Any, context: str) -> tuple[NDArray[Any], ...]:
    """Return features and label, and the group if there is one, of an example."""
    if isinstance(item, Mapping):
        label = next((key for key in (LABEL, "labels") if key in item), None)
        rest = [key for key in item if key != label]
        if label is None or len(rest) != 1:
            raise DataError(
                f"{context} it has the keys {', '.join(map(str, item))}; give the key label and "
                "one more"
            )
        item = (item[rest[0]], item[label])
    if not isinstance(item, tuple | list) or len(item) not in (2, 3):
        raise DataError(
            f"{context} it is a {type(item).__name__}; give pairs of features and label"
        )
    try:
        return tuple(map(_as_array, item))
    except (TypeError, ValueError) as error:
        raise DataError(f"{context} it is not an array: {error}") from None


def _as_array(given: Any) -> NDArray[Any]:
    if isinstance(given, _found("PIL.Image", "Image")):
        return _as_picture(given)
    if isinstance(given, _found("torch", "Tensor")):
        given = given.detach().cpu().numpy()
    return np.asarray(given)


# Tables


def _as_picture(given: Any) -> NDArray[np.float32]:
    """Return an image as numbers from 0 to 1, shape (channels, height, width)."""
    pixels = np.asarray(given)
    planes = pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
    largest = 1 if pixels.dtype.kind == "b" else np.iinfo(pixels.dtype).max
    return np.ascontiguousarray(planes, np.float32) / np.float32(largest)


def _hugging_face_column(table: Any, name: str) -> NDArray[Any]:
    """Return one column of a Hugging Face table; images become numbers from 0 to 1."""
    one = table.select_columns([name])
    if type(table.features[name]).__name__ == "Image":
        images = [_as_picture(each) for each in one.with_format(None)[:][name]]
        if len({each.shape for each in images}) > 1:
            return np.array([*images, None], object)[:-1]
        return np.stack(images)
    return np.asarray(one.with_format("numpy")[:][name])


def _class_names(table: Any, label: str) -> tuple[str, ...] | None:
    if not isinstance(table, _found("datasets", "Dataset")):
        return None
    names = getattr(table.features[label], "names", None)
    return None if names is None else tuple(names)


def _named(labels: NDArray[Any], classes: Sequence[str]) -> NDArray[Any]:
    """Return the names of classes that are given as numbers; an unknown number stays one."""
    known = dict(enumerate(classes))
    return np.array([known.get(each, str(each)) for each in labels.tolist()], np.str_)
