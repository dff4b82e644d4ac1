"""A user's own data: .npz, .csv and .parquet files."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, DataError, DataMissing, Noted
from fedldp.data.adapters import Gathered
from fedldp.data.columns import Columns
from fedldp.data.encoding import Encoded, encode, undeclared
from fedldp.data.examples import Dataset, Examples, as_examples, of_rows
from fedldp.data.people import as_numbers, numbers_of_parts
from fedldp.data.rules import check_column, checked
from fedldp.data.tables import SUFFIXES as TABLES
from fedldp.data.tables import Table, read_table, reading

SUFFIXES = (".npz", *TABLES)


def is_own_file(name: str) -> bool:
    """Return whether a data set's name is the path of a user's own file."""
    return name.lower().endswith(SUFFIXES)


def is_table(name: str) -> bool:
    """Return whether a data set's name is the path of a file with named columns."""
    return name.lower().endswith(TABLES)


def load_file(
    path: Path,
    *,
    columns: Columns,
    seed: int,
    test_file: Path | None = None,
    test_share: float = 0.2,
) -> Dataset:
    """Load a user's own data set.

    A .npz file holds features and labels, and may hold groups, which name the person of each row;
    labels are integers from 0.

    A .csv file has a header row. ``columns`` gives the meaning of the columns of a .csv or .parquet
    file. If the labels are not integers from 0 and ``columns`` lists no classes, the strings become
    0 to K - 1 in sorted order. Values are scaled only by ranges that ``columns`` declares.

    Without a test file, a fifth of the rows is split off (a fifth of each client's rows, if there
    is a client column).

    If rows name their persons, a fifth of the people is split off instead of a fifth of the rows.

    Args:
        path: a path that ends in .npz, .csv or .parquet.
        columns: the columns of a table.
        seed: the seed of the split.
        test_file: a file of the same kind, to test on. The client and person columns of a table may
            be missing. If it names persons, nobody may be in both files.
        test_share: the share that is split off without a test set of its own; 0 for none.

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
                f"there is no file {each}",
                f"set {setting} to the path of a .npz, .csv or .parquet file",
            )
    if path.suffix.lower() == ".npz":
        return of_rows(
            read_arrays(path),
            None if test_file is None else read_arrays(test_file),
            label_range=columns.label_range,
            test_share=test_share,
            seed=seed,
            name=path.name,
        )
    return _load_table(path, columns, seed, test_file, test_share)


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
    if path.suffix.lower() == ".npz":
        return as_examples(read_arrays(path), columns.classes, columns.label_range)
    table = read_table(path)
    return encode_examples(table, _if_named(columns, table), names=names)


def read_arrays(path: Path) -> Gathered:
    """Read the examples of one party from a .npz file, without a check of their values.

    Raises:
        DataMissing: there is no such file.
        DataError: the file cannot be read, or lacks features or labels.
    """
    arrays = _read_npz(path, "features", "labels")
    for name in arrays:
        if name.startswith("group") and name != "groups":  # else each row were a person
            raise DataError(f"{path} holds {name}, which is not read; name the persons groups")
    return Gathered(f"{path}:", arrays["features"], arrays["labels"], arrays.get("groups"))


def encode_examples(
    table: Table,
    columns: Columns,
    *,
    leave_out: bool = False,
    names: Sequence[str] | None = None,
) -> Examples:
    """Return the examples of one party's table; see ``load_examples``.

    Args:
        table: the table as it was read.
        columns: the meaning of its columns.
        leave_out: whether rows with invalid values are left out rather than refused.
        names: the names of the features, in the wanted order; None for the file's own order.
    """
    columns = columns.without("client")
    found = encode(table, columns, leave_out=leave_out, quiet=leave_out, features=names)
    if leave_out and not found.labels:
        nobody = None if found.people is None else np.zeros(0, np.int64)
        return Examples(found.features, np.zeros(0, np.int64), nobody)
    return as_examples(_gathered(found)[0], columns.classes, columns.label_range)


def rows_left_out(
    table: Table, columns: Columns, *, names: Sequence[str] | None = None
) -> Mapping[str, NDArray[np.bool_]]:
    """Return which rows ``encode_examples`` leaves out, by column; a row may have several.

    Only the owner of the table may see this. The arguments are those of ``encode_examples``.
    """
    columns = columns.without("client")
    found = encode(table, columns, leave_out=True, quiet=True, features=names)
    return {name: rows for name, rows in found.bad.items() if rows.any()}


@dataclass(frozen=True, eq=False)
class Unlabelled:
    """The rows of a file to which a model is applied.

    Attributes:
        features: the features of the usable rows, in their order, float32 of shape (n, ...).
        problems: what is wrong with each other row, by its place in the file, from 0.
        ids: the text of each row of the file in the column that was asked for; None if none was.
    """

    features: NDArray[np.float32]
    problems: Mapping[int, str]
    ids: Sequence[str] | None

    def __len__(self) -> int:
        return len(self.features) + len(self.problems)


def load_unlabelled(
    path: Path,
    *,
    columns: Columns,
    names: Sequence[str] | None = None,
    id_column: str | None = None,
) -> Unlabelled:
    """Load a model's input from a file of examples; labels are not needed, and are ignored.

    Args:
        path: a path that ends in .npz (features), .csv or .parquet.
        columns: the columns of a table; the label, client and person columns may be missing.
        names: the names of a table's features, in the wanted order; None for the file's order.
        id_column: a column of the table that names its rows.

    Raises:
        DataMissing, DataError, ConfigError: as for ``load_file``, but for a bad row, which is left
            out; if all rows are bad, for the first.
    """
    if path.suffix.lower() == ".npz":
        arrays = _read_npz(path, "features")
        if id_column is not None:
            raise ConfigError(
                f"id = {id_column}: a .npz file has no columns; leave it out, or give a table"
            )
        features, problems, ids = arrays["features"], {}, None
        if features.dtype.kind == "f" and features.ndim > 1:
            with np.errstate(over="ignore"):
                finite = np.isfinite(features.astype(np.float32).reshape(len(features), -1)).all(1)
            problems = dict.fromkeys(np.flatnonzero(~finite).tolist(), _NOT_FINITE)
            features = features[finite]
    else:
        table = read_table(path)
        features, problems, ids = _of_rows(table, columns, names, id_column)
    if problems and not len(features):
        raise DataError(f"{path}: no row is usable; row 1: {problems[0]}")
    nothing = np.zeros(features.shape[:1], np.int64)
    return Unlabelled(checked(Gathered(f"{path}:", features, nothing)).features, problems, ids)


_NOT_FINITE = "features are NaN, infinite or too large for float32; write a number, or drop the row"


def _of_rows(
    table: Table, columns: Columns, names: Sequence[str] | None, id_column: str | None
) -> tuple[NDArray[np.float32], dict[int, str], Sequence[str] | None]:
    """Return the features, problems and ids of a table's rows; see ``Unlabelled``."""
    ids = None
    if id_column is not None:
        if id_column not in table.names:
            raise ConfigError(
                f"id = {id_column}: {table.path} has no such column; name one of {table.listed}"
            )
        ids = table.texts(id_column)
        made = {*columns.made(id_column)}
        if columns.is_feature(id_column) and not made & {*(names or ())}:
            columns = replace(columns, ignored=(*columns.ignored, id_column))
    columns = columns.without("label", "client", "person")
    found = encode(table, columns, leave_out=True, features=names)
    return found.features, found.problems(), ids


def _load_table(
    path: Path, columns: Columns, seed: int, test_file: Path | None, test_share: float
) -> Dataset:
    table = read_table(path)
    every: list[Encoded] = []
    noted = Noted()
    with noted.check():
        every.append(encode(table, columns))
    if test_file is not None:
        with noted.check():
            other = read_table(test_file)
            every.append(encode(other, _if_named(columns.without("client"), other)))
    if noted:
        _note_the_rest(noted, table, columns)
    noted.refuse()
    return _whole(columns, *every, test_share=test_share, seed=seed)


def _whole(columns: Columns, *parts: Encoded, **how: Any) -> Dataset:
    """Return the data set of a table and, perhaps, of a second one to test on; see ``of_rows``."""
    train, *test = _gathered(*parts)
    table, clients = parts[0].table, parts[0].clients
    plain = {name: table.numbers(name) for name in undeclared(table, columns)}
    return of_rows(
        replace(train, undeclared=plain),
        test[0] if test else None,
        clients=None if clients is None else as_numbers(clients),
        classes=columns.classes,
        label_range=columns.label_range,
        name=table.path.name,
        **how,
    )


def _if_named(columns: Columns, table: Table) -> Columns:
    """Return the columns of a table that may lack the person column."""
    return columns if columns.person in table.names else columns.without("person")


def load_counted(path: Path, *, columns: Columns) -> Dataset:
    """Return a table's labels, clients and people, divided as for a run, with one constant feature.

    This tells how many people, sites and labels there are if other columns cannot be read yet.

    Raises:
        FedldpError: the labels, clients or people cannot be read either.
    """
    table, bare = read_table(path), _bare(columns)
    return _whole(bare, encode(table, bare))


def _bare(columns: Columns) -> Columns:
    """Return the columns of which only labels, clients and people are read."""
    return Columns(
        label=columns.label,
        client=columns.client,
        person=columns.person,
        classes=columns.classes,
        label_range=columns.label_range,
        persons_at_sites=sys.maxsize,
        only=(),
    )


def _note_the_rest(noted: Noted, table: Table, columns: Columns) -> None:
    """Note what would be refused next in a table that cannot be encoded."""
    labels = _bare(columns).without("client", "person")
    with noted.check():
        _whole(labels, encode(table, labels), test_share=0)
    context = f"data set {table.path.name!r}:"
    for name in undeclared(table, columns):
        with noted.check():
            check_column(name, table.numbers(name), context)


def _gathered(*parts: Encoded) -> list[Gathered]:
    """Return the parts of one owner's data, in which a person has the same number everywhere."""
    people = numbers_of_parts([part.people for part in parts])
    return [
        Gathered(
            f"{part.table.path}:",
            part.features,
            part.labels,
            own,
            names=part.names,
            where=part.where,
        )
        for part, own in zip(parts, people, strict=True)
    ]


def _read_npz(path: Path, *needed: str) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise DataMissing(f"there is no file {path}", "give the path of a .npz file")
    # Never load pickles, which can run any code that the file's author put into them.
    with reading(path, ".npz"), path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("it is a single array, not an archive of named arrays")
        arrays = {key: archive[key] for key in archive.files}
    if not arrays.keys() >= set(needed):
        held = ", ".join(sorted(arrays)) or "nothing"
        raise DataError(f"{path} holds {held}; it needs {' and '.join(needed)}")
    return arrays
