"""``fedldp.compare``: a comparison, from the user's arguments to its tables and its chart."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, cast

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError, FedldpError, RunError, first_line
from fedldp.core.kinds import SCORES_LOGGED
from fedldp.core.locks import OwnedFolder, owned
from fedldp.data import Dataset, as_dataset
from fedldp.experiments.comparing.cells import Cell, Try
from fedldp.experiments.comparing.compared import Compared, compared
from fedldp.experiments.comparing.comparison import Comparison, Purpose
from fedldp.experiments.comparing.design import (
    CHOSEN_ON,
    TRIES,
    Design,
    Entry,
    Recipe,
    add,
    entries_of,
    is_compare_file,
    read_compare_file,
    read_guarantee,
    read_time,
    with_settings,
)
from fedldp.experiments.comparing.results import Results, Row, choose, score
from fedldp.experiments.processes import DIED, Processes
from fedldp.experiments.proving import ComparisonError
from fedldp.experiments.sweeping.grid import read_seeds
from fedldp.reporting import words
from fedldp.reporting.record import as_json, check_new, replace_file
from fedldp.simulation.plan import cores

if TYPE_CHECKING:
    from fedldp.experiments.cluster_tasks import ClusterTasks

NAME = "compare.json"
DELTA = 1e-5

RunOf = tuple[Cell, Try, Purpose, int]
"""A run: a cell, a try, a purpose (choosing or measuring), and a seed."""

Makers: TypeAlias = "Processes[RunOf] | ClusterTasks[RunOf]"
"""Carries out runs, several at the same time."""


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
    dataset: Dataset | tuple[Any, Any] | str | Path | None = None,
    data_dir: Path | str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    say: Callable[[str], None] = lambda line: None,
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
        dataset: your own data, a pair of arrays (features, labels) or a ``Dataset``; or a built-in
            data set's name, or the path of a file; by default the data that the recipes name.
        data_dir: the data folder.
        workers: the number of runs at once, each in a separate process; None for one per core. With
            1, runs take place in this process.
        cluster: "auto" or the address of a Ray cluster; each of its CPUs then carries out one run
            at a time, instead of ``workers``; see docs/cluster.md.
        say: called with a line about every run.
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
    given = None
    if isinstance(dataset, str | Path):
        settings["dataset"] = str(dataset)
    elif dataset is not None:
        given = as_dataset(dataset, tested=True)
        settings = {**_of_own(given), **settings}
    design = design_of(
        contestants, settings, guarantee=guarantee, epsilon=epsilon, delta=delta, metric=metric,
        tries=tries, seeds=seeds,
    )  # fmt: skip
    if out is not None and not str(out).strip():
        raise ConfigError(f"out = {out!r}: give the path of a folder")
    return carry_out(
        design,
        given,
        None if data_dir is None else Path(data_dir),
        None if out is None else Path(out).expanduser(),
        budget,
        workers,
        say,
        cluster,
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


def carry_out(
    design: Design,
    given: Dataset | None,
    data_dir: Path | None,
    out: Path | OwnedFolder | None,
    budget: str | float | None,
    workers: int | None,
    say: Callable[[str], None],
    cluster: str | None = None,
) -> Compared:
    """Make the missing runs, and return the result of all runs; see ``compare``.

    Raises:
        FedldpError: the comparison cannot be made; see ``compare``.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"workers = {workers}: give 1 or more")
    if workers is not None and cluster is not None:
        raise ConfigError(
            f"workers = {workers}: the nodes of cluster = {cluster} set the number of workers; "
            "leave workers out"
        )
    seconds = read_time(budget) if isinstance(budget, str) else budget
    if seconds is not None and seconds <= 0:
        raise ConfigError(
            f"budget = {seconds:g}: give a number of seconds above 0, or a time such as 20m"
        )
    end = None if seconds is None else time.monotonic() + seconds
    work = Runs(design, given, data_dir)
    comparison = work.comparison  # loads the data, and refuses incompatible settings
    cells = design.cells(comparison)
    comparison.data_for(cells[0], "tried", CHOSEN_ON)  # refuses if nobody can be held out
    document = {**design.document(), "own_data": work.data.own_data}
    if not work.data.is_public:
        say(f"note: {words.line(SCORES_LOGGED)}")
    with ExitStack() as stack:
        own = owned(out, "out", "comparison", lambda path: _check_place(path, document))
        folder = stack.enter_context(own).path
        kept = None if out is None else folder
        replace_file(folder / NAME, as_json(document))
        results = Results(folder / "results.jsonl")
        makers = _makers(work, workers, cluster, data_dir)
        stack.enter_context(makers)
        failed = measure_all(
            makers,
            comparison,
            results,
            cells,
            lambda: end is None or time.monotonic() < end,
            say,
        )
        found = compared(design, comparison, results.rows, work.data, kept, failed)
        if kept is not None:
            found.write(kept)
    return found


def _makers(work: Runs, workers: int | None, cluster: str | None, data_dir: Path | None) -> Makers:
    """Return the executor of the runs: processes on this machine, or tasks on a cluster."""
    if cluster is None:
        return Processes(work, min(workers or cores(), cores()))
    from fedldp.experiments.cluster_tasks import ClusterTasks  # imports torch

    return ClusterTasks(cluster, Runs(work.design, work.data, data_dir))


class ComparisonFactory(Protocol):
    """Makes a comparison, once in each process. It can be pickled."""

    def load(self, data_dir: Path | None) -> Dataset:
        """Return the data that all contestants share."""
        ...

    def comparison(self, data: Dataset, data_dir: Path | None = None) -> Comparison:
        """Return the comparison on these data."""
        ...


class Runs:
    """Makes the runs of a comparison, in this process or in another; see ``Processes``.

    Attributes:
        design: what is compared.
    """

    def __init__(
        self, design: ComparisonFactory, given: Dataset | None, data_dir: Path | None
    ) -> None:
        self.design = design
        self._given = given
        self._data_dir = data_dir
        self._made: tuple[Dataset, Comparison] | None = None

    @property
    def data(self) -> Dataset:
        """The data, loaded once in each process."""
        return self._loaded()[0]

    @property
    def comparison(self) -> Comparison:
        """The comparison on these data."""
        return self._loaded()[1]

    def carry_out(self, task: RunOf) -> Row | Exception:
        """Return the line of a run, or the error that prevented it."""
        cell, attempt, purpose, seed = task
        try:
            return self.comparison.made(cell, attempt, purpose, seed)
        except FedldpError as error:
            return error
        except Exception as error:  # a bug in the user's own mechanism or model
            traceback.print_exc(file=sys.stderr)
            return RunError(f"{type(error).__name__}: {first_line(error)}")

    def with_workers(self, workers: int) -> Self:
        """Return this object unchanged, because each run uses one process."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that another process needs; that process loads the data by name."""
        return {**vars(self), "_made": None}

    def _loaded(self) -> tuple[Dataset, Comparison]:
        if self._made is None:
            data = self.design.load(self._data_dir) if self._given is None else self._given
            self._made = data, self.design.comparison(data, self._data_dir)
        return self._made


def measure_all(
    makers: Makers,
    comparison: Comparison,
    results: Results,
    cells: Sequence[Cell],
    go_on: Callable[[], bool],
    say: Callable[[str], None],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[Cell, str]:
    """Make all missing runs, epsilon by epsilon; return the cells in which runs failed.

    All contestants' tries come first, then all their seeds, so that the results are always about
    equally complete for all contestants.

    Args:
        makers: the executor of the runs.
        comparison: the comparison to which the runs belong.
        results: the file of runs; runs in this file are not repeated.
        cells: the cells to measure.
        go_on: called to ask whether another run may begin.
        say: called with a line about every run: how many of all runs are done, including the runs
            that are already in the results. If runs are refused, fewer runs are made than were
            counted.
        progress: called with the number of runs that are done and the number of all runs, also
            before the first run.
    """
    failed: dict[Cell, str] = {}
    total = sum(
        len(comparison.contestant(cell).tries) + len(comparison.seeds_of(cell)) for cell in cells
    )
    number = _known(comparison, results, cells)
    progress(number, total)

    def make(tasks: Sequence[RunOf]) -> None:
        left = [task for task in tasks if comparison.known(results, *task) is None]

        def done(task: RunOf, result: Any) -> None:
            nonlocal number
            number += 1
            cell, attempt, purpose, seed = task
            at = "" if not cell.epsilon else f", epsilon {cell.epsilon:g}"
            words = f"{cell.contestant}{at}, {purpose} {_words(attempt)}, seed {seed}"
            if isinstance(result, ComparisonError):
                raise result
            if isinstance(result, Exception) or result == DIED:
                end = f"failed: {' '.join(str(result).split())}"
                failed.setdefault(cell, end)
            else:
                results.add(result)
                end = _outcome(result, comparison.metric)
            say(f"{number}/{total}  {words}: {end}")
            progress(number, total)

        if left:
            makers.do(left, done=done, go_on=go_on)

    for epsilon in dict.fromkeys(cell.epsilon for cell in cells):
        here = [cell for cell in cells if cell.epsilon == epsilon]
        most = max(len(comparison.contestant(cell).tries) for cell in here)
        make(
            [
                (cell, comparison.contestant(cell).tries[k], "tried", comparison.chosen_on)
                for k in range(most)
                for cell in here
                if k < len(comparison.contestant(cell).tries)
            ]
        )
        best = {cell: _chosen(comparison, results, cell) for cell in here}
        make(
            [
                (cell, attempt, "measured", seed)
                for k in range(max(len(comparison.seeds_of(cell)) for cell in here))
                for cell in here
                if (attempt := best[cell]) is not None and k < len(comparison.seeds_of(cell))
                for seed in [comparison.seeds_of(cell)[k]]
            ]
        )
        if not go_on():
            break
    return failed


def _known(comparison: Comparison, results: Results, cells: Sequence[Cell]) -> int:
    """Return how many runs of these cells are already in the results."""
    found = 0
    for cell in cells:
        runs: list[tuple[Try, Purpose, int]]
        tries = comparison.contestant(cell).tries
        runs = [(attempt, "tried", comparison.chosen_on) for attempt in tries]
        best = _chosen(comparison, results, cell)
        if best is not None:
            runs += [(best, "measured", seed) for seed in comparison.seeds_of(cell)]
        found += sum(comparison.known(results, cell, *run) is not None for run in runs)
    return found


def _chosen(comparison: Comparison, results: Results, cell: Cell) -> Try | None:
    """Return the best try of a cell, or None if there is none or some tries are still missing."""
    tried = [
        comparison.known(results, cell, attempt, "tried", comparison.chosen_on)
        for attempt in comparison.contestant(cell).tries
    ]
    known = [row for row in tried if row is not None]
    best = choose(known, comparison.metric) if len(known) == len(tried) else None
    return None if best is None else best["try"]


def _check_place(out: Path, document: Mapping[str, Any]) -> None:
    """Refuse a folder in which this comparison can be neither started nor continued.

    Raises:
        RunError: the folder holds something else, or a comparison with other settings.
    """
    if not (out / NAME).exists():
        check_new(out)
        return
    try:
        old = json.loads((out / NAME).read_text(encoding="utf-8"))
        known = old["contestants"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{out / NAME} is damaged: choose a different folder") from error
    new = json.loads(json.dumps(document))
    problem = None
    if old.get("guarantee") != new["guarantee"]:
        problem = "is for a different guarantee"
    elif old.get("own_data") != new["own_data"]:
        problem = "has other data"
    for name, entry in known.items():
        if name not in new["contestants"]:
            problem = problem or f"also has {name}"
        elif entry != new["contestants"][name]:
            problem = problem or f"has different settings or a different grid for {name}"
    if problem is not None:
        raise RunError(
            f"out = {out}: the comparison there {problem}; include everything it has, or choose a "
            "different out"
        )


def _of_own(data: Dataset) -> dict[str, Any]:
    """Return the settings that follow from the user's data."""
    found: dict[str, Any] = {"dataset": data.name, "standardise": False}
    if data.clients is not None:
        found["num_clients"] = len(data.clients)
    return found


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


def _outcome(row: Row, metric: str) -> str:
    """Return a run's score for display, in the metric that is compared."""
    found = score(row, metric)
    if row["refused"] or found is None:
        return f"refused: {row['refused']}" if row["refused"] else f"{metric} is not defined"
    return f"{100 * found:.2f} %" if metric == "accuracy" else f"{metric} {found:.4f}"


def _words(attempt: Try) -> str:
    return ", ".join(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
                     for name, value in attempt.items())  # fmt: skip
