"""The settings that every run has, and their checks.

The text below a setting is its meaning, as ``fedldp show`` and the comments in a file tell it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)

from fedldp.accounting.releases import ClientIndices
from fedldp.algorithms.asking import SHARES_OF_CLASSES, asked_columns, reads_labels
from fedldp.algorithms.participation import cohort_sizes
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
    of_equal_values,
)
from fedldp.algorithms.validation import describe
from fedldp.core.errors import ConfigError
from fedldp.core.frozen_config import FrozenConfig
from fedldp.core.registry import address_of, is_address
from fedldp.data import Columns, is_table
from fedldp.data.label_range import LabelRange
from fedldp.data.partition import parse_scheme
from fedldp.ledgers.budget import Budget
from fedldp.secure_sum.messages import Committees

ClassWeight = Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)]
Range = Annotated[list[float], Field(min_length=2, max_length=2)]
Finite = Annotated[float, Field(allow_inf_nan=False)]

_OF_TABLES = (
    "client_column",
    "test_file",
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

_TABLES: Mapping[str, type[BaseModel]] = {
    "target": PrivacyTarget, "client_budget": ClientBudget, "person_budget": PersonBudget,
}  # fmt: skip
"""The settings that are tables."""


def _loss_named(loss: Any) -> Any:
    """Return the address of a function given in Python; return other values unchanged."""
    if not callable(loss):
        return loss
    address = address_of(loss)
    if address is None:
        raise ConfigError(
            f"loss = {getattr(loss, '__qualname__', type(loss).__name__)}: a record has "
            "no name for this function; define it in a module or in the script, or give "
            '"module:function"'
        )
    return address


class RunSettings(FrozenConfig):
    """The settings that every run has, checked as far as possible without its parts."""

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
    """a second .csv or .parquet file with the test examples; if not set, a fifth of the rows is
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
    """which parameters of the model are trained: all, head (the last layer), requires_grad (those
    of a torch module that require a gradient), or patterns of names, separated by commas; all other
    parameters are frozen and public"""
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
    label_typical: Finite | None = None
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
    loss: Annotated[str, BeforeValidator(_loss_named)] = "cross_entropy"
    """the loss that clients minimise: cross_entropy, or "module:function" for your own function,
    which returns each example's loss from logits and labels"""

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_in_one_line(cls, settings: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return validate(cls._with_calibrated(settings))
        except ValidationError as error:
            nested = {name: each.model_fields for name, each in _TABLES.items()}
            raise ConfigError(describe(error, cls.name(), cls.model_fields, nested)) from None

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
        if own == ["person_column"] and not is_table(self.dataset):
            raise ConfigError(
                "person_column: this applies only to .csv and .parquet files, but dataset = "
                f"{self.dataset}; leave it out (a .npz file names the person of each row in its "
                "array groups, and Python code in groups=)"
            )
        if own and not is_table(self.dataset):
            raise ConfigError(
                f"{own[0]}: this applies only to .csv and .parquet files, but dataset = "
                f"{self.dataset}; leave it out, or set dataset to such a file"
            )
        if self.test_file is not None and not is_table(self.test_file):
            raise ConfigError(f"test_file = {self.test_file}: give a .csv or .parquet file")
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
        if given:
            raise ConfigError(
                f"{given[0]} and label_range: the labels are numbers, and {given[0]} is about "
                "classes; leave it out"
            )
        scheme = parse_scheme(self.partition)[0]
        if scheme in _BY_CLASS:
            raise ConfigError(
                f"partition = {self.partition} and label_range: it divides the examples by their "
                "classes; choose iid, power-law:EXPONENT or drawn:N"
            )

    def _check_clients(self) -> None:
        parse_scheme(self.partition)
        if self.clients_per_round is not None and self.clients_per_round > self.num_clients:
            raise ConfigError(
                f"clients_per_round = {self.clients_per_round}: there are only num_clients = "
                f"{self.num_clients}; give at most that many"
            )
        if self.committee is not None and self.committee > self.num_clients:
            raise ConfigError(
                f"committee = {self.committee}: there are only num_clients = {self.num_clients}; "
                "give at most that many"
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
        if (
            problem.people is not None
        ):  # people are divided equally, but may have unequal numbers of rows
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
        return getattr(self, "participation", None) == "once"

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

    def encoder_groups(self) -> list[ClientIndices]:
        """Return the clients in groups whose settings, and so their encoders, are equal.

        Clients ascend within a group, and groups ascend by their first client.
        """
        return of_equal_values([getattr(self, name) for name in self.per_client], self.num_clients)

    @classmethod
    def name(cls) -> str:
        """Return the system's name."""
        return str(cls.model_fields["system"].default)

    @classmethod
    def has(cls, setting: str) -> bool:
        """Return whether the system has a setting, by its name or dotted name."""
        return setting.partition(".")[0] in cls.model_fields
