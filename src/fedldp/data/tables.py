"""Tables as they are in a .csv or .parquet file: named columns of numbers or strings."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import DataError, DataMissing, FedldpError, one_line
from fedldp.core.registry import import_extra
from fedldp.data.columns import is_missing, numbers, of_each, text_of_float

SUFFIXES = (".csv", ".parquet")

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of a file.

    Attributes:
        path: the path of the file.
        names: the names of all columns in the file's order, including repeated names.
        texts: returns the texts of a column; "" for a cell of a .parquet file that holds nothing.
        places: the line number of each row in a .csv file, or the row's 1-based number in a
            .parquet file.
        comma: whether numbers may have a decimal comma, as they may in files whose cells are
            separated by semicolons.
        doubles: returns the numbers of a column that the file itself holds as numbers, or None.
            They are those of its texts, which take ten times as long to read.
    """

    path: Path
    names: tuple[str, ...]
    texts: Callable[[str], Sequence[str]]
    places: Sequence[int]
    comma: bool = False
    doubles: Callable[[str], NDArray[np.float64] | None] = lambda column: None

    def __len__(self) -> int:
        return len(self.places)

    @property
    def listed(self) -> str:
        """The names of all columns, for a message; an empty or a blank one is quoted."""
        return ", ".join(name if name.strip() else repr(name) for name in self.names)

    @cached_property
    def numbers(self) -> Callable[[str], NDArray[np.float64]]:
        """Returns a column as numbers, with NaN for cells that are not numbers, shape (n,).

        The words true and false, in lower or upper case, are 1 and 0.
        """

        def read(column: str) -> NDArray[np.float64]:
            found = self.doubles(column)
            return numbers(self.texts(column), comma=self.comma) if found is None else found

        return cache(read)

    @cached_property
    def missing(self) -> Callable[[str], NDArray[np.bool_]]:
        """Returns whether each cell of a column is missing, shape (n,)."""

        def read(column: str) -> NDArray[np.bool_]:
            if self.doubles(column) is not None:
                return np.isnan(self.numbers(column))
            return np.array(of_each(self.texts(column), is_missing), np.bool_)

        return cache(read)

    @property
    def unit(self) -> str:
        """What ``places`` counts, for people."""
        return "line" if self.path.suffix.lower() == ".csv" else "row"

    def where(self, row: int, column: str) -> str:
        """Return the location and the content of a cell, for a message to the table's owner."""
        return f"{self.path}, {self.unit} {self.places[row]}: {self.cell(row, column)}"

    def cell(self, row: int, column: str) -> str:
        """Return the content of a cell, for a message to the table's owner."""
        return f"column {column!r} holds {self.texts(column)[row]!r}"


def read_table(path: Path) -> Table:
    """Return the columns of a .csv or .parquet file.

    A .csv file is separated by commas, semicolons or tabs: by whichever its header row has most of.
    Rows are not looked at for this, because what one row means may not depend on other rows.

    Raises:
        DataMissing: the file is missing.
        DataError: it cannot be read, or is empty.
        ConfigError: it is a .parquet file, and pyarrow is not installed.
    """
    if not path.is_file():
        raise DataMissing(f"there is no file {path}", "give the path of a .csv or .parquet file")
    return _read_csv(path) if path.suffix.lower() == ".csv" else _read_parquet(path)


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Say of any error in a ``with`` block that a file cannot be read as ``what``."""
    try:
        yield
    except FedldpError:
        raise
    except Exception as error:  # a damaged file can raise almost any exception
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise DataError(f"{path} cannot be read as {what} ({reason})") from None


def _read_csv(path: Path) -> Table:
    rows: list[list[str]] = []
    lines: list[int] = []
    with reading(path, ".csv, saved as UTF-8"), path.open(newline="", encoding="utf-8-sig") as file:
        separator = _separator(file)
        reader = csv.reader(file, delimiter=separator, skipinitialspace=True)
        header = [name.strip() for name in next(reader, [])]
        for row in reader:
            if len(row) not in (0, len(header)):  # 0: a blank line, often the last
                raise DataError(
                    f"{path}, line {reader.line_num}: {len(row)} cells in this row, "
                    f"{len(header)} in the header, which is separated by "
                    f"{_SEPARATORS[separator]}; give both the same number (names that contain a "
                    "separator need quotes, and numbers with decimal commas a file that is "
                    "separated by semicolons)"
                )
            if row:
                rows.append(row)
                lines.append(reader.line_num)
    if not rows:
        raise DataError(f"{path} is empty; it needs a header row and examples")
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    return Table(path, tuple(header), columns.__getitem__, lines, separator == ";")


def _separator(file: TextIO) -> str:
    """Return what separates the cells of a file, and go back to its start."""
    found: dict[str, int] = {}
    for separator in _SEPARATORS:
        found[separator] = len(next(csv.reader(file, delimiter=separator), []))
        file.seek(0)
    return max(found, key=found.__getitem__)  # the first of equal ones


def _plain(found: Any, where: str) -> Any:
    """Return a column of a .parquet file as integers, doubles, decimals, truth values or text.

    Raises:
        DataError: it holds something else.
    """
    types = import_extra("pyarrow.types", extra="parquet")
    if types.is_dictionary(found.type):
        found = found.cast(found.type.value_type)
    kind = found.type
    if types.is_float16(kind):
        found = found.cast("float32")
    if types.is_float32(found.type):  # the double of the shortest text, as a .csv file has it
        return found.cast("string").cast("float64")
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    others = (types.is_integer, types.is_float64, types.is_decimal, types.is_boolean, types.is_null)
    if not any(each(kind) for each in (*texts, *others)):
        raise DataError(
            f"{where} is of Arrow's type {kind}, for which there is no single text; save it as "
            "integers, numbers or strings, or put it into ignore_columns"
        )
    return found


def _read_parquet(path: Path) -> Table:
    parquet = import_extra("pyarrow.parquet", extra="parquet")
    with reading(path, ".parquet"):
        found = parquet.read_table(path)
    if not found.num_rows:
        raise DataError(f"{path} is empty; it needs examples")
    names = tuple(map(str, found.column_names))
    columns = dict(zip(names, found.columns, strict=True))

    types = import_extra("pyarrow.types", extra="parquet")

    @cache
    def plain(name: str) -> Any:
        return _plain(columns[name], f"{path}: column {name!r}")

    @cache
    def texts(name: str) -> Sequence[str]:
        if types.is_floating(plain(name).type):
            return ["" if each is None else text_of_float(each) for each in plain(name).to_pylist()]
        return ["" if each is None else each for each in plain(name).cast("string").to_pylist()]

    @cache
    def doubles(name: str) -> NDArray[np.float64] | None:
        kind = plain(name).type
        if not (types.is_integer(kind) or types.is_floating(kind)):
            return None
        found: NDArray[np.float64] = plain(name).cast("float64", safe=False).to_numpy()
        return found

    return Table(path, names, texts, range(1, found.num_rows + 1), doubles=doubles)
