"""Tables as they are in a .csv or .parquet file: named columns of numbers or strings."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import DataError, DataMissing
from fedldp.core.registry import import_extra

SUFFIXES = (".csv", ".parquet")

_MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})
"""The strings that stand for a missing value, in lower case."""

_TRUTHS = {"false": 0.0, "true": 1.0}
"""The values of a boolean column as pandas and others write them, in lower case."""


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of a file.

    Attributes:
        path: the path of the file.
        names: the names of all columns in the file's order, including repeated names.
        columns: the columns by name: unchanged strings, or float64 with NaN for a missing value.
        places: the line number of each row in a .csv file, or the row's 1-based number in a
            .parquet file.
    """

    path: Path
    names: tuple[str, ...]
    columns: dict[str, list[str] | NDArray[np.float64]]
    places: Sequence[int]

    def __len__(self) -> int:
        return len(self.places)

    def where(self, row: int, column: str) -> str:
        """Return the location and the content of a cell, for a message."""
        what = "line" if self.path.suffix.lower() == ".csv" else "row"
        cell = self.columns[column][row]
        shown = repr(cell) if isinstance(cell, str) else f"{cell:g}"
        return f"{self.path}, {what} {self.places[row]}: column {column!r} holds {shown}"

    def texts(self, column: str) -> list[str]:
        """Return a column as strings; whole numbers have no decimal point."""
        cells = self.columns[column]
        if isinstance(cells, list):
            return [cell.strip() for cell in cells]
        return ["" if np.isnan(each) else f"{each:.17g}" for each in cells]

    def numbers(self, column: str, rows: slice = slice(None)) -> NDArray[np.float64]:
        """Return a column as numbers, with NaN for cells that are not numbers, shape (n,).

        The words true and false, in lower or upper case, are 1 and 0.
        """
        cells = self.columns[column][rows]
        if not isinstance(cells, list):
            return cells
        try:
            return np.array(cells, dtype=np.str_).astype(np.float64)
        except ValueError:
            return np.array([_number(cell) for cell in cells])


def is_missing(cell: str) -> bool:
    """Return whether a cell's string stands for a missing value."""
    return cell.strip().lower() in _MISSING


def read_table(path: Path) -> Table:
    """Return the columns of a .csv or .parquet file.

    Raises:
        DataMissing: the file is missing.
        DataError: it cannot be read, or is empty.
        ConfigError: it is a .parquet file, and pyarrow is not installed.
    """
    if not path.is_file():
        raise DataMissing(f"there is no file {path}; give the path of a .csv or .parquet file")
    return _read_csv(path) if path.suffix.lower() == ".csv" else _read_parquet(path)


def one_line(error: Exception) -> str:
    """Return an exception's message on one line."""
    return " ".join(str(error).split())


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return _TRUTHS.get(text.strip().lower(), float("nan"))


def _read_csv(path: Path) -> Table:
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, skipinitialspace=True)
            header = [name.strip() for name in next(reader, [])]
            for row in reader:
                if len(row) not in (0, len(header)):  # 0: a blank line, often the last
                    raise DataError(
                        f"{path}, line {reader.line_num}: {len(row)} cells in this row, "
                        f"{len(header)} in the header; give both the same number"
                    )
                if row:
                    rows.append(row)
                    lines.append(reader.line_num)
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as .csv: {one_line(error)}") from None
    if len(header) == 1 and (";" in header[0] or "\t" in header[0]):
        raise DataError(f"{path}: no commas between its columns; save it with commas")
    if not rows:
        raise DataError(f"{path} is empty; it needs a header row and examples")
    cells: list[list[str] | NDArray[np.float64]] = [list(each) for each in zip(*rows, strict=True)]
    return Table(path, tuple(header), dict(zip(header, cells, strict=True)), lines)


def _read_parquet(path: Path) -> Table:
    parquet = import_extra("pyarrow.parquet", extra="parquet")
    try:
        found = parquet.read_table(path)
    except Exception as error:  # a damaged file can raise almost any exception
        raise DataError(f"{path} cannot be read as .parquet: {one_line(error)}") from None
    if not found.num_rows:
        raise DataError(f"{path} is empty; it needs examples")
    names = tuple(map(str, found.column_names))
    cells = [_cells(column) for column in found.columns]
    return Table(path, names, dict(zip(names, cells, strict=True)), range(1, found.num_rows + 1))


def _cells(column: Any) -> list[str] | NDArray[np.float64]:
    types = import_extra("pyarrow.types", extra="parquet")
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        cells = [None if each is None else float(each) for each in column.to_pylist()]
        return np.array(cells, dtype=np.float64)  # None becomes NaN
    if types.is_boolean(kind):
        words = {None: "", False: "false", True: "true"}
        return [words[each] for each in column.to_pylist()]
    # A date or a list becomes a string, so the user must declare the categories or ignore the
    # column.
    return ["" if each is None else str(each) for each in column.to_pylist()]
