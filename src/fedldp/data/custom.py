"""A user's own data: .npz and .csv files."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.data.examples import Dataset, Examples, checked
from fedldp.errors import ConfigError, DataError, DataMissing

SUFFIXES = (".npz", ".csv")
_WITH_TEST_SET = ("x_train", "y_train", "x_test", "y_test")
_WITHOUT_TEST_SET = ("features", "labels")


def load_file(path: Path, *, label_column: str, seed: int) -> Dataset:
    """Load a data set of the user's own.

    A .npz file holds either x_train, y_train, x_test and y_test, or features and labels, of which
    a fifth is split off for testing; labels are integers from 0. A .csv file has a header row, a
    label column, and numbers in all others; a fifth is split off. Its labels are integers from 0,
    or texts, which become 0 to K - 1 in sorted order. Values are not scaled.

    Args:
        path: ends in .npz or .csv.
        label_column: the name of the .csv file's label column.
        seed: of the split.

    Raises:
        DataMissing: there is no such file.
        DataError: the file or what it holds is malformed; the line says where.
        ConfigError: a .csv file has no column of that name.
    """
    if not path.is_file():
        raise DataMissing(
            f"there is no file {path}; set dataset to the path of a .npz or .csv file"
        )
    if path.suffix.lower() == ".npz":
        return _load_npz(path, seed)
    return _load_csv(path, label_column, seed)


def load_examples(path: Path, *, label_column: str) -> Examples:
    """Load the examples of one party, for training or for a test: nothing is split off.

    A .npz file holds features and labels; a .csv file is as for ``load_file``, but its labels are
    integers: texts would get their numbers from what one party happens to have.

    Args:
        path: ends in .npz or .csv.
        label_column: the name of the .csv file's label column.

    Raises:
        DataMissing, DataError, ConfigError: as ``load_file``.
    """
    if not path.is_file():
        raise DataMissing(f"there is no file {path}; give the path of a .npz or .csv file")
    features: NDArray[Any]
    labels: NDArray[Any]
    if path.suffix.lower() == ".npz":
        arrays = _read_npz(path)
        if not arrays.keys() >= set(_WITHOUT_TEST_SET):
            raise DataError(
                f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}; it needs "
                f"{' and '.join(_WITHOUT_TEST_SET)}"
            )
        features, labels = (arrays[key] for key in _WITHOUT_TEST_SET)
    else:
        features, texts = _read_csv(path, label_column)
        if not all(_parses(int, text) for text in texts):
            raise DataError(
                f"{path}: some labels are no integers; give integers from 0, the same at all "
                "parties"
            )
        labels = np.array([int(text) for text in texts])
    return checked(features, labels, f"{path}:")


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
        raise DataError(f"{path} cannot be read as .npz: {_one_line(error)}") from None


def _load_csv(path: Path, label_column: str, seed: int) -> Dataset:
    features, texts = _read_csv(path, label_column)
    labels = _encode_labels(texts, path)
    return Dataset.from_arrays(features, labels, seed=seed, name=path.name)


def _read_csv(path: Path, label_column: str) -> tuple[NDArray[np.float64], list[str]]:
    """Return the features, shape (n, d), and the texts of the label column."""
    header, rows, lines = _read_rows(path)
    if header.count(label_column) != 1:
        raise ConfigError(
            f"label_column is {label_column!r}, which {path} has {header.count(label_column)} "
            f"times; its columns are {', '.join(header)}"
        )
    at = header.index(label_column)
    labels = [row.pop(at) for row in rows]
    del header[at]
    features = np.empty((len(rows), len(header)))
    for number, row in enumerate(rows):
        for column, cell in enumerate(row):
            try:
                features[number, column] = float(cell)
            except ValueError:
                raise DataError(
                    f"{path}, line {lines[number]}: column {header[column]!r} holds {cell!r}, "
                    "which is not a number"
                ) from None
    return features, labels


def _read_rows(path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    """Read the header, the rows as long as the header, and the line number of each row."""
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, skipinitialspace=True)
            header = next(reader, [])
            for row in reader:
                if len(row) not in (0, len(header)):  # 0: a blank line, often the last
                    raise DataError(
                        f"{path}, line {reader.line_num}: {len(row)} cells under a header of "
                        f"{len(header)}"
                    )
                if row:
                    rows.append(row)
                    lines.append(reader.line_num)
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as .csv: {_one_line(error)}") from None
    if not rows:
        raise DataError(f"{path} is empty; it needs a header row and examples")
    return header, rows, lines


def _encode_labels(texts: list[str], path: Path) -> NDArray[np.int64]:
    """Read labels as integers, or number the distinct texts in sorted order."""
    if all(_parses(int, text) for text in texts):
        return np.array([int(text) for text in texts])
    if all(_parses(float, text) for text in texts):
        raise DataError(f"{path}: the labels are numbers but not integers; give integers from 0")
    if "" in texts:
        raise DataError(f"{path}: some rows have an empty label; fill it in or drop them")
    return np.unique(texts, return_inverse=True)[1]


def _parses(kind: type[int] | type[float], text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
