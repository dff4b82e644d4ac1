"""Carries out the runs of a comparison under the rule of equal guarantees and equal effort."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from fedldp.accounting.proven import Released
from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError, Diverged, PrivacyError
from fedldp.core.facts import Fact
from fedldp.core.kinds import SCORES_LOGGED
from fedldp.data import SUFFIXES, Dataset
from fedldp.experiments.comparing.cells import Cell, Contestant, Task, Try
from fedldp.experiments.comparing.results import METRICS, Results, Row, choose, where
from fedldp.experiments.held_out import held_out, with_clients
from fedldp.experiments.proving import (
    BUDGETS,
    Budgets,
    ComparisonError,
    alike_in_privacy,
    checked,
    proven,
)
from fedldp.reporting import words
from fedldp.reporting.scores import final_of
from fedldp.simulation.identity import digest_of_data, run_digest
from fedldp.simulation.plan import plan, problem_with, released

Purpose = Literal["tried", "measured"]

Named = TypeVar("Named", Contestant, Task)

_SHOWN = (*BUDGETS, "clip", "range_radius", "learning_rate")
"""The settings that a line of results records if the run's system has them."""


class Comparison:
    """Contestants, tasks, and the seeds on which they are tried and measured.

    Attributes:
        contestants: the contestants, by name.
        tasks: the tasks, by name.
        chosen_on: the seed on which hyperparameters are chosen.
        seeds: the seeds to measure.
        metric: the metric by which tries are chosen, one of ``METRICS``.
    """

    def __init__(
        self,
        contestants: Iterable[Contestant],
        tasks: Iterable[Task],
        *,
        chosen_on: int = 100,
        seeds: Sequence[int] = (0, 1, 2),
        seeds_of_small: Sequence[int] | None = None,
        metric: str = "accuracy",
        fewer_tries: Literal["refused", "allowed"] = "refused",
        data_dir: Path | None = None,
    ) -> None:
        """Check that the comparison is fair.

        Args:
            contestants: the contestants, any number.
            tasks: the tasks, any number.
            chosen_on: the seed on which hyperparameters are chosen.
            seeds: the seeds to measure.
            seeds_of_small: the seeds at an epsilon of 1 or less, where accuracy varies more; with
                None, the same seeds.
            metric: the metric by which tries are chosen, one of ``METRICS``.
            fewer_tries: whether contestants may have different numbers of tries. If so, any display
                of the result must say this.
            data_dir: the data folder, for data that runs load in addition to their task's data.

        Raises:
            ConfigError: a name occurs twice, contestants have different numbers of tries,
                hyperparameters are chosen on a measured seed, or there is no such metric.
        """
        self.contestants = _by_name("contestant", contestants)
        self.tasks = _by_name("task", tasks)
        self.chosen_on = chosen_on
        self.seeds = tuple(seeds)
        self.metric = metric
        self._data_dir = data_dir
        self._seeds_of_small = self.seeds if seeds_of_small is None else tuple(seeds_of_small)
        self._budgets = Budgets()
        self._digests: dict[tuple[Cell, str, int, Purpose], str] = {}
        self._held_out: tuple[tuple[str, int, int], Dataset] | None = None
        self._released: dict[tuple[str, Problem], Released] = {}
        for each in (self.seeds, self._seeds_of_small):
            if chosen_on in each or len(set(each)) < len(each):
                raise ConfigError(
                    f"seeds = {list(each)}, chosen_on = {chosen_on}: give every seed once, and "
                    "choose on a seed that is not measured"
                )
        if metric not in METRICS:
            raise ConfigError(f"metric = {metric}: choose {', '.join(METRICS)}")
        numbers = {each.name: len(each.tries) for each in self.contestants.values()}
        if len(set(numbers.values())) > 1 and fewer_tries == "refused":
            told = ", ".join(f"{name} {number}" for name, number in numbers.items())
            raise ConfigError(
                f"tries: give all contestants the same number of tries; they have: {told}"
            )

    def cells(self, clients: Sequence[int], epsilons: Sequence[float]) -> list[Cell]:
        """Return all cells, ordered by task, number of clients, epsilon and contestant.

        A contestant that is not calibrated has one cell per task and number of clients, at epsilon
        0.
        """
        found = [
            Cell(task, number, each.name, epsilon if each.is_calibrated else 0.0)
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

    # A run

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
        config = contestant.configure(shared, attempt)
        if not contestant.is_calibrated:
            return config
        return config.changed(target=contestant.guarantee.target(cell.epsilon).model_dump())

    def digest(self, cell: Cell, attempt: Try, seed: int, purpose: Purpose) -> str:
        """Return the digest of everything that determines a run; see ``simulation.identity``.

        Args:
            cell: the run's cell.
            attempt: its hyperparameters.
            seed: the run's seed.
            purpose: whether it is tried or measured.
        """
        key = (cell, json.dumps(dict(attempt), sort_keys=True), seed, purpose)
        if key not in self._digests:  # pages ask for the digests of all lines repeatedly
            self._digests[key] = self._digest(cell, attempt, seed, purpose)
        return self._digests[key]

    def _digest(self, cell: Cell, attempt: Try, seed: int, purpose: Purpose) -> str:
        try:
            config = self.configuration(cell, attempt, seed)
        except ConfigError:  # the run's line will report the error
            refused = json.dumps([asdict(cell), dict(attempt), seed, purpose], sort_keys=True)
            return hashlib.sha256(refused.encode()).hexdigest()[:32]
        task = self._task_of(cell)
        return run_digest(
            config,
            digest_of_data(task.load(), config, self._data_dir),
            part=", ".join(filter(None, [task.part, self._held_out_of(task, purpose)])),
            code=self.contestant(cell).code,
        )

    def data_for(self, cell: Cell, purpose: Purpose, seed: int) -> Dataset:
        """Return the data on which clients train and the model is tested.

        A try is tested on a part of the training set that no client then has (``held_out``), or on
        whole clients if the task says how its data are divided. The test set is only for measured
        runs.
        """
        task = self._task_of(cell)
        data = task.load()
        if purpose != "tried":
            return data
        key = (task.name, cell.clients, seed)
        if self._held_out is None or self._held_out[0] != key:
            if task.divided is not None:
                data = with_clients(data, task.divided, cell.clients, task.num_examples, seed)
            self._held_out = key, held_out(data, seed)
        return self._held_out[1]

    def _task_of(self, cell: Cell) -> Task:
        """Return the task whose data a cell uses."""
        return self.tasks[self.contestant(cell).data_of or cell.task]

    def _data_words(self, cell: Cell, purpose: Purpose) -> str:
        """Return a description of a line's data."""
        task = self._task_of(cell)
        less = self._held_out_of(task, purpose)
        return f"{purpose}: {task.load().name}{less and f', less {less}'}"

    def _held_out_of(self, task: Task, purpose: Purpose) -> str:
        """Return in words what is held out of the training set to choose a try; else nothing."""
        if purpose != "tried":
            return ""
        return "a held-out part" if task.divided is None else "clients that are held out"

    def calibrated(self, cell: Cell, config: RunConfig, data: Dataset) -> RunConfig:
        """Return a configuration without a target, whose budget meets the cell's epsilon.

        Raises:
            ConfigError: no budget meets it, or the settings are incompatible.
        """
        return self._budgets.calibrated(
            self.contestant(cell), config, problem_with(config, data, self._data_dir)
        )

    def known(
        self, results: Results, cell: Cell, attempt: Try, purpose: Purpose, seed: int
    ) -> Row | None:
        """Return the line of a run if the results have it."""
        return results.find(self.digest(cell, attempt, seed, purpose), asdict(cell))

    def made(self, cell: Cell, attempt: Try, purpose: Purpose, seed: int) -> Row:
        """Make a run, and return its line.

        The line records the cell, the purpose, the seed, the try, the data and a digest of all
        these. It records the "accuracy" (0 to 1), the "auc" if it is defined, and other "metrics",
        or else why the run was "refused". It also records the run's statement as "privacy", the
        epsilon that is "proven", if its contestant is calibrated, and seconds, versions and
        hardware. A run is refused if its
        settings are incompatible, if its training diverges, or if its update is not finite; in the
        first of these cases "begun" is false.

        Raises:
            ComparisonError: the run's statement proves less than the cell's label says. If this is
                known before training, the run is not trained.
        """
        from fedldp.simulation.engine import simulate  # imports torch

        data = self.data_for(cell, purpose, seed)
        row: Row = {"cell": asdict(cell), "purpose": purpose, "seed": seed, "try": dict(attempt)}
        row |= {"accuracy": None, "refused": None}
        start, worked = time.perf_counter(), time.process_time()
        row["data"] = self._data_words(cell, purpose)
        row["digest"] = self.digest(cell, attempt, seed, purpose)
        contestant = self.contestant(cell)
        try:
            config = _fitted(self.configuration(cell, attempt, seed), self._task_of(cell), data)
            config = self.calibrated(cell, config, data)
            planned = plan(config, problem_with(config, data, self._data_dir))
            if contestant.is_calibrated:
                # Check before training, so that a cell with a wrong epsilon costs no time.
                checked(cell, contestant.guarantee, planned.privacy)
            row["settings"] = {name: getattr(config, name) for name in _SHOWN
                               if hasattr(config, name)}  # fmt: skip
            row["privacy"] = planned.privacy.to_json()
            result = simulate(_told(config, data), dataset=data, data_dir=self._data_dir)
            row["privacy"] = result.privacy.to_json()
            if contestant.is_calibrated:
                line = checked(cell, contestant.guarantee, result.privacy)
                row["proven"] = {"epsilon": line.epsilon, "delta": line.delta,
                                 "idealised": line.is_idealised,
                                 "stated_by": line.stated_by}  # fmt: skip
        except (ConfigError, Diverged, PrivacyError) as error:  # PrivacyError: non-finite update
            row |= {"refused": str(error), "begun": not isinstance(error, ConfigError)}
        else:
            row |= {"accuracy": result.accuracy, "auc": result.rounds[-1].auc, "begun": True}
            row["metrics"] = final_of(result.rounds[-1], result.most_frequent)
            row["doubts"] = [each.to_json() for each in result.doubts]
        whole = self._task_of(cell).load()
        if whole.scores_are_private or (purpose == "tried" and not whole.is_public):
            row["note"] = words.line(SCORES_LOGGED)
        row["seconds"] = round(time.perf_counter() - start, 2)
        row["cpu_seconds"] = round(time.process_time() - worked, 2)
        return row | where()

    # Current results

    def is_current(self, row: Row) -> bool:
        """Return whether a line belongs to the current contestants, tries and settings."""
        return self._is_known(row) and row["try"] in self.contestant(Cell(**row["cell"])).tries

    def _is_known(self, row: Row) -> bool:
        """Return whether the current contestants and settings would make a line's run."""
        cell = Cell(**row["cell"])
        if cell.contestant not in self.contestants or cell.task not in self.tasks:
            return False
        digest = self.digest(cell, row["try"], row["seed"], row["purpose"])
        return bool(row["digest"] == digest)

    def released(self, row: Row) -> Released | None:
        """Return what a line's run released, or None if that is not known.

        A reference protects nothing here, whatever its statement has: its noise was not chosen.
        It is not known for runs of other settings or code; nor for lines of older versions, which
        lack statements, if the statement is slow to compute or the run did not end.
        """
        if not self._is_known(row) or "settings" not in row:
            return None
        cell = Cell(**row["cell"])
        data = self.data_for(cell, row["purpose"], row["seed"])
        config = self.configuration(cell, row["try"], row["seed"])
        config = _fitted(config, self._task_of(cell), data)
        budgets = {name: row["settings"][name] for name in BUDGETS if name in row["settings"]}
        config = alike_in_privacy(config.changed(target=None, **budgets))
        problem = problem_with(config, data, self._data_dir)
        key = config.model_dump_json(), problem
        if key not in self._released:
            if "privacy" not in row and not self.contestant(cell).quick_to_state:
                return None
            privacy = None if "privacy" not in row else Statement.from_json(row["privacy"])
            privacy = privacy or plan(config, problem).privacy
            whole = released(config, problem, privacy)
            self._released[key] = replace(whole, at=functools.cache(whole.at))
        found = self._released[key]
        if "privacy" in row:
            found = replace(found, statement=Statement.from_json(row["privacy"]))
        if not self.contestant(cell).is_calibrated:
            found = replace(found, statement=replace(found.statement, guarantees=()))
        return found

    def conditions(self, cell: Cell, runs: Sequence[Row]) -> tuple[Fact, ...] | None:
        """Return what the epsilons of a cell's runs rest on; None if that is not known of all."""
        contestant, found = self.contestant(cell), dict[Fact, None]()
        for row in runs:
            if (run := self.released(row)) is None:
                return None
            rests_on: Sequence[Fact] = run.statement.warnings
            if contestant.is_calibrated:
                rests_on = proven(run.statement, contestant.guarantee).conditions
            found |= dict.fromkeys(rests_on)
        return tuple(found)

    def standing(self, rows: Sequence[Row]) -> dict[Cell, list[Row]]:
        """Return the measured runs of each cell, with the hyperparameters that the rule chooses.

        A cell with a refused run gets an empty list, because the mean of the cell's other runs
        would be too favourable.

        Args:
            rows: lines that are current (``is_current``).

        Raises:
            ComparisonError: a run's proven epsilon is larger than its label.
        """
        for row in rows:
            self._check(row)
        return {
            cell: [] if any(row["refused"] for row in runs) else runs
            for cell, (_, runs) in self.by_cell(rows).items()
        }

    def refusals(self, rows: Sequence[Row]) -> dict[Cell, str]:
        """Return the cells without an accuracy, with the message of the first refused run.

        In such a cell every try was refused, or a measured run with the chosen try was refused.

        Args:
            rows: lines that are current (``is_current``).
        """
        found = {}
        for cell, (tries, runs) in self.by_cell(rows).items():
            whole = len(tries) == len(self.contestant(cell).tries)
            if whole and choose(tries, self.metric) is None:
                refused = [row["refused"] for row in tries if row["refused"]]
                found[cell] = refused[0] if refused else f"{self.metric} is not defined here"
            for row in runs:
                if row["refused"]:
                    found.setdefault(cell, f"seed {row['seed']}, {row['refused']}")
        return found

    def by_cell(self, rows: Sequence[Row]) -> dict[Cell, tuple[list[Row], list[Row]]]:
        """Return the tries of each cell, in order, and the runs with the chosen try."""
        found: dict[Cell, tuple[list[Row], list[Row]]] = {}
        for row in rows:
            if row["purpose"] == "tried":
                found.setdefault(Cell(**row["cell"]), ([], []))[0].append(row)
        for cell, (tries, _) in found.items():
            grid = list(self.contestant(cell).tries)
            tries.sort(key=lambda row: grid.index(row["try"]))
        chosen = {cell: choose(tries, self.metric) for cell, (tries, _) in found.items()}
        for row in rows:
            cell = Cell(**row["cell"])
            best = chosen.get(cell) if row["purpose"] == "measured" else None
            if best is not None and row["try"] == best["try"]:
                found[cell][1].append(row)
        return found

    def _check(self, row: Row) -> None:
        """Refuse a line that has an accuracy but does not prove its label's guarantee."""
        cell = Cell(**row["cell"])
        if row["accuracy"] is None or not cell.epsilon:
            return
        found, delta = row.get("proven"), self.contestant(cell).guarantee.delta
        if not found or found["epsilon"] > cell.epsilon or found["delta"] > delta:
            raise ComparisonError(
                f"run {row['digest']} of {cell.contestant}: {found} is proven, but its label is "
                f"{cell.epsilon:g}; remove the line and repeat the run"
            )


def _told(config: RunConfig, data: Dataset) -> RunConfig:
    """Return a configuration that names the user's own data only by the recorded description."""
    own_file = config.dataset.lower().endswith(SUFFIXES)
    return config if data.is_public or own_file else config.changed(dataset=data.name)


def _fitted(config: RunConfig, task: Task, data: Dataset) -> RunConfig:
    """Return a configuration for data that are already divided, with some clients held out."""
    if task.divided is None or data.clients is None:
        return config
    fields, clients = type(config).model_fields, len(data.clients)
    changes: dict[str, Any] = {
        name: fields[name].default
        for name in ("partition", "num_examples")
        if getattr(config, name) != fields[name].default
    }
    if config.num_clients != clients:
        changes["num_clients"] = clients
    if config.clients_per_round is not None and config.clients_per_round > clients:
        changes["clients_per_round"] = clients
    return config.changed(**changes) if changes else config


def _by_name(kind: str, given: Iterable[Named]) -> dict[str, Named]:
    found: dict[str, Named] = {}
    for each in given:
        if each.name in found:
            raise ConfigError(f"{kind} {each.name}: two have this name; rename one")
        found[each.name] = each
    return found
