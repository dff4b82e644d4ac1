"""The rule of equal guarantees and equal effort: contestants, cells, their runs and their rows."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from fedldp.accounting.guarantees import HOUSE, Adversary, Unit
from fedldp.accounting.proven import Proven, Released, Together, together
from fedldp.accounting.statement import WHOLE_RUN, Statement
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError, FedldpError, one_line
from fedldp.data import Dataset
from fedldp.experiments.engine import Experiment, View
from fedldp.experiments.identity import digest_of_data, run_digest
from fedldp.experiments.making import Maker
from fedldp.experiments.own import code_of
from fedldp.experiments.proving import (
    BUDGETS,
    ComparisonError,
    GuaranteeKind,
    alike_in_privacy,
    checked,
)
from fedldp.experiments.runs import PlannedRun, Row, Settings, Task, check_seeds, score
from fedldp.experiments.store import RunStore
from fedldp.experiments.table import Group
from fedldp.reporting.scores import CHOSEN_BY, CHOSEN_BY_FOR_NUMBERS, LESS_IS_BETTER
from fedldp.simulation.plan import plan, problem_with, released

Try = Mapping[str, Any]
"""One choice of hyperparameters: plain values by name, as in JSON.

The values are either settings (``Contestant.of``), or ``Contestant.configure`` makes settings from
them.
"""


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """One system, with its configuration and its tries.

    Attributes:
        name: its name in tables; no two contestants of a comparison share a name.
        configure: makes its configuration from the settings that all contestants share in a cell
            (the task's settings, ``standardise``, ``num_clients``, ``delta``, ``seed``, and the
            ``target`` if it is calibrated) and from one try. The budget is solved for.
        tries: its candidate hyperparameters; if two have the same score, the earlier one is chosen.
        guarantee: the guarantee to which it is calibrated.
        reference: whether it runs unchanged, at epsilon 0, which means no guarantee; if not, its
            budget is solved for, so that its statement meets the cell's epsilon.
        as_it_is: whether it has one try, which is measured without being tried first.
        data_of: the task whose data it gets instead of the cell's data, if it has its own features;
            None for the cell's data.

    Raises:
        ConfigError: it has no tries, or has the same try twice.
    """

    name: str
    configure: Callable[[Settings, Try], RunConfig]
    tries: Sequence[Try]
    guarantee: GuaranteeKind
    reference: bool = False
    as_it_is: bool = False
    data_of: str | None = None

    def __post_init__(self) -> None:
        """Check the tries."""
        if not self.tries:
            raise ConfigError(f"contestant {self.name}: it has no tries; give at least one")
        for number, attempt in enumerate(self.tries):
            if attempt in self.tries[:number]:
                raise ConfigError(
                    f"contestant {self.name}: {dict(attempt)} is tried twice; leave one out"
                )

    @classmethod
    def of(
        cls,
        name: str,
        config: RunConfig,
        tries: Sequence[Try],
        guarantee: GuaranteeKind,
        reference: bool = False,
    ) -> Contestant:
        """Return a contestant with tries that change settings of ``config``.

        With a single try, the contestant is measured as it is.

        Raises:
            ConfigError: it has no tries, or has the same try twice.
        """
        return cls(
            name=name,
            configure=lambda shared, attempt: config.changed(**{**shared, **attempt}),
            tries=tries,
            guarantee=guarantee,
            reference=reference,
            as_it_is=len(tries) == 1,
        )


@dataclass(frozen=True)
class Cell:
    """One contestant, on one task, at one epsilon: one cell in a table.

    Attributes:
        task: the task's name.
        clients: the number of clients.
        contestant: the contestant's name.
        epsilon: the epsilon for the contestant's unit, adversary and delta; 0 if nothing is proven.
    """

    task: str
    clients: int
    contestant: str
    epsilon: float


@dataclass(frozen=True, kw_only=True)
class Line(Group):
    """What the rows so far say of a cell, whose budget was solved for; a reference has no epsilon.

    Its ``runs`` are the measured runs with the chosen try. There are none if one of them was
    refused, because the mean of the others would be too favourable.

    Attributes:
        seeds: the number of seeds to measure.
        tried: the tries so far, in order.
        of_tries: the largest number of tries that a contestant may have.
        as_it_is: whether it has one try, which is measured without being tried first.
        settled: whether the hyperparameters are chosen; if not, the run is a first answer, with
            those that usually do well.
        author: who states its epsilons if it has no run: "fedldp", or the user's own code.
    """

    seeds: int
    tried: Sequence[Row] = ()
    of_tries: int = 0
    as_it_is: bool = False
    settled: bool = True
    author: str = HOUSE

    @property
    def chosen(self) -> Try | None:
        """The chosen hyperparameters."""
        return self.runs[0]["try"] if self.runs else None

    @property
    def settings(self) -> dict[str, Any]:
        """The chosen hyperparameters, with the budget that was solved for."""
        chosen = self.chosen or {}
        made = self.runs[0]["settings"] if self.runs else {}
        return {**chosen, **{k: v for k, v in made.items() if v is not None and k not in chosen}}

    @property
    def is_whole(self) -> bool:
        """Whether all runs are measured."""
        return self.refused is not None or (self.settled and len(self.runs) >= self.seeds)

    @property
    def tries(self) -> int:
        """The number of candidate hyperparameters tried; incompatible ones do not count."""
        return int(self.as_it_is) or sum(bool(row.get("begun")) for row in self.tried)

    @property
    def cpu_seconds(self) -> float:
        """The CPU seconds of its tries and measured runs."""
        return sum(float(row["cpu_seconds"]) for row in (*self.tried, *self.runs))

    @property
    def stated_by(self) -> str:
        """Who states the epsilons: "fedldp", which proves them, or the user's own code."""
        found = dict.fromkeys(each.stated_by for each in self.each if each.epsilon is not None)
        return ", ".join(found) or self.author

    def by_seed(self, metric: str) -> dict[int, float]:
        """Return the value of a metric for each seed that has one."""
        pairs = zip(self.runs, map(partial(score, metric=metric), self.runs), strict=True)
        return {row["seed"]: value for row, value in pairs if value is not None}

    @property
    def stated(self) -> float | None:
        """The largest epsilon in the statements of its runs; None if none is stated."""
        return None if self.proven is None else self.proven.epsilon

    @property
    def proven_here(self) -> float | None:
        """The stated epsilon if fedldp proves it, else None."""
        return self.stated if self.stated_by == HOUSE else None

    @property
    def idealised(self) -> bool:
        """Whether that epsilon holds only for real numbers, and so only in simulation."""
        return any(each.is_idealised for each in self.each)

    @property
    def is_marked(self) -> bool:
        """Whether it has scores, but had fewer tries than allowed."""
        return bool(self.runs) and self.tries < self.of_tries


METRICS = tuple(dict.fromkeys((*CHOSEN_BY, *CHOSEN_BY_FOR_NUMBERS)))
"""The metrics by which tries are chosen and contestants compared."""


def choose(tried: Sequence[Row], metric: str = "accuracy") -> Row | None:
    """Return the try to measure: the one with the best score on held-out examples.

    If several have the same score, the first is chosen. Refused tries have no score; the result is
    None if all were refused.
    """
    done = [row for row in tried if score(row, metric) is not None]
    sign = -1 if metric in LESS_IS_BETTER else 1
    return max(done, key=lambda row: sign * (score(row, metric) or 0.0)) if done else None


Purpose = Literal["tried", "measured"]

CHOSEN_ON = 100
"""The seed on which tries are scored; it is never measured."""


class Comparison:
    """Contestants, tasks, and the seeds on which they are tried and measured.

    Attributes:
        contestants: the contestants, by name.
        tasks: the tasks, by name.
        seeds: the seeds to measure.
        metric: the metric by which tries are chosen, one of ``METRICS``.
        maker: makes the runs.
    """

    def __init__(
        self,
        contestants: Iterable[Contestant],
        tasks: Iterable[Task],
        *,
        seeds: Sequence[int] = (0, 1, 2),
        seeds_of_small: Sequence[int] | None = None,
        metric: str = "accuracy",
        data_dir: Path | None = None,
    ) -> None:
        """Check that the comparison is fair.

        Args:
            contestants: the contestants, with different names. If they have different numbers of
                tries, any display of the result must say this.
            tasks: the tasks, with different names.
            seeds: the seeds to measure.
            seeds_of_small: the seeds at an epsilon of 1 or less, where accuracy varies more; with
                None, the same seeds.
            metric: the metric by which tries are chosen, one of ``METRICS``.
            data_dir: the data folder, for data that runs load in addition to their task's data.

        Raises:
            ConfigError: hyperparameters are chosen on a measured seed, or there is no such metric.
        """
        self.contestants = {each.name: each for each in contestants}
        self.tasks = {each.name: each for each in tasks}
        self.seeds = tuple(seeds)
        self.metric = metric
        self.maker = Maker(self.tasks, data_dir)
        self._seeds_of_small = self.seeds if seeds_of_small is None else tuple(seeds_of_small)
        self._runs: dict[tuple[Cell, str, Purpose, int], PlannedRun] = {}
        self._released: dict[tuple[str, Problem], Released] = {}
        for each in (self.seeds, self._seeds_of_small):
            check_seeds(each, CHOSEN_ON)
        if metric not in METRICS:
            raise ConfigError(f"metric = {metric}: choose {', '.join(METRICS)}")

    def cells(self, clients: Sequence[int], epsilons: Sequence[float]) -> list[Cell]:
        """Return all cells, ordered by task, number of clients, epsilon and contestant.

        A contestant that is not calibrated has one cell per task and number of clients, at epsilon
        0.
        """
        found = [
            Cell(task, number, each.name, 0.0 if each.reference else epsilon)
            for task, number, epsilon in itertools.product(self.tasks, clients, epsilons)
            for each in self.contestants.values()
        ]
        return list(dict.fromkeys(found))

    def seeds_of(self, cell: Cell) -> tuple[int, ...]:
        """Return the seeds on which a cell is measured."""
        return self._seeds_of_small if 0 < cell.epsilon <= 1 else self.seeds

    def contestant(self, cell: Cell) -> Contestant:
        """Return the contestant of a cell."""
        return self.contestants[cell.contestant]

    # Which runs there are

    def run(self, cell: Cell, attempt: Try, purpose: Purpose, seed: int) -> PlannedRun:
        """Return a run of a cell.

        Args:
            cell: the run's cell.
            attempt: its hyperparameters.
            purpose: whether it is tried or measured.
            seed: the run's seed.
        """
        key = (cell, json.dumps(dict(attempt), sort_keys=True), purpose, seed)
        if key not in self._runs:  # plans and tables ask for the same runs repeatedly
            self._runs[key] = self._run(cell, attempt, purpose, seed)
        return self._runs[key]

    def tries(self, cell: Cell) -> list[PlannedRun]:
        """Return the runs that try the hyperparameters of a cell, in order."""
        tries = () if self.contestant(cell).as_it_is else self.contestant(cell).tries
        return [self.run(cell, attempt, "tried", CHOSEN_ON) for attempt in tries]

    def is_tried(self, cell: Cell, known: Mapping[str, Row]) -> bool:
        """Return whether all tries of a cell are in."""
        return all(run.digest in known for run in self.tries(cell))

    def chosen(self, cell: Cell, known: Mapping[str, Row]) -> Try | None:
        """Return the best try of a cell, or None if there is none or some tries are still missing.

        Args:
            cell: the cell.
            known: the rows so far, by digest.
        """
        if self.contestant(cell).as_it_is:
            return self.contestant(cell).tries[0]
        rows = [known.get(run.digest) for run in self.tries(cell)]
        found = [row for row in rows if row is not None]
        best = choose(found, self.metric) if len(found) == len(rows) else None
        return None if best is None else self.contestant(cell).tries[rows.index(best)]

    def measured(self, cell: Cell, known: Mapping[str, Row]) -> list[PlannedRun]:
        """Return the runs that measure a cell's chosen try; none if no try is chosen yet."""
        best = self.chosen(cell, known)
        seeds = () if best is None else self.seeds_of(cell)
        return [self.run(cell, best or {}, "measured", seed) for seed in seeds]

    def configuration(self, cell: Cell, attempt: Try, seed: int) -> RunConfig:
        """Return a cell's configuration, with a target instead of a budget.

        Raises:
            ConfigError: the settings are incompatible.
        """
        contestant = self.contestant(cell)
        shared = {
            "standardise": False,  # use the data as the task loads them
            **self.tasks[cell.task].settings,
            "num_clients": cell.clients,
            "delta": contestant.guarantee.delta,
            "seed": seed,
        }
        if not contestant.reference:
            shared["target"] = contestant.guarantee.target(cell.epsilon).model_dump()
        return contestant.configure(shared, attempt)

    def _run(self, cell: Cell, attempt: Try, purpose: Purpose, seed: int) -> PlannedRun:
        contestant, tried = self.contestant(cell), purpose == "tried"
        task = self.tasks[contestant.data_of or cell.task]
        labels = {"cell": asdict(cell), "purpose": purpose, "seed": seed, "try": dict(attempt)}
        config, refused = None, None
        try:
            config = self.configuration(cell, attempt, seed)
            digest = run_digest(
                config,
                digest_of_data(task.load(), config, self.maker.data_dir),
                part=", ".join(filter(None, [task.part, task.words(tried)])),
                code=code_of(config),
            )
        except ConfigError as error:
            refused = str(error)
            text = json.dumps([labels[key] for key in ("cell", "try", "seed", "purpose")],
                              sort_keys=True)  # fmt: skip
            digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        at = "" if not cell.epsilon else f", epsilon {cell.epsilon:g}"
        return PlannedRun(
            digest=digest,
            words=f"{cell.contestant}{at}, {purpose} {_words(attempt)}, seed {seed}",
            labels=labels,
            config=config,
            refused=refused,
            task=task.name,
            held_out=tried,
            calibrated=not contestant.reference,
            decides=tried,
        )

    # What rows say

    def released(self, row: Row) -> Released | None:
        """Return what a row's run released, or None if that is not known.

        A reference protects nothing here, whatever its statement has: its noise was not chosen.
        It is not known for runs of other settings or code; nor for rows of older versions, which
        lack statements, if the run did not end.
        """
        run = self.planned(row)
        if run is None or "settings" not in row:
            return None
        budgets = {name: row["settings"][name] for name in BUDGETS if name in row["settings"]}
        config = alike_in_privacy(self.maker.fitted(run).changed(target=None, **budgets))
        problem = problem_with(config, self.maker.data_for(run), self.maker.data_dir)
        key = config.model_dump_json(), problem
        privacy = None if "privacy" not in row else Statement.from_json(row["privacy"])
        if key not in self._released:
            whole = released(config, problem, privacy or plan(config, problem).privacy)
            self._released[key] = replace(whole, at=cache(whole.at))
        found = self._released[key]
        if privacy is not None:
            found = replace(found, statement=privacy)
        if not run.calibrated:
            found = replace(found, statement=replace(found.statement, guarantees=()))
        return found

    def planned(self, row: Row) -> PlannedRun | None:
        """Return the run that the current contestants and settings would make of a row's labels.

        None if they would make no such run, or another one.
        """
        cell = Cell(**row["cell"])
        if cell.contestant not in self.contestants or cell.task not in self.tasks:
            return None
        run = self.run(cell, row["try"], row["purpose"], row["seed"])
        return run if run.digest == row["digest"] else None

    def proven(self, cell: Cell, row: Row) -> Proven:
        """Return what is proven for a measured run; of a reference, no epsilon.

        Raises:
            ComparisonError: its statement, which is made anew for a row of an older version, proves
                less than its label.
        """
        run, contestant = self.released(row), self.contestant(cell)
        assert run is not None  # a run of a cell is one that would be made now
        if not contestant.reference:
            try:
                return checked(contestant.guarantee.target(cell.epsilon), run.statement)
            except FedldpError as error:
                raise ComparisonError(_unproven(row, cell, str(error))) from error
        kind, warnings = contestant.guarantee, run.statement.warnings
        return Proven(epsilon=None, delta=kind.delta, unit=kind.unit, adversary=kind.adversary,
                      conditions=warnings)  # fmt: skip

    def result(
        self,
        cell: Cell,
        known: Mapping[str, Row],
        failed: Mapping[str, Exception] = MappingProxyType({}),
    ) -> Line:
        """Return what the rows so far say of a cell, with the try that the rule chooses.

        Args:
            cell: the cell.
            known: the rows so far, by digest.
            failed: why runs could not be made, by digest.

        Raises:
            ComparisonError: a run's proven epsilon is larger than its label.
        """
        planned = [*self.tries(cell), *self.measured(cell, known)]
        rows = [known[run.digest] for run in planned if run.digest in known]
        for row in rows:
            self.check(cell, row)
        tries = [row for row in rows if row["purpose"] == "tried"]
        runs = [row for row in rows if row["purpose"] == "measured"]
        broken = (
            f"failed: {one_line(failed[run.digest])}" for run in planned if run.digest in failed
        )
        refused = None if runs else next(broken, None)
        if len(tries) == len(self.contestant(cell).tries) and choose(tries, self.metric) is None:
            why = (row["refused"] for row in tries if row["refused"])
            refused = next(why, f"{self.metric} is not defined here")
        for row in runs:
            if row["refused"]:
                refused = refused or f"seed {row['seed']}, {row['refused']}"
        runs = [] if refused else runs
        return Line(
            name=cell.contestant,
            epsilon=cell.epsilon or None,
            runs=runs,
            each=[self.proven(cell, row) for row in runs],
            refused=refused,
            seeds=len(self.seeds_of(cell)),
            tried=tries,
            as_it_is=self.contestant(cell).as_it_is,
        )

    def check(self, cell: Cell, row: Row) -> None:
        """Refuse the row of a finished run that does not prove its label's guarantee.

        Raises:
            ComparisonError: it proves less.
        """
        if row["refused"] or not cell.epsilon:
            return
        found, delta = row.get("proven"), self.contestant(cell).guarantee.delta
        if not found or found["epsilon"] > cell.epsilon or found["delta"] > delta:
            why = f"{found} is proven, but its label is {cell.epsilon:g}"
            raise ComparisonError(_unproven(row, cell, why))


class Cells(Experiment[View]):
    """The runs of cells of a comparison.

    Args:
        comparison: the contestants.
        cells: what is measured of them.
        design: the settings of the experiment, if it has a folder.
        given: the data of all contestants, if they are given.

    Attributes:
        dataset: these data, or those that were loaded; of an experiment that has a folder.
    """

    dataset: Dataset

    def __init__(
        self,
        comparison: Comparison,
        cells: Sequence[Cell],
        design: Any = None,
        given: Dataset | None = None,
    ) -> None:
        self.comparison, self.cells = comparison, cells
        self.design, self.given = design, given
        self.maker = comparison.maker

    def due(self, known: Mapping[str, Row]) -> Iterator[PlannedRun]:
        """Yield the runs that are decided, epsilon by epsilon, whether or not they are known.

        All contestants' tries come first, then all their seeds, so that the results are always
        about equally complete for all contestants.
        """
        of = self.comparison
        for epsilon in dict.fromkeys(cell.epsilon for cell in self.cells):
            here = [cell for cell in self.cells if cell.epsilon == epsilon]
            yield from in_turn(map(of.tries, here))
            yield from in_turn([of.measured(cell, known) for cell in here])

    def total(self, known: Mapping[str, Row]) -> int:
        """Return how many runs there are; a cell whose tries are all refused has fewer."""
        tries = {run.digest for cell in self.cells for run in self.comparison.tries(cell)}
        return len(tries) + sum(len(self.comparison.seeds_of(cell)) for cell in self.cells)

    def outcome(self, row: Row) -> str:
        """Return a run's score in words, in the metric that is compared."""
        found, metric = score(row, self.comparison.metric), self.comparison.metric
        if row["refused"] or found is None:
            return f"refused: {row['refused']}" if row["refused"] else f"{metric} is not defined"
        return f"{100 * found:.2f} %" if metric == "accuracy" else f"{metric} {found:.4f}"

    def planned(self, row: Row) -> PlannedRun | None:
        """Return the run that the contestants would make now of a row's labels."""
        return self.comparison.planned(row)

    def check(self, row: Row) -> None:
        """Refuse a row that does not prove its label's guarantee, or whose statement does not."""
        cell = Cell(**row["cell"])
        self.comparison.check(cell, row)
        if not row["refused"]:
            self.comparison.proven(cell, row)

    def cost(
        self, store: RunStore, shown: Sequence[tuple[Unit, Adversary]]
    ) -> tuple[list[Together], int]:
        """Return what all runs in the store cost together, and how many have other settings.

        Args:
            store: the rows.
            shown: the units and adversaries; a unit that covers one round becomes the whole run.

        Returns:
            The costs by unit and adversary, and the number of runs whose releases are unknown.
        """
        rows = [row for row in store.rows.values() if row.get("begun", True)]
        found = [each for row in rows if (each := self.comparison.released(row)) is not None]
        pairs = {(unit if unit in WHOLE_RUN else "client-run", who): None for unit, who in shown}
        costs = [together(found, unit, who, self.dataset.name) for unit, who in pairs if found]
        return costs, len(rows) - len(found)


def in_turn(lists: Iterable[Sequence[PlannedRun]]) -> Iterator[PlannedRun]:
    """Yield the first of each list, then the second of each, and so on."""
    for found in itertools.zip_longest(*lists):
        yield from filter(None, found)


def _unproven(row: Row, cell: Cell, why: str) -> str:
    return f"run {row['digest']} of {cell.contestant}: {why}; remove the line and repeat the run"


def _words(attempt: Try) -> str:
    return ", ".join(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
                     for name, value in attempt.items())  # fmt: skip
