"""A user's own data: .npz, .csv and .parquet files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import DataError, DataMissing
from fedldp.data.columns import Columns
from fedldp.data.encoding import Encoded, encode, labels_of, numbered
from fedldp.data.examples import Dataset, Examples, checked, of_examples, with_owners
from fedldp.data.people import as_numbers, check_sites
from fedldp.data.tables import SUFFIXES as TABLES
from fedldp.data.tables import Table, one_line, read_table

SUFFIXES = (".npz", *TABLES)
_WITH_TEST_SET = ("x_train", "y_train", "x_test", "y_test")
_WITHOUT_TEST_SET = ("features", "labels")
_PEOPLE = "groups"


def is_table(name: str) -> bool:
    """Return whether a data set's name is the path of a file with named columns."""
    return name.lower().endswith(TABLES)


def load_file(path: Path, *, columns: Columns, seed: int, test_file: Path | None = None) -> Dataset:
    """Load a user's own data set.

    A .npz file holds either x_train, y_train, x_test and y_test, or features and labels, of which a
    fifth is split off for testing; labels are integers from 0. It may also hold groups, which name
    the person of each row: groups if it has features, groups_train if it has x_train, and
    groups_test if it has x_test.

    A .csv file has a header row. ``columns`` gives the meaning of the columns of a .csv or .parquet
    file. If the labels are not integers from 0 and ``columns`` lists no classes, the strings become
    0 to K - 1 in sorted order. Without a test file, a fifth of the rows is split off (a fifth of
    each client's rows, if there is a client column). Values are scaled only by ranges that
    ``columns`` declares.

    If rows name their persons, a fifth of the people is split off instead of a fifth of the rows.

    Args:
        path: a path that ends in .npz, .csv or .parquet.
        columns: the columns of a table.
        seed: the seed of the split.
        test_file: a table with the same columns, to test on; its client and person columns may be
            missing. If it has a person column, nobody may be in both tables.

    Raises:
        DataMissing: there is no such file.
        DataError: the file or its content is malformed; the message says where. Or a person has
            rows at more clients than ``columns`` allows, or in both tables; the message says how
            many people this affects.
        ConfigError: a named column is missing, or the file is a .parquet file and pyarrow is not
            installed.
    """
    for setting, each in (("dataset", path), ("test_file", test_file)):
        if each is not None and not each.is_file():
            raise DataMissing(
                f"there is no file {each}; set {setting} to the path of a .npz, .csv or .parquet "
                "file"
            )
    if path.suffix.lower() == ".npz":
        return _load_npz(path, seed)
    return _load_table(path, columns, seed, test_file)


def load_examples(path: Path, *, columns: Columns, names: Sequence[str] | None = None) -> Examples:
    """Load the examples of one party, for training or for testing; nothing is split off.

    A .npz file holds features and labels. A table has the form that ``load_file`` describes, but if
    ``columns`` has no classes, its labels must be integers. Numbers for strings would depend on
    which strings one party happens to have.

    Args:
        path: a path that ends in .npz, .csv or .parquet.
        columns: the columns of a table; the client column and the person column may be missing.
        names: the names of a table's features, in the wanted order; None for the file's order.

    Raises:
        DataMissing, DataError, ConfigError: as for ``load_file``.
    """
    if not path.is_file():
        raise DataMissing(
            f"there is no file {path}; give the path of a .npz, .csv or .parquet file"
        )
    if path.suffix.lower() == ".npz":
        arrays = _read_npz(path)
        if not arrays.keys() >= set(_WITHOUT_TEST_SET):
            raise DataError(
                f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}; it needs "
                f"{' and '.join(_WITHOUT_TEST_SET)}"
            )
        features, labels = (arrays[key] for key in _WITHOUT_TEST_SET)
        return checked(features, labels, f"{path}:", arrays.get(_PEOPLE))
    table = read_table(path)
    return encode_examples(table, columns, people=columns.person in table.names, names=names)


def encode_examples(
    table: Table,
    columns: Columns,
    *,
    leave_out: bool = False,
    people: bool = True,
    names: Sequence[str] | None = None,
) -> Examples:
    """Return the examples of one party's table; see ``load_examples``.

    Args:
        table: the table as it was read.
        columns: the meaning of its columns.
        leave_out: whether rows with invalid values are left out rather than refused.
        people: whether a person column that ``columns`` names is required and read.
        names: the names of the features, in the wanted order; None for the file's own order.
    """
    path = table.path
    found = encode(
        table, columns, leave_out=leave_out, clients=False, people=people, features=names
    )
    if columns.classes is None and not all(_is_integer(text) for text in found.labels):
        raise DataError(
            f"{path}: some labels are not integers; give integers from 0 with the same meaning at "
            "all parties, or the public list of classes"
        )
    if leave_out and not found.labels:
        nobody = None if found.people is None else np.zeros(0, np.int64)
        return Examples(found.features, np.zeros(0, np.int64), nobody)
    return checked(found.features, labels_of(found, columns), f"{path}:", found.people)


def rows_left_out(
    table: Table, columns: Columns, *, names: Sequence[str] | None = None
) -> Mapping[str, int]:
    """Return how many rows ``encode_examples`` leaves out, by column; a row may count repeatedly.

    Only the owner of the table may see this. The arguments are those of ``encode_examples``.
    """
    found = encode(table, columns, leave_out=True, clients=False, features=names)
    return found.left_out


def load_features(
    path: Path, *, columns: Columns, names: Sequence[str] | None = None
) -> NDArray[np.float32]:
    """Load a model's input from a file of examples; labels are not needed, and are ignored.

    Args:
        path: a path that ends in .npz (features), .csv or .parquet.
        columns: the columns of a table; the label, client and person columns may be missing.
        names: the names of a table's features, in the wanted order; None for the file's order.

    Raises:
        DataMissing, DataError, ConfigError: as for ``load_file``.
    """
    if not path.is_file():
        raise DataMissing(
            f"there is no file {path}; give the path of a .npz, .csv or .parquet file"
        )
    if path.suffix.lower() == ".npz":
        arrays = _read_npz(path)
        if "features" not in arrays:
            raise DataError(
                f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}, but no features"
            )
        features = arrays["features"]
    else:
        table = read_table(path)
        found = encode(table, columns, clients=False, people=False, labels=False, features=names)
        features = found.features
    nothing = np.zeros(len(features), np.int64)
    return checked(features, nothing, f"{path}:").features


def _load_table(path: Path, columns: Columns, seed: int, test_file: Path | None) -> Dataset:
    found = encode(read_table(path), columns)
    parts: list[Encoded] = [found]
    if test_file is not None:
        table = read_table(test_file)
        test = encode(table, columns, clients=False, people=columns.person in table.names)
        if test.names != found.names:
            other = sorted(set(found.names) ^ set(test.names))
            raise DataError(
                f"test_file {test_file}: its columns are not the columns of {path}; they differ in "
                f"{', '.join(other) or 'their order'}"
            )
        parts.append(test)
    classes, labels = numbered(parts, columns)
    contexts = (f"data set {path.name!r}:", f"data set {path.name!r}: test")
    train, *others = (
        replace(checked(part.features, own, context), people=people)
        for part, own, context, people in zip(parts, labels, contexts, _people(parts), strict=False)
    )
    held = others[0] if others else None
    if found.clients is None:
        dataset = of_examples(train, test=held, seed=seed, name=path.name)
    else:
        owners = as_numbers(found.clients)
        if train.people is not None:
            check_sites(train.people, owners, columns.persons_at_sites, f"{path}:")
        dataset = with_owners(train, owners, test=held, seed=seed, name=path.name)
    count = dataset.num_classes if classes is None else len(classes)
    return replace(dataset, classes=classes, features=found.names, num_classes=count)


def _people(parts: Sequence[Encoded]) -> list[NDArray[np.int64] | None]:
    """Return the person of each row in each part; a person has the same number in all parts."""
    texts = [text for part in parts for text in part.people or ()]
    numbers, found = as_numbers(texts), list[NDArray[np.int64] | None]()
    for part in parts:
        size = 0 if part.people is None else len(part.people)
        found.append(None if part.people is None else numbers[:size])
        numbers = numbers[size:]
    return found


def _is_integer(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def _load_npz(path: Path, seed: int) -> Dataset:
    arrays = _read_npz(path)
    divided = arrays.keys() >= set(_WITH_TEST_SET)
    wrong = [_PEOPLE] if divided else [f"{_PEOPLE}_train", f"{_PEOPLE}_test"]
    if unread := [name for name in wrong if name in arrays]:
        raise DataError(
            f"{path} holds {unread[0]}, which would not be read; name the array of persons "
            f"{_PEOPLE} if the file has features, {_PEOPLE}_train for x_train, and {_PEOPLE}_test "
            "for x_test"
        )
    if divided:
        x_train, y_train, x_test, y_test = (arrays[key] for key in _WITH_TEST_SET)
        return Dataset.from_arrays(
            x_train,
            y_train,
            test_features=x_test,
            test_labels=y_test,
            groups=arrays.get(f"{_PEOPLE}_train"),
            test_groups=arrays.get(f"{_PEOPLE}_test"),
            name=path.name,
        )
    if arrays.keys() >= set(_WITHOUT_TEST_SET):
        features, labels = (arrays[key] for key in _WITHOUT_TEST_SET)
        groups = arrays.get(_PEOPLE)
        return Dataset.from_arrays(features, labels, groups=groups, seed=seed, name=path.name)
    raise DataError(
        f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}; it needs "
        f"{', '.join(_WITH_TEST_SET)}, or {' and '.join(_WITHOUT_TEST_SET)}"
    )


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    try:
        # Never load pickles, which can run any code that the file's author put into them.
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it is a single array, not an archive of named arrays")
            return {key: archive[key] for key in archive.files}
    except Exception as error:  # a damaged archive can raise almost any exception
        raise DataError(f"{path} cannot be read as .npz: {one_line(error)}") from None
