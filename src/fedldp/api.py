"""The Python interface: as small as the command line."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError
from fedldp.data import Dataset, as_dataset
from fedldp.data.custom import SUFFIXES
from fedldp.data.sources import SOURCES
from fedldp.protocol.server_loop import Round
from fedldp.reporting.record import RunFolder, unused
from fedldp.reporting.statement import Statement
from fedldp.simulation.plan import cores, plan, problem_of, problem_with
from fedldp.simulation.result import read_result
from fedldp.simulation.settings import from_mapping, named

if TYPE_CHECKING:
    from fedldp.simulation.engine import Result

Recipe = str | Path | RunConfig
"""A recipe's name, the path of a TOML file, or a configuration."""

Data = Dataset | tuple[Any, Any] | str | Path
"""A data set, its features and labels as arrays, a built-in one's name, or a file's path."""


def recipe(recipe: Recipe = "quickstart", /, **settings: Any) -> RunConfig:
    """Return the configuration of a recipe, with some settings changed.

    Args:
        recipe: its name, the path of a TOML file, or a configuration.
        settings: by name; None unsets one.

    Raises:
        ConfigError: the recipe, a setting or its value is wrong.

    >>> recipe("quickstart", rounds=3).rounds
    3
    """
    changes = {name: _plain(value) for name, value in settings.items()}
    config = recipe if isinstance(recipe, RunConfig) else named(str(recipe), changes)
    return config.changed(**changes)  # one that was given may not have been checked


def run(
    recipe: Recipe = "quickstart",
    /,
    *,
    dataset: Data | None = None,
    data_dir: str | Path | None = None,
    device: str = "cpu",
    workers: int = 1,
    cluster: str | None = None,
    out: str | Path | None = None,
    after_round: Callable[[Round], None] | None = None,
    **settings: Any,
) -> Result:
    """Run a recipe over simulated clients and return what it gave.

    Args:
        recipe: its name, the path of a TOML file, or a configuration.
        dataset: your own data: a pair of arrays (features, labels), of which a fifth is split off
            for testing, or a ``Dataset``; or a built-in one's name, or the path of a file. Your own
            are taken as they are: ``standardise``, where a recipe has it, is then off.
        data_dir: the data folder; see ``fedldp.data.resolve_data_dir``.
        device: "auto", "cpu" or "cuda".
        workers: processes, at most one for each core, for more are no faster. With more than one,
            call this under ``if __name__ == "__main__":``, for each worker imports your script.
        cluster: "auto" or the address of a Ray cluster that does what clients do, in place of
            ``workers``; see docs/cluster.md.
        out: the run folder to make; nothing is written where it is None.
        after_round: is called with the record of each round: its number, accuracy, loss, seconds.
        settings: of the recipe, to change, by name; None unsets one.

    Raises:
        FedldpError: a setting, the data or a value to release is refused.

    >>> run("quickstart", rounds=1, epsilon=2)  # doctest: +ELLIPSIS
    <fedldp.Result quickstart on digits: accuracy ... % after 1 round>
    """
    from fedldp.simulation.engine import simulate  # imports torch

    after = _callback(after_round)
    config, data = _configured(recipe, dataset, settings)
    return simulate(
        config,
        recipe=None if isinstance(recipe, RunConfig) else str(recipe),
        dataset=data,
        data_dir=_path("data_dir", data_dir),
        device=device,
        workers=min(workers, cores()),
        cluster=cluster,
        out=_path("out", out),
        after_round=after,
    )


def resume(
    run_dir: str | Path,
    *,
    dataset: Dataset | tuple[Any, Any] | None = None,
    data_dir: str | Path | None = None,
    device: str = "cpu",
    workers: int = 1,
    cluster: str | None = None,
    after_round: Callable[[Round], None] | None = None,
) -> Result:
    """Continue an interrupted run from its last complete round.

    The final weights equal those of a run that was never interrupted. Arguments are as for ``run``;
    ``after_round`` is called with the rounds before the interruption, too.

    Raises:
        FedldpError: ``run_dir`` is no run folder, or as for ``run``.
    """
    from fedldp.simulation.engine import simulate  # imports torch

    folder = _folder(run_dir)
    document = folder.read_config()
    return simulate(
        from_mapping(document["config"]),
        recipe=document["recipe"],
        dataset=None if dataset is None else as_dataset(dataset),
        data_dir=_path("data_dir", data_dir),
        device=device,
        workers=min(workers, cores()),
        cluster=cluster,
        resume=folder,
        after_round=_callback(after_round),
    )


def load(run_dir: str | Path) -> Result:
    """Return what a finished run gave, from its folder: model, rounds, statement, configuration.

    Raises:
        RunError: it is no run folder, the run is not finished, or a file is missing or damaged.
    """
    folder = _folder(run_dir)
    return read_result(folder, from_mapping(folder.read_config()["config"]))


def account(
    recipe: Recipe = "quickstart",
    /,
    *,
    dataset: Data | None = None,
    data_dir: str | Path | None = None,
    at_delta: float | None = None,
    **settings: Any,
) -> Statement:
    """Return the statement of what a run would protect: nothing is trained.

    Args:
        recipe: its name, the path of a TOML file, or a configuration.
        dataset: as for ``run``; of data sets by name no file is read.
        data_dir: the data folder; see ``fedldp.data.resolve_data_dir``.
        at_delta: delta of the statement's approximate lines; else the setting ``delta``.
        settings: of the recipe, to change, by name; None unsets one.

    Returns:
        The document that ``fedldp account --json`` prints; its repr is the table.

    Raises:
        FedldpError: a setting or the data are refused.

    >>> account("quickstart", epsilon=2)["claim"]["epsilon"]
    2.0
    """
    config, data = _configured(recipe, dataset, settings)
    folder = _path("data_dir", data_dir)
    problem = problem_of(config, folder) if data is None else problem_with(config, data, folder)
    return Statement(plan(config, problem, delta=_plain(at_delta)).privacy)


def new_run_dir(name: str, seed: int) -> Path:
    """Return the folder of a new run called ``name``, below runs/ in the working folder."""
    return unused(Path("runs") / f"{name}-seed{seed}-{time.strftime('%Y%m%d-%H%M%S')}")


def _configured(
    named: Recipe, dataset: Data | None, settings: dict[str, Any]
) -> tuple[RunConfig, Dataset | None]:
    """Return the configuration, and the data where they are not loaded by its own setting."""
    if dataset is None:
        return recipe(named, **settings), None
    data = None if isinstance(dataset, str | Path) else as_dataset(dataset)
    if data is not None and data.name in SOURCES:
        return recipe(named, **settings), data
    # What is recorded, and shown as the title, is the user's own data.
    name = str(dataset) if data is None else data.name
    own = data is not None or name.lower().endswith(SUFFIXES)
    if own and not isinstance(named, RunConfig):
        settings = {"standardise": False, **settings}
    return recipe(named, dataset=name, **settings), data


def _folder(run_dir: str | Path) -> RunFolder:
    path = _path("run_dir", run_dir)
    assert path is not None
    return RunFolder(path)


def _path(name: str, given: str | Path | None) -> Path | None:
    """Return a path that may be given as text."""
    if given is None:
        return None
    if not isinstance(given, str | Path) or not str(given).strip():
        raise ConfigError(f"{name} = {given!r}: give the path of a folder")
    return Path(given).expanduser()


def _callback(given: Callable[[Round], None] | None) -> Callable[[Round], None]:
    """Return what is called after each round."""
    if given is None:
        return lambda record: None
    if not callable(given):
        raise ConfigError(
            f"after_round = {given!r}: give a function that takes the record of a round, such as "
            "print"
        )
    return given


def _plain(value: Any) -> Any:
    """Return a value as a file of settings would hold it: numpy's numbers become Python's own."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value
