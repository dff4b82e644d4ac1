"""The rule of equal guarantees and equal effort, as runs."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Literal, TypeVar

from fedldp.algorithms.config import RunConfig
from fedldp.comparing.cells import Cell, Contestant, Task, Try
from fedldp.comparing.held_out import held_out
from fedldp.comparing.proving import BUDGETS, Budgets, ComparisonError, checked, proven
from fedldp.comparing.results import Results, Row, choose, where
from fedldp.core.errors import ConfigError, Diverged, PrivacyError
from fedldp.data import Dataset
from fedldp.simulation.plan import plan, problem_with

Purpose = Literal["tried", "measured"]

Named = TypeVar("Named", Contestant, Task)

_SHOWN = (*BUDGETS, "clip", "range_radius", "learning_rate")
"""Settings that a line has, where its system has them."""


class Comparison:
    """Contestants, tasks, and the seeds on which they are tried and measured.

    Attributes:
        contestants: by name.
        tasks: by name.
        chosen_on: the seed on which hyperparameters are chosen.
        seeds: those that are measured.
    """

    def __init__(
        self,
        contestants: Iterable[Contestant],
        tasks: Iterable[Task],
        *,
        chosen_on: int = 100,
        seeds: Sequence[int] = (0, 1, 2),
    ) -> None:
        """Check that the comparison is fair.

        Args:
            contestants: any number of them.
            tasks: any number of them.
            chosen_on: the seed on which hyperparameters are chosen.
            seeds: those that are measured.

        Raises:
            ConfigError: a name is there twice, contestants have different numbers of tries, or
                hyperparameters are chosen on a seed that is measured.
        """
        self.contestants = _by_name("contestant", contestants)
        self.tasks = _by_name("task", tasks)
        self.chosen_on = chosen_on
        self.seeds = tuple(seeds)
        self._budgets = Budgets()
        self._digests: dict[tuple[Cell, str, int, str], str] = {}
        if chosen_on in self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(
                f"seeds = {list(self.seeds)}, chosen_on = {chosen_on}: give every seed once, and "
                "choose on one that is not measured"
            )
        numbers = {
            each.name: len(each.tries)
            for each in self.contestants.values()
            if each.role != "stated"
        }
        if len(set(numbers.values())) > 1:
            told = ", ".join(f"{name} {number}" for name, number in numbers.items())
            raise ConfigError(f"tries: give all contestants as many; there are: {told}")

    def cells(self, clients: Sequence[int], epsilons: Sequence[float]) -> list[Cell]:
        """Return all cells, by task, number of clients, epsilon and contestant in this order.

        What is not calibrated has one cell for each task and number of clients, at epsilon 0.
        """
        found = [
            Cell(task, number, each.name, epsilon if each.is_calibrated else 0.0)
            for task, number, epsilon in itertools.product(self.tasks, clients, epsilons)
            for each in self.contestants.values()
        ]
        return list(dict.fromkeys(found))

    def contestant(self, cell: Cell) -> Contestant:
        """Return the contestant of a cell."""
        return self.contestants[cell.contestant]

    # A run

    def configuration(self, cell: Cell, attempt: Try, seed: int) -> RunConfig:
        """Return a cell's configuration, with a target in place of a budget.

        Raises:
            ConfigError: the settings do not go together.
        """
        contestant = self.contestant(cell)
        shared = {
            "standardise": False,  # the data are what the task loads
            **self.tasks[cell.task].settings,
            "num_clients": cell.clients,
            "delta": contestant.guarantee.delta,
            "seed": seed,
        }
        config = contestant.configure(shared, attempt)
        if not contestant.is_calibrated:
            return config
        return config.changed(target=contestant.guarantee.target(cell.epsilon).model_dump())

    def digest(self, cell: Cell, attempt: Try, seed: int, data: str) -> str:
        """Return a digest of all that decides a run: its full configuration and its data.

        A setting with its default is left out, so that a new setting makes no run worthless;
        ``RunConfig.semantics`` rises where a default or its meaning changes.

        Args:
            cell: of the run.
            attempt: its hyperparameters.
            seed: of the run.
            data: what the data are called, and what they are for.
        """
        key = (cell, json.dumps(dict(attempt), sort_keys=True), seed, data)
        if key not in self._digests:  # pages ask for those of all lines, again and again
            self._digests[key] = self._digest(cell, attempt, seed, data)
        return self._digests[key]

    def _digest(self, cell: Cell, attempt: Try, seed: int, data: str) -> str:
        settings: dict[str, Any] = {"cell": asdict(cell), "data": data}
        try:
            config = self.configuration(cell, attempt, seed)
        except ConfigError:  # that is then what the run's line says
            settings |= {"try": dict(attempt), "seed": seed}
        else:
            settings |= {"semantics": config.semantics, "seed": seed}
            settings["config"] = config.model_dump(mode="json", exclude_defaults=True)
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]

    def data_for(self, cell: Cell, purpose: Purpose, seed: int) -> Dataset:
        """Return what clients train on, and what the model is tested on.

        What is tried is tested on a part of the training set that no client then has
        (``held_out``); the test set is for what is measured, and nothing else.
        """
        data = self.tasks[self.contestant(cell).data_of or cell.task].load()
        return data if purpose == "measured" else held_out(data, seed)

    def calibrated(self, cell: Cell, config: RunConfig, data: Dataset) -> RunConfig:
        """Return a configuration whose budget meets the cell's epsilon, and without a target.

        Raises:
            ConfigError: no budget meets it, or the settings do not go together.
        """
        return self._budgets.calibrated(self.contestant(cell), config, data)

    def run_one(
        self, results: Results, cell: Cell, attempt: Try, purpose: Purpose, seed: int
    ) -> Row:
        """Return the line of one run, which is made if it is not there.

        It has the cell, the purpose, the seed, the try, the data and a digest of them all; the
        "accuracy" (0 to 1) and, where it is defined, the "auc", or why it was "refused"; what is
        "proven" of it, where its contestant is calibrated; seconds, versions and hardware. A run
        whose settings do not go together, whose training diverges or whose update is not finite is
        a line that is refused.

        Raises:
            ComparisonError: the run's statement proves less than the cell's label says. If that
                shows before it is trained, it is not trained; no line is added.
        """
        from fedldp.simulation.engine import simulate  # imports torch

        data = self.data_for(cell, purpose, seed)
        row: Row = {"cell": asdict(cell), "purpose": purpose, "seed": seed, "try": dict(attempt)}
        row |= {"accuracy": None, "refused": None}
        start, worked = time.perf_counter(), time.process_time()
        row["data"] = f"{purpose}: {data.name}"
        row["digest"] = self.digest(cell, attempt, seed, row["data"])
        known = results.find(row["digest"])
        if known is not None:
            return known
        contestant = self.contestant(cell)
        try:
            config = self.calibrated(cell, self.configuration(cell, attempt, seed), data)
            if contestant.is_calibrated:
                # Before it is trained: a cell whose figure is wrong costs no time.
                planned = plan(config, problem_with(config, data, None))
                checked(cell, contestant.guarantee, planned.privacy)
            result = simulate(_told(config, data), dataset=data)
            if contestant.is_calibrated:
                row["proven"] = asdict(checked(cell, contestant.guarantee, result.privacy))
        except (ConfigError, Diverged, PrivacyError) as error:  # the last: an update is not finite
            row["refused"] = str(error)
        else:
            row["accuracy"], row["auc"] = result.accuracy, result.rounds[-1].auc
            row["settings"] = {name: getattr(config, name) for name in _SHOWN
                               if hasattr(config, name)}  # fmt: skip
        row["seconds"] = round(time.perf_counter() - start, 2)
        row["cpu_seconds"] = round(time.process_time() - worked, 2)
        return results.add(row | where())

    def without_guarantee(self, results: Results, cell: Cell) -> Row:
        """Return the result of a contestant that proves nothing, and the reason.

        Raises:
            ConfigError: there is a guarantee after all.
        """
        contestant, seed = self.contestant(cell), self.seeds[0]
        data = self.data_for(cell, "measured", seed)
        attempt = contestant.tries[0]
        row: Row = {"cell": asdict(cell), "purpose": "stated", "seed": seed, "try": dict(attempt)}
        row |= {"data": f"stated: {data.name}", "accuracy": None}
        row["digest"] = self.digest(cell, attempt, seed, row["data"])
        known = results.find(row["digest"])
        if known is not None:
            return known
        config = self.configuration(cell, attempt, seed)
        privacy = plan(config, problem_with(config, data, None)).privacy
        try:
            found = proven(privacy, contestant.guarantee)
        except ConfigError as error:
            return results.add(row | {"refused": str(error)} | where())
        raise ConfigError(
            f"{cell.contestant}: its statement proves epsilon {found.epsilon:g} for the "
            f"{contestant.guarantee.unit}; give it the role calibrated"
        )

    # Many

    def chosen(
        self, results: Results, cell: Cell, go_on: Callable[[], bool] = lambda: True
    ) -> Try | None:
        """Return the hyperparameters of a cell; None where there are none, or no time is left."""
        tried = []
        for attempt in self.contestant(cell).tries:
            if not go_on():
                return None
            tried.append(self.run_one(results, cell, attempt, "tried", self.chosen_on))
        best = choose(tried)
        return None if best is None else dict(best["try"])

    def measure(
        self,
        results: Results,
        order: Sequence[Cell],
        go_on: Callable[[], bool] = lambda: True,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Measure cells, each whole before the next; what the results hold is not run again.

        Args:
            results: to which lines are added.
            order: the cells, in the order in which they are measured.
            go_on: asked before every run; where it says no, that was all.
            say: is told every run that was measured.

        Raises:
            ComparisonError: a run's statement proves less than its cell's label says.
        """
        for cell in order:
            if not go_on():
                return
            if self.contestant(cell).role == "stated":
                say(f"{cell}: {self.without_guarantee(results, cell)['refused']}")
                continue
            attempt = self.chosen(results, cell, go_on)
            for seed in self.seeds if attempt is not None else ():
                if not go_on():
                    return
                assert attempt is not None
                row = self.run_one(results, cell, attempt, "measured", seed)
                say(f"{cell} {attempt} seed {seed}: {row['accuracy']} in {row.get('seconds')} s")

    # What stands

    def is_current(self, row: Row) -> bool:
        """Return whether a line is of the contestants, tries and settings that are here now."""
        cell, attempt = Cell(**row["cell"]), row["try"]
        if cell.contestant not in self.contestants or cell.task not in self.tasks:
            return False
        if attempt not in self.contestant(cell).tries and row["purpose"] != "stated":
            return False
        return bool(row["digest"] == self.digest(cell, attempt, row["seed"], row["data"]))

    def standing(self, rows: Sequence[Row]) -> dict[Cell, list[Row]]:
        """Return the measured runs of each cell, with the hyperparameters that the rule chooses.

        A cell with a refused run has none: a mean of those that came through would flatter it.

        Args:
            rows: lines that are current (``is_current``).

        Raises:
            ComparisonError: a run's proven epsilon is above its label.
        """
        for row in rows:
            self._check(row)
        return {
            cell: [] if any(row["refused"] for row in runs) else runs
            for cell, (_, runs) in self._by_cell(rows).items()
        }

    def refusals(self, rows: Sequence[Row]) -> dict[Cell, str]:
        """Return the cells that have no accuracy, with what the first refused run says.

        Every try was refused, or a run that was measured with what had been chosen.

        Args:
            rows: lines that are current (``is_current``).
        """
        found = {}
        for cell, (tries, runs) in self._by_cell(rows).items():
            if len(tries) == len(self.contestant(cell).tries) and choose(tries) is None:
                found[cell] = tries[0]["refused"]
            for row in runs:
                if row["refused"]:
                    found.setdefault(cell, f"seed {row['seed']}, {row['refused']}")
        return found

    def _by_cell(self, rows: Sequence[Row]) -> dict[Cell, tuple[list[Row], list[Row]]]:
        """Return the tries of each cell, in their order, and the runs with the chosen one."""
        found: dict[Cell, tuple[list[Row], list[Row]]] = {}
        for row in rows:
            if row["purpose"] == "tried":
                found.setdefault(Cell(**row["cell"]), ([], []))[0].append(row)
        for cell, (tries, _) in found.items():
            grid = list(self.contestant(cell).tries)
            tries.sort(key=lambda row: grid.index(row["try"]))
        chosen = {cell: choose(tries) for cell, (tries, _) in found.items()}
        for row in rows:
            cell = Cell(**row["cell"])
            best = chosen.get(cell) if row["purpose"] == "measured" else None
            if best is not None and row["try"] == best["try"]:
                found[cell][1].append(row)
        return found

    def _check(self, row: Row) -> None:
        """Refuse a line that has an accuracy and is not proven to cost what its label says."""
        cell = Cell(**row["cell"])
        if row["accuracy"] is None or not cell.epsilon:
            return
        found, delta = row.get("proven"), self.contestant(cell).guarantee.delta
        if not found or found["epsilon"] > cell.epsilon or found["delta"] > delta:
            raise ComparisonError(
                f"run {row['digest']} of {cell.contestant}: proven is {found}, its label "
                f"is {cell.epsilon:g}; remove the line, and measure it again"
            )


def _told(config: RunConfig, data: Dataset) -> RunConfig:
    """Return a configuration that names data of the user's own, so that nothing else is said."""
    return config if data.is_public else config.changed(dataset=data.name)


def _by_name(kind: str, given: Iterable[Named]) -> dict[str, Named]:
    found: dict[str, Named] = {}
    for each in given:
        if each.name in found:
            raise ConfigError(f"{kind} {each.name}: two have this name; rename one")
        found[each.name] = each
    return found
