"""A sweep from its design to its result."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedldp.accounting.guarantees import Adversary, Unit, unit_and_adversary
from fedldp.accounting.proven import Proven, Released, together
from fedldp.accounting.releases import ReleaseHistory
from fedldp.accounting.statement import WHOLE_RUN, Statement, scores_are_private
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError, FedldpError, one_line
from fedldp.core.facts import Doubt, Unprotected
from fedldp.core.registry import is_address
from fedldp.data import SUFFIXES, Dataset
from fedldp.experiments.kept import KeptExperiment, Means, carried_out, with_own_code
from fedldp.experiments.making import Maker
from fedldp.experiments.own import sum_of, sum_of_tables
from fedldp.experiments.runs import Given, PlannedRun, Row, WorkerLost
from fedldp.experiments.store import Document, RunStore
from fedldp.experiments.sweeping.cells import Cell, shown_of
from fedldp.experiments.sweeping.folder import (
    check_plain,
    design_from,
    document_of,
    lacks,
    read_design,
)
from fedldp.experiments.sweeping.grid import Design, in_words, runs_of
from fedldp.experiments.sweeping.results import SHOWN, Sweep, run_of
from fedldp.reporting.lines import behind_sums
from fedldp.reporting.scores import TestSet, is_imbalanced
from fedldp.reporting.words import percent
from fedldp.simulation.given import Data, given_data, path_of
from fedldp.simulation.plan import plan, problem_of, problem_with, released
from fedldp.simulation.settings import from_mapping, named, nested


def sweep(
    recipe: str | RunConfig | Sequence[str | RunConfig] = "quickstart",
    *,
    grid: Mapping[str, Iterable[Any]] | None = None,
    seeds: Iterable[int] | None = None,
    out: Path | str | None = None,
    dataset: Data | None = None,
    test: Any = None,
    data_dir: Path | str | None = None,
    device: str = "cpu",
    workers: int | None = None,
    cluster: str | None = None,
    guarantee: str | None = None,
    metric: str | None = None,
    say: Callable[[str], None] = lambda line: None,
    same_data: bool = False,
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
        dataset: the data, in any form that ``fedldp.run`` takes; None loads each configuration's
            data set.
        test: the examples to test on, in any form that ``fedldp.run`` takes.
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
        say: called with a line about the sweep and about every run.
        same_data: whether private data are those of the folder, where nobody can tell.
        settings: settings that are changed in all runs.

    Raises:
        FedldpError: a key is wrong, all runs are refused, or ``out`` holds something else.

    >>> import fedldp
    >>> found = fedldp.sweep("quickstart", grid={"epsilon": [1, 8]}, rounds=1, workers=1)
    >>> [row["settings"]["epsilon"] for row in found.table]
    [1, 8]
    """
    if grid is not None and not isinstance(grid, Mapping):
        raise ConfigError(f"grid = {grid}: give a mapping, such as {{'epsilon': [1, 2, 4]}}")
    of_data, given = given_data(dataset, test, tested=True)
    changed = {key: _plain(key, value) for key, value in {**of_data, **settings}.items()}
    recipes = [recipe] if isinstance(recipe, str | RunConfig) else list(recipe)
    found = bases(recipes, changed)
    design = Design(
        bases=found,
        settings=changed,
        grid={key: _values(key, values) for key, values in (grid or {}).items()},
        seeds=own_seeds(found) if seeds is None else _values("seeds", seeds),
        device=device,
        own_data=None if given is None else given.own_data,
    )
    means = Means(
        out=path_of("out", out),
        data_dir=path_of("data_dir", data_dir),
        workers=workers,
        cluster=cluster,
        say=say,
        same_data=same_data,
    )
    shown = View.of(guarantee, metric)
    return carried_out(SweepExperiment(design, given, means.data_dir, shown), means)


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


class SweepExperiment(KeptExperiment[Sweep]):
    """The runs of a sweep, as an experiment.

    Args:
        design: the design of the sweep.
        given: the data, if they are given.
        data_dir: the data folder.
        shown: which guarantee and which metric to show for the runs.
    """

    kind = "sweep"

    def __init__(
        self,
        design: Design,
        given: Dataset | None = None,
        data_dir: Path | None = None,
        shown: View | None = None,
    ) -> None:
        self._design = design
        self._given = given
        self._shown = shown or View()
        self._all = runs_of(design, data_dir, given)
        self._runs = {run.digest: run for run in self._all if run.config is not None}
        self.maker = Maker(Given(given), data_dir, design.device)
        self.configs = list(design.bases.values())
        made = [run.config for run in self._all if run.config is not None]
        self.data = sum_of_tables(made) if given is None else sum_of(given)

    def document(self) -> Document:
        """Return its settings."""
        return document_of(self._design)

    def lacks(self, old: Document) -> str | None:
        """Return what it lacks of another sweep."""
        return lacks(self._design, design_from(old))

    def due(self, known: Mapping[str, Row]) -> Iterator[PlannedRun]:
        """Yield the runs that are not refused."""
        return iter(self._runs.values())

    def total(self, known: Mapping[str, Row]) -> int:
        """Return how many runs there are."""
        return len(self._runs)

    def planned(self, row: Row) -> PlannedRun | None:
        """Return the run of a row as it would be planned now."""
        return self._runs.get(row["digest"])

    def before(self, left: int, at_once: int, folder: Path | None) -> Iterator[str]:
        """Yield what the sweep is about to do, and the runs that are refused before they begin."""
        design = self._design
        configs = [run.config for run in self._all if run.config is not None]
        rounds = sum(config.rounds for config in configs)
        several = f", {at_once} at once" if at_once > 1 else ""
        done = f"; {len(configs) - left} finished before" if left < len(configs) else ""
        cells = len(configs) // len(design.seeds)
        yield (
            f"sweep      {_many(len(configs), 'run')} ({_many(cells, 'combination')}, "
            f"{_many(len(design.seeds), 'seed')} each), {_many(rounds, 'round')} in "
            f"all{several}{done}"
        )
        if folder is not None:
            yield f"folder     {folder}"
        for name, keys in design.lacking().items():
            yield f"note       {name} has no {', '.join(keys)}, and runs without"
        for run in self._all:
            if run.refused is not None:
                yield f"refused    {run.words}: {run.refused}"

    def outcome(self, row: Row) -> str:
        """Return a finished run's scores for display."""
        final = row["metrics"]
        imbalanced = is_imbalanced(final.get("most_frequent")) and final["auc"] is not None
        first = f"AUC {final['auc']:.4f}  " if imbalanced else ""
        return f"{first}accuracy {percent(final['accuracy'])}  {row['seconds']:.1f} s"

    def view(self, store: RunStore, folder: Path | None) -> Sweep:
        """Return what the rows so far say, and write it."""
        found = _result(self._all, store, folder, self._shown, self._given, self.maker.data_dir)
        if folder is not None:
            found.write(folder)
        return found


def sweep_in(folder: Path, data_dir: Path | None) -> SweepExperiment:
    """Return the sweep in a folder, as it would be made now.

    Raises:
        RunError: there is no sweep, or it used data given in Python.
    """
    with_own_code(folder)
    return SweepExperiment(read_design(folder), data_dir=data_dir)


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _result(
    found: Sequence[PlannedRun],
    store: RunStore,
    out: Path | None,
    view: View,
    given: Dataset | None,
    data_dir: Path | None,
) -> Sweep:
    cells: dict[str, tuple[PlannedRun, list[tuple[dict[str, Any], Proven]], list[str]]] = {}
    tested_on: dict[str, list[TestSet]] = {}
    doubts_of: dict[str, list[Doubt]] = {}
    sums: dict[str, dict[Proven, float]] = {}
    failed: list[dict[str, Any]] = []
    missing = 0
    private_scores = False
    score_releases: dict[str, tuple[Unprotected, ...]] = {}
    doubts: list[Doubt] = []
    released_by: dict[str, dict[str, list[Released]]] = {}
    shown: dict[tuple[str, Unit, Adversary], None] = {}
    for planned in found:
        settings, seed = planned.labels["settings"], planned.labels["seed"]
        name = in_words(settings)
        _, runs, why = cells.setdefault(name, (planned, [], []))
        config, row = planned.config, store.rows.get(planned.digest)
        place = None if row is None else store.folder / row["folder"]
        if config is not None and place is not None:
            assert row is not None
            row = {**row, **planned.labels}  # two recipes may share a run
            privacy = Statement.from_json(row["privacy"])
            asked = view.of_run(config)
            proven = shown_of(privacy, asked)
            run = run_of(row, None if out is None else place, proven)
            runs.append((run, proven))
            behind = behind_sums(privacy) if asked is None else None
            if behind is not None:
                sums.setdefault(name, {})[proven] = behind
            resolved = from_mapping(row["config"])
            if given is None:  # the folder and its table may have been moved
                resolved = resolved.changed(dataset=config.dataset, test_file=config.test_file)
            data = _rows_of(config, given)
            of_data = released_by.setdefault(data, {})
            of_data[planned.digest] = [
                released(resolved, _problem(resolved, given, data_dir), privacy)
            ]
            if proven.epsilon is not None:
                unit = proven.unit
                whole: Unit = unit if unit in WHOLE_RUN else "client-run"
                shown[data, whole, proven.adversary] = None
            private_scores |= scores_are_private(privacy.warnings)
            on = TestSet.of_run(row["metrics"], row["confusion"], privacy)
            tested_on.setdefault(name, []).append(on)
            doubts_of.setdefault(name, []).extend(map(Doubt.from_json, row["doubts"]))
            if told := config.composition.local.private_scores:
                score_releases[planned.labels["recipe"]] = tuple(told)
            doubts += map(Doubt.from_json, row["doubts"][:1])
            continue
        if config is not None and planned.digest not in store.failed:
            missing += 1
            continue
        if config is not None:
            of_data = released_by.setdefault(_rows_of(config, given), {})
            of_data[planned.digest] = _as_planned(
                config, given, data_dir, lost=isinstance(store.failed[planned.digest], WorkerLost)
            )
        reason = planned.refused or one_line(store.failed[planned.digest])
        why.append(reason)
        failed.append({"settings": dict(settings), "seed": seed, "reason": reason})
    return Sweep(
        [
            Cell(
                planned.labels["settings"],
                runs,
                why[0] if why else None,
                tested_on.get(name, ()),
                doubts_of.get(name, ()),
                sums.get(name, {}),
            )
            for name, (planned, runs, why) in cells.items()
        ],
        failed,
        out,
        private_scores,
        view.metric,
        score_releases,
        doubts,
        [
            together([each for run in released_by[data].values() for each in run], unit, who, data)
            for data, unit, who in _about(shown, released_by)
        ],
        missing,
        len(store.rows.keys() - {planned.digest for planned in found}),
    )


def _about(
    shown: Iterable[tuple[str, Unit, Adversary]], data: Iterable[str]
) -> list[tuple[str, Unit, Adversary]]:
    """Return what is said of each data set; of one without any guarantee, that of a whole run."""
    found = list(shown)
    known = {name for name, _, _ in found}
    return found + [(name, "client-run", "server") for name in data if name not in known]


def _as_planned(
    config: RunConfig, given: Dataset | None, data_dir: Path | None, *, lost: bool
) -> list[Released]:
    """Return what a run that failed may have released: all that was planned, if it was planned.

    Planning tries a user's own model, which is not safe where that may be what killed a worker:
    such a run counts as one that protects nothing.
    """
    if lost and is_address(config.model):
        nothing = Statement(claim=None, guarantees=())
        return [Released(releases=ReleaseHistory({}), statement=nothing, at=lambda _: nothing)]
    try:
        planned = plan(config, _problem(config, given, data_dir))
    except FedldpError:  # refused before any client was asked
        return []
    return [released(planned.config, planned.problem, planned.privacy)]


def _rows_of(config: RunConfig, given: Dataset | None) -> str:
    """Return what names the rows of a run: a file has one name, however its path is written."""
    if given is not None:
        return given.name
    own = config.dataset.lower().endswith(SUFFIXES)
    return os.path.relpath(os.path.realpath(config.dataset)) if own else config.dataset


def _problem(config: RunConfig, given: Dataset | None, data_dir: Path | None) -> Problem:
    if given is None:
        return problem_of(config, data_dir)
    return problem_with(config, given, data_dir)


def _values(name: str, values: Iterable[Any]) -> list[Any]:
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise ConfigError(f"{name} = {values}: give a list of values")
    return [_plain(name, value) for value in values]


def _plain(name: str, value: Any) -> Any:
    """Return a value as files store it: NumPy values become Python numbers and lists."""
    plain = value.tolist() if hasattr(value, "tolist") else value
    check_plain(name, plain)
    return plain
