"""Many runs at once on a Ray cluster, each split into short tasks on one CPU.

A task is a stretch of a run, that is, some consecutive rounds. It starts from the contents of the
run's folder, runs rounds for half a minute, and returns the changed files, which this process then
writes to the folder. It depends on nothing else and changes nothing elsewhere. So if a worker dies,
Ray repeats the stretch; if this process dies, the sweep continues after the last stretch that was
written. Only this machine needs the data files and the sweep's folder.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import FedldpError
from fedldp.core.locks import LOCK, remove_empty, scratch
from fedldp.data import Dataset, resolve_data_dir
from fedldp.data.folder import locate
from fedldp.data.sources import find_source
from fedldp.experiments.sweeping.one_run import RunContext, RunTask, attempt
from fedldp.models import check_travels
from fedldp.protocol.server_loop import Round
from fedldp.reporting.record import RunFolder, as_json, replace_file
from fedldp.simulation.engine import simulate
from fedldp.simulation.in_process import keep_freed_memory
from fedldp.simulation.inputs import Inputs, load
from fedldp.simulation.plan import Plan
from fedldp.simulation.ray_executor import Cluster, LostTask, check_versions, versions

SECONDS = 30.0
"""The minimum length of a stretch in seconds; a stretch ends at the end of a round."""

_TICK = 0.5
_LAST = {"checkpoint": 1, "summary.json": 2}
"""Files that are written last, because they imply that other files exist."""

Files = Mapping[str, bytes]
"""The contents of a folder's files, by their paths in the folder."""


@dataclass(frozen=True)
class _Done:
    """The return value of a stretch.

    Attributes:
        reason: why the run failed in the stretch, or None.
        finished: whether the run is complete.
        new: the files in the run's folder that were created or changed.
        gone: the files that were removed.
        planned: the run's plan, if the stretch made it.
        said: the output to stdout and stderr.
    """

    reason: str | None
    finished: bool
    new: Files
    gone: Sequence[str]
    planned: Plan | None
    said: str


class _Paused(BaseException):
    """Ends a stretch."""


class RayTasks:
    """The tasks on a Ray cluster, one run per CPU; see ``SweepExecutor``.

    Args:
        cluster: the connection to the cluster.
        context: the settings and data that the runs share.
    """

    def __init__(self, cluster: Cluster, context: RunContext) -> None:
        self._cluster = cluster
        self._context = context
        self._task = cluster.task(_stretch)
        self._sent: dict[object, Any] = {}
        self._plans: dict[Path, Plan | None] = {}

    @property
    def at_most(self) -> int:
        """How many runs are carried out at the same time."""
        return self._cluster.num_cpus()

    def do(
        self,
        tasks: Sequence[RunTask],
        *,
        done: Callable[[RunTask, str | None], None],
        tick: Callable[[], None],
    ) -> None:
        """Carry out runs; see ``SweepExecutor``.

        Raises:
            FedldpError: a node differs from this machine.
        """
        waiting, running = deque(tasks), dict[Any, RunTask]()
        while waiting or running:
            while waiting and len(running) < self.at_most:
                task = waiting.popleft()
                try:
                    running[self._begin(task)] = task
                except FedldpError as error:
                    done(task, " ".join(str(error).split()))
            ended, _ = self._cluster.ray.wait(list(running), timeout=_TICK) if running else ([], [])
            for reference in ended:
                task = running.pop(reference)
                try:
                    found: _Done = self._cluster.result(reference, "a run")
                except LostTask as error:
                    done(task, str(error))
                    continue
                self._keep(task, found)
                if found.finished or found.reason is not None:
                    done(task, found.reason)
                else:
                    waiting.appendleft(task)
            tick()

    def _begin(self, task: RunTask) -> Any:
        """Begin the next stretch of a run."""
        check_travels(task.config.model, f"cluster = {self._context.cluster}")
        if not (task.place / "config.json").exists():
            shutil.rmtree(task.place, ignore_errors=True)  # killed before it wrote its config
        return self._task.remote(
            task,
            _read(task.place, but=("summary.json", LOCK)),  # all are written again
            self._plans.pop(task.place, None),
            self._dataset(task.config),
            self._public(task.config),
            self._once("versions", versions),
            SECONDS,
        )

    def _once(self, key: object, make: Callable[[], object]) -> Any:
        """Return a reference to a value that is sent only once."""
        if key not in self._sent:
            self._sent[key] = self._cluster.put(make())
        return self._sent[key]

    def _dataset(self, config: RunConfig) -> Any:
        given, data_dir = self._context.dataset, self._context.data_dir
        drawn = None if config.rows_per_person is None else (config.rows_per_person, config.seed)
        key = (config.dataset, repr(config.columns), config.test_file, config.standardise, drawn)
        if given is None:
            return self._once(key, lambda: load(config, None, data_dir))
        fitting = load(config, given, data_dir)  # refuses incompatible data
        return self._once(("given", drawn), lambda: fitting)

    def _public(self, config: RunConfig) -> Any:
        """Return the files of the public data set that the server trains on, if any."""
        name = getattr(config, "public_dataset", None)
        if name is None:
            return {}
        return self._once(("public", name), lambda: _files_of(name, self._context.data_dir))

    def _keep(self, task: RunTask, found: _Done) -> None:
        """Write what a stretch returned; if this is interrupted, the run can still continue."""
        sys.stderr.write(found.said)
        if not found.finished:
            self._plans[task.place] = found.planned
        place = {  # only this machine knows the run folder's path
            "environment.json": RunFolder(task.place).start(),
            "summary.json": {"run_dir": str(task.place)},
        }
        changed = {
            name: as_json({**json.loads(found.new[name]), **place[name]})
            for name in place.keys() & found.new.keys()
        }
        _write(task.place, {**found.new, **changed})
        for name in found.gone:
            path = task.place / name
            path.unlink(missing_ok=True)
            remove_empty([path.parent])


def _files_of(name: str, data_dir: Path | None) -> Files:
    """Return the files of a published data set, by their paths in a data folder."""
    source, paths = locate(find_source(name), resolve_data_dir(data_dir))
    return {f"{source.folder}/{path.name}": path.read_bytes() for path in paths}


def _read(folder: Path, *, but: Sequence[str] = ()) -> Files:
    """Return all files of a folder, except those whose names are in ``but``."""
    paths = {p.relative_to(folder): p for p in sorted(folder.rglob("*")) if p.is_file()}
    return {
        name.as_posix(): p.read_bytes() for name, p in paths.items() if name.parts[0] not in but
    }


def _write(folder: Path, files: Files) -> None:
    """Write files; files that imply the existence of other files come last."""
    for name in sorted(files, key=lambda name: (_LAST.get(name, 0), name)):
        path = folder / name
        folder.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # keeps clients' files private
        replace_file(path, files[name])


def _stretch(
    task: RunTask,
    files: Files,
    planned: Plan | None,
    dataset: Dataset,
    public: Files,
    expected: Mapping[str, str],
    seconds: float,
) -> _Done | FedldpError:
    """Run some rounds, as a task; return user-facing errors, because Ray would wrap them."""
    try:
        check_versions(expected)
    except FedldpError as error:
        return error
    torch.set_num_threads(1)
    keep_freed_memory()
    plans, said = [planned], io.StringIO()
    with scratch() as place:
        folder, data_dir = place / task.place.name, place / "data"

        def work() -> None:
            _write(folder, files)
            _write(data_dir, public)
            inputs = Inputs.divided(task.config, dataset, data_dir if public else None)
            _go_on(task, folder, inputs, plans, seconds)

        with redirect_stdout(said), redirect_stderr(said):
            reason = attempt(work)
        now = _read(folder)
    return _Done(
        reason=reason,
        finished="summary.json" in now,
        new={name: content for name, content in now.items() if files.get(name) != content},
        gone=[name for name in files if name not in now],
        planned=plans[-1],
        said=said.getvalue(),
    )


def _go_on(
    task: RunTask, folder: Path, inputs: Inputs, plans: list[Plan | None], seconds: float
) -> None:
    """Continue a run to its end, or until it is time to stop; add its plan to ``plans``."""
    begun = RunFolder(folder) if (folder / "config.json").exists() else None
    saved = None if begun is None else begun.read_checkpoint()
    before = 0 if saved is None else len(saved[1])
    end = time.monotonic() + seconds

    def look_at_clock(record: Round) -> None:
        if time.monotonic() >= end and before < record.round < task.config.rounds:
            raise _Paused

    with suppress(_Paused):
        simulate(
            task.config,
            recipe=task.recipe,
            inputs=inputs,
            out=folder if begun is None else None,
            resume=begun,
            planned=plans[-1],
            before=plans.append,
            after_round=look_at_clock,
        )
