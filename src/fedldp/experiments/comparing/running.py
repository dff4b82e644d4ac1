"""``fedldp.compare``: a comparison, from the user's arguments to its tables and its chart."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, cast

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError
from fedldp.core.kinds import SCORES_LOGGED
from fedldp.core.locks import OwnedFolder
from fedldp.data import Dataset
from fedldp.experiments.comparing.cells import Cell
from fedldp.experiments.comparing.choosing import score
from fedldp.experiments.comparing.compared import Compared, compared
from fedldp.experiments.comparing.comparison import Cells, Comparison
from fedldp.experiments.comparing.design import (
    TRIES,
    Design,
    Entry,
    Recipe,
    add,
    design_from,
    entries_of,
    is_compare_file,
    read_compare_file,
    read_guarantee,
    with_settings,
)
from fedldp.experiments.executors import check_workers, executor_of
from fedldp.experiments.making import Maker
from fedldp.experiments.own import sum_of
from fedldp.experiments.runs import Experiment, Row, Task
from fedldp.experiments.scheduling import Lines, carry_out, end_of
from fedldp.experiments.store import Document, Own, RunStore, read_document, settings_in
from fedldp.experiments.sweeping.grid import read_seeds
from fedldp.experiments.verifying import Reading, verify, with_own_code
from fedldp.reporting import words
from fedldp.simulation.given import Data, given_data, path_of
from fedldp.simulation.settings import from_mapping

DELTA = 1e-5


def compare(
    contestants: Recipe | Iterable[Recipe] | Mapping[str, Recipe],
    *,
    guarantee: str | None = None,
    epsilon: float | Iterable[float] | None = None,
    delta: float | None = None,
    metric: str | None = None,
    budget: str | float | None = None,
    tries: int | None = None,
    seeds: str | Iterable[int] | None = None,
    out: Path | str | None = None,
    dataset: Data | None = None,
    test: Any = None,
    data_dir: Path | str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    say: Callable[[str], None] = lambda line: None,
    same_data: bool = False,
    **settings: Any,
) -> Compared:
    """Compare recipes at an equal guarantee and with equal effort spent on their hyperparameters.

    Every recipe is calibrated to the same epsilon, and the statement of each of its runs is read to
    check that epsilon. Every recipe has the same number of tries: values around its own learning
    rate, clip and rounds, or the tries in its grid in a compare file. The tries are scored on
    clients (or people) that do not take part in training, and on a seed that is not measured; the
    chosen try is then measured on the test set.

    Args:
        contestants: recipes' names, .toml files and configurations, or a mapping from names to
            these; or a compare file (docs/compare.md), whose values the other arguments replace.
        guarantee: "UNIT:ADVERSARY", such as "client-run:server"; by default the guarantee of the
            contestants' targets, if they agree on one.
        epsilon: one or more epsilons of the guarantee.
        delta: the largest delta of the guarantee; 1e-5 by default.
        metric: accuracy, loss, auc, average_precision, balanced_accuracy or brier.
        budget: no run begins after this time, which is given in seconds or as in "20m"; the result
            then says what is missing, and the same call with the same ``out`` completes it.
        tries: the number of candidate hyperparameters per contestant; 8 by default.
        seeds: the seeds to measure; by default three, and ten at an epsilon of 1 or less.
        out: the folder. If it already holds this comparison, or a part of it, that comparison is
            continued. With None, nothing is kept.
        dataset: the data, in any form that ``fedldp.run`` takes; by default those that the recipes
            name.
        test: the examples to test on, in any form that ``fedldp.run`` takes.
        data_dir: the data folder.
        workers: the number of runs at once, each in a separate process; None for one per core. With
            1, runs take place in this process.
        cluster: "auto" or the address of a Ray cluster; each of its CPUs then carries out one run
            at a time, instead of ``workers``; see docs/cluster.md.
        say: called with a line about every run.
        same_data: whether private data are those of the folder, where nobody can tell.
        settings: changes to all recipes that have these settings.

    Raises:
        ComparisonError: a run's statement has a larger epsilon or delta than it was calibrated to.
        FedldpError: an argument is wrong, contestants differ in data, clients or partition, or
            ``out`` holds something else.

    >>> import fedldp
    >>> found = fedldp.compare(["quickstart", "composed-digits"], epsilon=8, tries=2,
    ...     guarantee="client-run:server", seeds=[0], workers=1, rounds=2, num_clients=100)
    >>> [(row["name"], row["seeds"], row["proven"] <= 8) for row in found.rows]
    [('quickstart', 1, True), ('composed-digits', 1, True)]
    """
    of_data, given = given_data(dataset, test, tested=True)
    settings = {**of_data, **settings}
    design = design_of(
        contestants, settings, guarantee=guarantee, epsilon=epsilon, delta=delta, metric=metric,
        tries=tries, seeds=seeds,
    )  # fmt: skip
    return carry_out_comparison(
        design,
        given,
        path_of("data_dir", data_dir),
        path_of("out", out),
        budget,
        workers,
        say,
        cluster,
        same_data=same_data,
    )


def design_of(
    contestants: Recipe | Iterable[Recipe] | Mapping[str, Recipe],
    settings: Mapping[str, Any],
    *,
    guarantee: str | None,
    epsilon: float | Iterable[float] | None,
    delta: float | None,
    metric: str | None,
    tries: int | None,
    seeds: str | Iterable[int] | None,
) -> Design:
    """Return the design from the arguments of ``compare``, which replace a compare file's values.

    Raises:
        ConfigError: an argument is wrong.
    """
    said: dict[str, Any] = {}
    entries: dict[str, Entry] = {}
    if isinstance(contestants, Mapping):
        entries = entries_of(contestants, settings)
    else:
        one = isinstance(contestants, str | Path | RunConfig)
        for each in cast(Iterable[Recipe], [contestants] if one else contestants):
            if is_compare_file(each):
                if said:
                    raise ConfigError(
                        f"{each}: a comparison has only one compare file; leave one out"
                    )
                said, found = read_compare_file(Path(str(each)))
                said["contestants"] = True
            else:
                found = entries_of([each], settings)
            for name, entry in found.items():
                add(entries, name, entry)
    kind = said.get("guarantee") if guarantee is None else guarantee
    targets = [entry.config.target for entry in entries.values() if entry.config.target is not None]
    asked = {(target.unit, target.adversary): target.delta for target in targets}
    if kind is None and len(asked) == 1:
        (((unit, adversary), own_delta),) = asked.items()
        kind, said = f"{unit}:{adversary}", {"delta": own_delta, **said}
    if not isinstance(kind, str):
        raise ConfigError(
            "guarantee: give the guarantee that all contestants must meet, as UNIT:ADVERSARY, such "
            "as client-run:server"
        )
    of_kind = read_guarantee(kind, _number("delta", said.get("delta", DELTA), delta))
    values = said.get("epsilon") if epsilon is None else epsilon
    if values is None:
        raise ConfigError("epsilon: give one or more values, such as 1,4,16")
    levels = (
        list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    )
    chosen = said.get("seeds") if seeds is None else seeds
    number = said.get("tries", _most_points(entries)) if tries is None else tries
    if isinstance(number, bool) or not isinstance(number, int):
        raise ConfigError(f"tries = {number}: give an integer")
    return Design(
        guarantee=of_kind,
        epsilons=tuple(sorted(_number("epsilon", level, None) for level in levels)),
        entries=with_settings(entries, settings),
        metric=str(said.get("metric", "accuracy") if metric is None else metric),
        tries=number,
        seeds=None if chosen is None else _seeds(chosen),
    )


def carry_out_comparison(
    design: Design,
    given: Dataset | None,
    data_dir: Path | None,
    out: Path | OwnedFolder | None,
    budget: str | float | None,
    workers: int | None,
    say: Callable[[str], None],
    cluster: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    same_data: bool = False,
) -> Compared:
    """Make the missing runs, and return the result of all runs; see ``compare``.

    Raises:
        FedldpError: the comparison cannot be made; see ``compare``.
    """
    check_workers(workers, cluster)
    end = end_of(budget)
    source = Contestants(design, given, data_dir)
    comparison = source.comparison  # loads the data, and refuses incompatible settings
    cells = design.cells(comparison)
    comparison.maker.data_for(comparison.tries(cells[0])[0])  # refuses if nobody can be held out
    document = {**design.document(), "own_data": source.data.own_data}
    if not source.data.is_public:
        say(f"note: {words.line(SCORES_LOGGED)}")
    configs = [entry.config for entry in design.entries.values()]
    own = Own.of(configs, sum_of(source.data), same_data)
    with RunStore.opened(out, "compare", document, partial(_lacks, document), own) as store:
        kept = None if out is None else store.folder
        found: list[Compared] = []

        def show() -> None:
            found[:] = [compared(design, comparison, store, source.data, kept)]
            if kept is not None:
                found[0].write(kept)

        told = Lines(say, outcome_in(design.metric), progress)
        measure(source, Cells(comparison, cells), store, workers, cluster, end, told, show)
    return found[0]


def reading_of(source: Contestants, own: Own) -> Reading:
    """Return how to read the rows of a comparison, to verify its folder."""
    comparison = source.comparison

    def check(row: Row) -> None:
        comparison.check(Cell(**row["cell"]), row)

    return Reading(comparison.planned, check, own, comparison.maker)


def verify_comparison(folder: Path, data_dir: Path | None, again: int) -> Iterator[str]:
    """Yield what is missing or differs in a comparison's folder; see ``experiments.verifying``."""
    design = design_in(folder)
    source = Contestants(design, None, data_dir)
    own = Own.of([each.config for each in design.entries.values()], sum_of(source.data), False)
    return verify(folder, "compare", reading_of(source, own), again)


def design_in(folder: Path) -> Design:
    """Return the design of the comparison in a folder.

    Raises:
        RunError: there is none, or it used data or models given in Python.
    """
    with_own_code(folder)
    return design_from(settings_in(folder, read_document(folder, "compare")))


class ComparisonFactory(Protocol):
    """Makes a comparison, once in each process. It can be pickled."""

    def load(self, data_dir: Path | None) -> Dataset:
        """Return the data that all contestants share."""
        ...

    def comparison(self, data: Dataset, data_dir: Path | None = None) -> Comparison:
        """Return the comparison on these data."""
        ...


class Contestants:
    """The data of a comparison's runs, in any process; see ``fedldp.experiments.runs.Source``.

    Attributes:
        design: what is compared.
        data_dir: the data folder.
    """

    def __init__(
        self, design: ComparisonFactory, given: Dataset | None, data_dir: Path | None
    ) -> None:
        self.design = design
        self.data_dir = data_dir
        self._given = given

    @cached_property
    def data(self) -> Dataset:
        """The data, loaded once in each process."""
        return self.design.load(self.data_dir) if self._given is None else self._given

    @cached_property
    def comparison(self) -> Comparison:
        """The comparison on these data."""
        return self.design.comparison(self.data, self.data_dir)

    @property
    def tasks(self) -> Mapping[str, Task]:
        """The comparison's tasks."""
        return self.comparison.tasks

    def sent(self) -> Contestants:
        """Return the same contestants with the data that were loaded, for another machine."""
        return Contestants(self.design, self.data, self.data_dir)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that another process needs; that process loads the data by name."""
        left = {"data", "comparison"}
        return {name: value for name, value in vars(self).items() if name not in left}


def measure(
    source: Contestants,
    experiment: Experiment,
    store: RunStore,
    workers: int | None,
    cluster: str | None,
    end: float | None,
    watcher: Lines,
    show: Callable[[], None] = lambda: None,
) -> None:
    """Make the missing runs of an experiment until it is time to stop; see ``compare``.

    Args:
        source: the contestants.
        experiment: which runs are due.
        store: where rows are kept.
        workers: the number of processes.
        cluster: a Ray cluster that makes the runs instead.
        end: when no more runs begin, on the monotonic clock; None for never.
        watcher: hears of the runs.
        show: shows what the rows say.
    """
    known = {run.digest for run in experiment.due(store.rows)} & store.rows.keys()
    left = experiment.total(store.rows) - len(known)
    maker = Maker(source if cluster is None else source.sent(), source.data_dir)
    with executor_of(maker, workers, cluster, left) as executor:
        carry_out(
            experiment,
            store,
            executor,
            go_on=lambda: end is None or time.monotonic() < end,
            watcher=watcher,
            show=show,
        )


def _lacks(document: Document, old: Document) -> str | None:
    """Return what a comparison lacks of the one with another document, or None."""
    new = json.loads(json.dumps(document))
    contestants = {name: _as_now(entry) for name, entry in new["contestants"].items()}
    problem = None
    if old.get("guarantee") != new["guarantee"]:
        problem = "is for a different guarantee"
    elif old.get("own_data") != new["own_data"]:
        problem = "has other data"
    for name, entry in old.get("contestants", {}).items():
        if name not in contestants:
            problem = problem or f"also has {name}"
        elif _as_now(entry) != contestants[name]:
            problem = problem or f"has different settings or a different grid for {name}"
    return problem


def _as_now(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a contestant's record with all settings that its system has now."""
    try:
        config = from_mapping(entry["config"]).model_dump(mode="json")
    except ConfigError:  # an object given in Python, or a setting that is gone
        config = entry["config"]
    return {**entry, "config": config}


def _most_points(entries: Mapping[str, Entry]) -> int:
    """Return the default number of tries: 8, or the size of the largest grid if that is larger."""
    grids = [len(entry.grid) for entry in entries.values() if entry.grid is not None]
    return max([*grids, 2]) if len(grids) == len(entries) else max([*grids, TRIES])


def _number(name: str, said: Any, given: Any) -> float:
    value = said if given is None else given
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} = {value}: give a number")
    return float(value)


def _seeds(given: Any) -> tuple[int, ...]:
    found = read_seeds(given) if isinstance(given, str) else list(given)
    if not all(
        isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in found
    ):
        raise ConfigError(f"seeds = {found}: give integers from 0, or a range such as 0-4")
    return tuple(found)


def outcome_in(metric: str) -> Callable[[Row], str]:
    """Return what says a run's score in words, in the metric that is compared."""

    def outcome(row: Row) -> str:
        found = score(row, metric)
        if row["refused"] or found is None:
            return f"refused: {row['refused']}" if row["refused"] else f"{metric} is not defined"
        return f"{100 * found:.2f} %" if metric == "accuracy" else f"{metric} {found:.4f}"

    return outcome
