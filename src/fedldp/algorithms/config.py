"""A run's configuration: the settings that every run has, its preset's settings, and its parts.

The text below a setting is its meaning, as ``fedldp show`` and the comments in a file tell it.

What leaves a client, and what that costs, follows from the parts alone. No part imports torch,
reads data, or sees an example, so a statement can be made before any training.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)

from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.releases import ClientIndices, groups_of_equal
from fedldp.accounting.statement import Claim
from fedldp.algorithms.asking import SHARES_OF_CLASSES, asked_columns, reads_labels
from fedldp.algorithms.composition import OF_SOME, Algorithm, Composition
from fedldp.algorithms.participation import All, Once, cohort_sizes
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.server_update import Optimizer
from fedldp.algorithms.settings import (
    LARGEST_BATCH,
    ClientBudget,
    ClientValue,
    Count,
    Delta,
    LearningRate,
    ModelName,
    NormBound,
    PersonBudget,
    PrivacyTarget,
    ServerRate,
    Trainable,
    WeightsFile,
    is_own,
    of_client,
)
from fedldp.algorithms.validation import describe, shown
from fedldp.core.errors import ConfigError
from fedldp.core.formatting import number
from fedldp.core.frozen_config import FrozenConfig
from fedldp.core.registry import is_address
from fedldp.data import Columns, is_own_file, is_table
from fedldp.data.label_range import LabelRange
from fedldp.data.partition import parse_scheme
from fedldp.ledgers.budget import Budget
from fedldp.mechanisms.codes import ClippedCodes
from fedldp.protocol.roles import Draws
from fedldp.protocol.wire import Layout
from fedldp.secure_sum.messages import Committees

ClassWeight = Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)]
Range = Annotated[list[float], Field(min_length=2, max_length=2)]

_OF_TABLES = (
    "client_column",
    "ignore_columns",
    "scale_columns",
    "spread_columns",
    "categories",
    "classes",
    "centre_columns",
    "fill_columns",
    "person_column",
    "other_columns",
    "fold_columns",
)
_BY_CLASS = ("dirichlet", "shards")
_EQUAL = ("iid", "drawn")
"""Partitions in which clients' numbers of examples differ by at most one."""
WeightDecay = Annotated[float, Field(ge=0, le=1e3)]

_OF_CLASSES = ("class_weights", "class_shares", "held_out_people")
"""Settings about classes, which labels that are numbers do not have."""


class RunConfig(FrozenConfig):
    """A run's full configuration: frozen, public, and checked when it is made.

    ``preset`` makes a subclass for each system, with the system's own settings. Everything that a
    run must know about these settings comes from the composition.
    """

    # Not a field, nor in __dict__: copies, comparisons and files know nothing of it.
    __slots__ = ("_parts",)

    compose: ClassVar[Callable[[Any], Composition]]
    """Builds the parts that follow from the settings; see ``preset``."""

    model_config = ConfigDict(
        protected_namespaces=(), strict=True, use_attribute_docstrings=True, defer_build=True
    )

    simulation_only: ClassVar[frozenset[str]] = frozenset(
        {"seed", "client_budget", "person_budget", "target", "client_column", "test_file"}
    )
    """Settings that are not sent to clients."""

    calibrated: ClassVar[str] = "epsilon"
    """The setting that is solved for a target; with a target it may be left out."""

    per_client: ClassVar[tuple[str, ...]] = ()
    """Settings that may be a list with one value per client; a client receives only its own."""

    version: ClassVar[int] = 1
    """Increases when the same settings give a new result, which makes old measurements invalid."""

    inverse: ClassVar[bool] = False
    """Whether the calibrated setting is a noise level: the larger the budget, the lower it is."""

    system: str
    """the system's name"""
    dataset: str
    """the data set: a name from `fedldp list datasets`, or a .npz, .csv or .parquet file"""
    label_column: str = "label"
    """the column of a .csv or .parquet file that holds the labels"""
    client_column: str | None = None
    """the column that names the client of each row; num_clients is then the number of different
    values in this column"""
    test_file: str | None = None
    """a second file of the same kind with the test examples; if not set, a fifth of the rows is
    held out for testing"""
    ignore_columns: list[str] = Field([])
    """columns to ignore"""
    scale_columns: dict[str, Range] = Field({})
    """public range [low, high] of each column, which is used to scale the column's values to 0 to
    1; it must not be measured on the data"""
    categories: dict[str, list[str]] = Field({})
    """public list of the strings that may occur in a column; each string becomes a feature that is
    0 or 1"""
    classes: list[str] | None = None
    """public list of labels that are strings, in order; if not set, labels are integers from 0, or
    strings that are numbered in sorted order"""
    standardise: bool = False
    """whether to shift and scale images by the data set's published mean and standard deviation"""
    partition: str = "iid"
    """how examples are divided among clients: iid, dirichlet:ALPHA (unequal shares of each label),
    shards:N (each client gets N pieces of the examples sorted by label), power-law:EXPONENT
    (unequal numbers of examples) or drawn:N (each client gets N examples, drawn from all)"""
    num_examples: Count | None = None
    """number of training examples to use, drawn at random; if not set, all are used"""

    target: PrivacyTarget | None = None
    """the guarantee to meet (target.unit, .epsilon, .delta, .adversary); epsilon or the noise is
    then solved for"""
    num_clients: Count = Field(le=1_000_000)
    """number of clients among whom the training set is divided; if the data name each row's client,
    the number of clients that they name"""
    clients_per_round: Count | None = None
    """number of clients that take part in each round; if not set, all clients do"""
    rounds: Count = Field(le=100_000)
    """number of communication rounds"""
    model: ModelName
    """the model: a name from `fedldp list models`, or "module:name" for your own"""
    local_epochs: Count = Field(1, le=100_000)
    """number of passes that a client makes over its examples in one round"""
    batch_size: Count = Field(10, le=LARGEST_BATCH)
    """number of examples in one SGD step"""
    learning_rate: LearningRate
    """SGD step size"""
    delta: Delta = 1e-5
    """delta for the statement's approximate guarantees, and for mechanisms that need one"""
    untrusted_clients: int = Field(0, ge=0)
    """number of participants in a round that may collude with the server or drop out"""
    client_budget: ClientBudget | None = None
    """limit for every simulated client's ledger, which refuses to spend more: client_budget.limit,
    .kind (pure, zcdp or gdp); if not set, ledgers only count"""
    seed: int = Field(0, ge=0, lt=2**64)
    """seed for all random numbers in a simulation"""
    centre_columns: dict[str, float] = Field({})
    """for each column, the public value that is mapped to 0: a number in the column's unit or, for
    a category such as "sex=f", a share; it must not be measured on the data"""
    fill_columns: dict[str, float | str] = Field({})
    """public value that replaces missing values in a column: a number in the column's unit (a
    feature "column=missing" then marks the missing values), or one of the column's categories, such
    as unknown; it must not be measured on the data"""
    person_column: str | None = None
    """the column that names the person of each row: rows with the same value belong to one person;
    if not set, every row counts as a different person"""
    rows_per_person: Count | None = None
    """largest number of rows per person that a client uses; if a person has more rows, this many
    are drawn once; if not set, all are used"""
    persons_at_sites: Count = 1
    """largest number of clients that may have rows of the same person"""
    server_optimizer: Optimizer = "none"
    """the server's optimiser, which turns the mean of the reports into a step: none (the step is
    the mean itself), momentum or adam"""
    server_rate: ServerRate = 1.0
    """the server's learning rate: the factor on each step"""
    person_budget: PersonBudget | None = None
    """limit for each person, or each row, in every simulated client's ledger, in addition to
    client_budget or instead of it: person_budget.limit, .kind, .unit (person or record)"""
    average: Annotated[float, Field(ge=0, le=1)] = 0.0
    """share of the rounds, counted from the last, whose weights are averaged to give the model that
    is tested and saved; 0 means the last weights alone"""
    class_weights: list[ClassWeight] | None = Field(None, min_length=2)
    """factors on the loss in the clients' training, one per class; they must come from public
    shares of the classes, never from counting private rows; if not set, all are 1"""
    committee: Annotated[int, Field(ge=2)] | None = None
    """smallest number of clients in one secure sum: all clients are divided into committees of this
    size or slightly more, each committee has its own sum, and the server adds these sums; if not
    set, all clients share one sum"""
    trainable: Trainable = "all"
    """which parameters of the model are trained: all, head (the last layer), or patterns of names,
    separated by commas; all other parameters are frozen and public"""
    initial: WeightsFile | None = None
    """a public .safetensors file with the model's initial weights, by name; it must contain all
    frozen parameters, and parameters that it lacks are drawn at random; if not set, all are drawn
    at random"""
    start: Literal["torch", "he"] | None = None
    """how the initial weights of dense layers and convolutions are drawn: torch (uniform, torch's
    own rule) or he (normal, for ReLU; biases are 0); if not set, as the model says"""
    spread_columns: dict[str, Range] = Field({})
    """public [typical value, spread] of each column, instead of a range: the typical value becomes
    0, the spread above it 1, and values beyond 3 spreads are clipped; it must not be measured on
    the data"""
    other_columns: dict[str, str] = Field({})
    """for a column with categories, the one that stands for every string that is not declared, such
    as other; if not set, such strings are refused"""
    fold_columns: list[str] = Field([])
    """columns with a spread that also become 0.5 (|z| - 0.8), where z is the column by its spread:
    with it, a linear model can fit a risk that is high, or low, at both ends"""
    label_range: Range | None = None
    """public range [low, high] of labels that are numbers to predict, such as days; numbers beyond
    an end count as that end; if not set, labels are classes"""
    label_typical: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """public typical value of labels that are numbers, at which the intercept starts; if not set,
    it starts at what measure_share measures, or else in the middle of label_range"""
    weight_decay: WeightDecay = 0.0
    """weight decay in the clients' training: the multiple of each weight that is added to its
    gradient"""
    proximal: WeightDecay = 0.0
    """mu of FedProx in the clients' training: the multiple of each weight's distance from the
    broadcast that is added to its gradient"""
    gradient_clip: NormBound | None = None
    """largest L2 norm of a batch's gradient in the clients' training; longer gradients are scaled
    down to this norm, which by itself guarantees no privacy; if not set, gradients are not scaled
    """
    loss: str = "cross_entropy"
    """the loss that clients minimise: cross_entropy, or "module:function" for your own function,
    which returns each example's loss from logits and labels"""

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_in_one_line(cls, settings: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return validate(cls._with_calibrated(settings))
        except ValidationError as error:
            raise ConfigError(describe(error, cls.name(), cls.model_fields)) from None

    @classmethod
    def _with_calibrated(cls, settings: Any) -> Any:
        """Return settings with a start for the calibrated one, if a target needs it."""
        field = cls.model_fields.get(cls.calibrated)
        if not isinstance(settings, Mapping) or settings.get("target") is None or field is None:
            return settings
        needed = field.is_required() or field.default is None
        if not needed or settings.get(cls.calibrated) is not None:
            return settings
        return {**settings, cls.calibrated: 1.0}  # every search for a budget starts at 1

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_data()
        self._check_numbers()
        if self.loss != "cross_entropy" and not is_address(self.loss):
            raise ConfigError(f'loss = {self.loss}: choose cross_entropy or "module:function"')
        if self.server_optimizer == "adam" and self.server_rate >= 1:
            raise ConfigError(
                f"server_rate = {self.server_rate:g}: with server_optimizer = adam every weight "
                "moves by about this much in each round; give less than 1, such as 0.01"
            )
        # One client's own value is checked in the same way as a value for all clients.
        own = {n: v.own for n in self.per_client if isinstance(v := getattr(self, n), ClientValue)}
        if own:
            self.changed(**own)
        self._check_clients()
        return self

    def _check_data(self) -> None:
        own = [*self.given(*_OF_TABLES)]
        if own and not is_table(self.dataset):
            raise ConfigError(
                f"{own[0]}: this applies only to .csv and .parquet files, but dataset = "
                f"{self.dataset}; leave it out, or set dataset to such a file"
            )
        if self.test_file is not None and (
            not is_own_file(self.dataset)
            or not is_own_file(self.test_file)
            or is_table(self.dataset) != is_table(self.test_file)
        ):
            raise ConfigError(
                f"test_file = {self.test_file}: dataset = {self.dataset} is no file of this kind; "
                "give two tables (.csv or .parquet), or two .npz files"
            )
        for name, value in self.given("partition", "num_examples").items():
            if self.client_column is not None:
                raise ConfigError(
                    f"{name} = {value}: client_column = {self.client_column} already names the "
                    "client of each row; leave this out"
                )
        self.columns  # noqa: B018 (this refuses contradictory columns)

    def _check_numbers(self) -> None:
        """Refuse settings of labels that are numbers without a range, and divisions by class."""
        if self.label_range is None:
            if self.label_typical is not None:
                raise ConfigError(
                    f"label_typical = {self.label_typical:g}: this is for labels that are numbers; "
                    "give their public range, too: label_range = [LOW, HIGH]"
                )
            return
        low, high = self.label_range
        if self.label_typical is not None and not low <= self.label_typical <= high:
            raise ConfigError(
                f"label_typical = {self.label_typical:g}: it is not between {low:g} and {high:g} "
                "(label_range)"
            )
        given = [*self.given(*filter(self.has, _OF_CLASSES))]
        if SHARES_OF_CLASSES in getattr(self, "ask", ()):
            given.append(f'ask = ["{SHARES_OF_CLASSES}"]')
        if parse_scheme(self.partition)[0] in _BY_CLASS:
            given.append(f"partition = {self.partition}")
        if given:
            raise ConfigError(
                f"{given[0]} and label_range: the labels are numbers, and {given[0]} is about "
                "classes; leave it out"
            )

    def _check_clients(self) -> None:
        parse_scheme(self.partition)
        for name, most in self.given("clients_per_round", "committee").items():
            if most > self.num_clients:
                raise ConfigError(
                    f"{name} = {most}: there are only num_clients = {self.num_clients}; give at "
                    "most that many"
                )
        if self.committee is not None and self.untrusted_clients > self.committees.fewest - 2:
            raise ConfigError(
                f"untrusted_clients = {self.untrusted_clients}: they may all be in one committee, "
                f"and the smallest has {self.committees.fewest} clients, of which 2 must be "
                f"trusted; give at most {self.committees.fewest - 2}, or a larger committee"
            )
        if self.untrusted_clients >= self.fewest_in_round:
            raise ConfigError(
                f"untrusted_clients = {self.untrusted_clients}: a round has {self.fewest_in_round} "
                f"participants; give at most {self.fewest_in_round - 1}, so that one can be trusted"
            )

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The limits of every simulated client's ledger; empty if ledgers only count."""
        given = (self.client_budget, self.person_budget)
        return tuple(each.budget() for each in given if each is not None)

    def equal_share(self, problem: Problem, num_clients: int) -> int | None:
        """Return the largest number of examples per client if clients have equal shares; else None.

        Args:
            problem: the public facts. Data that name their clients need not be divided equally.
            num_clients: the number of clients among whom they are divided.
        """
        if problem.num_clients is not None or parse_scheme(self.partition)[0] not in _EQUAL:
            return None
        if problem.people is not None:  # who may have unequal numbers of rows
            return None
        return -(-problem.num_examples // num_clients)

    @property
    def columns(self) -> Columns:
        """The meaning of a table's columns.

        A run that asks for columns alone reads no labels. They then count as numbers, because they
        are of no class.
        """
        ask = getattr(self, "ask", ())
        labelled = reads_labels(ask)
        within = self.label_range if labelled else [0.0, 1.0]
        return Columns(
            label=self.label_column if labelled else None,
            client=self.client_column,
            ignored=tuple(self.ignore_columns),
            scaled={name: (low, high) for name, (low, high) in self.scale_columns.items()},
            categories={name: tuple(values) for name, values in self.categories.items()},
            classes=tuple(self.classes) if self.classes and labelled else None,
            centres=self.centre_columns,
            filled=self.fill_columns,
            spreads={name: (typical, by) for name, (typical, by) in self.spread_columns.items()},
            person=self.person_column,
            persons_at_sites=self.persons_at_sites,
            others=self.other_columns,
            folded=tuple(self.fold_columns),
            label_range=None if within is None else LabelRange(*within),
            only=asked_columns(ask),
        )

    @property
    def round_size(self) -> int:
        """The number of clients in a round; if rounds differ in size by one, the larger number."""
        if self.answers_once:
            return cohort_sizes(self.num_clients, self.rounds)[1]
        return self.clients_per_round or self.num_clients

    @property
    def fewest_in_round(self) -> int:
        """The number of clients in a round; if rounds differ in size by one, the smaller number."""
        if self.answers_once:
            # At least 1, because another check refuses runs with fewer clients than rounds.
            return max(1, cohort_sizes(self.num_clients, self.rounds)[0])
        return self.round_size

    @property
    def committees(self) -> Committees:
        """Which of a round's clients are in which secure sum."""
        return Committees.of_size(self.round_size, self.committee)

    @property
    def fewest_in_sum(self) -> int:
        """The number of clients in a secure sum; if sizes differ by one, the smaller number."""
        return self.fewest_in_round if self.committee is None else self.committees.fewest

    @property
    def answers_once(self) -> bool:
        """Whether every client takes part in one round only."""
        participation = getattr(self, "participation", None)
        if participation == "auto":
            return isinstance(self.composition.participation, Once)
        return participation == "once"

    def given(self, *names: str) -> dict[str, Any]:
        """Return those of some settings that do not have their defaults, with their values."""
        fields = type(self).model_fields
        found = {name: getattr(self, name) for name in names}
        return {name: value for name, value in found.items() if value != fields[name].default}

    # What clients receive

    def for_client(self, client: int) -> Self:
        """Return the configuration that one client receives.

        It lacks settings that only a simulation needs, and the choices of other clients.
        """
        fields = type(self).model_fields
        settings: dict[str, Any] = {name: fields[name].default for name in self.simulation_only}
        for name in self.per_client:
            value = getattr(self, name)
            if is_own(value):
                settings[name] = ClientValue(own=of_client(value, client))
        return self.changed(**settings)

    @classmethod
    def name(cls) -> str:
        """Return the system's name."""
        return str(cls.model_fields["system"].default)

    @classmethod
    def has(cls, setting: str) -> bool:
        """Return whether the system has a setting, by its name or dotted name."""
        return setting.partition(".")[0] in cls.model_fields

    @model_validator(mode="after")
    def _check_unused(self) -> Self:
        unused = self.unused_settings()
        if self.committee is not None and not isinstance(self.composition.participation, All):
            raise ConfigError(
                f"committee = {self.committee}: every client must know who is in its committee, "
                "but not all clients take part in every round; set participation = all and leave "
                "clients_per_round out, or leave committee out"
            )
        if self.target is not None and self.calibrated in unused:
            raise ConfigError(
                f"target: there is no {self.calibrated} to solve for, because "
                f"{unused[self.calibrated]}; leave target out"
            )
        for name, value in self.given(*unused).items():
            undone = _undone(name, type(self).model_fields[name].default)
            raise ConfigError(f"{name} = {shown(value)}: {unused[name]}; {undone}")
        return self

    def identity(self, without: Collection[str] = ()) -> dict[str, Any]:
        """Return what every digest takes of a configuration: what it means, not how it is written.

        A setting that has its default is left out, so that a new setting changes no digest; for the
        same reason a preset's default never changes. So is ``clients_per_round`` if all clients
        take part, unless this setting may decide more than that: an automatic ``participation`` is
        "once" only without it, and nobody knows what a user's own system does with it. A
        ``version`` rises when the same settings give another result: the preset's, or that of a
        part that these settings use; 1 is left out.

        Args:
            without: settings that do not count, such as the seed.
        """
        settings = self.model_dump(mode="json", exclude_defaults=True, exclude={"system", *without})
        decides = getattr(self, "participation", None) == "auto" or is_address(self.name())
        if self.clients_per_round == self.num_clients and not decides:
            settings.pop("clients_per_round", None)
        version = self.version + self.composition.version - 1
        return {
            "system": self.name(),
            **({} if version == 1 else {"version": version}),
            "settings": settings,
        }

    def unused_settings(self) -> Mapping[str, str]:
        """Return the settings that are refused because they have no effect here, and why."""
        parts = self.composition
        unused = dict(parts.channel.unused)
        # Clients that collude with the server know their own summands, so their number matters.
        sums_noise = parts.channel.kind == "sum" and parts.calibration.kind is not ClippedCodes
        if not (parts.channel.hides_senders or sums_noise or parts.downlink is not None):
            unused["untrusted_clients"] = f"no line of {self.name()}'s statement depends on it here"
        if parts.channel.kind != "sum":
            unused["committee"] = "a secure sum carries the reports only with channel = sum"
        unused |= {name: why for name, why in OF_SOME.items() if name not in parts.local.uses}
        unused |= parts.unused
        return {name: reason for name, reason in unused.items() if self.has(name)}

    @property
    def composition(self) -> Composition:
        """The parts that follow from the settings, built once.

        Raises:
            ConfigError: a mechanism or another part refuses a setting.
        """
        parts: Composition | None = getattr(self, "_parts", None)
        if parts is None:
            parts = type(self).compose(self)
            object.__setattr__(self, "_parts", parts)
        return parts

    def algorithm(self, problem: Problem) -> Algorithm:
        """Return the composition, bound to the public facts of ``problem``.

        Raises:
            ConfigError: a part refuses a setting, or the number of class weights is wrong.
        """
        if self.class_weights is not None and len(self.class_weights) != problem.num_classes:
            raise ConfigError(
                f"class_weights has {len(self.class_weights)} numbers, but {self.dataset} has "
                f"{problem.num_classes} classes; give one number per class, in the order of the "
                "classes"
            )
        labelled = self.columns.label is not None
        if labelled and (problem.num_classes == 1) != (self.label_range is not None):
            raise ConfigError(
                f"label_range = {self.label_range}: the labels of {self.dataset} are "
                + (
                    "numbers; give label_range = [LOW, HIGH], as for the data"
                    if self.label_range is None
                    else f"{problem.num_classes} classes; leave it out, or give the data the same "
                    "label_range"
                )
            )
        return Algorithm(self, self.composition, problem)

    def with_participation(self, chosen: str | None) -> Self:
        """Return a copy with another participation, checked when the copy's parts are made."""
        return BaseModel.model_copy(self, update={"participation": chosen})

    def layout(self, problem: Problem) -> Layout:
        """Return the layout of the model's parameters in a broadcast's weights.

        Raises:
            ConfigError: the model is incompatible with the problem.
        """
        return self.algorithm(problem).layout

    def with_schedule(self, draws: Draws) -> Self:
        """Return a copy with the values that the server draws, and announces, before the run."""
        participation = self.composition.participation
        if not participation.told:
            return self
        scheduled = participation.scheduled(draws)
        return self.changed(**{name: getattr(scheduled, name) for name in participation.told})

    def encoder_groups(self) -> list[ClientIndices]:
        """Return the clients in groups with equal settings that answer in as many rounds.

        Noise may follow from the number of rounds in which a client answers.
        """
        own: list[Any] = [getattr(self, name) for name in self.per_client]
        participation = self.composition.participation
        if not participation.told:  # else the settings that it tells have these numbers
            clients = range(self.num_clients)
            most = [-1 if n is None else n for n in map(participation.max_rounds, clients)]
            own += [most] if len(set(most)) > 1 else []
        columns = [np.asarray(each) for each in own if isinstance(each, list)]
        first, group = groups_of_equal(columns, self.num_clients)
        if first.size == 1:
            return [range(self.num_clients)]
        order = np.argsort(group, kind="stable")
        return [*np.split(order, np.cumsum(np.bincount(group))[:-1])]

    # Claims and statements

    def claim(self) -> Claim | None:
        """Return what the source claims about this configuration, if it claims anything."""
        found = self.composition.claim
        return found() if callable(found) else found

    def epsilon_in_words(self, guarantees: Sequence[Guarantee] = ()) -> str | None:
        """Return the setting ``epsilon`` in words, with what it covers.

        Args:
            guarantees: lines of the run's statement, if there is one. If the data name the person
                of each row, these lines turn a setting for a row into a setting for a person. They
                also replace a setting that was solved for a target by what is proven.
        """
        meaning = self.composition.calibration.meaning
        value = getattr(self, "epsilon", None)
        if meaning is None or value is None:
            return None
        growth: float = getattr(self, "epsilon_growth", 1.0)
        if meaning.standing == "proven" and isinstance(value, float):
            units = ("record", "person") if meaning.unit == "record" else (meaning.unit,)
            for line in guarantees:
                if line.unit in units and line.adversary == meaning.adversary and line.epsilon:
                    meaning = replace(meaning, unit=line.unit)
                    if self.target is not None and growth == 1:  # else the line is of one round
                        value = line.epsilon
        if is_address(self.name()):  # the user's own code states the epsilon
            meaning = replace(meaning, standing="claimed")
        values = value if isinstance(value, list) else [of_client(value, 0)]
        values = [*values, *(each * growth ** (self.rounds - 1) for each in values)]
        least_to_most = " to ".join(map(number, sorted({min(values), max(values)})))
        return f"epsilon {least_to_most} {meaning}"

    @property
    def longer_begins_with_shorter(self) -> bool:
        """Whether a longer run's results begin with a shorter run's results.

        They do not if, for example, a target is solved for all rounds together, or the weights of
        the last rounds are averaged.
        """
        parts = self.composition
        uses = any(
            part.uses_rounds for part in (parts.calibration, parts.local, parts.participation)
        )
        return not uses and self.target is None and parts.share_averaged(self) == 0

    def with_budget(self, budget: float) -> Self:
        """Return a copy that spends ``budget``, to meet a target; a larger budget protects less.

        Raises:
            ConfigError: the system has no budget to solve for, or cannot have this budget.
        """
        if self.inverse:
            return self.changed(**{self.calibrated: 1 / budget})
        if not self.has(self.calibrated):
            raise ConfigError(
                f"target: {self.name()} has no epsilon to solve for; choose another system"
            )
        if isinstance(own := getattr(self, self.calibrated), list):
            raise ConfigError(
                f"target: epsilon = {own} has a budget for each client; give one budget for all "
                "clients"
            )
        drawn = dict.fromkeys(self.composition.participation.told)  # the server redraws these
        return self.changed(**{self.calibrated: budget, **drawn})


def _undone(name: str, default: Any) -> str:
    """Return how to undo a setting, in a file and on the command line.

    A setting that has no default value can only be left out.
    """
    if default is None:
        return f"leave it out (on the command line: `--set {name}=`)"
    return f"leave it out, or set it to {shown(default)}"
