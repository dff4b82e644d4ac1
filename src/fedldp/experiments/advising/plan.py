"""What `fedldp advise` runs: existing compositions under each kind of trust, and references.

The protected unit is a person if a column names each row's person; else a whole client if there are
many clients; else a row. What protects people or rows follows the ``rule`` for tables, with its
learning rate times 0.4, 1 and 2.5; everything else has up to six settings of a list.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from fedldp.accounting.guarantees import Adversary, Unit
from fedldp.accounting.statement import delta_to_take
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError, FedldpError
from fedldp.core.randomness import numbered_generator
from fedldp.data import Dataset, load_dataset
from fedldp.data.partition import shares_of
from fedldp.experiments.advising.rule import PATHS, by_rule, difficulty, without_spread
from fedldp.experiments.comparing.comparison import (
    Cell,
    Cells,
    Comparison,
    Contestant,
    Try,
    in_turn,
)
from fedldp.experiments.engine import View
from fedldp.experiments.proving import GuaranteeKind
from fedldp.experiments.runs import PlannedRun, Row, Settings, Shared, Task
from fedldp.simulation.plan import problem_with
from fedldp.simulation.settings import from_mapping

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
_DELTA = 1e-5


@dataclass(frozen=True)
class Judged:
    """By what models are judged.

    Attributes:
        names: the metrics that are shown, with their headings. The first decides: tries are chosen,
            and verdicts given, by it, and more of it is better.
        guess: its value without learning.
        guessing: what has that value.
        constant: what has the other metrics' baselines.
    """

    names: Mapping[str, str]
    guess: float
    guessing: str
    constant: str

    @property
    def metric(self) -> str:
        """The metric that decides."""
        return next(iter(self.names))

    @property
    def name(self) -> str:
        """Its heading."""
        return self.names[self.metric]


CLASSES = Judged(
    {
        "auc": "AUC", "accuracy": "accuracy", "balanced_accuracy": "balanced accuracy",
        "calibration_error": "calibration error",
    },
    0.5,
    "guessing",
    "always the most frequent class",
)  # fmt: skip
"""Models for classes. The AUC does not reward always predicting one class."""

NUMBERS = Judged(
    {"r2": "R2", "mae": "mean absolute error", "calibration_gap": "calibration gap"},
    0.0,
    "always predicting the mean",
    "always the mean",
)
"""Models for numbers."""

MANY = 100
"""The smallest number of clients with which a whole client can be hidden among the others."""

MOST_ALONE = 5
"""The largest number of sites that also train alone; if there are more, this many are drawn."""

MOST_TRIES = 6
"""The number of tries of a contestant that does not follow the rule."""

SEEDS, SEEDS_OF_SMALL = (0, 1, 2), (0, 1, 2, 3, 4)
"""The seeds that are measured. An epsilon of 1 or less has more seeds than the others, because its
results vary more."""

TABLE = "table"

ANY, SUM, CENTRAL = "any server", "a server that sees sums", "a trusted server"
"""The names of the contestants under each kind of trust."""

TRUSTS: Mapping[str, tuple[str, Adversary]] = {
    "none": (ANY, "server"), "sum": (SUM, "summing-server"), "central": (CENTRAL, "downlink"),
}  # fmt: skip
"""The contestant and the adversary for each kind of trust."""

FREE, CLIPPED, LARGER = "no protection", "clip without noise", "larger model, no protection"
WHOLE = "a whole site, trusted server"

NO_NOISE = 1e4
"""The epsilon of runs whose noise is too small to matter."""

_SPREADS = 6
"""How many spreads a range counts as: its middle is the typical value."""

ENOUGH = 500
"""The N from which ranges do as well as declared spreads, nearly."""

_FILE = Path(__file__).with_name("contestants.toml")
_LISTED: Mapping[str, Any] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
"""The settings of contestants, and the tries of those that do not follow the rule."""

TRIES: Mapping[str, Sequence[Try]] = _LISTED["tries"]
RULED_TRIES: Sequence[Try] = [{"path": path} for path in PATHS]
"""Tries by the rule: factors on its learning rate."""

Configure = Callable[[Settings, Try], RunConfig]
"""What makes a run's configuration from the settings that all contestants share and a try's."""

_NOISELESS: Settings = {"channel": "central", "epsilon": NO_NOISE}

_CHANNELS = {"none": "named", "sum": "sum", "central": "central"}
"""The channel that protects a person, or a row, under each kind of trust."""

_CLIENTS = {"none": "client-none", "sum": "client-sum", "central": "client-sum"}
"""The tries of what protects a whole client under each kind of trust."""


def starting_point(unit: str, adversary: str) -> Settings:
    """Return the settings in the middle of the list that advice tries for a guarantee.

    Args:
        unit: "person", "record" or "client-run".
        adversary: "server", "summing-server" or "downlink".

    Raises:
        ConfigError: advice does not cover this guarantee.
    """
    trust = next((trust for trust, (_, seen) in TRUSTS.items() if seen == adversary), None)
    if trust is None or unit not in ("person", "record", "client-run"):
        raise ConfigError(
            f"unit = {unit}, adversary = {adversary}: without a recipe, the unit must be person, "
            "record or client-run, and the adversary server, summing-server or downlink; choose "
            "from these, or give a recipe"
        )
    if unit != "client-run":
        return {**_LISTED["person"], "channel": _CHANNELS[trust]}
    tries = TRIES[_CLIENTS[trust]]
    return {**_LISTED[f"client-{trust}"], **tries[len(tries) // 2]}


def judged(data: Dataset) -> Judged:
    """Return by what models for the labels of some data are judged."""
    return CLASSES if data.label_range is None else NUMBERS


def unit_of(data: Dataset) -> Unit:
    """Return the protected unit; see the module's docstring."""
    if data.num_people is not None:
        return "person"
    return "client-run" if len(data.clients or ()) >= MANY else "record"


STARTS = ("class_shares", "label_typical")
"""What an owner declares that only runs by the rule have: where their training starts."""

FACTS = ("people", "sites", "delta", *STARTS, "by_columns")
"""What an owner declares about a table besides settings of all runs."""


@dataclass(frozen=True)
class AdviceRequest:
    """A request for advice about a table; it can be pickled.

    Attributes:
        settings: the data's settings: the table, its columns, and the declarations about them.
        epsilons: the epsilons, ascending.
        tries: the largest number of tries per contestant; the rule has three.
        seeds: the seeds to measure; None for the default seeds.
        people: a public number of people, at least as large as that of the table; None if none is
            declared.
        sites: the declared number of sites, or None.
        delta: the declared delta of the guarantees, or None.
        class_shares: the declared shares of the classes; see ``STARTS``.
        label_typical: the declared typical number among labels that are numbers; see ``STARTS``.
        by_columns: the columns by whose values scores are also given.
    """

    settings: Settings
    epsilons: tuple[float, ...] = EPSILONS
    tries: int = MOST_TRIES
    seeds: tuple[int, ...] | None = None
    people: int | None = None
    sites: int | None = None
    delta: float | None = None
    class_shares: Any = None
    label_typical: Any = None
    by_columns: tuple[str, ...] = ()

    @property
    def declared(self) -> dict[str, Any]:
        """All that the owner declares."""
        facts = {name: getattr(self, name) for name in FACTS}
        return {
            **self.settings,
            **{name: each for name, each in facts.items() if each not in (None, ())},
        }

    @property
    def ruled(self) -> dict[str, Any]:
        """The settings of a run for which the rule chooses the others, as they are declared."""
        starts = {name: getattr(self, name) for name in STARTS}
        own = {name: value for name, value in starts.items() if value is not None}
        return {**_LISTED["person"], **_LISTED["ruled"], **self.settings, **own}

    @property
    def rows(self) -> dict[str, Any]:
        """The settings that make rows of numbers: a range counts as six spreads."""
        centres = dict(self.settings.get("centre_columns", {}))
        spreads = {
            name: [centres.pop(name, (low + high) / 2), (high - low) / _SPREADS]
            for name, (low, high) in self.settings.get("scale_columns", {}).items()
        }
        spreads |= self.settings.get("spread_columns", {})
        return {"scale_columns": {}, "spread_columns": spreads, "centre_columns": centres}

    @cached_property
    def as_declared(self) -> RunConfig:
        """A configuration with what is declared, as it is declared.

        Raises:
            ConfigError: a setting is wrong.
        """
        return from_mapping({"num_clients": 1, **self.ruled})

    @cached_property
    def config(self) -> RunConfig:
        """A configuration for these data."""
        return self.as_declared.changed(**self.rows)

    def problem(self, data: Dataset) -> Problem:
        """Return the public facts about the data.

        Raises:
            FedldpError: the data are not as declared.
        """
        problem = problem_with(self.config, data, None)
        self.config.algorithm(problem).release(0)  # checks the class shares
        return problem

    def in_need_of_spreads(self, data: Dataset) -> tuple[Sequence[str], dict[float, float]]:
        """Return the features without a declared spread, and each N at which that costs much.

        The N are those of a server that sees sums, by epsilon; there are none if no person, and no
        row, is protected.
        """
        problem = self.problem(data)
        lacking, unit = without_spread(self.as_declared, problem), unit_of(data)
        if unit == "client-run" or not lacking:
            return (), {}
        adversary = TRUSTS["sum"][1]
        config = self.config.changed(channel=_CHANNELS["sum"], num_clients=len(data.clients or ()))
        found = {}
        for epsilon in self.epsilons:
            target = GuaranteeKind(unit, adversary, self.delta_for(unit)).target(epsilon)
            found[epsilon] = difficulty(config.changed(target=target.model_dump()), problem)
        return lacking, {epsilon: n for epsilon, n in found.items() if n < ENOUGH}

    def delta_for(self, unit: Unit) -> float:
        """Return the delta of the guarantees.

        A delta that is not declared follows from the declared number of those whom the guarantees
        protect, and never from a number that was counted; see ``delta_to_take``.
        """
        if self.delta is not None:
            return self.delta
        _, protected = self._declared(unit)
        return _DELTA if protected is None else delta_to_take(protected)

    def _declared(self, unit: Unit) -> tuple[str, int | None]:
        """Return what guarantees protect, and the declared number of these, if there is one."""
        return ("sites", self.sites) if unit == "client-run" else ("people", self.people)

    @property
    def declares_delta(self) -> bool:
        """Whether delta is declared, or a number from which it follows."""
        return (self.delta, self.people, self.sites) != (None, None, None)

    def delta_in_words(self, unit: Unit) -> str:
        """Return a sentence on the delta of the guarantees, and what it follows from."""
        what, protected = self._declared(unit)
        text = f"delta is {self.delta_for(unit):g}"
        if self.delta is not None:
            return f"{text}, as declared"
        if protected is None:
            return (
                f"{text}; if there are more than 10,000 {what}, declare {what} = N, a number that "
                "may be published, for a smaller delta"
            )
        return f"{text}: at most 1e-5, and at most 0.1/{protected:,} for the declared {what}"

    def load(self, data_dir: Path | None) -> Dataset:
        """Return the data.

        Raises:
            FedldpError: they cannot be loaded.
        """
        try:
            return self._loaded(self.config, data_dir)
        except FedldpError:
            self._loaded(self.as_declared, data_dir)  # refuses them by the settings that were given
            raise

    def _loaded(self, config: RunConfig, data_dir: Path | None) -> Dataset:
        return load_dataset(
            config.dataset, data_dir=data_dir, columns=config.columns, test_file=config.test_file
        )

    def comparison(self, load: Callable[[], Dataset], data_dir: Path | None = None) -> Comparison:
        """Return the contestants, under the rule of equal guarantees and equal effort.

        Args:
            load: returns the data; see ``Task.load``.
            data_dir: the data folder.
        """
        data = load()
        unit = unit_of(data)
        # The data are divided among clients in advance; with this scheme, tuning runs hold out
        # whole people or clients.
        tasks = [Task(TABLE, load, {}, divided="iid")]
        found = list(self._contestants(data, unit))
        for site in alone(data) if unit != "client-run" else ():
            own = Shared(partial(of_site, load, site))
            tasks.append(Task(own().name, own, {}, part=f"site {site}"))
            # A single client cannot be held out, so hold out rows.
            more = {"num_clients": 1} | ({"client_column": None} if unit == "record" else {})
            reference = self._free(alone_name(site), data, unit, **more)
            found.append(replace(reference, data_of=own().name))
        return Comparison(
            found,
            tasks,
            seeds=SEEDS if self.seeds is None else self.seeds,
            seeds_of_small=SEEDS_OF_SMALL if self.seeds is None else self.seeds,
            metric=judged(data).metric,
            data_dir=data_dir,
        )

    def cells(self, comparison: Comparison, sites: int) -> list[Cell]:
        """Return the cells in the order of measurement: unprotected, then epsilon by epsilon.

        The middle epsilon comes first, because it is the most informative.
        """
        middle, last = (len(self.epsilons) - 1) / 2, self.epsilons[-1]
        order = sorted(self.epsilons, key=lambda e: abs(self.epsilons.index(e) - middle))
        return [
            Cell(TABLE, sites, name, epsilon)
            for epsilon in (0.0, *order)
            for name, each in comparison.contestants.items()
            if each.reference == (epsilon == 0) and (name != WHOLE or epsilon == last)
        ]

    def _contestants(self, data: Dataset, unit: Unit) -> Iterator[Contestant]:
        """Yield the references and what protects people, rows or clients, as the data have them."""
        problem, made = self.problem(data), partial(self._contestant, unit=unit)
        larger = made(LARGER, self._listed("larger"), TRIES["larger"])
        of_classes = data.label_range is None  # no other system predicts numbers
        if unit == "client-run":
            yield made(FREE, self._listed("client-free"), TRIES["client-free"])
            yield made(CLIPPED, self._listed("client-clipped"), TRIES["client-sum"])
            yield larger
            for trust, (name, adversary) in TRUSTS.items():
                configure, tries = self._listed(f"client-{trust}"), TRIES[_CLIENTS[trust]]
                yield made(name, configure, tries, against=adversary)
            return
        yield self._free(FREE, data, unit)
        yield made(CLIPPED, self._ruled(problem, **_NOISELESS), RULED_TRIES)
        if of_classes:
            yield larger
        for trust, (name, adversary) in TRUSTS.items():
            configure = self._ruled(problem, channel=_CHANNELS[trust])
            yield made(name, configure, RULED_TRIES, against=adversary)
        whole = GuaranteeKind("client-run", "downlink", self.delta_for(unit))
        site = made(WHOLE, self._listed("whole"), TRIES["whole"], against="downlink")
        if of_classes:
            yield replace(site, guarantee=whole)

    def _free(self, name: str, data: Dataset, unit: Unit, **more: Any) -> Contestant:
        """Return a reference that trains the linear model without noise."""
        tries = TRIES["person" if data.label_range is None else "person-numbers"]
        return self._contestant(name, self._listed("person", **_NOISELESS, **more), tries, unit)

    def _ruled(self, problem: Problem, **own: Any) -> Configure:
        """Return what makes a configuration by the rule, of a try's factor on its learning rate."""

        def configure(shared: Settings, attempt: Try) -> RunConfig:
            declared = from_mapping({**self.ruled, **shared, **own})
            return by_rule(declared, problem, path=attempt["path"]).changed(**self.rows)

        return configure

    def _listed(self, name: str, **more: Any) -> Configure:
        """Return what makes a configuration of listed settings, of more and of a try's."""

        def configure(shared: Settings, attempt: Try) -> RunConfig:
            own = {**_LISTED[name], **more, **attempt}
            return from_mapping({**self.settings, **self.rows, **shared, **own})

        return configure

    def _contestant(
        self,
        name: str,
        configure: Configure,
        tries: Sequence[Try],
        unit: Unit,
        against: Adversary | None = None,
    ) -> Contestant:
        """Return a contestant, which is a reference if it protects against nobody."""
        delta = self.delta_for(unit)
        nobody = GuaranteeKind("client-run", "server", delta)
        return Contestant(
            name=name,
            configure=configure,
            tries=tries[: self.tries],
            guarantee=nobody if against is None else GuaranteeKind(unit, against, delta),
            reference=against is None,
        )


class BreadthFirst(Cells[View]):
    """The runs of advice: every question is answered before any answer is improved.

    First each cell has one measured run with a try that usually does well; then come the tries of
    the references and of the middle epsilon, the other tries, and the seeds of the chosen tries.
    So whatever ends this early, the rows are a valid, smaller answer. A choice is made when all of
    a cell's tries are in, and not before, so that the number of workers changes none.

    Of the cells, those of the middle epsilon come before those of the others.
    """

    def first(self, cell: Cell) -> PlannedRun:
        """Return a cell's first answer: a measured run of the try in the middle of its list."""
        tries = self.comparison.contestant(cell).tries
        seed = self.comparison.seeds_of(cell)[0]
        return self.comparison.run(cell, tries[len(tries) // 2], "measured", seed)

    def due(self, known: Mapping[str, Row]) -> Iterator[PlannedRun]:
        """Yield the runs that are decided, the most informative first; see ``intervals``."""
        for run in self._due(known):
            yield run if run.held_out else replace(run, keeps_predictions=True)

    def _due(self, known: Mapping[str, Row]) -> Iterator[PlannedRun]:
        for cell in self.cells:
            first = self.first(cell)
            if first.digest in known or self.comparison.chosen(cell, known) is None:
                yield first
        middle = next((cell.epsilon for cell in self.cells if cell.epsilon), 0.0)
        near = [cell for cell in self.cells if cell.epsilon in (0.0, middle)]
        far = [cell for cell in self.cells if cell.epsilon not in (0.0, middle)]
        yield from in_turn(map(self._tries, near))
        yield from in_turn(map(self._tries, far))
        yield from in_turn([self.comparison.measured(cell, known) for cell in self.cells])

    def total(self, known: Mapping[str, Row]) -> int:
        """Return how many runs there will be in all; a first answer may be among the seeds."""
        decided = {run.digest for run in self.due(known)}
        open_ = [cell for cell in self.cells if not self.comparison.is_tried(cell, known)]
        return len(decided) + sum(len(self.comparison.seeds_of(cell)) for cell in open_)

    def _tries(self, cell: Cell) -> list[PlannedRun]:
        found = self.comparison.tries(cell)
        return [found.pop(len(found) // 2), *found]


def alone(data: Dataset) -> list[int]:
    """Return the sites that are also trained alone, ascending."""
    count = len(data.clients or ())
    drawn = numbered_generator(0, 2).permutation(count)[:MOST_ALONE]
    return sorted(drawn.tolist())


def alone_name(site: int) -> str:
    """Return the name of one site's contestant, which hides the table's name for the site."""
    return f"site {site + 1} alone, no protection"


def of_site(load: Callable[[], Dataset], site: int) -> Dataset:
    """Return the data of one site, with the test set that all sites share."""
    data = load()
    assert data.clients is not None
    train = data.train.taken(data.clients[site])
    whole = shares_of(np.zeros(len(train), np.int64), 1)
    return replace(
        data,
        name=f"{data.name}, site {site + 1} alone",
        train=train,
        clients=None if train.people is None else whole,
    )
