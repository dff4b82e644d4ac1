"""The arguments that ``fedldp.run``, ``account``, ``sweep``, ``compare`` and ``advise`` share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedldp.core.errors import ConfigError
from fedldp.data import Dataset, as_dataset, is_own_file

Data = Dataset | tuple[Any, Any] | list[Any] | str | Path | Any
"""A ``Dataset``; features and labels as arrays, a torch data set, a DataLoader or a table with a
column ``label``; a list of these, one for each client; a built-in data set's name; or a file's
path."""


def given_data(
    dataset: Data | None, test: Any, *, tested: bool = False
) -> tuple[dict[str, Any], Dataset | None]:
    """Return the settings that ``dataset=`` and ``test=`` stand for, and data given as objects.

    Your own data are used as they are, so ``standardise`` is off for them.

    Args:
        dataset: the data in any form, or None.
        test: examples to test on, in any form that the data of one client may have; or, for a
            table, the path of a second one.
        tested: whether data given as objects must have a test set.

    Raises:
        ConfigError: the two do not go together, or have none of these forms.
        DataError: the data are malformed.

    >>> given_data("visits.csv", "later.csv")[0]
    {'dataset': 'visits.csv', 'standardise': False, 'test_file': 'later.csv'}
    """
    if dataset is not None and not isinstance(dataset, str | Path):
        if isinstance(test, str | Path):
            raise ConfigError(
                f"test = {test}: a path goes with a table given by its path; give examples"
            )
        data = as_dataset(dataset, test, tested=tested)
        if data.is_public:
            return {}, data
        clients = {} if data.clients is None else {"num_clients": len(data.clients)}
        return {"dataset": data.name, "standardise": False, **clients}, data
    settings: dict[str, Any] = {}
    if dataset is not None:
        settings["dataset"] = str(dataset)
        if is_own_file(str(dataset)):
            settings["standardise"] = False
    if test is not None:
        if not isinstance(test, str | Path):
            raise ConfigError(
                "test: examples go with data given as dataset= in Python; a built-in data set has "
                "its own test set, and for a file, give the path of a second file"
            )
        settings["test_file"] = str(test)
    return settings, None


def path_of(name: str, given: str | Path | None) -> Path | None:
    """Return a path, which may be given as a string.

    Raises:
        ConfigError: it is something else, or empty.
    """
    if given is None:
        return None
    if not isinstance(given, str | Path) or not str(given).strip():
        raise ConfigError(f"{name} = {given!r}: give the path of a folder")
    return Path(given).expanduser()
