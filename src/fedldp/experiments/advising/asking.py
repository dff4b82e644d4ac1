"""Turns a user's arguments into a checked request for advice, or refuses them with a clear message.

Only the owner of the table sees these messages, because they reveal private rows. They are not sent
to anyone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError, DataError, FedldpError, Noted
from fedldp.core.numbers import SMALLEST_DELTA
from fedldp.data import Dataset, Examples, is_table, read_table
from fedldp.data.custom import load_counted
from fedldp.data.people import count_of
from fedldp.data.rules import is_row_number
from fedldp.data.tables import Table
from fedldp.experiments.advising.plan import FACTS, AdviceRequest, unit_of
from fedldp.experiments.advising.questions import OPEN, ROLES, answered
from fedldp.experiments.comparing.comparison import CHOSEN_ON
from fedldp.experiments.comparing.design import SHARED
from fedldp.experiments.held_out import held_out, with_clients
from fedldp.simulation.settings import beside, nested, settings_in

_OF_RUNS = ("dataset", "standardise", "partition", "num_examples", "num_clients")
OF_DATA = tuple(name for name in SHARED if name not in _OF_RUNS)
"""The settings that declare a table's columns and classes, and each row's client and person."""

LEAST_PEOPLE, LEAST_AT_SITE, MOST_CLASSES = 100, 10, 50
_SHOWN = 8


def read_request(
    table: Path | str | None,
    *,
    client: str | None,
    person: str | None,
    label: str | None,
    settings: Mapping[str, Any],
    given: Mapping[str, Any] = MappingProxyType({}),
    in_memory: bool = False,
) -> AdviceRequest:
    """Return a request for advice on a table; ``checked_data`` then reads the table.

    Args:
        table: a .csv or .parquet file; or a .toml file whose ``dataset`` is such a file. Only the
            declarations about the data are read from a .toml file. None if ``given`` has the data.
        client: the column that names each row's client or site.
        person: the column that names each row's person.
        label: the column that holds the classes.
        settings: the data's settings, and ``FACTS``, by dotted name.
        given: the settings that name the data, in place of those that ``table`` has.
        in_memory: whether the data are given in Python, and not by a table's path.

    Raises:
        FedldpError: there is no such file, or a setting is wrong.
    """
    roles = {"client_column": client, "person_column": person, "label_column": label}
    found = ({} if table is None else _declared(str(table))) | dict(given)
    found |= {name: column for name, column in roles.items() if column is not None}
    for key in settings:
        if key.split(".")[0] not in (known := ("dataset", *OF_DATA, *FACTS)):
            raise ConfigError(
                f"set {key}: advice chooses all settings except the data's; give one of "
                f"{', '.join(known)}"
            )
    found |= nested(settings.items(), found)
    if not in_memory and not is_table(str(found.get("dataset"))):
        raise ConfigError(
            f"dataset = {found.get('dataset')}: advice is about a .csv or .parquet file, or data "
            "given in Python"
        )
    open_ = (name for name in ROLES if found.get(name) == OPEN)
    refuse(ConfigError(f'{n} = "{OPEN}" in {table}: answer it. {ROLES[n]}') for n in open_)
    return _request_of({key: value for key, value in answered(found).items() if value is not None})


def _request_of(found: dict[str, Any]) -> AdviceRequest:
    """Return the request with these settings, some of which are facts and no settings of a run."""
    facts = {name: found.pop(name, None) for name in FACTS}
    for name in ("people", "sites"):
        if (count := facts[name]) is not None and not (type(count) is int and count > 0):
            raise ConfigError(f"{name} = {count}: give a number of at least 1")
    delta = facts["delta"]
    if delta is not None and not (type(delta) is float and SMALLEST_DELTA <= delta < 1):
        raise ConfigError(f"delta = {delta}: give a number above 0 and below 1")
    by = facts.pop("by_columns") or ()
    columns = tuple(map(str, by if isinstance(by, list | tuple) else [by]))
    request = AdviceRequest(found, by_columns=columns, **facts)
    return replace(request, settings={**found, **_centred(request.as_declared)})


def checked_data(
    request: AdviceRequest,
    source: Callable[[], Dataset],
    *,
    in_memory: bool = False,
    asked: bool = False,
) -> Dataset:
    """Return the data that advice is about, or refuse all that is wrong with them at once.

    Args:
        request: the request.
        source: loads the data.
        in_memory: whether the data are given in Python, and not by a table's path.
        asked: whether a file declares the columns already.

    Raises:
        FedldpError: a column lacks a declaration, a cell is invalid, the data are not as declared,
            or there are too few of them; ``SeveralErrors`` has one line for each.
    """
    noted, data = Noted(), None
    config = request.config
    path = Path(config.dataset).expanduser()
    if not in_memory:
        noted.note(*_undeclared(read_table(path), config))
    with noted.check():
        data = source()
    counted = data
    if data is None and not in_memory:  # count what can be counted without the features
        with suppress(FedldpError):
            counted = load_counted(path, columns=config.columns)
    if counted is not None and (config.client_column is not None or in_memory):
        noted.note(*_miscounted(counted, request))
        with noted.check():
            check_data(counted, request.settings)
        if data is not None:
            with noted.check():
                request.problem(data)
    if noted and not in_memory and not asked:
        noted.note(
            ConfigError(
                f"{path}: to get all questions about its columns as a file to answer: fedldp "
                f"advise {path} --draft FILE.toml"
            )
        )
    noted.refuse()
    assert data is not None
    return data


def _miscounted(data: Dataset, request: AdviceRequest) -> Iterator[DataError]:
    """Yield what is wrong with declared numbers of people or sites: they are not the data's."""
    sites = len(data.clients or ())
    if request.sites is not None and request.sites != sites:
        yield DataError(
            f"sites = {request.sites}: {data.name} has rows of {sites}; correct the number, or the "
            "names of the sites in the table"
        )
    people = sum(map(_people_in, (data.train, data.test)))
    if request.people is not None and request.people < people:
        yield DataError(
            f"people = {request.people}: {data.name} has rows of more people; round the number up, "
            "because delta must suit all of them"
        )


def check_data(data: Dataset, settings: Mapping[str, Any]) -> None:
    """Refuse data about which no advice can be given.

    Args:
        data: the data that were read.
        settings: the data's settings, for messages.

    Raises:
        DataError: there are too few people or sites, or too few examples of a class.
    """
    # Parts of data with so many classes, or with one site, say nothing more.
    refuse(_unsuitable(data, settings))
    sites = len(data.clients or ())
    tried = held_out(with_clients(data, "iid", sites, None, CHOSEN_ON), CHOSEN_ON)
    parts = {
        "part that tries train on": tried.train,
        "part that tries are scored on": tried.test,
        "test part": data.test,
    }
    refuse(each for where, part in parts.items() for each in _lacking(data, part, where))


def refuse(errors: Iterable[FedldpError]) -> None:
    """Raise errors, if there are any, all at once."""
    noted = Noted()
    noted.note(*errors)
    noted.refuse()


def _unsuitable(data: Dataset, settings: Mapping[str, Any]) -> Iterator[DataError]:
    """Yield why there are too few sites or people, or too many classes."""
    name, unit, sites = data.name, unit_of(data), len(data.clients or ())
    if data.label_range is not None and unit == "client-run":
        yield DataError(
            f"{name}: label_range = {data.label_range}: only people and rows can be hidden where "
            "numbers are predicted, and not a whole client; use --person to name the column with "
            "each row's person"
        )
    if sites < 2:
        yield DataError(
            f"{name}: column {settings.get('client_column')!r} has only one value, so there is "
            "only one site; use --client to name the column that distinguishes sites or clients"
        )
    if data.num_classes > MOST_CLASSES:
        yield DataError(
            f"{name}: label {settings.get('label_column', 'label')!r} has {data.num_classes} "
            f"classes, and advice covers at most {MOST_CLASSES}; use --label to name the column "
            "that holds the classes"
        )
    if unit == "client-run":
        return
    what, total = "rows" if unit == "record" else "persons", _people_in(data.train)
    if total < LEAST_PEOPLE:
        yield DataError(
            f"{name}: only {total} {what} to train on: noise that hides one of so few also hides "
            f"what they have in common; give at least {LEAST_PEOPLE}, or use public data"
        )
    column = settings.get("client_column")
    where = "" if column is None else f" in column {column!r}"
    for rows in data.clients or ():
        own = _people_in(data.train.taken(rows))
        if own < LEAST_AT_SITE:
            yield DataError(
                f"{name}: a site{where} has only {own} {what} to train on; leave out sites with "
                f"fewer than {LEAST_AT_SITE}"
            )


def _people_in(part: Examples) -> int:
    """Return the number of people in a part of the data, or of rows if these name nobody."""
    return len(part) if part.people is None else count_of(part.people)


def _declared(table: str) -> dict[str, Any]:
    """Return the data settings from a file, which is the table itself or names it."""
    if not table.endswith(".toml"):
        if not is_table(table):
            raise ConfigError(f"table {table!r}: give a .csv or .parquet file, or a .toml file "
                              "that declares its columns")  # fmt: skip
        return {"dataset": table}
    found = settings_in(Path(table), "table")
    if not is_table(str(found.get("dataset"))):
        raise ConfigError(
            f"table {table}: dataset = {found.get('dataset')}: advice is about a table; set "
            "dataset to a .csv or .parquet file"
        )
    found = beside(Path(table), found)
    return {name: found[name] for name in ("dataset", *OF_DATA, *FACTS) if name in found}


def _undeclared(table: Table, config: RunConfig) -> Iterator[ConfigError]:
    """Yield errors if no column names the clients, or if numbers lack a public scale.

    Numbers from -1 to 1, and true and false, need no scale.
    """
    if config.client_column is None:
        yield ConfigError(
            "client: use --client to name the column with each row's site or device; "
            f"{table.path} has {table.listed}"
        )
    columns = config.columns
    known = {*columns.categories, *columns.scaled, *columns.spreads}
    wide = [
        name
        for name in dict.fromkeys(table.names)
        if columns.is_feature(name)
        and name not in known
        and not is_row_number(name)
        and _is_wide(table, name)
    ]
    if wide:
        yield ConfigError(
            f"{table.path}: declare a public range for {_listed(wide)}, from public knowledge and "
            f"never measured on the rows: --set 'scale_columns.{wide[0]}=[0, 120]', or a typical "
            f"value and a spread: --set 'spread_columns.{wide[0]}=[60, 16]'; or leave columns out "
            "with ignore_columns"
        )


def _is_wide(table: Table, name: str) -> bool:
    """Return whether a column holds numbers, and not only numbers from -1 to 1."""
    try:
        cells, gaps = table.numbers(name), table.missing(name)
    except DataError:  # a type of a .parquet file that holds no numbers
        return False
    texts = np.isnan(cells) & ~gaps
    return not texts.any() and not (np.abs(cells[~gaps]) <= 1).all()


def _centred(config: RunConfig) -> dict[str, Any]:
    """Return centres for columns without a centre: the middle of the range, or an equal share."""
    found = dict(config.centre_columns)
    for name, (low, high) in config.scale_columns.items():
        found.setdefault(name, (low + high) / 2)
    for name, texts in config.categories.items():
        for text in texts:
            found.setdefault(f"{name}={text}", 1 / len(texts))
    return {"centre_columns": found} if found else {}


def _lacking(data: Dataset, part: Examples, where: str) -> Iterator[DataError]:
    """Yield which classes have no row in a part of the data, or that all its numbers are equal."""
    if data.label_range is not None:
        if (part.labels == part.labels[0]).all():
            yield DataError(
                f"{data.name}: all labels in the {where} are the same number, so R2 is not "
                "defined; give more people, or check label_range"
            )
        return
    counts = np.bincount(part.labels, minlength=data.num_classes)
    for label in np.flatnonzero(counts == 0).tolist():
        shown = label if data.classes is None else data.classes[label]
        yield DataError(
            f"{data.name}: no row in the {where} has the label {shown}, so its AUC is not defined; "
            "give more rows of that class, merge it with another class, or, if there is no such "
            'class, list the classes: --set \'classes=["a", "b"]\''
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more columns" if len(names) > _SHOWN else ""
    return ("columns " if len(names) > 1 else "column ") + ", ".join(names[:_SHOWN]) + more
