"""A run as its folder records it, simulated or deployed, finished or not.

A run has a result from its first complete round on: the checkpoint holds the weights, and what
every client released. Reading changes nothing in the folder.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.systems import noted_features
from fedldp.core.errors import RunError
from fedldp.core.facts import Doubt, Note
from fedldp.core.kinds import COVERS_ALL_ROUNDS, HELD_OUT, NOT_FINISHED, SIMULATED
from fedldp.ledgers.columns import MemoryLedger
from fedldp.models import frozen_digest
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.roles import State
from fedldp.protocol.server_loop import Round
from fedldp.protocol.wire import Layout
from fedldp.reporting.record import (
    RunFolder,
    Schema,
    check_run_folder,
    how_to_resume,
    read_schema,
    replace_file,
)
from fedldp.reporting.runs import (
    FinishedRun,
    read_finished,
    read_statement,
    unfinished,
)
from fedldp.reporting.text import Displayed
from fedldp.simulation.plan import delta_of, stated_so_far
from fedldp.simulation.result import Result, progress, result_document, run_name
from fedldp.simulation.settings import from_mapping

if TYPE_CHECKING:
    from fedldp.simulation.trained import Trained

_AT_REAL_SITES = "agreement"
"""The file that only a server of real sites writes into a run folder."""
FINISH = "finish"
"""The file that says that the operator of such a server ends the run."""

TESTED_BY_SERVER = "the server's test set"


@dataclass(frozen=True)
class Saved:
    """What a run goes on from, as its checkpoint holds it; a new run begins without rounds.

    Attributes:
        state: the server's state after the last complete round.
        rounds: the records of all complete rounds.
        ledger: what every client released in them.
    """

    state: State
    rounds: list[Round]
    ledger: MemoryLedger

    @classmethod
    def of(cls, folder: RunFolder) -> Saved:
        """Return what the checkpoint in a folder holds, at least one round.

        Raises:
            RunError: no round is complete, or the checkpoint is damaged.
        """
        found = folder.read_checkpoint()
        if found is None or not found[1]:
            raise RunError(
                f"{folder.path}: no round of the run is complete, so it has no model"
                f"{_how_to_continue(folder)}"
            )
        return cls(*found)

    def check_fits(self, folder: RunFolder, layout: Layout) -> None:
        """Refuse a checkpoint that holds another model than the run's.

        Raises:
            RunError: the number of weights differs.
        """
        if self.state.weights.size != layout.size:
            raise RunError(
                f"{folder.path / 'checkpoint'} is damaged: it holds a different model; start the "
                "run again"
            )


def read_run(path: Path) -> FinishedRun:
    """Return the run in a folder, for its report or its card.

    The statement of an unfinished simulation is computed from what the clients released. This runs
    the code that the configuration names.

    Raises:
        FedldpError: there is no such run, none of its rounds is complete, or a file is damaged.
    """
    check_run_folder(path)
    if is_finished(path):
        return read_finished(path)
    folder = RunFolder(path)
    document, saved = folder.read_config(), Saved.of(folder)
    config = from_mapping(document["config"])
    privacy = _released(folder, config, saved)
    summary = result_document(
        config,
        saved.rounds,
        privacy,
        recipe=document["recipe"],
        seed=config.seed if SIMULATED in privacy.warnings else None,
        run_dir=path,
        tested_on=TESTED_BY_SERVER if _is_deployed(path) else config.composition.local.tested_on,
    )
    return unfinished(path, summary, [asdict(record) for record in saved.rounds])


def read_result(folder: RunFolder, config: RunConfig) -> Result:
    """Return the result of a run, from its folder.

    Args:
        folder: the folder of the run.
        config: the configuration in its config.json.

    Raises:
        FedldpError: none of its rounds is complete, or one of its files is missing or damaged.
    """
    document, path, saved = folder.read_config(), folder.path, Saved.of(folder)
    summary = folder.read_json("summary.json") if is_finished(path) else {}
    confusion, schema = summary.get("confusion"), read_schema(path)
    return Result(
        recipe=document["recipe"],
        config=config,
        rounds=saved.rounds,
        weights=read_weights(folder, config, schema)[0],
        privacy=Displayed.of(
            read_statement(path) if is_finished(path) else _released(folder, config, saved)
        ),
        ledger=saved.ledger,
        run=run_name(config, document["own_data"]),
        seconds=sum(record.seconds for record in saved.rounds),
        run_dir=path,
        schema=schema,
        doubts=tuple(map(Doubt.from_json, summary.get("doubts") or ())),
        confusion=None if confusion is None else np.array(confusion, np.int64),
        noise=Note.from_json(summary["noise"]) if summary.get("noise") else None,
        finished=is_finished(path),
    )


def read_weights(
    folder: RunFolder, config: RunConfig, schema: Schema
) -> tuple[dict[str, NDArray[Any]], Note | None]:
    """Return the weights of a run's model by name, and how far an unfinished run has come.

    The weights of an unfinished run are those of its checkpoint. A published model has neither a
    summary nor a checkpoint.

    Raises:
        FedldpError: none of its rounds is complete, or a file is missing or damaged.
    """
    published = folder.has_model and not (folder.path / "checkpoint").exists()
    if is_finished(folder.path) or published:
        return folder.read_model(), None
    saved = Saved.of(folder)
    scheduled = config.with_schedule(draws_of_seed(config.seed))
    algorithm, layout = scheduled.algorithm(schema.problem), config.layout(schema.problem)
    saved.check_fits(folder, layout)
    trained = layout.split(algorithm.server().result(saved.state))
    weights = {**{name: each.copy() for name, each in trained.items()}, **algorithm.frozen()}
    return weights, progress(config, saved.rounds)


def load_trained(folder: Path) -> Trained:
    """Return the model of a run folder; of an unfinished run, the model after its last round.

    Raises:
        FedldpError: it is not a run folder, no round of its run is complete, or its model cannot be
            used without its clients.
    """
    from fedldp.simulation.trained import check_public, check_usable, trained

    if not folder.is_dir():
        raise RunError(f"{folder}: there is no such folder; give the folder of a run")
    config = from_mapping(RunFolder(folder).read_config()["config"])
    schema = read_schema(folder)
    check_usable(config, schema, folder)
    weights, so_far = read_weights(RunFolder(folder), config, schema)
    found = trained(config, schema, weights, folder, so_far)
    frozen = None if config.trainable == "all" else frozen_digest(found.model)
    check_public(RunFolder(folder), noted_features(config, schema.problem), frozen)
    return found


def weights_of(path: Path) -> dict[str, NDArray[Any]]:
    """Return the weights of the model in a run's folder, by name; see ``read_weights``."""
    folder = RunFolder(path)
    config = from_mapping(folder.read_config()["config"])
    return read_weights(folder, config, read_schema(path))[0]


def is_finished(path: Path) -> bool:
    """Return whether the run in a folder has ended as planned."""
    return (path / "summary.json").is_file()


def write_report(path: Path) -> None:
    """Write report.html into a run's folder.

    Raises:
        FedldpError: see ``read_run``; or the page cannot be written.
    """
    from fedldp.reporting.html import page

    replace_file(path / "report.html", page([read_run(path)]).encode())


def _released(folder: RunFolder, config: RunConfig, saved: Saved) -> Statement:
    """Return the statement about what was released in an unfinished run."""
    found = known = read_statement(folder.path)
    if not _is_deployed(folder.path):  # else it covers all rounds unless the server said more
        schema = read_schema(folder.path)
        problem = replace(
            schema.problem,
            **folder.own_counts(),
            counted_in_private=schema.rounded,
            private_scores=HELD_OUT in known.warnings,
        )
        found = stated_so_far(
            config.with_schedule(draws_of_seed(config.seed)),
            problem,
            saved.ledger.releases(run_name(config, folder.read_config()["own_data"])),
            saved.rounds,
            delta_of(config),
        )
    if COVERS_ALL_ROUNDS in found.warnings:
        return found
    return found.warning(NOT_FINISHED(done=len(saved.rounds), of=config.rounds))


def _is_deployed(path: Path) -> bool:
    return (path / _AT_REAL_SITES).is_file()


def _how_to_continue(folder: RunFolder) -> str:
    """Return the end of a sentence that says how to continue a run, if that is possible."""
    if (folder.path / FINISH).exists():
        return ", because its operator ended it; privacy.json has its statement"
    how = "fedldp deploy server" if _is_deployed(folder.path) else how_to_resume(folder.path)
    return f" yet; continue it with {how}"
