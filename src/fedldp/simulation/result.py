"""The result of a run: its model, rounds and statement, as an object and from its folder.

A run has a result from its first complete round on, simulated or deployed, finished or not: the
checkpoint holds the weights, and what every client released. Reading changes nothing in the folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import RunError
from fedldp.core.facts import Doubt, Note
from fedldp.core.kinds import COVERS_ALL_ROUNDS, HELD_OUT, MODEL_SO_FAR, NOT_FINISHED
from fedldp.data.rules import checked_features
from fedldp.ledgers.columns import MemoryLedger
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.roles import State
from fedldp.protocol.server_loop import MODEL_SCORES, Round, means_of
from fedldp.protocol.wire import Layout
from fedldp.reporting import words
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
from fedldp.reporting.scores import (
    FIGURES,
    TestSet,
    asked_figures,
    figures,
    final_of,
    most_frequent,
    named,
)
from fedldp.reporting.text import Displayed, html_table, in_short, round_rows, run_title
from fedldp.simulation.plan import delta_of, stated_so_far
from fedldp.simulation.settings import from_mapping

if TYPE_CHECKING:
    from torch import nn

    from fedldp.simulation.trained import Trained

COLUMNS = ("round", "clients", "accuracy", "loss", "uplink_bits_per_client", "seconds", *FIGURES)
"""The columns of the table of rounds."""


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The result of a run.

    Attributes:
        recipe: the recipe's name, or None.
        config: the resolved configuration.
        rounds: one record per round.
        weights: the final model's weights by name: the trained parameters, float32, and the frozen
            parameters.
        privacy: the statement.
        ledger: what every client released.
        run: the run's name in that ledger.
        seconds: wall-clock time of the rounds, including the rounds before a resume.
        run_dir: the run folder; None if nothing was written.
        schema: what the model takes and returns.
        doubts: the reasons why the metrics are doubtful.
        confusion: the confusion matrix of the final model, that is, how many test examples of each
            true class (row) the model assigned to each class (column). The simulator measures it on
            its own test set; it is not a release. None if clients test, and for more than 100
            classes.
        noise: how long the noise in a round's mean is expected to be; public, None if unknown.
        finished: whether the run has ended as planned. If not, everything here is as it was after
            the last complete round.
    """

    recipe: str | None
    config: RunConfig
    rounds: list[Round]
    weights: dict[str, NDArray[Any]]
    privacy: Displayed
    ledger: MemoryLedger
    run: str
    seconds: float
    run_dir: Path | None
    schema: Schema
    doubts: tuple[Doubt, ...] = ()
    confusion: NDArray[np.int64] | None = None
    noise: Note | None = None
    finished: bool = True

    @property
    def accuracy(self) -> float:
        """The final model's accuracy, 0 to 1, on the test data that ``config.tested_on`` names.

        Raises:
            RunError: the data had no test set.
        """
        accuracy = self.rounds[-1].accuracy
        if self.config.label_range is not None:
            raise RunError(
                "accuracy: the model predicts numbers; see r2 and mae in the metrics of its last "
                "round"
            )
        if accuracy is None:
            raise RunError("accuracy: the run had no test set; give it one, or see fedldp.evaluate")
        return accuracy

    @property
    def most_frequent(self) -> float | None:
        """The most frequent class's share of the test set, 0 to 1; None without ``confusion``."""
        return None if self.confusion is None else most_frequent(self.confusion.sum(1))

    @property
    def metrics(self) -> dict[str, float]:
        """The means over the rounds of the system's own metrics, by name."""
        return means_of([one.metrics for one in self.rounds])

    def summary(self) -> dict[str, Any]:
        """Return the document that ``fedldp run --json`` prints."""
        return result_document(
            self.config,
            self.rounds,
            self.privacy,
            recipe=self.recipe,
            seed=self.config.seed,
            run_dir=self.run_dir,
            tested_on=self.config.composition.local.tested_on,
            most_frequent=self.most_frequent,
            confusion=self.confusion,
            doubts=self.doubts,
            noise=self.noise,
        )

    # The model

    def model(self) -> nn.Module:
        """Return the trained model as a torch module in eval mode; each call creates a new module.

        The module takes unprepared examples, float32 of shape (n, *input_shape), and returns logits
        of shape (n, num_classes). It includes the standardising constants and the public features,
        through which no gradient passes.

        Raises:
            ConfigError: the model reads the output of each client's own encoder.
        """
        return self.trained().module()

    def predict_proba(self, features: ArrayLike, *, double: bool = False) -> NDArray[np.float64]:
        """Return the probability of each class, shape (n, num_classes).

        Args:
            features: unprepared examples, numbers of shape (n, *input_shape).
            double: compute in double precision if the model can. In single precision, the last
                digits of an example's probabilities depend on the other examples in the same call.

        Raises:
            DataError: the features are not finite numbers.
            ConfigError: the shape is wrong, the model cannot be used without its clients, or it
                predicts numbers.
        """
        trained = self.trained()
        given = trained.prepared(checked_features(features, "data:"))
        return trained.probabilities(given, double=double)

    def predict_numbers(self, features: ArrayLike, *, double: bool = False) -> NDArray[np.float64]:
        """Return the numbers that a model for such labels predicts; see ``predict_proba``."""
        trained = self.trained()
        given = trained.prepared(checked_features(features, "data:"))
        return trained.numbers(given, double=double)

    def predict(self, features: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of each example, shape (n,): its name, or its number.

        A model for labels that are numbers returns these, float64, between the ends of
        ``label_range``. The arguments and errors are those of ``predict_proba``.
        """
        if self.config.label_range is not None:
            return self.predict_numbers(features)
        labels = named(self.predict_proba(features), None)
        return labels if self.schema.classes is None else np.array(self.schema.classes)[labels]

    def trained(self) -> Trained:
        """Return the model with its configuration and schema; see ``simulation.trained``."""
        from fedldp.simulation.trained import trained  # imports torch

        so_far = None if self.finished else progress(self.config, self.rounds)
        return trained(self.config, self.schema, self.weights, self.run_dir, so_far)

    # For display

    @property
    def title(self) -> str:
        """The recipe, or the system, and the data set."""
        return run_title(self.recipe, self.config.model_dump())

    def rounds_table(self) -> list[dict[str, Any]]:
        """Return the rounds as dictionaries, for any library that reads tables."""
        return _table(self.rounds)

    def __repr__(self) -> str:
        count = len(self.rounds)
        of = "" if self.finished else f" of {self.config.rounds}"
        after = f"after {count}{of} round{'' if count == 1 and self.finished else 's'}"
        tested = in_short(final_of(self.rounds[-1], self.most_frequent))
        where = "" if self.run_dir is None else f", in {self.run_dir}"
        return f"<fedldp.Result {self.title}: {tested} {after}{where}>"

    def _repr_html_(self) -> str:
        table = html_table(*round_rows(self.rounds_table(), figures=True))
        doubts = "".join(
            f"<p><b>warning</b> {escape(text)}</p>" for text in map(words.line, self.doubts)
        )
        return (
            f"<p><b>{escape(repr(self)[1:-1])}</b></p>{self.privacy._repr_html_()}"
            f"{doubts}<details><summary>rounds</summary>{table}</details>"
        )


def progress(config: RunConfig, rounds: Sequence[Round]) -> Note:
    """Return how many of its rounds an unfinished run has completed."""
    return MODEL_SO_FAR(done=len(rounds), of=config.rounds)


def _table(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    return [
        {key: getattr(record, key) for key in COLUMNS}
        | {name: record.metrics[name] for name in MODEL_SCORES if name in record.metrics}
        for record in rounds
    ]


def result_document(
    config: RunConfig,
    rounds: Sequence[Round],
    privacy: Statement,
    *,
    recipe: str | None,
    seed: int | None,
    run_dir: Path | None,
    tested_on: str,
    most_frequent: float | None = None,
    confusion: NDArray[np.int64] | None = None,
    doubts: Sequence[Doubt] = (),
    noise: Note | None = None,
) -> dict[str, Any]:
    """Return the document about a run, simulated or deployed, that ``--json`` prints.

    Args:
        config: the configuration.
        rounds: the records of the rounds, at least one.
        privacy: the statement.
        recipe: the name of the recipe, if any.
        seed: the seed of all randomness; None for a run of real sites.
        run_dir: the folder of the run, if any.
        tested_on: the data on which the scores were measured.
        most_frequent: the share of the test set's most frequent class, if it is known.
        confusion: see ``Result``.
        doubts: see ``Result``.
        noise: see ``Result``.
    """
    found: dict[str, Any] = {
        "recipe": recipe,
        "system": config.system,
        "seed": seed,
        "config": config.model_dump(),
        "rounds": _table(rounds),
        "final": final_of(rounds[-1], most_frequent),
        "privacy": words.document(privacy),
        "seconds": sum(record.seconds for record in rounds),
        "run_dir": None if run_dir is None else str(run_dir),
        "tested_on": tested_on,
        "confusion": None if confusion is None else confusion.tolist(),
        "doubts": words.facts(doubts),
        "noise": words.shown(noise),
    }
    on = TestSet.of_run(found["final"], found["confusion"], privacy)
    means = means_of([one.metrics for one in rounds])
    of_people = asked_figures(means, trained_on=not getattr(config, "ask", None))
    every = [*figures(found["final"], on, doubts), *of_people]
    return found | {"figures": list(map(words.figure, every))}


def config_document(
    config: RunConfig,
    *,
    recipe: str | None,
    own_data: str | None,
    features: dict[str, str] | None = None,
    frozen: str | None = None,
) -> dict[str, Any]:
    """Return the contents of a run's config.json.

    Args:
        config: the run's configuration, including a budget that was solved for a target.
        recipe: the recipe's name, or None.
        own_data: what identifies the user's own data, or None.
        features: the name and digest of the public features, if any.
        frozen: the digest of the model's frozen part, if any.
    """
    noted = {"features": features, "frozen": frozen}
    return {
        "recipe": recipe,
        "config": config.model_dump(),
        "own_data": own_data,
        **{name: value for name, value in noted.items() if value is not None},
    }


def run_name(config: RunConfig, own_data: str | None) -> str:
    """Return the name of a simulated run, which is determined by its configuration and data.

    Args:
        config: the run's configuration, including a budget that was solved for a target.
        own_data: what identifies the user's own data, or None.
    """
    text = json.dumps([config.identity(), own_data], sort_keys=True)
    return f"simulation-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


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
    result = read_result(folder, from_mapping(folder.read_config()["config"]))
    summary = result.summary()
    if _is_deployed(path):
        summary |= {"seed": None, "tested_on": TESTED_BY_SERVER}
    return unfinished(path, summary, [asdict(record) for record in result.rounds])


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
