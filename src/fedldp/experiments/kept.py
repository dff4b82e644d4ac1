"""An experiment with a folder: it is carried out there, continued, and compared with what is there.

The folder holds all that is needed for this; see ``store``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import FedldpError, RunError, one_line
from fedldp.core.locks import scratch
from fedldp.data import Dataset
from fedldp.experiments.executors import executor_of
from fedldp.experiments.making import Maker, whole
from fedldp.experiments.own import code_digest
from fedldp.experiments.runs import Experiment, PlannedRun, Row
from fedldp.experiments.scheduling import Means, carry_out
from fedldp.experiments.store import (
    RESULTS,
    WORDS,
    Document,
    Own,
    RunStore,
    lacking,
    read_document,
    settings_in,
)
from fedldp.reporting.record import environment

View = TypeVar("View", covariant=True)
"""What an experiment makes of its rows."""


class KeptExperiment(Experiment, Protocol[View]):
    """An experiment that may have a folder.

    Attributes:
        kind: "sweep", "compare", "advise" or "reproduce".
        maker: makes its runs.
        configs: the configurations whose own code and tables its runs use.
        given: its data, if they are given and not named by ``configs``.
        grows: the settings that may have more values or names than in the folder, see ``lacking``.
        free: the settings that may differ from those in the folder.
    """

    kind: str
    maker: Maker
    configs: Sequence[RunConfig] = ()
    given: Dataset | None = None
    grows: Collection[str] = ()
    free: Collection[str] = ()

    def document(self) -> Document:
        """Return its settings, as its folder keeps them."""
        ...

    def lacks(self, old: Document) -> str | None:
        """Return what it lacks of the experiment with an older document; None for nothing."""
        old = {key: value for key, value in self.read_again(old).items() if key not in self.free}
        return lacking(old, self.document(), self.grows)

    def read_again(self, old: Document) -> Document:
        """Return an older document with the settings that there are now.

        Raises:
            RunError: it is damaged, or has a model that was given in Python.
        """
        return old

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
        ...

    def check(self, row: Row) -> None:
        """Raise an error if a row's run proves less than its label."""
        return

    def view(self, store: RunStore, folder: Path | None) -> View:
        """Return what the rows so far say, and write it into its folder, if anything is kept."""
        ...


def carried_out(experiment: KeptExperiment[View], means: Means) -> View:
    """Make the missing runs of an experiment, and return what all of its rows say.

    Raises:
        FedldpError: the folder holds something else, the cluster cannot be reached, or a run's
            statement proves less than its target.
    """
    document, kind = experiment.document(), experiment.kind
    own = Own.of(experiment.configs, experiment.given, means.same_data)
    with RunStore.opened(means.out, kind, document, experiment.lacks, own) as store:
        folder = None if means.out is None else store.folder
        found: list[View] = []

        def show() -> None:
            found[:] = [experiment.view(store, folder)]

        known = {run.digest for run in experiment.due(store.rows)} & store.rows.keys()
        left = experiment.total(store.rows) - len(known)
        with executor_of(experiment.maker, means.workers, means.cluster, left) as executor:
            for line in experiment.before(left, executor.slots, folder):
                means.say(line)
            carry_out(experiment, store, executor, means, show)
    return found[0]


def settings_of(folder: Path, kind: str) -> dict[str, Any]:
    """Return the settings of the experiment in a folder.

    The folder's copies of own code can then be imported, where the user's own files are missing.

    Raises:
        RunError: there is no such experiment, or its file is damaged.
        DataMissing: its table is not found.
    """
    sys.path += [str(place) for place in sorted(folder.glob("own/*"))]
    return settings_in(folder, read_document(folder, kind), needed=True)


def of_given_data(folder: Path, kind: str) -> RunError:
    """Return the error for a folder whose experiment had data given in Python."""
    return RunError(
        f"{folder}: that {WORDS[kind]} used data given in Python; continue it in Python with the "
        f"same data: fedldp.{kind}(..., dataset=...)"
    )


def verify(experiment: KeptExperiment[Any], folder: Path, again: int = 0) -> Iterator[str]:
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
