"""The engine of all experiments: means, who makes runs, the only loop over runs, and folders.

An experiment with a folder is carried out there, continued, and compared with what is there. The
folder holds all that is needed for this; see ``store``.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing, contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError, FedldpError, RunError, one_line
from fedldp.core.locks import OwnedFolder, owned, scratch
from fedldp.core.registry import import_extra
from fedldp.data import Dataset
from fedldp.experiments.making import Maker, whole
from fedldp.experiments.own import Own, code_digest, sum_of_tables
from fedldp.experiments.proving import ComparisonError
from fedldp.experiments.runs import Ended, PlannedRun, Row, RunExecutor, Shared
from fedldp.experiments.store import (
    RESULTS,
    WORDS,
    Document,
    RunStore,
    design_from,
    document_of,
    lacking,
    read_document,
    settings_in,
)
from fedldp.reporting.record import check_new, environment
from fedldp.simulation.given import path_of
from fedldp.simulation.plan import check_workers, cores
from fedldp.simulation.workers import WorkerLost, Workers

_GROWTH = 1.2
"""How much the rows grow until what they say is shown again."""


@dataclass(frozen=True, kw_only=True)
class Means:
    """Where, with what and for how long an experiment is carried out; this changes no result.

    Attributes:
        out: its folder, which may hold a part of the experiment, or a folder that the caller owns;
            None keeps nothing.
        data_dir: the data folder.
        end: when no more runs begin, on the monotonic clock; None for never.
        workers: the number of processes; None starts one per core.
        cluster: "auto" or the address of a Ray cluster, which makes the runs instead.
        say: called with a line about the experiment and about every run.
        progress: called with the number of runs that are done and the number of all runs.
        same_data: whether private data are those of the folder, where nobody can tell.

    Raises:
        ConfigError: they contradict each other, or a cluster is named and Ray is not installed.
    """

    out: Path | OwnedFolder | None = None
    data_dir: Path | None = None
    end: float | None = None
    workers: int | None = None
    cluster: str | None = None
    say: Callable[[str], None] = lambda line: None
    progress: Callable[[int, int], None] = lambda done, total: None
    same_data: bool = False

    def __post_init__(self) -> None:
        """Check who makes the runs."""
        check_workers(self.workers, self.cluster)
        if self.cluster is not None:
            import_extra("ray", extra="ray")

    def shared(self, load: Callable[[Path | None], Dataset], given: Dataset | None) -> Shared:
        """Return data for all runs; those that were given, or go to a cluster, are sent.

        Args:
            load: returns them, from the data folder; it can be pickled.
            given: the data, if they are given.
        """
        if given is not None:
            return Shared(lambda: given, travels=True)
        return Shared(partial(load, self.data_dir), travels=self.cluster is not None)

    @classmethod
    def of(
        cls,
        out: Path | str | None,
        data_dir: Path | str | None,
        budget: str | float | None = None,
        **others: Any,
    ) -> Means:
        """Return the means that a user of Python gives; ``budget`` says when to end.

        Raises:
            ConfigError: a path is empty, or the budget is not a time.
        """
        place, folder = path_of("out", out), path_of("data_dir", data_dir)
        return cls(out=place, data_dir=folder, end=end_of(budget), **others)

    def go_on(self) -> bool:
        """Return whether another run may begin."""
        return self.end is None or time.monotonic() < self.end


def carry_out(
    experiment: Experiment[Any],
    store: RunStore,
    executor: RunExecutor,
    means: Means,
    show: Callable[[], None] = lambda: None,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Make the runs that are due and not in the store, the most urgent first.

    A run that fails for an unforeseen reason is in ``store.failed`` and is not tried again by this
    call.

    Args:
        experiment: which runs are due.
        store: where rows are kept; a row is written as soon as its run has ended.
        executor: who makes the runs.
        means: for how long, and who is told how many of all runs are done, and each outcome.
        show: called when the first rows are in, when they have grown by a fifth, and at the end, to
            show what they say.
        check: called before a row is kept; raises an error if its run may have used other data.

    Raises:
        ComparisonError: a run's statement proves less than its target.
    """
    running: set[str] = set()
    done = sum(1 for _ in _distinct(experiment.due(store.rows), lambda key: key in store.rows))
    total = experiment.total(store.rows)
    means.progress(done, total)

    def left() -> Iterator[PlannedRun]:
        return _distinct(
            experiment.due(store.rows),
            lambda key: not (key in store.rows or key in store.failed or key in running),
        )

    waiting, shown = left(), 0
    while True:
        while len(running) < executor.slots and (run := next(waiting, None)) is not None:
            if not means.go_on():
                waiting = iter(())
                break
            running.add(run.digest)
            executor.begin(run, store.place(run))
        if not running:
            show()
            return
        for run, result in executor.ended():
            running.discard(run.digest)
            if isinstance(result, ComparisonError):
                raise result
            if isinstance(result, Exception):
                store.failed[run.digest] = result
                told = f"failed: {one_line(result)}"
            else:
                check()
                told = experiment.outcome(store.add(result))
            done += 1
            means.say(f"{done}/{total}  {run.words}: {told}")
            means.progress(done, total)
            if run.decides:
                waiting, total = left(), experiment.total(store.rows)
        if len(store.rows) > shown * _GROWTH:
            shown = len(store.rows)
            show()


def read_time(text: str) -> float:
    """Return the seconds in a time such as "90s", "20m", "2h" or "1h30m".

    Raises:
        ConfigError: the string does not have this form.
    """
    match = re.fullmatch(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?", text.strip())
    hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    found = 3600 * hours + 60 * minutes + seconds
    if found == 0:
        raise ConfigError(f"budget = {text}: write it as 90s, 30m or 2h")
    return float(found)


def end_of(budget: str | float | None) -> float | None:
    """Return when a budget ends, on the monotonic clock; None if there is none.

    Raises:
        ConfigError: it is not a time.
    """
    seconds = read_time(budget) if isinstance(budget, str) else budget
    if seconds is not None and seconds <= 0:
        raise ConfigError(
            f"budget = {seconds:g}: give a number of seconds above 0, or a time such as 20m"
        )
    return None if seconds is None else time.monotonic() + seconds


def _distinct(runs: Iterator[PlannedRun], wanted: Callable[[str], bool]) -> Iterator[PlannedRun]:
    """Yield each wanted run once; two cells of a table may share a run."""
    seen: set[str] = set()
    for run in runs:
        if run.digest not in seen and wanted(run.digest):
            seen.add(run.digest)
            yield run


_TICK = 0.5
"""Seconds between two checks of the runs' progress."""


def executor_of(maker: Maker, workers: int | None, cluster: str | None, left: int) -> RunExecutor:
    """Return who makes runs, until it is closed.

    Args:
        maker: how to make a run.
        workers: the number of processes on this machine; None starts one per core.
        cluster: "auto" or the address of a Ray cluster, instead of workers.
        left: how many runs are left; if these are fewer than the workers, each run gets several.

    Raises:
        FedldpError: the settings contradict each other, or the cluster cannot be reached.
    """
    if cluster is None:
        return Processes(maker, min(workers or cores(), cores()), left)
    check_workers(None, cluster, maker.device)
    from fedldp.experiments.cluster import ClusterExecutor  # imports torch

    return ClusterExecutor(cluster, maker)


class Processes:
    """Processes of this machine, or this process alone; see ``RunExecutor``.

    Args:
        maker: how to make a run.
        at_most: the largest number of processes, at least 1.
        left: how many runs are left.
    """

    def __init__(self, maker: Maker, at_most: int, left: int) -> None:
        self.slots = max(1, min(at_most, left))
        self._maker = copy(maker)
        self._maker.workers = at_most // self.slots
        self._workers = Workers(self.slots, _making, self._maker)
        self._running: dict[Future[Row | Exception], PlannedRun] = {}

    def close(self) -> None:
        """Stop every worker; see ``RunExecutor``."""
        self._workers.close()

    def begin(self, run: PlannedRun, place: Path | None) -> None:
        """Begin a run; see ``RunExecutor``."""
        if self.slots > 1:
            self._running[self._workers.submit(run, place)] = run
            return
        made: Future[Row | Exception] = Future()
        made.set_result(self._maker.attempt(run, place))
        self._running[made] = run

    def ended(self) -> list[Ended]:
        """Return the runs that have ended; see ``RunExecutor``."""
        done, _ = wait(self._running, _TICK, FIRST_COMPLETED)
        return [(self._running.pop(each), _result(each)) for each in list(self._running)
                if each in done]  # fmt: skip


def _making(maker: Maker) -> Callable[[PlannedRun, Path | None], Row | Exception]:
    return maker.attempt


def _result(made: Future[Row | Exception]) -> Row | Exception:
    lost = made.exception()
    return lost if isinstance(lost, WorkerLost) else made.result()


View = TypeVar("View")
"""What an experiment makes of its rows."""


class Experiment(Generic[View]):
    """Which runs are due, and what their rows say; it may have a folder.

    Attributes:
        kind: "sweep", "compare", "advise" or "reproduce".
        designed_by: the class of its design.
        design: its settings, a dataclass.
        given: its data, if they are given and not named by ``configs``.
        maker: makes its runs.
        configs: the configurations whose own code and tables its runs use.
        grows: the settings that may have more values or names than in the folder, see ``lacking``.
        free: the settings that may differ from those in the folder.
    """

    kind: ClassVar[str]
    designed_by: ClassVar[type]
    grows: ClassVar[Collection[str]] = ()
    free: ClassVar[Collection[str]] = ()
    design: object
    given: Dataset | None = None
    maker: Maker
    configs: Sequence[RunConfig] = ()

    @classmethod
    def found(cls, folder: Path, means: Means, **more: Any) -> Self:
        """Return the experiment in a folder, with its own settings, as it would be made now.

        Args:
            folder: the folder.
            means: how it is carried out.
            more: further arguments of the class.

        Raises:
            FedldpError: there is none, its file is damaged, its data are not as declared, or it
                used data or models given in Python.
        """
        settings = settings_of(folder, cls.kind)
        if settings.get("own_data") is not None:
            raise RunError(
                f"{folder}: that {WORDS[cls.kind]} used data given in Python; continue it in "
                f"Python with the same data: fedldp.{cls.kind}(..., dataset=...)"
            )
        make: Any = cls
        made: Self = make(design_from(cls.designed_by, settings, cls.kind), None, means, **more)
        return made

    def document(self) -> Document:
        """Return its settings, as its folder keeps them, and a description of data given."""
        own_data = None if self.given is None else self.given.own_data
        return {**document_of(self.design), "own_data": own_data}

    def lacks(self, old: Document) -> str | None:
        """Return what it lacks of the experiment with an older document; None for nothing."""
        old = {key: value for key, value in self.read_again(old).items() if key not in self.free}
        return lacking(old, self.document(), self.grows)

    def read_again(self, old: Document) -> Document:
        """Return an older document with the settings that there are now.

        Raises:
            RunError: it is damaged, or has a model that was given in Python.
        """
        return {**old, **document_of(design_from(self.designed_by, old, self.kind))}

    def due(self, known: Mapping[str, Row]) -> Iterator[PlannedRun]:
        """Yield all runs that are decided, the most urgent first, whether or not they are known.

        This depends on the rows alone, so that kills, budgets and the number of workers change
        nothing about which runs are made in the end.

        Args:
            known: the rows so far, by digest.
        """
        raise NotImplementedError

    def total(self, known: Mapping[str, Row]) -> int:
        """Return how many runs there will be in all, as far as the rows so far tell."""
        raise NotImplementedError

    def outcome(self, row: Row) -> str:
        """Return the outcome of a run in words, from its row."""
        raise NotImplementedError

    def before(self, left: int, at_once: int, folder: Path | None) -> Iterable[str]:
        """Return what is said before the first run.

        Args:
            left: how many runs are left.
            at_once: how many of them are made at the same time.
            folder: its folder, if anything is kept.
        """
        return ()

    def planned(self, row: Row) -> PlannedRun | None:
        """Return the run of a row as it would be planned now; None if there is none."""
        raise NotImplementedError

    def check(self, row: Row) -> None:
        """Raise an error if a row's run proves less than its label."""
        return

    def view(self, store: RunStore, folder: Path | None) -> View:
        """Return what the rows so far say, and write it into its folder, if anything is kept."""
        raise NotImplementedError


def carried_out(experiment: Experiment[View], means: Means) -> View:
    """Make the missing runs of an experiment, and return what all of its rows say.

    Raises:
        FedldpError: the folder holds something else, the cluster cannot be reached, a table changes
            meanwhile, or a run's statement proves less than its target.
    """
    configs = experiment.configs
    own = Own.of(configs, experiment.given, means.same_data)
    with _opened(experiment, own, means.out) as store:
        folder = None if means.out is None else store.folder
        found: list[View] = []

        def show() -> None:
            found[:] = [experiment.view(store, folder)]

        def check() -> None:
            if experiment.given is None and sum_of_tables(configs) != own.data:
                raise RunError(
                    "a table changed while the runs were made, and the last run is not kept: put "
                    "the earlier table back and continue, or choose another out"
                )

        known = {run.digest for run in experiment.due(store.rows)} & store.rows.keys()
        left = experiment.total(store.rows) - len(known)
        made_by = executor_of(experiment.maker, means.workers, means.cluster, left)
        with closing(made_by) as executor:
            for line in experiment.before(left, executor.slots, folder):
                means.say(line)
            own.write(store.folder / f"{experiment.kind}.json", experiment.document())
            carry_out(experiment, store, executor, means, show, check)
    return found[0]


@contextmanager
def _opened(
    experiment: Experiment[Any], own: Own, out: Path | OwnedFolder | None
) -> Iterator[RunStore]:
    """Own an experiment's folder, or a temporary one, and yield what it has of the experiment.

    Raises:
        RunError: the folder holds something else, or an experiment that this one lacks a part of,
            or that has other data.
        Held: another process owns the folder.
    """
    kind = experiment.kind

    def check(path: Path) -> None:
        if not (path / f"{kind}.json").exists():
            check_new(path)
            return
        old = read_document(path, kind)
        problem = experiment.lacks(settings_in(path, old))
        if problem is not None:
            raise RunError(
                f"out = {out}: the {WORDS[kind]} there {problem}; include everything it has, or "
                "choose another out"
            )
        problem = own.problem(old.get("data"))
        if problem is not None:
            raise RunError(f"out = {out}: {problem}")

    with owned(out, "out", WORDS[kind], check) as owner:
        yield RunStore(owner.path / RESULTS)


def settings_of(folder: Path, kind: str) -> dict[str, Any]:
    """Return the settings of the experiment in a folder.

    The folder's copies of own code can then be imported, where the user's own files are missing.

    Raises:
        RunError: there is no such experiment, or its file is damaged.
        DataMissing: its table is not found.
    """
    sys.path += [str(place) for place in sorted(folder.glob("own/*"))]
    return settings_in(folder, read_document(folder, kind), needed=True)


def verify(experiment: Experiment[Any], folder: Path, again: int = 0) -> Iterator[str]:
    """Yield what is missing or differs in an experiment's folder, one line each; train nothing.

    Args:
        experiment: the experiment in the folder, as it would be made now.
        folder: the folder.
        again: how many runs to make again, in a temporary folder, to compare their numbers.

    Raises:
        RunError: there is no such experiment.
    """
    document, store = read_document(folder, experiment.kind), RunStore(folder / RESULTS)
    own = Own.of(experiment.configs, experiment.given, same_data=False)
    yield from _about_code(folder, document, own)
    if problem := own.problem(document.get("data")):
        yield f"data: {problem}"
    here = environment()["packages"]
    for versions in {json.dumps(row["versions"], sort_keys=True) for row in store.rows.values()}:
        then = json.loads(versions)
        other = [f"{name} {then.get(name)}" for name in here if then.get(name) != here[name]]
        if other:
            now = ", ".join(f"{each.partition(' ')[0]} {here[each.split()[0]]}" for each in other)
            yield f"versions: rows were made with {', '.join(other)}; here is {now}"
    known: list[tuple[PlannedRun, Row]] = []
    for row in store.rows.values():
        run = experiment.planned(row)
        if run is None:
            yield f"run {row['digest']}: it was made with other settings, code or data"
            continue
        known.append((run, row))
        try:
            experiment.check(row)
        except FedldpError as error:
            yield one_line(error)
    yield from _made_again(store, experiment.maker, known, again)


def _about_code(folder: Path, document: dict[str, Any], own: Own) -> Iterator[str]:
    for code in document.get("own", ()):
        place = folder / "own" / code
        files = {each.relative_to(place).as_posix(): each for each in place.rglob("*")}
        if code_digest({name: each for name, each in files.items() if each.is_file()}) != code:
            yield f"own code {code}: its copy is missing or was changed"
        if code not in own.code:
            yield f"own code {code}: the user's own files differ from it now, or are missing"


def _made_again(
    store: RunStore, maker: Maker, known: list[tuple[PlannedRun, Row]], again: int
) -> Iterator[str]:
    """Make some runs again, spread evenly, and yield the largest difference, if there is one."""
    scored = [(run, row) for run, row in known if _main(row) is not None]
    some = scored[:: max(1, len(scored) // again)][:again] if again else []
    largest, which = 0.0, None
    for run, row in some:
        with scratch() as folder:
            place = None if run.place is None else folder / run.place
            found = whole(maker.make(run, place), folder)
        made, before = None if found is None else _main(found), _main(row)
        difference = abs((made or 0.0) - (before or 0.0))
        if made is None or difference > largest:
            largest, which = difference, row
    if which is not None:
        yield (
            f"run {which['digest']}: made again, its {_of(which)} differs by {largest:.2g}, the "
            f"most of {len(some)} runs"
        )


def _of(row: Row) -> str:
    """Return the name of the score by which a run is checked."""
    return "R2" if "r2" in row.get("metrics", {}) else "accuracy"


def _main(row: Row) -> float | None:
    """Return this score; None if the run has none."""
    found: float | None = row.get("metrics", {}).get("r2", row["accuracy"])
    return found
