"""A sweep from its design to its result."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedldp.accounting.guarantees import Adversary, Unit, unit_and_adversary
from fedldp.accounting.proven import Proven, Released, Together, together
from fedldp.accounting.releases import ReleaseHistory
from fedldp.accounting.statement import WHOLE_RUN, Statement
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError, FedldpError, one_line
from fedldp.core.registry import is_address
from fedldp.data import Dataset, is_own_file
from fedldp.experiments.kept import KeptExperiment, carried_out, of_given_data, settings_of
from fedldp.experiments.making import Maker
from fedldp.experiments.runs import PlannedRun, Row, Shared, Task
from fedldp.experiments.scheduling import Means
from fedldp.experiments.store import Document, RunStore, design_from, document_of
from fedldp.experiments.sweeping.grid import Design, in_words, runs_of
from fedldp.experiments.sweeping.results import Combination, Sweep, text_of
from fedldp.experiments.table import metrics_for
from fedldp.reporting.lines import behind_sums, headline
from fedldp.reporting.scores import TestSet
from fedldp.reporting.text import in_short
from fedldp.simulation.given import Data, given_data
from fedldp.simulation.plan import plan, problem_of, problem_with, released
from fedldp.simulation.settings import from_mapping, named, nested
from fedldp.simulation.workers import WorkerLost


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
            at a time, instead of ``workers``; see docs/sweep.md.
        guarantee: the guarantee whose epsilon is shown, as "UNIT:ADVERSARY", such as
            "person:server"; None uses the guarantee of a run's target, and without a target the
            first proven guarantee.
        metric: the metric that is shown first and drawn: accuracy, loss, auc, average_precision,
            balanced_accuracy, brier, f1_macro, client_accuracy or worst_tenth_accuracy; for labels
            that are numbers, r2 or loss. None uses the first of these, or the AUC if most of the
            test set is one class.
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
    design = design_of(
        recipes,
        changed,
        {key: _values(key, values) for key, values in (grid or {}).items()},
        None if seeds is None else _values("seeds", seeds),
        device,
        own_data=None if given is None else given.own_data,
    )
    means = Means.of(out, data_dir, workers=workers, cluster=cluster, say=say, same_data=same_data)
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


def design_of(
    recipes: Iterable[str | RunConfig],
    settings: Mapping[str, Any],
    grid: Mapping[str, Sequence[Any]],
    seeds: Sequence[int] | None,
    device: str,
    own_data: str | None = None,
) -> Design:
    """Return a sweep's design; without seeds, the configurations' own.

    Raises:
        ConfigError: a recipe, a setting or a seed is wrong; see ``bases`` and ``Design``.
    """
    found = bases(recipes, settings)
    own = sorted({config.seed for config in found.values()})
    return Design(found, settings, grid, own if seeds is None else seeds, device, own_data)


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
            ConfigError: there is no such unit or adversary.
        """
        return cls(None if guarantee is None else unit_and_adversary(guarantee), metric)

    def of_run(self, config: RunConfig) -> tuple[Unit, Adversary] | None:
        """Return the unit and the adversary whose epsilon is shown for a run."""
        if self.guarantee is not None or config.target is None:
            return self.guarantee
        return config.target.unit, config.target.adversary


def shown_of(privacy: Statement, guarantee: tuple[Unit, Adversary] | None = None) -> Proven:
    """Return a statement's headline; lines for the numbers that are sent take precedence.

    Args:
        privacy: the statement.
        guarantee: the unit and the adversary; None for the statement's headline, see
            ``reporting.lines.headline``.
    """
    line = headline(privacy, guarantee)
    if line is not None and line.epsilon is not None:
        return Proven.of_line(line, privacy)
    unit, adversary = guarantee or ("client-run", "server")
    return Proven(
        epsilon=None, delta=0.0, unit=unit, adversary=adversary, conditions=privacy.warnings
    )


class SweepExperiment(KeptExperiment[Sweep]):
    """The runs of a sweep, as an experiment.

    Args:
        design: the design of the sweep.
        given: the data, if they are given.
        data_dir: the data folder.
        view: which guarantee and which metric to show for the runs.
    """

    kind = "sweep"
    grows = ("bases", "grid", "seeds")

    def __init__(
        self,
        design: Design,
        given: Dataset | None = None,
        data_dir: Path | None = None,
        view: View | None = None,
    ) -> None:
        self._design = design
        self.given = given
        self._view = view or View()
        self._all = runs_of(design, data_dir, given)
        self._runs = {run.digest: run for run in self._all if run.config is not None}
        tasks = {} if given is None else {"": Task("", Shared(lambda: given, travels=True), {})}
        self.maker = Maker(tasks, data_dir, design.device)
        made = [run.config for run in self._all if run.config is not None]
        self.configs = list({_strings(config): config for config in made}.values())
        if self._view.metric not in (None, *metrics_for(made)):
            known = ", ".join(metrics_for(made))
            raise ConfigError(f"metric {self._view.metric}: choose {known}")

    def document(self) -> Document:
        """Return its settings."""
        return document_of(self._design)

    def read_again(self, old: Document) -> Document:
        """Return an older document with the settings that there are now."""
        return document_of(design_from(Design, old, "sweep"))

    def lacks(self, old: Document) -> str | None:
        """Return what it lacks of another sweep."""
        varied = self.read_again(old)["grid"]
        if set(varied) != set(self._design.grid):
            return f"varies {', '.join(varied) or 'no setting'}"
        return super().lacks(old)

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
        return f"{in_short(row['metrics'])}  {row['seconds']:.1f} s"

    def view(self, store: RunStore, folder: Path | None) -> Sweep:
        """Return what the rows so far say, and write it."""
        of_settings: dict[str, list[PlannedRun]] = {}
        for run in self._all:
            of_settings.setdefault(in_words(run.labels["settings"]), []).append(run)
        groups = [self._combination(runs, store) for runs in of_settings.values()]
        private = any(each.on.is_private for each in groups)
        reasons = [(run, _reason(run, store)) for run in self._all]
        failed = [
            {"settings": dict(run.labels["settings"]), "seed": run.labels["seed"], "reason": reason}
            for run, reason in reasons
            if reason is not None
        ]
        releases = {
            run.labels["recipe"]: tuple(told)
            for run in self._all
            if run.config is not None
            and run.digest in store.rows
            and (told := run.config.composition.local.private_scores)
        }
        found = Sweep(
            groups=groups,
            out=folder,
            private_choice=private,
            private_scores=private,
            score_releases=releases,
            together=self._together(store),
            uncounted=len(store.rows.keys() - {run.digest for run in self._all}),
            failed=failed,
            metric=self._view.metric,
            missing=len(self._all) - len(failed) - sum(len(each.runs) for each in groups),
        )
        if folder is not None:
            found.write(folder)
        return found

    def _combination(self, runs: Sequence[PlannedRun], store: RunStore) -> Combination:
        """Return what the rows so far say of the runs with one combination of settings."""
        rows, each, tested_on, sums = [], [], [TestSet()], {}
        for run in runs:
            if run.config is None or run.digest not in store.rows:
                continue
            row = {**store.rows[run.digest], **run.labels}  # two recipes may share a run
            privacy = Statement.from_json(row["privacy"])
            asked = self._view.of_run(run.config)
            proven = shown_of(privacy, asked)
            if asked is None and (behind := behind_sums(privacy)) is not None:
                sums[proven] = behind
            tested_on.append(TestSet.of_run(row["metrics"], row["confusion"], privacy))
            rows.append(row)
            each.append(proven)
        settings = runs[0].labels["settings"]
        varied = {k: v for k, v in settings.items() if k != "recipe" or len(self._design.bases) > 1}
        return Combination(
            name=", ".join(map(text_of, varied.values())) or "each run",
            settings=settings,
            runs=rows,
            each=each,
            conditions=tuple(dict.fromkeys(fact for one in each for fact in one.conditions)),
            on=max(tested_on, key=lambda on: on.most_frequent or 0.0),
            refused=next(filter(None, (_reason(run, store) for run in runs)), None),
            behind_sums=sums,
        )

    def _together(self, store: RunStore) -> list[Together]:
        """Return what the runs on each data set cost together, those that failed among them."""
        released_by: dict[str, dict[str, Released]] = {}
        about: dict[tuple[str, Unit, Adversary], None] = {}
        for run in self._all:
            if run.config is None:
                continue
            row, data = store.rows.get(run.digest), _rows_of(run.config, self.given)
            if row is not None:
                privacy = Statement.from_json(row["privacy"])
                config = from_mapping(row["config"])
                if self.given is None:  # the folder and its table may have been moved
                    config = config.changed(
                        dataset=run.config.dataset, test_file=run.config.test_file
                    )
                found: Released | None = released(config, self._problem(config), privacy)
                proven = shown_of(privacy, self._view.of_run(run.config))
                if proven.epsilon is not None:
                    unit = proven.unit
                    whole: Unit = unit if unit in WHOLE_RUN else "client-run"
                    about[data, whole, proven.adversary] = None
            elif run.digest in store.failed:
                lost = isinstance(store.failed[run.digest], WorkerLost)
                found = self._as_planned(run.config, lost=lost)
            else:
                continue
            of_data = released_by.setdefault(data, {})
            if found is not None:
                of_data[run.digest] = found
        # Of data without any guarantee, say what whole runs cost.
        bare = released_by.keys() - {data for data, _, _ in about}
        about |= {(data, "client-run", "server"): None for data in released_by if data in bare}
        return [
            together(list(released_by[data].values()), unit, who, data) for data, unit, who in about
        ]

    def _as_planned(self, config: RunConfig, *, lost: bool) -> Released | None:
        """Return what a run that failed may have released: all that was planned, if anything was.

        Planning tries a user's own model, which is not safe where that may be what killed a worker:
        such a run counts as one that protects nothing.
        """
        if lost and is_address(config.model):
            nothing = Statement(claim=None, guarantees=())
            return Released(releases=ReleaseHistory({}), statement=nothing, at=lambda _: nothing)
        try:
            planned = plan(config, self._problem(config))
        except FedldpError:  # refused before any client was asked
            return None
        return released(planned.config, planned.problem, planned.privacy)

    def _problem(self, config: RunConfig) -> Problem:
        if self.given is None:
            return problem_of(config, self.maker.data_dir)
        return problem_with(config, self.given, self.maker.data_dir)


def _reason(run: PlannedRun, store: RunStore) -> str | None:
    """Return why a run was refused or failed; None if it was not."""
    failed = store.failed.get(run.digest)
    return run.refused if failed is None else one_line(failed)


def sweep_in(folder: Path, means: Means, view: View | None = None) -> SweepExperiment:
    """Return the sweep in a folder, as it would be made now.

    Raises:
        RunError: there is no sweep, its file is damaged, or it used data given in Python.
    """
    design = design_from(Design, settings_of(folder, "sweep"), "sweep")
    if design.own_data is not None:
        raise of_given_data(folder, "sweep")
    return SweepExperiment(design, None, means.data_dir, view)


def _strings(config: RunConfig) -> tuple[str, ...]:
    """Return a configuration's strings, which alone can name own code or tables."""
    return tuple(each for each in config.model_dump().values() if isinstance(each, str))


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _rows_of(config: RunConfig, given: Dataset | None) -> str:
    """Return what names the rows of a run: a file has one name, however its path is written."""
    if given is not None:
        return given.name
    own = is_own_file(config.dataset)
    return os.path.relpath(os.path.realpath(config.dataset)) if own else config.dataset


def _values(name: str, values: Iterable[Any]) -> list[Any]:
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise ConfigError(f"{name} = {values}: give a list of values")
    return [_plain(name, value) for value in values]


def _plain(name: str, value: Any) -> Any:
    """Return a value as files store it: NumPy values become Python numbers and lists.

    Raises:
        ConfigError: it does not consist of numbers, strings, lists and mappings.
    """
    plain = value.tolist() if hasattr(value, "tolist") else value
    try:
        json.dumps(plain, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{name} = {plain}: a sweep writes its settings to a file; give a number, a string or "
            "a list"
        ) from error
    return plain
