"""Turns a user's arguments into a checked request for advice, or refuses them with a clear message.

Only the owner of the table sees these messages, because they reveal private rows. They are not sent
to anyone.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError, DataError
from fedldp.data import Columns, Dataset, Examples, is_table, read_table
from fedldp.data.columns import places_in
from fedldp.data.people import count_of
from fedldp.data.tables import Table
from fedldp.experiments.advising.plan import AdviceRequest, unit_of
from fedldp.experiments.comparing.design import CHOSEN_ON, SHARED
from fedldp.experiments.held_out import held_out, with_clients
from fedldp.simulation.settings import beside, nested

OF_DATA = tuple(
    name
    for name in SHARED
    if name not in ("dataset", "standardise", "partition", "num_examples", "num_clients")
)
"""The settings that declare a table's columns, and each row's client and person."""

LEAST_PEOPLE, LEAST_AT_SITE, MOST_CLASSES = 100, 10, 50
_SHOWN = 8


def read_request(
    table: Path | str,
    *,
    client: str | None,
    person: str | None,
    label: str | None,
    settings: Mapping[str, Any],
) -> AdviceRequest:
    """Return a request for advice on a table, with its columns checked.

    Args:
        table: a .csv or .parquet file; or a .toml file whose ``dataset`` is such a file. Only the
            declarations about the data are read from a .toml file.
        client: the column that names each row's client or site.
        person: the column that names each row's person.
        label: the column that holds the classes.
        settings: the data's settings, by dotted name.

    Raises:
        FedldpError: there is no such file or column, or a column lacks a declaration.
    """
    found = _declared(str(table))
    for name, value in (("client", client), ("person", person), ("label", label)):
        if value is not None:
            found[f"{name}_column"] = value
    for key in settings:
        if key.split(".")[0] not in OF_DATA:
            raise ConfigError(
                f"set {key}: advice chooses all settings except the data's; give one of "
                f"{', '.join(OF_DATA)}"
            )
    for key, value in nested(settings.items()).items():
        old = found.get(key)
        found[key] = (
            {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
        )
    request = AdviceRequest(
        settings={key: value for key, value in found.items() if value is not None}
    )
    read = read_table(Path(request.config.dataset).expanduser())
    _check_names(read, request.config)
    _check_missing(read, request.config.columns)
    _check_declared(read, request.config.columns)
    return AdviceRequest(settings={**request.settings, **_centred(request.config)})


def check_data(data: Dataset, settings: Mapping[str, Any]) -> None:
    """Refuse data about which no advice can be given.

    Args:
        data: the data that were read.
        settings: the data's settings, for messages.

    Raises:
        DataError: there are too few people or sites, or too few examples of a class.
    """
    name, sites = data.name, len(data.clients or ())
    if sites < 2:
        raise DataError(
            f"{name}: column {settings['client_column']!r} has only one value, so there is only "
            "one site; use --client to name the column that distinguishes sites or clients"
        )
    if data.num_classes > MOST_CLASSES:
        raise DataError(
            f"{name}: label {settings.get('label_column', 'label')!r} has {data.num_classes} "
            f"classes, and advice covers at most {MOST_CLASSES}; use --label to name the column "
            "that holds the classes"
        )
    unit = unit_of(data)
    if unit != "client-run":
        _check_people(data, settings, unit)
    tried = held_out(with_clients(data, "iid", sites, None, CHOSEN_ON), CHOSEN_ON)
    for part, where in (
        (tried.train, "part that tries train on"),
        (tried.test, "part that tries are scored on"),
        (data.test, "test part"),
    ):
        _check_classes(data, part, where)


def _declared(table: str) -> dict[str, Any]:
    """Return the data settings from a file, which is the table itself or names it."""
    if not table.endswith(".toml"):
        if not is_table(table):
            raise ConfigError(f"table {table!r}: give a .csv or .parquet file, or a .toml file "
                              "that declares its columns")  # fmt: skip
        return {"dataset": table}
    try:
        found = tomllib.loads(Path(table).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"table {table}: it cannot be read as TOML: {error}") from None
    if not is_table(str(found.get("dataset"))):
        raise ConfigError(
            f"table {table}: dataset = {found.get('dataset')}: advice is about a table; set "
            "dataset to a .csv or .parquet file"
        )
    found = beside(Path(table), found)
    return {name: found[name] for name in ("dataset", *OF_DATA) if name in found}


def _check_names(table: Table, config: RunConfig) -> None:
    names = ", ".join(table.names)
    if config.client_column is None:
        raise ConfigError(
            f"client: use --client to name the column with each row's site or device; {table.path} "
            f"has {names}"
        )
    for option, name in (
        ("client", config.client_column),
        ("person", config.person_column),
        ("label", config.label_column),
    ):
        if name is not None and name not in table.names:
            raise ConfigError(
                f"{option}: {table.path} has no column {name!r}; use --{option} to name one of its "
                f"columns: {names}"
            )
    known = {config.client_column, config.person_column, config.label_column}
    for setting in (
        "ignore_columns",
        "scale_columns",
        "spread_columns",
        "fill_columns",
        "categories",
    ):
        for name in getattr(config, setting):
            if name not in table.names:
                raise ConfigError(
                    f"{setting}: {table.path} has no column {name!r}; its columns are {names}"
                )
    if not set(table.names) - known - set(config.ignore_columns):
        raise ConfigError(
            f"{table.path}: no column is left for the model; add columns besides client, person "
            "and label"
        )


def _check_missing(table: Table, columns: Columns) -> None:
    """Refuse missing values, and name all columns that hold some."""
    gaps = [
        name
        for name in dict.fromkeys(table.names)
        if name not in (*columns.ignored, *columns.filled)
        and _has_gaps(table, name, columns.categories.get(name, ()))
    ]
    if not gaps:
        return
    if whose := [name for name in gaps if name in (columns.client, columns.person, columns.label)]:
        raise DataError(
            f"{table.path}: column {whose[0]!r} holds missing values, but every row needs a "
            "client, a person and a label; fill them in, or drop these rows"
        )
    raise DataError(
        f"{table.path}: missing values in {_listed(gaps)}; declare public values to replace them, "
        f"never means of the rows: {' '.join(_fills(table, gaps))}; or leave these columns out: "
        f"--set 'ignore_columns={_toml(gaps)}'"
    )


def _fills(table: Table, gaps: Sequence[str]) -> list[str]:
    """Return example options that fill missing values in columns of numbers and of strings."""
    texts = [name for name in gaps if _holds_texts(table, name)]
    numbers = [name for name in gaps if name not in texts]
    found = [f"--set fill_columns.{name}=0 (a number)" for name in numbers[:1]]
    return found + [
        f'--set fill_columns.{name}=unknown --set \'categories.{name}=["a", "unknown"]\' (a '
        "string, with the list of all possible strings)"
        for name in texts[:1]
    ]


def _has_gaps(table: Table, name: str, values: Sequence[str]) -> bool:
    """Return whether a cell of a column is missing, and is none of the declared values."""
    texts, place = table.texts(name), places_in(values)
    return any(place(texts[row]) < 0 for row in np.flatnonzero(table.missing(name)).tolist())


def _holds_texts(table: Table, name: str) -> bool:
    """Return whether a cell of a column is neither a number nor missing."""
    return bool((np.isnan(table.numbers(name)) & ~table.missing(name)).any())


def _check_declared(table: Table, columns: Columns) -> None:
    """Refuse columns without a public range or list of categories; one line names all of them.

    Numbers from -1 to 1, and true and false, need no range.
    """
    aside = {columns.label, columns.client, columns.person, *columns.ignored}
    plain, texts = [], []
    for name in table.names:
        if name in {*aside, *columns.categories, *columns.scaled, *columns.spreads}:
            continue
        cells = table.numbers(name)
        if _holds_texts(table, name):
            texts.append(name)
        elif not (np.abs(cells[~np.isnan(cells)]) <= 1).all():
            plain.append(name)
    if plain or texts:
        first = [f"a public range for {_listed(plain)}"] if plain else []
        first += [f"a public list of the strings in {_listed(texts)}"] if texts else []
        examples = [f"--set 'scale_columns.{plain[0]}=[0, 120]'"] if plain else []
        examples += [f'--set \'categories.{texts[0]}=["a", "b"]\''] if texts else []
        raise ConfigError(
            f"{table.path}: declare {' and '.join(first)}, from public knowledge and never "
            f"measured on the rows: {' '.join(examples)}, or all of them in a .toml file; or leave "
            "columns out with ignore_columns; use --person to name the column with each row's "
            "person"
        )


def _centred(config: RunConfig) -> dict[str, Any]:
    """Return centres for columns without a centre: the middle of the range, or an equal share."""
    found = dict(config.centre_columns)
    for name, (low, high) in config.scale_columns.items():
        found.setdefault(name, (low + high) / 2)
    for name, texts in config.categories.items():
        for text in texts:
            found.setdefault(f"{name}={text}", 1 / len(texts))
    return {"centre_columns": found} if found else {}


def _check_people(data: Dataset, settings: Mapping[str, Any], unit: str) -> None:
    owners, people = data.owners, data.train.people
    total = len(data.train) if people is None else count_of(people)
    what = "rows" if unit == "record" else "persons"
    if total < LEAST_PEOPLE:
        raise DataError(
            f"{data.name}: only {total} {what} to train on: noise that hides one of so few also "
            f"hides what they have in common; give at least {LEAST_PEOPLE}, or use public data"
        )
    for site in range(len(data.clients or ())):
        here = owners == site
        own = int(here.sum()) if people is None else count_of(people[here])
        if own < LEAST_AT_SITE:
            raise DataError(
                f"{data.name}: a site in column {settings['client_column']!r} has only {own} "
                f"{what} to train on; leave out sites with fewer than {LEAST_AT_SITE}"
            )


def _check_classes(data: Dataset, part: Examples, where: str) -> None:
    counts = np.bincount(part.labels, minlength=data.num_classes)
    for label in np.flatnonzero(counts == 0).tolist():
        shown = label if data.classes is None else data.classes[label]
        raise DataError(
            f"{data.name}: no row in the {where} has the label {shown}, so its AUC is not defined; "
            "give more rows of that class, merge it with another class, or, if there is no such "
            'class, list the classes: --set \'classes=["a", "b"]\''
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more columns" if len(names) > _SHOWN else ""
    return ("columns " if len(names) > 1 else "column ") + ", ".join(names[:_SHOWN]) + more


def _toml(names: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"
