"""A sweep from its design to its result."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedldp.accounting.guarantees import Adversary, Unit, unit_and_adversary
from fedldp.accounting.proven import Released, together
from fedldp.accounting.statement import WHOLE_RUN, Statement, scores_are_private
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError, FedldpError
from fedldp.core.facts import Doubt, Unprotected
from fedldp.core.locks import OwnedFolder, owned
from fedldp.data import SUFFIXES, Dataset, as_dataset
from fedldp.experiments.processes import Processes
from fedldp.experiments.sweeping.cells import Cell, Stated
from fedldp.experiments.sweeping.folder import check_place, check_plain, write_design
from fedldp.experiments.sweeping.grid import Design, Job, in_words, jobs
from fedldp.experiments.sweeping.one_run import RunContext, RunTask, summary_of
from fedldp.experiments.sweeping.results import SHOWN, Sweep, run_of
from fedldp.reporting.scores import TestSet
from fedldp.simulation.plan import cores, plan, problem_of, problem_with, released
from fedldp.simulation.settings import from_mapping, named, nested


def sweep(
    recipe: str | RunConfig | Sequence[str | RunConfig] = "quickstart",
    *,
    grid: Mapping[str, Iterable[Any]] | None = None,
    seeds: Iterable[int] | None = None,
    out: Path | str | None = None,
    dataset: Dataset | tuple[Any, Any] | None = None,
    data_dir: Path | str | None = None,
    device: str = "cpu",
    workers: int | None = None,
    cluster: str | None = None,
    guarantee: str | None = None,
    metric: str | None = None,
    **settings: Any,
) -> Sweep:
    """Run every combination of recipes, grid values and seeds.

    Each run equals, bit for bit, ``fedldp.run`` with the same configuration. A refused run does not
    end the sweep: it is listed in ``failed``.

    Args:
        recipe: a recipe's name, a .toml file's path, a configuration, or several of these.
        grid: a list of values for each setting that varies: ``{"epsilon": [1, 2, 4]}``. A recipe
            that lacks a setting of the grid runs once, without it.
        seeds: every combination runs once with each seed; None uses each recipe's own seed.
        out: the sweep's folder. If it holds this sweep, or a part of this sweep, the sweep
            continues. If None, the runs' folders are deleted.
        dataset: your own data, a pair of arrays (features, labels) or a ``Dataset``; None loads
            each configuration's data set.
        data_dir: the data folder.
        device: "auto", "cpu" or "cuda".
        workers: the number of runs at once, each in its own process; None starts one per core. With
            1, runs take place in this process.
        cluster: "auto" or the address of a Ray cluster; each of its CPUs then carries out one run
            at a time, instead of ``workers``; see docs/cluster.md.
        guarantee: the guarantee whose epsilon is shown, as "UNIT:ADVERSARY", such as
            "person:server"; None uses the guarantee of a run's target, and without a target the
            first proven guarantee.
        metric: the metric that is shown first and drawn, one of ``METRICS``; None uses the AUC if
            most of the test set is one class, and the accuracy otherwise.
        settings: settings that are changed in all runs.

    Raises:
        FedldpError: a key is wrong, all runs are refused, or ``out`` holds something else.

    >>> import fedldp
    >>> found = fedldp.sweep("quickstart", grid={"epsilon": [1, 8]}, rounds=1, workers=1)
    >>> [row["settings"]["epsilon"] for row in found.table]
    [1, 8]
    """
    if out is not None and not str(out).strip():
        raise ConfigError(f"out = {out!r}: give the path of a folder")
    if grid is not None and not isinstance(grid, Mapping):
        raise ConfigError(f"grid = {grid}: give a mapping, such as {{'epsilon': [1, 2, 4]}}")
    given = None if dataset is None else as_dataset(dataset, tested=True)
    changed = {key: _plain(key, value) for key, value in settings.items()}
    recipes = [recipe] if isinstance(recipe, str | RunConfig) else list(recipe)
    found = bases(recipes, changed)
    own = given is not None and not given.is_public
    if own and any(found[each].standardise for each in recipes if isinstance(each, str)):
        changed = {"standardise": False, **changed}  # the default for own data, as in fedldp.run
    design = Design(
        bases=found,
        settings=changed,
        grid={key: _values(key, values) for key, values in (grid or {}).items()},
        seeds=own_seeds(found) if seeds is None else _values("seeds", seeds),
        device=device,
        own_data=None if given is None else given.own_data,
    )
    context = RunContext(
        dataset=given,
        data_dir=None if data_dir is None else Path(data_dir),
        device=device,
        cluster=cluster,
    )
    view = View.of(guarantee, metric)
    place = None if out is None else Path(out)
    return carry_out_all(design, context, place, workers, Watcher(), view)


def bases(recipes: Iterable[str | RunConfig], settings: Mapping[str, Any]) -> dict[str, RunConfig]:
    """Return the configurations of recipes by name; without a name, the system's name is used.

    Args:
        recipes: each a recipe's name, a .toml file's path, or a configuration.
        settings: the settings of all runs, by dotted name, which a file may leave out.

    Raises:
        ConfigError: there is no such recipe, or two recipes have the same name.
    """
    found: dict[str, RunConfig] = {}
    left_out = nested(settings.items())
    for recipe in recipes:
        name = recipe.system if isinstance(recipe, RunConfig) else recipe
        if name in found:
            raise ConfigError(f"recipe {name}: it occurs twice; remove one")
        found[name] = recipe if isinstance(recipe, RunConfig) else named(recipe, left_out)
    if not found:
        raise ConfigError("recipe: there are none; give at least one")
    return found


def own_seeds(found: Mapping[str, RunConfig]) -> list[int]:
    """Return the seeds that the configurations themselves set."""
    return sorted({config.seed for config in found.values()})


@dataclass(frozen=True)
class View:
    """What a sweep shows for its runs.

    Attributes:
        guarantee: the unit and the adversary whose epsilon is shown; None uses a run's target.
        metric: the metric that is shown first; None chooses one that suits the labels.
    """

    guarantee: tuple[Unit, Adversary] | None = None
    metric: str | None = None

    @classmethod
    def of(cls, guarantee: str | None, metric: str | None) -> View:
        """Return the view that a user requests.

        Raises:
            ConfigError: there is no such unit, adversary or metric.
        """
        if metric is not None and metric not in SHOWN:
            raise ConfigError(f"metric {metric}: choose {', '.join(SHOWN)}")
        return cls(None if guarantee is None else unit_and_adversary(guarantee), metric)

    def of_run(self, config: RunConfig) -> tuple[Unit, Adversary] | None:
        """Return the unit and the adversary whose epsilon is shown for a run."""
        if self.guarantee is not None or config.target is None:
            return self.guarantee
        return config.target.unit, config.target.adversary


class Watcher:
    """Receives the events of a sweep; this class ignores them."""

    def planned(self, plan: Planned) -> None:
        """Called when all runs are known, before any begins."""

    def done(self, job: Job, run: Mapping[str, Any] | None, reason: str | None) -> None:
        """Called when a run has finished, or has failed for a reason."""

    def tick(self) -> None:
        """Called from time to time."""


@dataclass(frozen=True)
class Planned:
    """What a sweep is about to do.

    Attributes:
        design: the design of the sweep.
        jobs: its runs, including the refused ones.
        places: the folders of the runs that are not refused.
        finished: how many of these runs had already finished.
        at_once: how many runs are carried out at the same time.
        out: the sweep's folder; None if nothing is kept.
    """

    design: Design
    jobs: Sequence[Job]
    places: Mapping[Path, Job]
    finished: int
    at_once: int
    out: Path | None


def carry_out_all(
    design: Design,
    context: RunContext,
    out: Path | OwnedFolder | None,
    workers: int | None,
    watcher: Watcher,
    view: View | None = None,
) -> Sweep:
    """Carry out the remaining runs of a sweep, and return the result of the whole sweep.

    Args:
        design: the design of the sweep.
        context: the settings and data that the runs share; ``context.workers`` is set later.
        out: the sweep's folder, which may hold a part of the sweep, or a folder that the caller
            owns; None keeps nothing.
        workers: the number of processes; None starts one per core.
        watcher: receives the sweep's events.
        view: which guarantee and which metric to show for the runs.

    Raises:
        FedldpError: the sweep cannot be made; see ``sweep``.
    """
    with ExitStack() as stack:
        own = owned(out, "out", "sweep", lambda path: check_place(path, design))
        folder = stack.enter_context(own).path
        kept = None if out is None else folder
        found = jobs(design, context.data_dir, given_data=context.dataset is not None)
        sweep_executor = stack.enter_context(assembled(context, workers))
        places = {folder / job.folder: job for job in found if job.config is not None}
        left = [place for place in places if summary_of(place) is None]
        at_once = max(1, min(sweep_executor.at_most, len(left)))
        finished = len(places) - len(left)
        watcher.planned(Planned(design, found, places, finished, at_once, kept))
        write_design(folder, design)
        reasons = _do(
            sweep_executor, [_task_of(places[place], place) for place in left], places, watcher
        )
        result = _result(found, places, reasons, kept, view or View(), context)
        if kept is not None:
            result.write(kept)
    return result


def _task_of(job: Job, place: Path) -> RunTask:
    assert job.config is not None
    return RunTask(job.recipe, job.config, place)


def _do(
    sweep_executor: SweepExecutor,
    tasks: Sequence[RunTask],
    places: Mapping[Path, Job],
    watcher: Watcher,
) -> dict[Path, str]:
    """Carry out the remaining runs; return why some of them failed."""
    reasons: dict[Path, str] = {}

    def done(task: RunTask, reason: str | None) -> None:
        job, summary = places[task.place], summary_of(task.place)
        if reason is None and summary is None:
            reason = f"{task.place} has no summary.json; continue the sweep"
        if reason is not None:
            reasons[task.place] = reason
            watcher.done(job, None, reason)
        else:
            assert summary is not None
            stated = Stated.of(Statement.from_json(summary["privacy"]))
            watcher.done(job, run_of(job.settings, job.seed, summary, task.place, stated), None)

    sweep_executor.do(tasks, done=done, tick=watcher.tick)
    return reasons


def _result(
    found: Sequence[Job],
    places: Mapping[Path, Job],
    reasons: Mapping[Path, str],
    out: Path | None,
    view: View,
    context: RunContext,
) -> Sweep:
    place_of = {id(job): place for place, job in places.items()}
    cells: dict[str, tuple[Job, list[tuple[dict[str, Any], Stated]], list[str]]] = {}
    tested_on: dict[str, list[TestSet]] = {}
    doubts_of: dict[str, list[Doubt]] = {}
    failed: list[dict[str, Any]] = []
    private_scores = False
    score_releases: dict[str, tuple[Unprotected, ...]] = {}
    doubts: list[Doubt] = []
    released_by: dict[str, list[Released]] = {}
    shown: dict[tuple[str, Unit, Adversary], None] = {}
    for job in found:
        _, runs, why = cells.setdefault(in_words(job.settings), (job, [], []))
        place = place_of.get(id(job))
        summary = None if place is None or place in reasons else summary_of(place)
        if summary is not None:
            assert job.config is not None
            privacy = Statement.from_json(summary["privacy"])
            stated = Stated.of(privacy, view.of_run(job.config))
            run = run_of(job.settings, job.seed, summary, None if out is None else place, stated)
            runs.append((run, stated))
            config = from_mapping(summary["config"])
            problem = _problem(config, context)
            data = _rows_of(config, context)
            released_by.setdefault(data, []).append(released(config, problem, privacy))
            if stated.epsilon < math.inf:
                whole: Unit = stated.unit if stated.unit in WHOLE_RUN else "client-run"
                shown[data, whole, stated.adversary] = None
            private_scores |= scores_are_private(privacy.warnings)
            cell = in_words(job.settings)
            tested_on.setdefault(cell, []).append(TestSet.of_summary(summary, privacy))
            doubts_of.setdefault(cell, []).extend(map(Doubt.from_json, summary["doubts"]))
            if told := job.config.composition.local.private_scores:
                score_releases[job.recipe] = tuple(told)
            doubts += map(Doubt.from_json, summary["doubts"][:1])
            continue
        reason = job.refused if place is None else reasons[place]
        assert reason is not None
        if place is not None and job.config is not None:
            data = _rows_of(job.config, context)
            released_by.setdefault(data, []).extend(_as_planned(job.config, context))
        why.append(reason)
        failed.append({"settings": dict(job.settings), "seed": job.seed, "reason": reason})
    return Sweep(
        [
            Cell(
                job.settings,
                runs,
                why[0] if why else None,
                tested_on.get(name, ()),
                doubts_of.get(name, ()),
            )
            for name, (job, runs, why) in cells.items()
        ],
        failed,
        out,
        private_scores,
        view.metric,
        score_releases,
        doubts,
        [
            together(released_by[data], unit, who, data)
            for data, unit, who in _about(shown, released_by)
        ],
    )


def _about(
    shown: Iterable[tuple[str, Unit, Adversary]], data: Iterable[str]
) -> list[tuple[str, Unit, Adversary]]:
    """Return what is said of each data set; of one without any guarantee, that of a whole run."""
    found = list(shown)
    known = {name for name, _, _ in found}
    return found + [(name, "client-run", "server") for name in data if name not in known]


def _as_planned(config: RunConfig, context: RunContext) -> list[Released]:
    """Return what a run that failed may have released: all that was planned, if it was planned."""
    try:
        planned = plan(config, _problem(config, context))
    except FedldpError:  # refused before any client was asked
        return []
    return [released(planned.config, planned.problem, planned.privacy)]


def _rows_of(config: RunConfig, context: RunContext) -> str:
    """Return what names the rows of a run: a file has one name, however its path is written."""
    if context.dataset is not None:
        return context.dataset.name
    own = config.dataset.lower().endswith(SUFFIXES)
    return os.path.relpath(os.path.realpath(config.dataset)) if own else config.dataset


def _problem(config: RunConfig, context: RunContext) -> Problem:
    if context.dataset is None:
        return problem_of(config, context.data_dir)
    return problem_with(config, context.dataset, context.data_dir)


def _values(name: str, values: Iterable[Any]) -> list[Any]:
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise ConfigError(f"{name} = {values}: give a list of values")
    return [_plain(name, value) for value in values]


def _plain(name: str, value: Any) -> Any:
    """Return a value as files store it: NumPy values become Python numbers and lists."""
    plain = value.tolist() if hasattr(value, "tolist") else value
    check_plain(name, plain)
    return plain


class SweepExecutor(Protocol):
    """Carries out runs, several at the same time."""

    @property
    def at_most(self) -> int:
        """How many runs are carried out at the same time."""
        ...

    def do(
        self,
        tasks: Sequence[RunTask],
        *,
        done: Callable[[RunTask, str | None], None],
        tick: Callable[[], None],
    ) -> None:
        """Carry out runs; each folder has, bit for bit, what a single process would write.

        Args:
            tasks: the runs; a run that was begun continues from its folder.
            done: called with each run as soon as it has ended, and with the reason if it failed.
            tick: called from time to time.
        """
        ...


@contextmanager
def assembled(context: RunContext, workers: int | None) -> Iterator[SweepExecutor]:
    """Yield the executor of a sweep; at the end, or if interrupted, stop every worker.

    Args:
        context: the settings and data that the runs share.
        workers: the number of processes on this machine; None starts one per core.

    Raises:
        FedldpError: the settings contradict each other, or the cluster cannot be reached.
    """
    _check(context, workers)
    if context.cluster is None:
        with Processes(context, min(workers or cores(), cores())) as processes:
            yield processes
        return
    from fedldp.experiments.ray_tasks import RayTasks
    from fedldp.simulation.ray_executor import Cluster  # imports torch

    with Cluster(context.cluster) as cluster:
        yield RayTasks(cluster, context)


def _check(context: RunContext, workers: int | None) -> None:
    if workers is not None and workers < 1:
        raise ConfigError(f"workers = {workers}: give 1 or more")
    if context.device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device = {context.device}: choose auto, cpu or cuda")
    if context.cluster is None:
        return
    if workers is not None:
        raise ConfigError(
            f"workers = {workers}: the nodes of cluster = {context.cluster} set the number of "
            "workers; leave workers out"
        )
    if context.device == "cuda":
        raise ConfigError(
            f"device = cuda: cluster = {context.cluster} trains on CPUs; use auto or cpu"
        )
