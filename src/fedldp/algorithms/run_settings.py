"""The settings that every run has, and their checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)

from fedldp.accounting.releases import ClientIndices
from fedldp.algorithms.participation import cohort_sizes
from fedldp.algorithms.per_client import ClientValue, is_own, of_client, of_equal_values
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.server_update import (
    Optimizer,
)
from fedldp.algorithms.settings import (
    LARGEST_BATCH,
    ClientBudget,
    Count,
    Delta,
    LearningRate,
    ModelName,
    Momentum,
    NormBound,
    PersonBudget,
    PrivacyTarget,
    Trainable,
    WeightsFile,
    with_calibrated,
)
from fedldp.algorithms.validation import describe
from fedldp.core.errors import ConfigError
from fedldp.core.frozen_config import LEFT_OUT, FrozenConfig
from fedldp.core.registry import address_of, is_address
from fedldp.data import Columns, is_table
from fedldp.data.partition import parse_scheme
from fedldp.ledgers.budget import Budget
from fedldp.secure_sum.committees import Committees

if TYPE_CHECKING:
    pass

ClassWeight = Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)]
Range = Annotated[list[float], Field(min_length=2, max_length=2)]

_OF_TABLES = (
    "client_column",
    "test_file",
    "ignore_columns",
    "scale_columns",
    "categories",
    "classes",
    "centre_columns",
    "fill_columns",
    "person_column",
)
_OF_PARTITIONS = ("partition", "num_examples")
_EQUAL = ("iid", "drawn")
"""Partitions that give all clients equally many examples, up to one."""
LabelSmoothing = Annotated[float, Field(ge=0, lt=1)]
WeightDecay = Annotated[float, Field(ge=0, le=1e3)]
RateSchedule = Literal["constant", "linear", "cosine"]
ServerRate = Annotated[float, Field(ge=1e-6, le=1e3, allow_inf_nan=False)]


def _loss_named(loss: Any) -> Any:
    """Return the address of a function that a Python program gives; whatever else, as it is."""
    if not callable(loss):
        return loss
    address = address_of(loss)
    if address is None:
        raise ConfigError(
            f"loss = {getattr(loss, '__qualname__', type(loss).__name__)}: no record could name "
            'it; give a function of a module or of the script, or "module:function"'
        )
    return address


class RunSettings(FrozenConfig):
    """The settings that every run has, checked as far as possible without its parts."""

    model_config = ConfigDict(protected_namespaces=(), strict=True)

    needs_extra: ClassVar[str | None] = None
    """The extra of fedldp that its clients need to train; see ``core.registry.EXTRAS``."""

    simulation_only: ClassVar[frozenset[str]] = frozenset(
        {"seed", "client_budget", "person_budget", "target", "client_column", "test_file"}
    )
    """Settings that no client is told."""

    calibrated: ClassVar[str] = "epsilon"
    """The setting that a target is solved for, which may then be left out."""

    per_client: ClassVar[tuple[str, ...]] = ()
    """Settings that may be a list with one value for each client; a client is told only its own."""

    semantics: ClassVar[int] = 1
    """Rises whenever the same settings give another result, which voids earlier measurements."""

    inverse: ClassVar[bool] = False
    """Whether a target is solved for a noise, which is lower for a higher budget."""

    system: str = Field(description="the system's name")
    dataset: str = Field(
        description="a name from `fedldp list datasets`, or a .npz, .csv or .parquet file"
    )
    label_column: str = Field("label", description="the label's column in a .csv or .parquet file")
    client_column: str | None = Field(
        None,
        description="the column that says whose a row is: each value in it is a client, and "
        "num_clients follows from it",
    )
    test_file: str | None = Field(
        None,
        description="a second .csv or .parquet file, to test on; else a fifth of the rows is",
    )
    ignore_columns: list[str] = Field([], description="columns that are left out")
    scale_columns: dict[str, Range] = Field(
        {},
        description="public range [low, high] of a column, which becomes 0 to 1: never measured on "
        "the data",
    )
    categories: dict[str, list[str]] = Field(
        {}, description="public list of a column's texts; each becomes a feature that is 0 or 1"
    )
    classes: list[str] | None = Field(
        None,
        description="public list of the labels' texts; where it is not set they are integers from "
        "0, or numbered in sorted order",
    )
    standardise: bool = Field(
        False, description="shift and scale images by the data set's published constants"
    )
    partition: str = Field(
        "iid", description="iid, dirichlet:ALPHA, shards:N, power-law:EXPONENT or drawn:N of all"
    )
    num_examples: Count | None = Field(
        None, description="training examples to use, drawn at random; all where it is not set"
    )

    target: PrivacyTarget | None = Field(
        None,
        description="solve for epsilon, or the noise: target.unit, .epsilon, .delta, .adversary",
    )
    num_clients: Count = Field(
        le=1_000_000,
        description="clients that the training set is divided among; of data that say whose they "
        "are, their clients",
    )
    clients_per_round: Count | None = Field(
        None, description="clients drawn for each round; all of them where it is not set"
    )
    rounds: Count = Field(le=100_000, description="communication rounds")
    model: ModelName = Field(description='a name from `fedldp list models`, or "module:name"')
    local_epochs: Count = Field(
        1, le=100_000, description="passes over a client's examples in one round"
    )
    batch_size: Count = Field(10, le=LARGEST_BATCH, description="examples in one SGD step")
    learning_rate: LearningRate = Field(description="SGD step size")
    delta: Delta = Field(
        1e-5, description="delta of the approximate guarantees, and of the mechanism"
    )
    untrusted_clients: int = Field(
        0, ge=0, description="participants of a round that may collude with the server or drop out"
    )
    client_budget: ClientBudget | None = Field(
        None,
        description="limit of every client's ledger, which refuses beyond it: client_budget.limit, "
        ".kind (pure, zcdp or gdp); ledgers only count where it is not set",
    )
    seed: int = Field(0, ge=0, lt=2**64, description="the simulation's seed")
    centre_columns: Annotated[dict[str, float], LEFT_OUT] = Field(
        {},
        description="public centre of a column, in its own unit, or of a category, such as "
        '"sex=f", as a share: it becomes 0; never measured on the data',
    )
    fill_columns: Annotated[dict[str, float | str], LEFT_OUT] = Field(
        {},
        description="public value of a column that stands where a value is missing: a number in "
        'its own unit, and a feature "column=missing" says where; or one of its categories, such '
        "as unknown; never measured on the data",
    )
    person_column: Annotated[str | None, LEFT_OUT] = Field(
        None,
        description="the column that says which person a row is of: rows with the same value are "
        "one person's; every row is a person of its own where it is not set",
    )
    rows_per_person: Annotated[Count | None, LEFT_OUT] = Field(
        None,
        description="rows of one person at a client that are used, at most: of a person with more, "
        "so many are drawn once",
    )
    persons_at_sites: Annotated[Count, LEFT_OUT] = Field(
        1, description="clients that one person may have rows at, at most"
    )
    server_optimizer: Annotated[Optimizer, LEFT_OUT] = Field(
        "none", description="what the server does with the mean: takes it, momentum, or Adam"
    )
    server_rate: Annotated[ServerRate, LEFT_OUT] = Field(
        1.0, description="the server's learning rate: factor on the step from the last weights"
    )
    server_momentum: Annotated[Momentum, LEFT_OUT] = Field(
        0.9, description="what is left of the server's momentum after a round; of Adam its beta_1"
    )
    person_budget: Annotated[PersonBudget | None, LEFT_OUT] = Field(
        None,
        description="limit of every client's ledger for each of its people, or rows, beside "
        "client_budget or in its place: person_budget.limit, .kind, .unit (person or record)",
    )
    average: Annotated[float, Field(ge=0, le=1), LEFT_OUT] = Field(
        0.0,
        description="share of the last rounds whose weights are averaged for the test and the "
        "model; 0: the last weights alone",
    )
    class_weights: Annotated[list[ClassWeight] | None, LEFT_OUT] = Field(
        None,
        min_length=2,
        description="factor on the loss of an example of each class, in the clients' training; "
        "from public shares of the classes only, never counted in private rows",
    )
    committee: Annotated[Annotated[int, Field(ge=2)] | None, LEFT_OUT] = Field(
        None,
        description="clients of one secure sum, at least: all clients are dealt into committees of "
        "that size or little more, each with a sum of its own, and the server adds these; one sum "
        "of all where it is not set",
    )
    trainable: Annotated[Trainable, LEFT_OUT] = Field(
        "all",
        description="which parameters of the model are trained: all, head (the last layer), "
        "requires_grad (those of a torch module that require a gradient), or patterns of names "
        "with commas between them; the others are frozen, and public",
    )
    initial: Annotated[WeightsFile | None, LEFT_OUT] = Field(
        None,
        description="a public .safetensors file of weights by name that the model begins with; it "
        "has all that is frozen, and what else it lacks is drawn",
    )
    rate_schedule: Annotated[RateSchedule, LEFT_OUT] = Field(
        "constant",
        description="how learning_rate falls over the rounds: not, to 1/rounds of it (linear), or "
        "to nearly 0 along half a cosine",
    )
    weight_decay: Annotated[WeightDecay, LEFT_OUT] = Field(
        0.0, description="share of each weight that is added to its gradient, in clients' training"
    )
    gradient_clip: Annotated[NormBound | None, LEFT_OUT] = Field(
        None,
        description="largest L2 norm of a batch's gradient, in clients' training; longer ones are "
        "scaled down to it, which guarantees nothing by itself",
    )
    loss: Annotated[str, BeforeValidator(_loss_named), LEFT_OUT] = Field(
        "cross_entropy",
        description='what clients minimise: cross_entropy, or "module:function", which gives the '
        "loss of each example from logits and labels",
    )
    label_smoothing: Annotated[LabelSmoothing, LEFT_OUT] = Field(
        0.0, description="share of each label that all classes have alike, in clients' training"
    )
    early_stopping: Annotated[Count | None, LEFT_OUT] = Field(
        None,
        description="rounds without a lower loss on the public test set after which a simulated "
        "run ends",
    )

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_in_one_line(cls, settings: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return validate(with_calibrated(settings, cls.calibrated, cls.model_fields))
        except ValidationError as error:
            nested = {
                "target": PrivacyTarget.model_fields,
                "client_budget": ClientBudget.model_fields,
                "person_budget": PersonBudget.model_fields,
            }
            raise ConfigError(describe(error, cls.name(), cls.model_fields, nested)) from None

    @model_validator(mode="after")
    def _check_data(self) -> Self:
        fields = type(self).model_fields

        def given(names: tuple[str, ...]) -> list[str]:
            return [
                name
                for name in names
                if getattr(self, name) != fields[name].get_default(call_default_factory=True)
            ]

        own = given(_OF_TABLES)
        if own == ["person_column"] and not is_table(self.dataset):
            raise ConfigError(
                f"person_column: it is for a .csv or .parquet file, and dataset = {self.dataset}; "
                "leave it out: a .npz file says whose its rows are by groups, and Python by groups="
            )
        if own and not is_table(self.dataset):
            raise ConfigError(
                f"{own[0]}: it is for a .csv or .parquet file, and dataset = {self.dataset}; "
                "leave it out, or set dataset to such a file"
            )
        if self.test_file is not None and not is_table(self.test_file):
            raise ConfigError(f"test_file = {self.test_file}: give a .csv or .parquet file")
        divided = given(_OF_PARTITIONS)
        if self.client_column is not None and divided:
            raise ConfigError(
                f"{divided[0]} = {getattr(self, divided[0])}: client_column = "
                f"{self.client_column} names the client of each row; leave it out"
            )
        self.columns  # noqa: B018 (it refuses columns that contradict themselves)
        return self

    @model_validator(mode="after")
    def _check_training(self) -> Self:
        if self.loss != "cross_entropy" and not is_address(self.loss):
            raise ConfigError(f'loss = {self.loss}: choose cross_entropy or "module:function"')
        if self.loss != "cross_entropy" and self.label_smoothing:
            raise ConfigError(
                f"label_smoothing = {self.label_smoothing:g}: loss = {self.loss} says itself what "
                "it does with labels; leave label_smoothing out"
            )
        return self

    @model_validator(mode="after")
    def _check_server(self) -> Self:
        if self.server_optimizer == "adam" and self.server_rate >= 1:
            raise ConfigError(
                f"server_rate = {self.server_rate:g}: with server_optimizer = adam every weight "
                "moves by about that much a round; give less than 1, such as 0.01"
            )
        return self

    @model_validator(mode="after")
    def _check_own(self) -> Self:
        """Check one client's own value as a value for all clients is checked."""
        own = {n: v.own for n in self.per_client if isinstance(v := getattr(self, n), ClientValue)}
        if own:
            self.changed(**own)
        return self

    @model_validator(mode="after")
    def _check_clients(self) -> Self:
        parse_scheme(self.partition)
        if self.clients_per_round is not None and self.clients_per_round > self.num_clients:
            raise ConfigError(
                f"clients_per_round = {self.clients_per_round}: there are only num_clients = "
                f"{self.num_clients}; give at most that"
            )
        self._check_committees()
        if self.untrusted_clients >= self.fewest_in_round:
            raise ConfigError(
                f"untrusted_clients = {self.untrusted_clients}: a round has {self.fewest_in_round} "
                f"participants; give at most {self.fewest_in_round - 1}, so that one can be trusted"
            )
        return self

    def _check_committees(self) -> None:
        if self.committee is None:
            return
        if self.committee > self.num_clients:
            raise ConfigError(
                f"committee = {self.committee}: there are only num_clients = {self.num_clients}; "
                "give at most that"
            )
        if self.untrusted_clients > self.committees.fewest - 2:
            raise ConfigError(
                f"untrusted_clients = {self.untrusted_clients}: they may all be in one committee, "
                f"and the smallest has {self.committees.fewest} clients, of which 2 must be "
                f"trusted; give at most {self.committees.fewest - 2}, or a larger committee"
            )

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The limits of every simulated client's ledger; empty if ledgers only count."""
        given = (self.client_budget, self.person_budget)
        return tuple(each.budget() for each in given if each is not None)

    def equal_share(self, problem: Problem, num_clients: int) -> int | None:
        """Return the largest number of a client's examples if all have equally many; else None.

        Args:
            problem: the public facts. Data that name their clients need not be divided equally.
            num_clients: the number of clients among whom they are divided.
        """
        if problem.num_clients is not None or parse_scheme(self.partition)[0] not in _EQUAL:
            return None
        if (
            problem.people is not None
        ):  # people are divided equally, and have different numbers of rows
            return None
        return -(-problem.num_examples // num_clients)

    @property
    def columns(self) -> Columns:
        """The meaning of a table's columns."""
        return Columns(
            label=self.label_column,
            client=self.client_column,
            ignored=tuple(self.ignore_columns),
            scaled={name: (low, high) for name, (low, high) in self.scale_columns.items()},
            categories={name: tuple(values) for name, values in self.categories.items()},
            classes=None if self.classes is None else tuple(self.classes),
            centres=self.centre_columns,
            filled=self.fill_columns,
            person=self.person_column,
            persons_at_sites=self.persons_at_sites,
        )

    @property
    def round_size(self) -> int:
        """The number of clients in a round; in the larger ones, if rounds differ by one."""
        if self.answers_once:
            return cohort_sizes(self.num_clients, self.rounds)[1]
        return self.clients_per_round or self.num_clients

    @property
    def fewest_in_round(self) -> int:
        """The number of clients in a round; in the smaller ones, if rounds differ by one."""
        if self.answers_once:  # fewer clients than rounds are refused elsewhere
            return max(1, cohort_sizes(self.num_clients, self.rounds)[0])
        return self.round_size

    @property
    def committees(self) -> Committees:
        """Which of a round's clients are in which secure sum."""
        return Committees.of_size(self.round_size, self.committee)

    @property
    def fewest_in_sum(self) -> int:
        """The number of clients in one secure sum; in the smaller ones, if sums differ by one."""
        return self.fewest_in_round if self.committee is None else self.committees.fewest

    @property
    def answers_once(self) -> bool:
        """Whether every client takes part in one round only."""
        return getattr(self, "participation", None) == "once"

    # Who is told what

    def for_client(self, client: int) -> Self:
        """Return the configuration as one client is told it.

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
        """Return the clients in groups whose members have equal encoders.

        Clients ascend within a group, and groups ascend by their first client.
        """
        return of_equal_values([getattr(self, name) for name in self.per_client], self.num_clients)

    @classmethod
    def name(cls) -> str:
        """Return the system's name."""
        return str(cls.model_fields["system"].default)
