"""The Python interface: as small as the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError
from fedldp.data import Dataset, as_dataset
from fedldp.protocol.server_loop import Round
from fedldp.reporting.progress import in_words
from fedldp.reporting.record import RunFolder
from fedldp.reporting.text import Displayed
from fedldp.simulation.given import Data, given_data, path_of
from fedldp.simulation.plan import cores, plan, problem_of, problem_with
from fedldp.simulation.result import read_result
from fedldp.simulation.settings import from_mapping, named

if TYPE_CHECKING:
    from fedldp.simulation.engine import Result

Recipe = str | Path | RunConfig | Mapping[str, Any]
"""A recipe's name, the path of a TOML file, a configuration, or settings by name."""


def recipe(recipe: Recipe = "quickstart", /, **settings: Any) -> RunConfig:
    """Return the configuration of a recipe, with some settings changed.

    Args:
        recipe: its name, the path of a TOML file, a configuration, or settings by name.
        settings: new values by name; None unsets a setting.

    Raises:
        ConfigError: the recipe, a setting or its value is wrong.

    >>> recipe("quickstart", rounds=3).rounds
    3
    """
    changes = {name: _plain(value) for name, value in settings.items()}
    if isinstance(recipe, Mapping):
        given = {**recipe, **changes}
        return from_mapping({key: value for key, value in given.items() if value is not None})
    config = recipe if isinstance(recipe, RunConfig) else named(str(recipe), changes)
    return config.changed(**changes)  # a given RunConfig may not have been checked yet


def run(
    recipe: Recipe = "quickstart",
    /,
    *,
    dataset: Data | None = None,
    test: Any = None,
    data_dir: str | Path | None = None,
    device: str = "cpu",
    workers: int | None = 1,
    cluster: str | None = None,
    out: str | Path | None = None,
    evaluate_every: int = 1,
    signal: bool = False,
    say: Callable[[str], None] = lambda line: None,
    after_round: Callable[[Round], None] | None = None,
    **settings: Any,
) -> Result:
    """Run a recipe over simulated clients and return the result.

    Args:
        recipe: its name, the path of a TOML file, a configuration, or settings by name.
        dataset: your own data: a pair of arrays (features, labels), a torch data set, a DataLoader
            or a table with a column ``label``, which the run divides among its clients; a list of
            these, one for each client; or a ``Dataset``. Or the name of a built-in data set, or the
            path of a file. Your own data are read once and used as they are, so ``standardise`` is
            off even if the recipe turns it on.
        test: your own examples to test on, in any of these forms; for a table, the path of a second
            one. Without them, a fifth of the rows is held out for testing (a fifth of each client's
            rows, if the clients' data are given separately). The scores are then measured on
            private rows, and the statement says so.
        data_dir: the data folder; see ``fedldp.data.resolve_data_dir``.
        device: "auto", "cpu" or "cuda".
        workers: the number of processes; more than one per core is no faster, and None means one
            per core, or one for a small run.
        cluster: "auto" or the address of a Ray cluster that does the clients' work, instead of
            ``workers``; see docs/sweep.md.
        out: the run folder to create; with None, nothing is written.
        evaluate_every: the model is tested after every so many rounds, and after the last one. A
            large number saves time, and changes nothing in the model.
        signal: whether each round's record also has figures of signal and noise, to see why a
            model is bad: how many clients were clipped, and how far the mean is from the mean
            without noise. They come from private rows, and no line of the statement covers them. It
            needs one process.
        say: called with a line about every round.
        after_round: called with the record of each round: its number, accuracy, loss, seconds.
        settings: changes to the recipe's settings, by name; None unsets one.

    Raises:
        FedldpError: a setting, the data or a value to release is refused.

    >>> run("quickstart", rounds=1, epsilon=2)  # doctest: +ELLIPSIS
    <fedldp.Result quickstart on digits: accuracy ... % after 1 round>
    """
    from fedldp.simulation.engine import simulate  # imports torch

    config, data = _configured(recipe, dataset, test, settings)
    return simulate(
        config,
        recipe=None if isinstance(recipe, RunConfig | Mapping) else str(recipe),
        dataset=data,
        data_dir=path_of("data_dir", data_dir),
        device=device,
        workers=_processes(workers, cluster),
        alone_if_small=workers is None,
        cluster=cluster,
        out=path_of("out", out),
        evaluate_every=evaluate_every,
        signal=signal,
        after_round=_telling(say, config.rounds, after_round),
    )


def resume(
    run_dir: str | Path,
    *,
    dataset: Any = None,
    test: Any = None,
    data_dir: str | Path | None = None,
    device: str = "cpu",
    workers: int | None = 1,
    cluster: str | None = None,
    evaluate_every: int = 1,
    signal: bool = False,
    say: Callable[[str], None] = lambda line: None,
    after_round: Callable[[Round], None] | None = None,
) -> Result:
    """Continue an interrupted run from its last complete round.

    The final weights equal those of a run that was never interrupted. Arguments are as for ``run``;
    ``say`` and ``after_round`` are also called for the rounds before the interruption.

    Raises:
        FedldpError: ``run_dir`` is not a run folder, or there is an error as in ``run``.
    """
    from fedldp.simulation.engine import simulate  # imports torch

    folder = _folder(run_dir)
    document = folder.read_config()
    config = from_mapping(document["config"])
    return simulate(
        config,
        recipe=document["recipe"],
        dataset=None if dataset is None else as_dataset(dataset, test),
        data_dir=path_of("data_dir", data_dir),
        device=device,
        workers=_processes(workers, cluster),
        alone_if_small=workers is None,
        cluster=cluster,
        resume=folder,
        evaluate_every=evaluate_every,
        signal=signal,
        after_round=_telling(say, config.rounds, after_round),
    )


def load(run_dir: str | Path) -> Result:
    """Return the result of a run from its folder: model, rounds, statement, configuration.

    The result of an unfinished run is that of its complete rounds; ``Result.finished`` is then
    false.

    Args:
        run_dir: the run's folder.

    Raises:
        RunError: ``run_dir`` is not a run folder, no round of the run is complete, or a file is
            missing or damaged.
    """
    folder = _folder(run_dir)
    config = folder.read_config()["config"]
    return read_result(folder, from_mapping(config))


def evaluate(
    run: Result | str | Path,
    dataset: Data | None = None,
    *,
    data_dir: str | Path | None = None,
    threshold: float | None = None,
    shift: float | None = None,
) -> dict[str, Any]:
    """Return the scores of a run's model: the document that ``fedldp evaluate --json`` prints.

    The scores are exact functions of the rows that they are measured on: scores on private rows are
    a release that no statement counts, and so is a choice based on these scores. The field
    "warnings" says so for a test set that was held out from the run's own rows; for other rows,
    fedldp does not know whose they are.

    Args:
        run: the result or folder of a simulation or deployment.
        dataset: features and labels, or a torch data set, a DataLoader or a table, all of whose
            rows are used; a ``Dataset``, whose test set is used; or the path of a .npz, .csv or
            .parquet file. The default is the run's own test set, if it can be loaded again.
        data_dir: the data folder; see ``fedldp.data.resolve_data_dir``.
        threshold: for two classes, the smallest probability of class 1 at which class 1 is
            predicted.
        shift: for two classes, what is added to the log odds of class 1, before the threshold.

    Raises:
        FedldpError: the run or the data cannot be used, or the threshold or the shift is invalid.

    >>> evaluate(run("quickstart", rounds=1))["examples"]
    360
    """
    from fedldp.simulation.evaluating import evaluate as measure  # imports torch

    data = path_of("dataset", dataset) if isinstance(dataset, str | Path) else dataset
    given = path_of("run", run) if isinstance(run, str | Path) else run
    assert given is not None
    return measure(
        given, data, path_of("data_dir", data_dir), _plain(threshold), shift=_plain(shift)
    )


def account(
    recipe: Recipe = "quickstart",
    /,
    *,
    dataset: Data | None = None,
    test: Any = None,
    data_dir: str | Path | None = None,
    at_delta: float | None = None,
    **settings: Any,
) -> Statement:
    """Return the statement of what a run would protect, without training.

    Args:
        recipe: its name, the path of a TOML file, a configuration, or settings by name.
        dataset: the data, in any form that ``run`` takes; for a built-in data set, no file is read.
        test: the examples to test on, in any form that ``run`` takes.
        data_dir: the data folder; see ``fedldp.data.resolve_data_dir``.
        at_delta: delta for the statement's lines with approximate guarantees; by default the
            setting ``delta``.
        settings: changes to the recipe's settings, by name; None unsets one.

    Returns:
        The statement; its repr is the table that ``fedldp account`` prints.

    Raises:
        FedldpError: a setting or the data set is refused.

    >>> account("quickstart", epsilon=2).claim.epsilon
    2.0
    """
    config, data = _configured(recipe, dataset, test, settings)
    folder = path_of("data_dir", data_dir)
    problem = problem_of(config, folder) if data is None else problem_with(config, data, folder)
    return Displayed.of(plan(config, problem, delta=_plain(at_delta)).privacy)


def _configured(
    named: Recipe, dataset: Data | None, test: Any, settings: dict[str, Any]
) -> tuple[RunConfig, Dataset | None]:
    """Return the configuration and the data; the data are None if a setting says what to load."""
    found, data = given_data(dataset, test)
    return recipe(named, **{**found, **settings}), data


def _folder(run_dir: str | Path) -> RunFolder:
    path = path_of("run_dir", run_dir)
    assert path is not None
    return RunFolder(path)


def _processes(workers: int | None, cluster: str | None) -> int:
    """Return the number of processes of a run; a cluster has its own."""
    if workers is None:
        return cores() if cluster is None else 1
    return min(workers, cores())


def _telling(
    say: Callable[[str], None], rounds: int, after: Callable[[Round], None] | None
) -> Callable[[Round], None]:
    """Return a function for the end of each round, which reports the round and calls ``after``."""
    if after is not None and not callable(after):
        raise ConfigError(
            f"after_round = {after!r}: give a function that takes the record of a round, such as "
            "print"
        )

    def told(record: Round) -> None:
        say(in_words(record, rounds))
        if after is not None:
            after(record)

    return told


def _plain(value: Any) -> Any:
    """Return a value in the form that settings files use: numpy numbers become Python numbers."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value
