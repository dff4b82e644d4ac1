"""Many runs at once on a Ray cluster, each on one CPU.

A run that keeps its folder is split into short tasks. Such a task is a stretch of the run, that is,
some consecutive rounds. It starts from the contents of the
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import FedldpError
from fedldp.core.locks import LOCK, remove_empty, scratch
from fedldp.data import Dataset, resolve_data_dir
from fedldp.data.folder import locate
from fedldp.data.sources import find_source
from fedldp.experiments.making import Maker, attempted, kept_in_folder
from fedldp.experiments.runs import Ended, PlannedRun, Row
from fedldp.models import check_travels
from fedldp.protocol.server_loop import Round
from fedldp.reporting.record import RunFolder, as_json, replace_file
from fedldp.simulation.cluster import Cluster
from fedldp.simulation.engine import simulate
from fedldp.simulation.inputs import Inputs, load
from fedldp.simulation.plan import Plan
from fedldp.simulation.workers import WorkerLost

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
        failed: why the run failed in the stretch, or None.
        new: the files in the run's folder that were created or changed.
        gone: the files that were removed.
        planned: the run's plan, if the stretch made it.
        said: the output to stdout and stderr.
    """

    failed: Exception | None
    new: Files
    gone: Sequence[str]
    planned: Plan | None
    said: str


class _Paused(BaseException):
    """Ends a stretch."""


class ClusterExecutor:
    """The CPUs of a Ray cluster, each of which makes one run at a time; see ``RunExecutor``.

    Args:
        address: the cluster's address; see ``Cluster``.
        maker: how to make a run.

    Raises:
        FedldpError: the cluster cannot be reached.
    """

    def __init__(self, address: str, maker: Maker) -> None:
        self._address = address
        self._cluster = Cluster(address, _doing, maker)
        self._maker = maker
        self._sent: dict[object, Any] = {}
        self._plans: dict[Path, Plan | None] = {}
        self._running: dict[Any, tuple[PlannedRun, Path | None]] = {}
        self._done: list[Ended] = []

    def close(self) -> None:
        """Leave the cluster; see ``RunExecutor``."""
        self._cluster.close()

    @property
    def slots(self) -> int:
        """How many runs are made at the same time."""
        return self._cluster.size

    def begin(self, run: PlannedRun, place: Path | None) -> None:
        """Begin a run, or its next stretch; see ``RunExecutor``."""
        try:
            given = [] if place is None else self._next_stretch(run, place)
        except FedldpError as error:
            self._done.append((run, error))
        else:
            self._running[self._cluster.submit(run, *given)] = run, place

    def ended(self) -> list[Ended]:
        """Return the runs that have ended; see ``RunExecutor``.

        Raises:
            FedldpError: a node differs from this machine.
        """
        found, self._done = self._done, []
        references = list(self._running)
        ended, _ = self._cluster.ray.wait(references, timeout=_TICK) if references else ([], [])
        for reference in ended:
            run, place = self._running.pop(reference)
            try:
                result = self._cluster.result(reference)
            except WorkerLost as error:
                found.append((run, error))
                continue
            if place is None:
                found.append((run, result))
                continue
            self._keep(place, result)
            if result.failed is not None:
                found.append((run, result.failed))
            elif "summary.json" in result.new:
                found.append((run, kept_in_folder(run, place)))
            else:
                self._plans[place] = result.planned
                self.begin(run, place)
        return found

    def _next_stretch(self, run: PlannedRun, place: Path) -> list[Any]:
        """Return what the next stretch of a run that keeps its folder is given."""
        config = run.config
        assert config is not None
        check_travels(config.model_dump(), f"cluster = {self._address}")
        if not (place / "config.json").exists():
            shutil.rmtree(place, ignore_errors=True)  # killed before it wrote its config
        files = _read(place, but=("summary.json", LOCK))  # all are written again
        return [
            place.name, files, self._plans.pop(place, None), self._dataset(config),
            self._public(config), SECONDS,
        ]  # fmt: skip

    def _once(self, key: object, make: Callable[[], object]) -> Any:
        """Return a reference to a value that is sent only once."""
        if key not in self._sent:
            self._sent[key] = self._cluster.put(make())
        return self._sent[key]

    def _dataset(self, config: RunConfig) -> Any:
        given, data_dir = self._maker.given, self._maker.data_dir
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
        return self._once(("public", name), lambda: _files_of(name, self._maker.data_dir))

    def _keep(self, place: Path, found: _Done) -> None:
        """Write what a stretch returned; if this is interrupted, the run can still continue."""
        sys.stderr.write(found.said)
        here = {  # only this machine knows the run folder's path
            "environment.json": RunFolder(place).start(),
            "summary.json": {"run_dir": str(place)},
        }
        changed = {
            name: as_json({**json.loads(found.new[name]), **here[name]})
            for name in here.keys() & found.new.keys()
        }
        _write(place, {**found.new, **changed})
        for name in found.gone:
            path = place / name
            path.unlink(missing_ok=True)
            remove_empty([path.parent])


def _doing(maker: Maker) -> Callable[..., Row | Exception | _Done]:
    """Return what a worker does with a run: a stretch of one that keeps its folder, or all."""

    def make(run: PlannedRun, *stretch: Any) -> Row | Exception | _Done:
        return _stretch(run, *stretch) if stretch else maker.attempt(run, None)

    return make


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
    run: PlannedRun,
    name: str,
    files: Files,
    planned: Plan | None,
    dataset: Dataset,
    public: Files,
    seconds: float,
) -> _Done:
    """Run some rounds: to the end, or until it is time to stop."""
    config = run.config
    assert config is not None
    plans, said, end = [planned], io.StringIO(), time.monotonic() + seconds
    with scratch() as place:
        folder, data_dir = place / name, place / "data"

        def work() -> None:
            _write(folder, files)
            _write(data_dir, public)
            begun = RunFolder(folder) if "config.json" in files else None
            saved = None if begun is None else begun.read_checkpoint()
            before = 0 if saved is None else len(saved[1])

            def look_at_clock(record: Round) -> None:
                if time.monotonic() >= end and before < record.round < config.rounds:
                    raise _Paused

            with suppress(_Paused):
                simulate(
                    config,
                    recipe=run.labels["recipe"],
                    inputs=Inputs.divided(config, dataset, data_dir if public else None),
                    out=folder if begun is None else None,
                    resume=begun,
                    planned=planned,
                    before=plans.append,
                    after_round=look_at_clock,
                )

        with redirect_stdout(said), redirect_stderr(said):
            failed = attempted(work)
        now = _read(folder)
    new = {name: content for name, content in now.items() if files.get(name) != content}
    gone = [name for name in files if name not in now]
    return _Done(failed, new, gone, plans[-1], said.getvalue())
