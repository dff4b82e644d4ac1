"""Runs with at least one complete round, as a report reads them from their folders.

A folder may come from somebody else, so every file is checked, and its content is treated only as
text. A page compares the settings of runs and shows the command that repeats one.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    model_validator,
)

from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.statement import Statement
from fedldp.algorithms.systems import with_defaults
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Doubt, Note
from fedldp.protocol.server_loop import means_of
from fedldp.reporting import words
from fedldp.reporting.lines import Pair, asked_for, first_line
from fedldp.reporting.record import Schema, checked, parsed, read_as, read_schema, read_text
from fedldp.reporting.scores import answers_in, by_class, is_imbalanced
from fedldp.reporting.text import run_title

Share = Annotated[FiniteFloat, Field(ge=0, le=1)]
Size = Annotated[FiniteFloat, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]


class _Document(BaseModel):
    # Unknown fields are ignored; a missing value or a wrong type is an error.
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


def _holding(read: Callable[[Any], object]) -> AfterValidator:
    """Return a check that a document can be read."""

    def check(value: Any) -> Any:
        try:
            read(value)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return value

    return AfterValidator(check)


_Stated = Annotated[dict[str, Any], _holding(Statement.from_json)]
_Doubted = Annotated[dict[str, Any], _holding(Doubt.from_json)]


class _Tested(_Document):
    """The result of a test; what is about numbers is left out for classes."""

    accuracy: Share | None
    loss: FiniteFloat | None
    auc: Share | None
    average_precision: Share | None
    balanced_accuracy: Share | None
    brier: Annotated[FiniteFloat, Field(ge=0, le=2)] | None
    calibration_error: Share | None
    f1_macro: Share | None = None
    client_accuracy: Share | None = None
    worst_tenth_accuracy: Share | None = None
    r2: FiniteFloat | None = None
    mae: FiniteFloat | None = None
    calibration_gap: FiniteFloat | None = None


class _Round(_Tested):
    round: Count
    clients: Count
    uplink_bits_per_client: Size
    seconds: Size


class _Spent(_Document):
    """An upper bound on the total cost of all rounds up to this one; see ``Round.spent``."""

    unit: str
    adversary: str
    epsilon: Size | None
    delta: Share
    of: Size | None
    idealised: bool


class _Left(_Document):
    """What is left of a budget after a round; see ``Round.budgets``."""

    unit: str
    kind: str
    spent: Size | None
    left: FiniteFloat | None


class _Measured(_Document):
    """The other values of a round in metrics.jsonl."""

    arrivals: dict[str, FiniteFloat] | None
    metrics: dict[str, FiniteFloat]
    refused: dict[str, Count]
    radii: Annotated[list[FiniteFloat], Field(min_length=2, max_length=2)] | None
    waited: Size
    spent: list[_Spent]
    budgets: list[_Left]


class _Final(_Tested):
    most_frequent: Share | None


class _Summary(_Document):
    recipe: str | None
    system: str
    seed: int | None
    config: dict[str, Any]
    rounds: Annotated[list[_Round], Field(min_length=1)]
    final: _Final
    privacy: _Stated
    seconds: Size
    tested_on: str
    confusion: Annotated[list[list[Count]], Field(min_length=1)] | None
    figures: list[dict[str, Any]]
    doubts: list[_Doubted]
    noise: Annotated[dict[str, Any], _holding(Note.from_json)] | None = None

    @model_validator(mode="after")
    def _is_square(self) -> _Summary:
        if any(len(row) != len(self.confusion or ()) for row in self.confusion or ()):
            raise ValueError("a confusion matrix that is not square")
        return self


class _Environment(_Document):
    date: str
    python: str
    platform: str
    packages: dict[str, str]
    cores: int | None
    gpu: str | None


class _Started(_Document):
    own_data: Any


@dataclass(frozen=True)
class FinishedRun:
    """A run that has a result.

    Attributes:
        path: its folder.
        summary: what ``fedldp run --json`` printed, without the folder; for an unfinished run, the
            same about its complete rounds.
        finished: whether the run has ended as planned.
        environment: when the run began (UTC), versions and hardware.
        own_data: what identifies the user's own data; None for a published data set.
        means: the system's own metrics, by name, averaged over the rounds.
        answers: all that people were asked for privately; see ``scores.answers_in``.
        arrivals: means of a simulated shuffler's times, in seconds, by name; see ``Round``.
        refused: how many refusals there were in all rounds together, by reason.
        radii: the smallest and the largest radius of the ranges in each round; empty if there were
            no ranges.
        spent: for each round, an upper bound on the total cost of all rounds up to it, by unit and
            adversary.
        budgets: for each round and each budget, how much the client that has spent the most of it
            has spent, and has left.
    """

    path: Path
    summary: dict[str, Any]
    finished: bool
    environment: dict[str, Any]
    own_data: Any
    means: dict[str, float]
    answers: list[dict[str, Any]]
    arrivals: dict[str, float]
    refused: dict[str, int]
    radii: list[list[float]]
    spent: list[list[dict[str, Any]]]
    budgets: list[list[dict[str, Any]]]

    @property
    def name(self) -> str:
        """The run's title: its recipe or system, and its data."""
        config = {"dataset": "the clients' own data", **self.summary["config"]}
        return run_title(self.summary["recipe"], config)

    @cached_property
    def privacy(self) -> Statement:
        """The statement."""
        return Statement.from_json(self.summary["privacy"])

    @property
    def noise(self) -> Note | None:
        """How long the noise in a round's mean is expected to be; None if that is not known."""
        found = self.summary.get("noise")
        return None if found is None else Note.from_json(found)

    @property
    def doubts(self) -> list[Doubt]:
        """What makes the scores doubtful."""
        return [Doubt.from_json(each) for each in self.summary["doubts"]]

    @property
    def is_imbalanced(self) -> bool:
        """Whether AUC and balanced accuracy are shown before accuracy; see ``is_imbalanced``."""
        final = self.summary["final"]
        return final["brier"] is not None and is_imbalanced(final["most_frequent"])

    @property
    def headline(self) -> Guarantee | None:
        """The line with which the run's documents begin; see ``lines.first_line``."""
        return first_line(self.privacy, self.asked)

    @property
    def epsilon_in_words(self) -> str:
        """Epsilon and delta for comparisons, and what they cover; see ``lines.headline``."""
        return words.headline_in_words(self.privacy, self.asked)

    @property
    def asked(self) -> Pair | None:
        """The unit and the adversary of the requested guarantee, if there is one."""
        return asked_for(self.summary["config"])

    @property
    def warnings(self) -> list[str]:
        """All warnings about the run."""
        return [words.line(each) for each in (*self.privacy.warnings, *self.doubts)]

    @cached_property
    def class_names(self) -> list[str]:
        """The names of the classes, or their numbers if they have no names."""
        names, count = self.schema.class_names, len(self.summary["confusion"] or [])
        return names if len(names) == count else list(map(str, range(count)))

    @cached_property
    def schema(self) -> Schema:
        """The model's inputs and outputs."""
        return read_schema(self.path)

    @cached_property
    def classes(self) -> list[dict[str, Any]]:
        """The figures of each class; see ``scores.by_class``."""
        matrix = self.summary["confusion"]
        return [] if matrix is None else by_class(np.array(matrix), self.schema.rounded)


def read_statement(path: Path) -> Statement:
    """Return the statement in a run folder.

    Raises:
        RunError: it is missing or damaged.
    """
    return Statement.from_json(read_as(path / "privacy.json", _Stated))


def read_finished(path: Path) -> FinishedRun:
    """Return the finished run in a folder.

    Raises:
        RunError: one of its files is missing or damaged.
    """
    place = path / "metrics.jsonl"
    rounds = [parsed(place, line) for line in read_text(place).splitlines()]
    return _run(path, read_as(path / "summary.json", _Summary), place, rounds, finished=True)


def read_answers(path: Path) -> list[dict[str, Any]] | None:
    """Return ``FinishedRun.answers`` of the run in a folder; None if that has the model alone.

    Raises:
        RunError: metrics.jsonl is damaged.
    """
    place = path / "metrics.jsonl"
    if not place.is_file():
        return None
    lines = (parsed(place, line) for line in read_text(place).splitlines())
    return answers_in(checked(place, _Measured, line).metrics for line in lines)


def unfinished(
    path: Path, summary: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]]
) -> FinishedRun:
    """Return a run that is not finished.

    Args:
        path: its folder.
        summary: the document that ``fedldp run --json`` would print after its last complete round.
        rounds: the records of all its complete rounds.

    Raises:
        RunError: one of its files is missing or damaged.
    """
    place = path / "checkpoint"
    return _run(path, checked(place, _Summary, summary), place, rounds, finished=False)


def _run(
    path: Path, document: _Summary, place: Path, rounds: Sequence[Any], *, finished: bool
) -> FinishedRun:
    measured = [checked(place, _Measured, each) for each in rounds]
    ranged = all(one.radii for one in measured)
    refused: Counter[str] = Counter()
    for one in measured:
        refused.update(one.refused)
    return FinishedRun(
        path=path,
        summary=document.model_dump(exclude_unset=True),
        finished=finished,
        environment=read_as(path / "environment.json", _Environment).model_dump(),
        own_data=read_as(path / "config.json", _Started).own_data,
        means=means_of([one.metrics for one in measured]),
        answers=answers_in(one.metrics for one in measured),
        arrivals=means_of([one.arrivals or {} for one in measured]),
        refused=dict(refused),
        radii=[one.radii for one in measured if one.radii] if ranged else [],
        spent=[[each.model_dump() for each in one.spent] for one in measured],
        budgets=[[each.model_dump() for each in one.budgets] for one in measured],
    )


TRAINING = ("dataset", "label_column", "standardise", "partition", "num_examples", "num_clients",
            "clients_per_round", "rounds", "model", "local_epochs", "batch_size", "learning_rate",
            "seed", "server_optimizer", "server_rate", "average",
            "class_weights")  # fmt: skip
"""The settings that a noise-free twin shares with a run."""

_MISSING = object()


def differing(runs: Sequence[FinishedRun]) -> dict[str, list[Any]]:
    """Return the settings that differ, with each run's value; None where a run lacks one."""
    configs = [with_defaults(run.summary["config"]) for run in runs]
    names = dict.fromkeys(name for config in configs for name in config)
    return {
        name: [config.get(name) for config in configs]
        for name in names
        if any(config.get(name, _MISSING) != configs[0].get(name, _MISSING) for config in configs)
    }


def twin_of(run: FinishedRun, runs: Sequence[FinishedRun]) -> FinishedRun | None:
    """Return the run among ``runs`` that trains like ``run`` but without noise, if there is one."""
    if run.summary["system"] == "fedavg":
        return None

    def training(one: FinishedRun) -> list[Any]:
        config = with_defaults(one.summary["config"])
        return [one.own_data, *(config.get(name) for name in TRAINING)]

    twins = [one for one in runs if one.summary["system"] == "fedavg"]
    return next((one for one in twins if training(one) == training(run)), None)


def command(run: FinishedRun) -> str | None:
    """Return the shell command that repeats a run, beside its folder.

    None for a run of real sites, or on arrays that were passed from Python.
    """
    if run.summary["seed"] is None:
        return None
    if run.own_data is not None and not Path(str(run.summary["config"].get("dataset"))).suffix:
        return None
    return shlex.join(["fedldp", "run", f"./{run.path.resolve().name}/config.json"])
