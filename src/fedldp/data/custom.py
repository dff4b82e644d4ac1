"""A user's own data: .npz, .csv and .parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import DataError, DataMissing
from fedldp.data.columns import Columns
from fedldp.data.encoding import Encoded, encode, labels_of, numbered
from fedldp.data.examples import Dataset, Examples, checked, with_owners
from fedldp.data.tables import SUFFIXES as TABLES
from fedldp.data.tables import Table, one_line, read_table

SUFFIXES = (".npz", *TABLES)
_WITH_TEST_SET = ("x_train", "y_train", "x_test", "y_test")
_WITHOUT_TEST_SET = ("features", "labels")


def is_table(name: str) -> bool:
    """Return whether a data set's name is the path of a file with named columns."""
    return name.lower().endswith(TABLES)


def load_file(path: Path, *, columns: Columns, seed: int, test_file: Path | None = None) -> Dataset:
    """Load a data set of the user's own.

    A .npz file holds either x_train, y_train, x_test and y_test, or features and labels, of which
    a fifth is split off for testing; labels are integers from 0. A .csv file has a header row; of
    it and of a .parquet file, ``columns`` says which column is what. Where neither its labels are
    integers from 0 nor ``columns`` has the classes, texts become 0 to K - 1 in sorted order. A
    fifth is split off, of each client's rows where there is a client column, unless there is a
    test file. Values are scaled only by ranges that ``columns`` declares.

    Args:
        path: ends in .npz, .csv or .parquet.
        columns: of a table.
        seed: of the split.
        test_file: a table with the same columns, to test on; it needs no client column.

    Raises:
        DataMissing: there is no such file.
        DataError: the file or what it holds is malformed; the line says where.
        ConfigError: a column that is named is not there, or pyarrow is not, for a .parquet file.
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
    """Load the examples of one party, for training or for a test: nothing is split off.

    A .npz file holds features and labels; a table is as for ``load_file``, but where ``columns``
    has no classes its labels are integers: texts would get their numbers from what one party
    happens to have.

    Args:
        path: ends in .npz, .csv or .parquet.
        columns: of a table; its client column may be missing.
        names: of a table's features, in the order that they are wanted in; None: the file's own.

    Raises:
        DataMissing, DataError, ConfigError: as ``load_file``.
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
        return checked(features, labels, f"{path}:")
    return encode_examples(read_table(path), columns, names=names)


def encode_examples(
    table: Table, columns: Columns, *, leave_out: bool = False, names: Sequence[str] | None = None
) -> Examples:
    """Return the examples of one party's table; see ``load_examples``.

    Args:
        table: as read.
        columns: what its columns are.
        leave_out: rows that hold what they may not are left out, instead of refused.
        names: of the features, in the order that they are wanted in; None: the file's own.
    """
    path = table.path
    found = encode(table, columns, leave_out=leave_out, clients=False, features=names)
    if columns.classes is None and not all(_is_integer(text) for text in found.labels):
        raise DataError(
            f"{path}: some labels are no integers; give integers from 0, the same at all "
            "parties, or the public list of classes"
        )
    if leave_out and not found.labels:
        return Examples(found.features, np.zeros(0, np.int64))
    return checked(found.features, labels_of(found, columns), f"{path}:")


def load_features(
    path: Path, *, columns: Columns, names: Sequence[str] | None = None
) -> NDArray[np.float32]:
    """Load what a model is given of examples that have no labels, or whose labels do not count.

    Args:
        path: ends in .npz (features), .csv or .parquet.
        columns: of a table; its label and client columns may be missing.
        names: of a table's features, in the order that they are wanted in; None: the file's own.

    Raises:
        DataMissing, DataError, ConfigError: as ``load_file``.
    """
    if not path.is_file():
        raise DataMissing(
            f"there is no file {path}; give the path of a .npz, .csv or .parquet file"
        )
    if path.suffix.lower() == ".npz":
        arrays = _read_npz(path)
        if "features" not in arrays:
            raise DataError(f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}; not features")
        features = arrays["features"]
    else:
        table = read_table(path)
        found = encode(table, columns, clients=False, labels=False, features=names)
        features = found.features
    nothing = np.zeros(len(features), np.int64)
    return checked(features, nothing, f"{path}:").features


def _load_table(path: Path, columns: Columns, seed: int, test_file: Path | None) -> Dataset:
    found = encode(read_table(path), columns)
    test = None
    if test_file is not None:
        test = encode(read_table(test_file), columns, clients=False)
        if test.names != found.names:
            other = sorted(set(found.names) ^ set(test.names))
            raise DataError(
                f"test_file {test_file}: its columns are not those of {path}; they differ in "
                f"{', '.join(other) or 'their order'}"
            )
    parts: list[Encoded] = [found] if test is None else [found, test]
    classes, labels = numbered(parts, columns)
    held = None if test is None else (test.features, labels[1])
    if found.clients is None:
        dataset = Dataset.from_arrays(
            found.features,
            labels[0],
            test_features=None if held is None else held[0],
            test_labels=None if held is None else held[1],
            seed=seed,
            name=path.name,
        )
    else:
        examples = checked(found.features, labels[0], f"data set {path.name!r}:")
        owners = np.unique(found.clients, return_inverse=True)[1].astype(np.int64)
        dataset = with_owners(examples, owners, test=held, seed=seed, name=path.name)
    count = dataset.num_classes if classes is None else len(classes)
    return replace(dataset, classes=classes, features=found.names, num_classes=count)


def _is_integer(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def _load_npz(path: Path, seed: int) -> Dataset:
    arrays = _read_npz(path)
    if arrays.keys() >= set(_WITH_TEST_SET):
        x_train, y_train, x_test, y_test = (arrays[key] for key in _WITH_TEST_SET)
        return Dataset.from_arrays(
            x_train, y_train, test_features=x_test, test_labels=y_test, name=path.name
        )
    if arrays.keys() >= set(_WITHOUT_TEST_SET):
        features, labels = (arrays[key] for key in _WITHOUT_TEST_SET)
        return Dataset.from_arrays(features, labels, seed=seed, name=path.name)
    raise DataError(
        f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}; it needs "
        f"{', '.join(_WITH_TEST_SET)}, or {' and '.join(_WITHOUT_TEST_SET)}"
    )


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    try:
        # Never with pickles: they run whatever code the file's author put there.
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it is one array, not an archive of named ones")
            return {key: archive[key] for key in archive.files}
    except Exception as error:  # a damaged archive raises nearly anything
        raise DataError(f"{path} cannot be read as .npz: {one_line(error)}") from None
