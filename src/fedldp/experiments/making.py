"""Makes one run, and its row."""

from __future__ import annotations

import json
import platform
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import (
    ConfigError,
    Diverged,
    FedldpError,
    PrivacyError,
    RunError,
    first_line,
)
from fedldp.core.kinds import SCORES_LOGGED
from fedldp.core.registry import naming_own_code
from fedldp.data import Dataset, is_own_file
from fedldp.experiments.held_out import held_out, with_clients
from fedldp.experiments.proving import BUDGETS, Budgets, checked
from fedldp.experiments.runs import PlannedRun, Row, Task
from fedldp.reporting import words
from fedldp.reporting.record import RunFolder, environment
from fedldp.reporting.scores import final_of
from fedldp.simulation.plan import early_plan, plan, problem_with

if TYPE_CHECKING:
    from fedldp.protocol.server_loop import Round
    from fedldp.simulation.result import Result

_SHOWN = (*BUDGETS, "clip", "range_radius", "learning_rate")
"""The settings that a row records if the run's system has them."""


@dataclass(eq=False)
class Maker:
    """Makes runs, in this process or in another; it can be pickled.

    Attributes:
        tasks: the tasks by name; empty if each run loads the data that its configuration names.
        data_dir: the data folder.
        device: the device that trains.
        workers: the number of processes for each run that is not small.
    """

    tasks: Mapping[str, Task] = field(default_factory=dict)
    data_dir: Path | None = None
    device: str = "cpu"
    workers: int = 1
    _budgets: Budgets = field(default_factory=Budgets, init=False)
    _held_out: tuple[Any, Dataset] | None = field(default=None, init=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that another process needs; it solves budgets for itself."""
        return {**vars(self), "_budgets": Budgets(), "_held_out": None}

    def attempt(self, run: PlannedRun, place: Path | None) -> Row | Exception:
        """Return the row of a run, or the error that prevented it."""
        made: list[Row] = []
        return attempted(lambda: made.append(self.make(run, place))) or made[0]

    def make(self, run: PlannedRun, place: Path | None = None) -> Row:
        """Make a run, and return its row.

        The row has the run's labels and digest, the "accuracy" (0 to 1; None for numbers), the
        "auc" if it is defined, and other "metrics", or else why the run was "refused". It also
        records the run's statement as "privacy", the epsilon that is "proven", if the run is
        calibrated, and seconds, versions and hardware. A run is refused if its settings are
        incompatible, if its training diverges, or if its update is not finite; in the first of
        these cases "begun" is false.

        The row of a run that keeps its folder names the folder, and repeats none of its numbers.

        Args:
            run: the run.
            place: the folder of a run that keeps it; an unfinished run there is continued.

        Raises:
            ComparisonError: the run's statement proves less than its target. If this is known
                before training, the run is not trained.
            FedldpError: a run that keeps its folder was refused.
        """
        if place is not None:
            return self._in_folder(run, place)
        row: Row = {**run.labels, "accuracy": None, "refused": None, "digest": run.digest}
        start, worked = time.perf_counter(), time.process_time()
        task = self.tasks[run.task]
        whole, data = task.load(), self.data_for(run)
        row["data"] = _data_words(run, task, whole)
        try:
            config = self.calibrated(run)
            planned = plan(config, problem_with(config, data, self.data_dir))
            asked = run.config.target if run.calibrated and run.config is not None else None
            if asked is not None:  # before training, so that a wrong epsilon costs no time
                checked(asked, planned.privacy)
            row["settings"] = {name: getattr(config, name) for name in _SHOWN
                               if hasattr(config, name)}  # fmt: skip
            row["privacy"] = planned.privacy.to_json()
            result = self._simulated(_told(config, data), data)
            row["privacy"] = result.privacy.to_json()
            if asked is not None:
                line = checked(asked, result.privacy)
                row["proven"] = {"epsilon": line.epsilon, "delta": line.delta,
                                 "idealised": line.is_idealised,
                                 "stated_by": line.stated_by}  # fmt: skip
        except (ConfigError, Diverged, PrivacyError) as error:  # PrivacyError: non-finite update
            row |= {"refused": str(error), "begun": not isinstance(error, ConfigError)}
        else:
            of_numbers = config.label_range is not None
            row |= {"accuracy": None if of_numbers else result.accuracy,
                    "auc": result.rounds[-1].auc, "begun": True}  # fmt: skip
            row["metrics"] = final_of(result.rounds[-1], result.most_frequent)
            row["doubts"] = [each.to_json() for each in result.doubts]
            if not run.held_out and not run.keeps_predictions:
                row["by_round"] = _by_round(result)
            if run.keeps_predictions:
                row["predicted"] = _predicted(result, data.test.features)
        if whole.scores_are_private or (run.held_out and not whole.is_public):
            row["note"] = words.line(SCORES_LOGGED)
        row["seconds"] = round(time.perf_counter() - start, 2)
        row["cpu_seconds"] = round(time.process_time() - worked, 2)
        return row | _where()

    def data_for(self, run: PlannedRun) -> Dataset:
        """Return the data on which clients train and the model is tested.

        A try is tested on a part of the training set that no client then has (``held_out``), or on
        whole clients if the task says how its data are divided. The test set is only for measured
        runs.
        """
        task = self.tasks[run.task]
        data = task.load()
        if not run.held_out or run.config is None:
            return data
        clients, seed = run.config.num_clients, run.config.seed
        key = (task.name, clients, seed)
        if self._held_out is None or self._held_out[0] != key:
            if task.divided is not None:
                data = with_clients(data, task.divided, clients, task.num_examples, seed)
            self._held_out = key, held_out(data, seed)
        return self._held_out[1]

    def fitted(self, run: PlannedRun) -> RunConfig:
        """Return a run's configuration for its data, with a target if the budget is solved for.

        Raises:
            ConfigError: the settings are incompatible.
        """
        if run.config is None:
            raise ConfigError(str(run.refused))
        config, clients = run.config, self.data_for(run).clients
        if self.tasks[run.task].divided is None or clients is None:
            return config
        # The data are already divided, and some clients may be held out.
        fields, count = type(config).model_fields, len(clients)
        defaults = {name: fields[name].default for name in ("partition", "num_examples")}
        changes = {k: v for k, v in defaults.items() if getattr(config, k) != v}
        changes |= {"num_clients": count} if config.num_clients != count else {}
        if config.clients_per_round is not None and config.clients_per_round > count:
            changes["clients_per_round"] = count
        return config.changed(**changes) if changes else config

    def calibrated(self, run: PlannedRun) -> RunConfig:
        """Return a run's configuration for its data, whose budget meets the target.

        Raises:
            ConfigError: no budget meets it, or the settings are incompatible.
        """
        config, data = self.fitted(run), self.data_for(run)
        problem = problem_with(config, data, self.data_dir)
        return self._budgets.calibrated(config, problem)

    @property
    def given(self) -> Dataset | None:
        """The data of all runs; None if each run loads the data that its configuration names."""
        return next((each.load() for each in self.tasks.values()), None)

    def _in_folder(self, run: PlannedRun, place: Path) -> Row:
        """Make a run in its folder, or what is left of it, and return its row."""
        assert run.config is not None
        if run.keeps_curve:
            row = {**run.labels, "digest": run.digest, **_curve_of(self._continued(run, place))}
            shutil.rmtree(place, ignore_errors=True)
            return row
        if summary_of(place) is None:
            self._continued(run, place)
        return kept_in_folder(run, place)

    def _continued(self, run: PlannedRun, place: Path) -> Result:
        """Simulate a run in its folder, from its last complete round if it was interrupted."""
        assert run.config is not None
        planned = None if self.given is not None else early_plan(run.config, self.data_dir)
        more = {
            "recipe": run.labels["recipe"], "device": self.device, "workers": self.workers,
            "alone_if_small": True, "planned": planned,
        }  # fmt: skip
        if (place / "checkpoint" if run.keeps_curve else place / "config.json").exists():
            rounds: list[Round] = []
            try:
                return self._simulated(
                    run.config,
                    self.given,
                    resume=RunFolder(place),
                    after_round=rounds.append,
                    **more,
                )
            except RunError:  # the folder is damaged, or the run was begun with other defaults
                if rounds or not run.keeps_curve:  # it did continue, or is the user's to look at
                    raise
        shutil.rmtree(place, ignore_errors=True)  # nothing to continue from
        return self._simulated(run.config, self.given, out=place, **more)

    def _simulated(self, config: RunConfig, data: Dataset | None, **how: Any) -> Result:
        from fedldp.simulation.engine import simulate  # imports torch, which takes seconds

        return simulate(config, dataset=data, data_dir=self.data_dir, **how)


def attempted(work: Callable[[], object]) -> Exception | None:
    """Do some work of a run, and return the error that ended it, or None.

    A bug in one run, or in its own code, must not end the others: its traceback goes to stderr.
    """
    try:
        with naming_own_code():
            work()
    except FedldpError as error:
        return error
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return RunError(f"{type(error).__name__}: {first_line(error)}; its traceback is on stderr")
    return None


def kept_in_folder(run: PlannedRun, place: Path) -> Row:
    """Return the row of a finished run that keeps its folder: it repeats none of its numbers."""
    return {**run.labels, "digest": run.digest, "folder": place.name, **_where()}


def whole(row: Row, folder: Path) -> Row | None:
    """Return a row with all of its numbers; None if they were in a folder that is gone.

    Args:
        row: a line of results.jsonl.
        folder: the folder of the experiment.
    """
    if "folder" not in row:
        return row
    found = summary_of(folder / row["folder"])
    if found is None:
        return None
    kept = ("config", "privacy", "doubts", "confusion", "seconds")
    final = {"accuracy": found["final"]["accuracy"], "metrics": found["final"]}
    return {**row, **final, **{name: found[name] for name in kept}}


def summary_of(place: Path) -> dict[str, Any] | None:
    """Return the summary of a finished run's folder; None if the run has not finished."""
    try:
        found = json.loads((place / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _curve_of(result: Result) -> Row:
    """Return a finished run's metrics after every round."""
    rounds, found = result.rounds, _where()
    accuracies = [each.accuracy for each in rounds if each.accuracy is not None]
    names = [name for name in rounds[0].metrics if all(name in each.metrics for each in rounds)]
    return {
        "accuracies": accuracies,
        "metrics": {name: [each.metrics[name] for each in rounds] for name in names},
        "hardware": found["hardware"],
        "date": found["date"].partition("T")[0],
        "seconds": result.seconds,
    }


def _by_round(result: Result) -> dict[str, list[float]]:
    """Return the scores after every round, with four digits: accuracy and AUC, or R2."""
    scores = [
        {"accuracy": each.accuracy, "auc": each.auc, "r2": each.metrics.get("r2")}
        for each in result.rounds
    ]
    known = [name for name in scores[0] if all(each[name] is not None for each in scores)]
    return {name: [round(float(each[name] or 0.0), 4) for each in scores] for name in known}


def _data_words(run: PlannedRun, task: Task, data: Dataset) -> str:
    """Return a description of a row's data."""
    less = task.words(run.held_out)
    return f"{run.labels['purpose']}: {data.name}{less and f', less {less}'}"


def _predicted(result: Result, features: NDArray[np.float32]) -> list[list[float]]:
    """Return the probabilities of each class but the first, with six digits; the others follow.

    Of a model for numbers, these are returned.
    """
    if result.config.label_range is not None:
        columns = [result.predict_numbers(features).tolist()]
    else:
        columns = result.predict_proba(features).T[1:].tolist()
    return [[float(f"{each:.6g}") for each in column] for column in columns]


def _told(config: RunConfig, data: Dataset) -> RunConfig:
    """Return a configuration that names the user's own data only by the recorded description."""
    own_file = is_own_file(config.dataset)
    return config if data.is_public or own_file else config.changed(dataset=data.name)


def _where() -> Row:
    """Return the date, versions and hardware that every row records."""
    found = environment()
    return {
        "date": found["date"],
        "python": found["python"],
        "versions": found["packages"],
        "hardware": f"{_processor()}, {found['cores']} cores, {found['gpu'] or 'no GPU'}",
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
